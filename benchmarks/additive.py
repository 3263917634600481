"""Additive effects from two totals: wrong edges by number of sites, score and kind of data, and the time taken."""

from time import perf_counter
from typing import Any

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish

N = 512
RUNS: dict[str, dict[str, Any]] = {
    "additive": {"model": "additive", "method": "covariance"},
    "score likelihood": {"model": "additive", "method": "covariance", "score": "likelihood"},
    "score least-squares": {"model": "additive", "method": "covariance", "score": "least-squares"},
    "linear (ADMM)": {},
}
ADDITIVE, BOTH, ALL = ("additive",), ("additive", "linear (ADMM)"), tuple(RUNS)
CELLS = (
    *(("mlp", d, K, ALL if (d <= 20 and K == 4) else ADDITIVE) for d in (10, 20, 50) for K in (1, 4, 16)),
    *((model, d, 4, BOTH) for model in ("index", "gp", "additive-gp") for d in (10, 20)),
)


def one(seed: int, model: str, d: int, K: int, names: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """SHD, and seconds with all that `learn` does, checks included."""
    truth, sites = dagora.simulate(d=d, edges=d, n=N, sites=K, seed=seed, model=model)
    found = {}
    for name in names:
        start = perf_counter()
        result = dagora.learn(sites, **RUNS[name])
        found[name] = (float(dagora.evaluate(truth, result)["shd"]), perf_counter() - start)
    return found


def main(runs: int, jobs: int) -> None:
    table = []
    for model, d, K, names in CELLS:
        found = over_seeds(one, runs, 1, model, d, K, names)  # timed: one process
        for name in names:
            shd, seconds = (np.array([run[name][k] for run in found]) for k in range(2))
            error = shd.std(ddof=1) / np.sqrt(runs) if runs > 1 else 0.0
            times = f"{np.median(seconds):.2f} / {seconds.max():.2f}"
            table.append([model, d, K, name, f"{shd.mean():.2f} ± {error:.2f}", times])
    publish(
        "additive",
        f"Additive effects from two totals: ER graphs with d edges, equal noise variances, n = {N}, {runs} seeds",
        ["data", "d", "K", "method", "SHD ± standard error", "seconds, median / most"],
        table,
        "additive: model='additive', method='covariance' (score 'similar'); then its other scores; linear (ADMM): the "
        "defaults of `dagora.learn`, which fit lines.  Constants were chosen on MLP data of seeds from 1000 on.",
    )
