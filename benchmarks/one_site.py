"""One site that holds all rows should find the graph of the pooled method."""

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish

D = (10, 20, 50)


def one(seed: int, d: int) -> list[bool]:
    _, (rows,) = dagora.simulate(d=d, edges=d, n=256, sites=1, seed=seed)
    pooled = dagora.learn([rows], method="pooled")
    return [bool((dagora.learn(np.array_split(rows, k)).adjacency == pooled.adjacency).all()) for k in (1, 8, 64)]


def main(runs: int, jobs: int) -> None:
    table = []
    for d in D:
        same = np.array(over_seeds(one, runs, jobs, d)).sum(axis=0)
        table.append([d, *(f"{count} of {runs}" for count in same)])
    publish(
        "one_site",
        "Runs in which ADMM and the pooled method find the same graph (n = 256, ER with d edges)",
        ["d", "one site", "8 sites", "64 sites"],
        table,
    )
