"""Speed against the yardstick (benchmarks/yardstick.py), side by side in one process with one thread."""

import time

import numpy as np
from threadpoolctl import threadpool_limits

import dagora
from benchmarks.tables import publish
from benchmarks.yardstick import notears_admm

CELLS = ((20, 8), (50, 64))


def main(runs: int, jobs: int) -> None:
    table = []
    for d, k in CELLS:
        seconds, shd = [], []
        for seed in range(min(runs, 5)):
            truth, sites = dagora.simulate(d=d, edges=d, n=256, sites=k, seed=seed)
            with threadpool_limits(1):
                start = time.perf_counter()
                W = notears_admm(sites)
                middle = time.perf_counter()
                result = dagora.learn(sites)
                seconds.append((middle - start, time.perf_counter() - middle))
            yardstick = dagora.graphs.threshold(W, 0.3)
            shd.append((dagora.evaluate(truth, yardstick)["shd"], dagora.evaluate(truth, result)["shd"]))
        slow, fast = np.median(np.array(seconds), axis=0)
        ratios = [a / b for a, b in seconds]
        row = [d, k, f"{slow:.2f}", f"{fast:.3f}", f"{np.median(ratios):.1f}", f"{min(ratios):.1f}"]
        table.append([*row, *(f"{m:.1f}" for m in np.mean(shd, axis=0))])
    publish(
        "speed",
        "Seconds of the paper's algorithm in plain numpy/scipy (yardstick) and of `learn` (medians of 5 seeds)",
        ["d", "K", "yardstick s", "default s", "median ratio", "least ratio", "yardstick SHD", "default SHD"],
        table,
    )
