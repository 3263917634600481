"""At sites that learn alone the path solver stands in for published NOTEARS: the same problem, side by side."""

import time
from collections.abc import Callable

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.learners.notears import Solution, notears_path, notears_published

CELLS, LAM = ((10, 128), (10, 32), (10, 8), (20, 128), (20, 32), (20, 8)), 0.1  # variables, rows of a site
SOLVERS: dict[str, Callable[[FloatArray, float], Solution]] = {
    "NOTEARS as published": notears_published,
    "the path, polished": notears_path,
}


def one(seed: int, d: int, rows: int) -> dict[str, tuple[float, float, float]]:
    """SHD, penalised loss and seconds of both."""
    truth, (X, *_) = dagora.simulate(d=d, edges=d, n=256, sites=256 // rows, seed=seed)
    S = Moments.of_rows(X).covariance
    found = {}
    for name, solve in SOLVERS.items():
        start = time.perf_counter()
        solution = solve(S, LAM)
        seconds = time.perf_counter() - start
        W = solution.weights
        R = np.eye(d) - W
        loss = 0.5 * float((R * (S @ R)).sum()) + LAM * float(np.abs(W).sum())
        shd = dagora.evaluate(truth.adjacency, (np.abs(W) > 0.3).astype(np.int64))["shd"]
        found[name] = (float(shd), loss, seconds)
    return found


def main(runs: int, jobs: int) -> None:
    runs = min(runs, 10)
    table = []
    for d, rows in CELLS:
        found = over_seeds(one, runs, jobs, d, rows)
        for name in SOLVERS:
            shd, loss, seconds = (np.array([run[name][k] for run in found]) for k in range(3))
            error = shd.std(ddof=1) / np.sqrt(runs) if runs > 1 else 0.0
            spread = f"{shd.mean():.2f} ± {error:.2f}"
            table.append([d, rows, name, spread, f"{loss.mean():.3f}", f"{np.median(seconds):.3f}"])
    publish(
        "stand_in",
        f"One site that learns alone, {runs} seeds: SHD, penalised loss and time of two solvers of the same problem",
        ["d", "rows", "solver", "SHD ± standard error", "mean penalised loss", "median seconds"],
        table,
    )
