"""Learners of weights by continuous optimisation, side by side on the same rows: ours, DAGMA and gcastle.

A peer that is not installed (peer_process.py) is left out.  One run may take LIMIT seconds; a peer that takes longer is
asked neither for more data sets nor for larger d.
"""

import time
import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import dagora
from benchmarks import tables
from benchmarks.peer_process import ask, version
from benchmarks.tables import publish
from dagora.errors import ResultWarning

SEEDS = {20: 5, 50: 3, 100: 3, 200: 2}  # by d: how many
N, K, LIMIT = 1000, 10, 240.0
DEGREES = {"ER1": 1, "ER2": 2}  # edges a variable
LINEAR = ("DAGMA", "gcastle NOTEARS", "gcastle GOLEM")
CURVED, CURVED_D = "gcastle NOTEARS-MLP", (10,)
OURS: dict[str, dict[str, Any]] = {
    "ADMM": {},
    "covariance, notears": {"method": "covariance", "learner": "notears"},
    "pooled": {"method": "pooled"},
}


def trial(seed: int, d: int, degree: int, model: str, ours: dict[str, dict[str, Any]], peers: tuple[str, ...]) -> Any:
    """Seconds and SHD of every method on one data set; None for a peer that took too long."""
    truth, sites = dagora.simulate(d=d, edges=degree * d, n=N, sites=K, seed=seed, model=model)
    found: dict[str, tuple[float, float] | None] = {}
    with threadpool_limits(1):
        for name, options in ours.items():
            start = time.perf_counter()
            result = dagora.learn(sites, **options)
            found[name] = (time.perf_counter() - start, dagora.evaluate(truth, result)["shd"])
    for peer in peers:
        answer = ask(peer, np.concatenate(sites), LIMIT)
        found[peer] = answer and (answer[0], dagora.evaluate(truth, (answer[1] != 0).astype(np.int64))["shd"])
    return found


def in_turn(
    count: int, d: int, degree: int, model: str, ours: dict[str, dict[str, Any]], peers: tuple[str, ...]
) -> list[Any]:
    """One trial a seed, one after the other; a peer that took too long is not asked again."""
    trials: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        for seed in range(tables.first_seed, tables.first_seed + count):
            trials.append(trial(seed, d, degree, model, ours, peers))
            peers = tuple(peer for peer in peers if trials[-1][peer] is not None)
    return trials


def rows_of(label: str, d: int, trials: list[Any]) -> list[list[object]]:
    """A row a method; the ratio is of its time to that of the first, our ADMM."""
    first = next(iter(trials[0]))
    reference = float(np.median([trial[first][0] for trial in trials]))
    table: list[list[object]] = []
    for name in trials[0]:
        done = [trial[name] for trial in trials if trial.get(name) is not None]
        if len(done) < len(trials):
            table.append([label, d, name, len(trials), f"over {LIMIT:.0f} s, or failed", "", ""])
            continue
        seconds, shd = float(np.median([one[0] for one in done])), float(np.mean([one[1] for one in done]))
        table.append([label, d, name, len(done), f"{seconds:.3f}", f"{seconds / reference:.1f}", f"{shd:.1f}"])
    return table


def main(runs: int, jobs: int) -> None:
    versions = {peer: version(peer) for peer in (*LINEAR, CURVED)}
    notes = "; ".join(f"{peer}: " + (f"{v}" if v else "not installed, left out") for peer, v in versions.items())
    notes += f".  Defaults of each, one thread, imports not timed; n = {N}, K = {K}.  A peer's run is stopped after "
    notes += f"{LIMIT:.0f} s, its start included, and the peer is not asked for larger d."
    header = ["graph", "d", "method", "data sets", "median s", "times ours (first row)", "mean SHD"]
    table: list[list[object]] = []
    for label, degree in DEGREES.items():
        peers = tuple(peer for peer in LINEAR if versions[peer])
        for d, seeds in SEEDS.items():
            trials = in_turn(min(runs, seeds), d, degree, "linear", OURS, peers)
            table += rows_of(label, d, trials)
            peers = tuple(peer for peer in peers if trials[-1].get(peer) is not None)
    publish("peers_continuous", "Continuous optimisation: ours and other packages", header, table, notes)
    table, peers = [], (CURVED,) if versions[CURVED] else ()
    for d in CURVED_D:
        trials = in_turn(min(runs, 1), d, 1, "mlp", {"ADMM, mlp": {"model": "mlp"}}, peers)
        table += rows_of("ER1", d, trials)
    publish(
        "peers_continuous-mlp",
        "Neural networks: ours and gcastle's",
        header,
        table,
        notes + "  One data set a row: an illustration, not a comparison of accuracy.",
        "peers_continuous",
    )
