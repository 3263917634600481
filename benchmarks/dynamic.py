"""Time series: federated against pooled with the same hyperparameters, and what they cost beside the static model."""

import time
from typing import Any

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish

D = (10, 20)
P = (1, 2)
K = (2, 10, 20)
SERIES, LENGTH = 20, 50
SITES = 10  # where only one number is tried
METHODS = {"pooled": "pooled", "admm": "admm", "one total": "covariance", "voting": "voting", "average": "average"}
TIMED = ((10, 1), (10, 2), (20, 1), (20, 2))
LONG = 20000


def scores(seed: int, d: int, p: int, k: int) -> list[list[float]]:
    truth, sites = dagora.simulate_series(d, d, SERIES, LENGTH, k, lags=p, seed=seed)
    rows = []
    for method in METHODS.values():
        found = dagora.evaluate(truth, dagora.learn(sites, model="dynamic", lags=p, method=method))
        rows.append([found["f1"], found["lag_f1"]])
    return rows


def orders(seed: int, d: int, p: int) -> bool:
    _, sites = dagora.simulate_series(d, d, SERIES, LENGTH, SITES, lags=p, seed=seed)
    return dagora.select_lags(sites, 4).lags == p


def seconds(sites: list[Any], repeats: int = 5, **options: Any) -> float:
    """Median over repeats of a whole call: reading included."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        dagora.learn(sites, **options)
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def ratio(seed: int, d: int, p: int) -> list[float]:
    """Seconds of dynamic ADMM and of static ADMM with as many parameters: d^2 (p + 1) = m (m - 1), about."""
    m = round(d * np.sqrt(p + 1.0))
    _, series = dagora.simulate_series(d, d, SERIES, LENGTH, SITES, lags=p, seed=seed)
    _, rows = dagora.simulate(m, m, SERIES * (LENGTH - p), SITES, seed=seed)
    return [seconds(series, model="dynamic", lags=p), seconds(rows)]


def main(runs: int, jobs: int) -> None:
    table = []
    for d in D:
        for p in P:
            for k in K:
                means = np.array(over_seeds(scores, runs, jobs, d, p, k)).mean(axis=0)
                table.append([d, p, k, *(f"{within:.3f} / {past:.3f}" for within, past in means)])
    costs = [[d, p, *np.array(over_seeds(ratio, min(runs, 5), 1, d, p)).mean(axis=0)] for d, p in TIMED]
    right = [f"d = {d}, p = {p}: {sum(over_seeds(orders, runs, jobs, d, p))} of {runs}" for d in D for p in P]
    notes = "Seconds, 10 sites, beside the static model with as many parameters and rows: " + "; ".join(
        f"d = {d}, p = {p}: {own:.3f} / {static:.3f} = {own / static:.1f}" for d, p, own, static in costs
    )
    notes += ".\n\nRight order by the BIC among 0 to 4 lags: " + "; ".join(right) + "."
    rng = np.random.default_rng(0)
    walls = {n: seconds([[rng.standard_normal((n, 10))]], 3, model="dynamic", lags=2) for n in (LONG, 10 * LONG)}
    notes += "\n\nOne site, d = 10, p = 2, seconds by rows: " + "; ".join(f"{n}: {s:.2f}" for n, s in walls.items())
    publish(
        "dynamic",
        f"Arrow F1 within a step / of the past: {SERIES} series of {LENGTH} rows, d edges and d a lag, {runs} seeds",
        ["d", "lags", "sites", *METHODS],
        table,
        notes + ".",
    )
