"""Federated against pooled accuracy: d in {10, 20, 50}, K in {2, 8, 64}, n = 256, ER graphs with d edges."""

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish

D, K, N, LAM = (10, 20, 50), (2, 8, 64), 256, 0.1


def one(seed: int, d: int) -> dict[str, tuple[float, int]]:
    """SHD and rounds of every cell's method on one data set."""
    truth, (rows,) = dagora.simulate(d=d, edges=d, n=N, sites=1, seed=seed)
    results = {
        "pooled NOTEARS": dagora.learn([rows], method="pooled", preset="paper", lam=LAM),
        "pooled": dagora.learn([rows], method="pooled", lam=LAM),
    }
    for k in K:
        results[f"ADMM, K = {k}"] = dagora.learn(np.array_split(rows, k), lam=LAM)
    return {name: (dagora.evaluate(truth, result)["shd"], result.rounds) for name, result in results.items()}


def main(runs: int, jobs: int) -> None:
    table = []
    for d in D:
        found = over_seeds(one, runs, jobs, d)
        for name in found[0]:
            shd = np.array([run[name][0] for run in found], dtype=float)
            rounds = np.array([run[name][1] for run in found])
            error = shd.std(ddof=1) / np.sqrt(runs) if runs > 1 else 0.0
            table.append([d, name, f"{shd.mean():.2f} ± {error:.2f}", f"{rounds.mean():.0f}", int(rounds.max())])
    publish(
        "accuracy",
        f"Mean SHD and rounds over {runs} seeds, n = {N}, lambda = {LAM}, threshold 0.3",
        ["d", "method", "SHD ± standard error", "mean rounds", "most rounds"],
        table,
        'pooled NOTEARS: `method="pooled", preset="paper"` with lambda 0.1; pooled: `method="pooled"`.',
    )
