"""Networks behind a mask: wrong edges beside model "mlp" and beside oracles that have all rows."""

from time import perf_counter
from typing import Any

import numpy as np

import dagora
from benchmarks.mlp import mean
from benchmarks.tables import over_seeds, publish

N, D, K = 512, 10, 8
RUNS: dict[str, dict[str, Any]] = {
    "masked": {"model": "masked"},
    "masked, pooled": {"model": "masked", "method": "pooled"},
    "MCSL (Adam), pooled": {"model": "masked", "method": "pooled", "preset": "paper"},
    "mlp": {"model": "mlp"},
    "additive": {"model": "additive", "method": "covariance"},
}


def one(seed: int) -> dict[str, tuple[float, float, float]]:
    """SHD, rounds and seconds of each."""
    truth, sites = dagora.simulate(d=D, edges=D, n=N, sites=K, seed=seed, model="mlp")
    found = {}
    for name, options in RUNS.items():
        start = perf_counter()
        result = dagora.learn(sites, **options)
        found[name] = float(dagora.evaluate(truth, result)["shd"]), float(result.rounds), perf_counter() - start
    return found


def main(runs: int, jobs: int) -> None:
    found = over_seeds(one, runs, jobs)
    table = []
    for name in RUNS:
        wrong, rounds, seconds = (np.array([run[name][k] for run in found]) for k in range(3))
        ahead = wrong - np.array([run["masked"][0] for run in found])
        table.append([name, mean(wrong), mean(-ahead), f"{rounds.mean():.0f}", f"{seconds.mean():.1f}"])
    publish(
        "masked",
        f"Networks behind a mask: MLP data, ER graphs with d edges, d = {D}, n = {N}, K = {K}, {runs} seeds",
        ["method", "SHD", "SHD of masked less this", "rounds", "seconds"],
        table,
        "Defaults of `dagora.learn`; pooled methods have all rows in one place.  Constants of masked were chosen on "
        "seeds 1000 to 1011 and 2000 to 2011.",
    )
