"""Standardised data of unequal variances (ER1, d = 20, n = 2,000, K = 8): who finds the class, whatever the units."""

from typing import Any

import numpy as np

import dagora
from benchmarks.peers import ask
from benchmarks.tables import over_seeds, publish

D, N, K = 20, 2000, 8
SETTINGS: dict[str, dict[str, Any]] = {
    'ADMM, score="likelihood"': {"score": "likelihood"},
    "covariance, boss": {"method": "covariance"},
    "covariance, ges": {"method": "covariance", "learner": "ges"},
    "ADMM, standardize": {"standardize": True},
    "ADMM": {},
}
PEERS = ("causal-learn GES", "ges")


def one(seed: int) -> dict[str, tuple[float, float, int]]:
    """CPDAG-SHD, seconds, and whether columns times 1000 and 0.001 gave the same class."""
    truth, (rows,) = dagora.simulate(d=D, edges=D, n=N, sites=1, seed=seed, noise="gaussian-unequal")
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    units = np.random.default_rng(seed).choice([1000.0, 1.0, 0.001], size=D)
    found = {}
    for name, options in SETTINGS.items():
        result = dagora.learn(np.array_split(rows, K), **options)
        other = dagora.learn(np.array_split(rows * units, K), **options)
        same = int((result.cpdag == other.cpdag).all())
        found[name] = (float(dagora.evaluate(truth, result.cpdag)["cpdag_shd"]), result.seconds, same)
    for peer in PEERS:
        found[f"{peer}, pooled rows"] = (float(dagora.evaluate(truth, ask(peer, rows))["cpdag_shd"]), np.nan, 1)
    return found


def main(runs: int, jobs: int) -> None:
    runs = min(runs, 20)
    seeds = over_seeds(one, runs, jobs)
    table = []
    for name in seeds[0]:
        distance, seconds, same = (np.array([found[name][k] for found in seeds]) for k in range(3))
        error = distance.std(ddof=1) / np.sqrt(runs) if runs > 1 else 0.0
        ours = name in SETTINGS
        table.append(
            [
                name,
                f"{distance.mean():.2f} ± {error:.2f}",
                f"{np.median(seconds):.2f}" if ours else "",
                f"{same.sum():.0f} of {runs}" if ours else "",
            ]
        )
    publish(
        "scale_free",
        f"Standardised data of unequal variances: ER graphs with d edges, d = {D}, n = {N}, K = {K}, {runs} seeds",
        ["setting", "CPDAG-SHD ± standard error", "median seconds", "same class with columns times 1000 and 0.001"],
        table,
        "Peers: causal-learn 0.1.4 and ges 1.1 with their own defaults, on the same rows in one place.",
    )
