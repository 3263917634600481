"""Learners on totals beside peers on the pooled rows: ER2, unequal variances, random units, n = 2,000, K = 10.

Peers get the rows in one place and standardised; Dagora gets ten sites in the units that they came in.
"""

import time
from typing import Any

import numpy as np

import dagora
from benchmarks import peer_process
from benchmarks.peers import ask, from_both_ways
from benchmarks.tables import over_seeds, publish
from dagora.arrays import FloatArray, IntArray

D, N, K = (20, 50, 100), 2000, 10
OURS: dict[str, dict[str, Any]] = {
    "boss": {"learner": "boss"},
    "boss, penalty 1": {"learner": "boss", "penalty": 1.0},
    "ges": {"learner": "ges"},
    "ges, penalty 2": {"learner": "ges", "penalty": 2.0},
    "pc": {"learner": "pc"},
    "notears": {"learner": "notears"},
}
# With the largest d that takes minutes, not hours.
PEERS = {"causal-learn BOSS": 100, "causal-learn GRaSP": 50, "causal-learn GES": 20, "ges": 20, "XGES": 100}
LIMIT = 600.0  # seconds for XGES

Scores = tuple[float, float, float]  # CPDAG-SHD, skeleton F1, seconds


def random_units(rows: FloatArray, seed: int) -> FloatArray:
    """Each column times a factor between 0.001 and 1,000."""
    units: FloatArray = 10.0 ** np.random.default_rng(seed).uniform(-3.0, 3.0, size=rows.shape[1])
    return rows * units


def one(seed: int, d: int) -> dict[str, Scores]:
    """Everyone's scores on one data set."""
    truth, (rows,) = dagora.simulate(d=d, edges=2 * d, n=N, sites=1, seed=seed, noise="gaussian-unequal")
    return compare(truth.adjacency, rows, random_units(rows, seed), [peer for peer, most in PEERS.items() if d <= most])


def compare(truth: IntArray, rows: FloatArray, in_units: FloatArray, peers: list[str]) -> dict[str, Scores]:
    """Our learners on the totals of K sites, and peers on the standardised rows."""
    found = {}
    for name, options in OURS.items():
        result = dagora.learn(np.array_split(in_units, K), method="covariance", **options)
        found[f"dagora {name}"] = (*_scores(truth, result.cpdag, result.adjacency), result.seconds)
    standardised = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    for peer in peers:
        if (answer := asked(peer, standardised)) is not None:
            seconds, cpdag = answer
            found[peer] = (*_scores(truth, cpdag, cpdag), seconds)
    return found


def asked(peer: str, rows: FloatArray) -> tuple[float, IntArray] | None:
    """Seconds and class of a peer; None where it is not installed, or took too long."""
    if peer == "XGES":
        if peer_process.version(peer) is None or (answer := peer_process.ask(peer, rows, LIMIT)) is None:
            return None
        return answer[0], from_both_ways(answer[1])
    start = time.perf_counter()
    cpdag = ask(peer, rows)
    return time.perf_counter() - start, cpdag


def _scores(truth: IntArray, cpdag: IntArray, dag: IntArray) -> tuple[float, float]:
    """The class's distance to the true one (of the DAG, where PC's class contradicts itself), and skeleton F1."""
    scores = dagora.evaluate(truth, cpdag)
    distance = scores["cpdag_shd"]
    if np.isnan(distance):
        distance = dagora.evaluate(truth, dag)["cpdag_shd"]
    return float(distance), float(scores["skeleton_f1"])


def rows_of(label: object, found: list[dict[str, Scores]]) -> list[list[object]]:
    """A row of the table for everyone."""
    table: list[list[object]] = []
    for name in (name for name in found[0] if all(name in run for run in found)):
        distance, f1, seconds = (np.array([run[name][k] for run in found]) for k in range(3))
        error = distance.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
        spread = f"{distance.mean():.1f} ± {error:.1f}"
        table.append([label, name, spread, f"{f1.mean():.3f}", f"{np.median(seconds):.2f}"])
    return table


HEADER = ["d", "learner", "CPDAG-SHD ± standard error", "skeleton F1", "median seconds"]


def main(runs: int, jobs: int) -> None:
    runs = min(runs, 10)
    publish(
        "score_search",
        f"Learners on totals and peers on pooled rows: ER graphs with 2 d edges, unequal variances, random units, "
        f"n = {N}, K = {K}, {runs} seeds",
        HEADER,
        [row for d in D for row in rows_of(d, over_seeds(one, runs, 1, d))],
        "Peers: causal-learn 0.1.4, ges 1.1 and XGES (where installed: peer_process.py) with their own defaults, on "
        "standardised rows in one place.",
    )
