"""What prior knowledge saves: time, rounds and wrong edges with it and without, ADMM and learners on one total."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish
from dagora import Knowledge
from dagora.graphs import topological_order

D = (20, 50, 100)
ROWS, K = 10, 10  # rows a variable, over all sites; sites
TIERS = 5
SHARE = 0.25  # of the true edges that are required, and of the pairs without an edge that are forbidden
REPEATS = 2  # of which the quickest counts
METHODS: Mapping[str, Mapping[str, Any]] = {
    "admm": {},
    "one total, boss": {"method": "covariance"},
    "one total, notears": {"method": "covariance", "learner": "notears"},
}


def known(truth: dagora.Truth, seed: int) -> dict[str, Knowledge | None]:
    """True statements about the network, of each kind."""
    names, rng = truth.names, np.random.default_rng(seed)
    order, size = topological_order(truth.adjacency), -(-len(names) // TIERS)
    tiers = [[names[v] for v in order[first : first + size]] for first in range(0, len(names), size)]
    some = {}
    for kind, pairs in (("required", truth.adjacency == 1), ("forbidden", truth.adjacency == 0)):
        edges = rng.permutation(np.argwhere(pairs & ~np.eye(len(names), dtype=bool)))
        some[kind] = [(names[i], names[j]) for i, j in edges[: int(SHARE * len(edges))].tolist()]
    return {
        "nothing": None,
        f"{TIERS} tiers": Knowledge(tiers=tiers),
        "forbidden edges": Knowledge(forbidden=some["forbidden"]),
        "required edges": Knowledge(required=some["required"]),
        "all of them": Knowledge(some["required"], some["forbidden"], tiers),
    }


def one(seed: int, d: int) -> dict[tuple[str, str], tuple[float, int, float]]:
    """Seconds, rounds and SHD of every cell on one data set; cells in turns, so that a busy machine hits all alike."""
    truth, sites = dagora.simulate(d, 2 * d, ROWS * d, K, seed=seed)
    cells = {(method, kind): what for kind, what in known(truth, seed).items() for method in METHODS}
    least, found = dict.fromkeys(cells, np.inf), {}
    for _ in range(REPEATS):
        for (method, kind), what in cells.items():
            start = time.perf_counter()
            found[method, kind] = dagora.learn(sites, knowledge=what, **METHODS[method])
            least[method, kind] = min(least[method, kind], time.perf_counter() - start)
    return {cell: (least[cell], result.rounds, dagora.evaluate(truth, result)["shd"]) for cell, result in found.items()}


def main(runs: int, jobs: int) -> None:
    table = []
    for d in D:
        each = over_seeds(one, min(runs, 5), 1, d)
        for method, kind in sorted(each[0], key=lambda cell: list(METHODS).index(cell[0])):
            seconds, rounds, shd = np.array([run[method, kind] for run in each], dtype=float).T
            without = np.array([run[method, "nothing"][0] for run in each])
            ratio = "" if kind == "nothing" else f"{np.median(seconds / without):.2f}"
            table.append(
                [d, method, kind, f"{np.median(seconds):.3f}", ratio, f"{np.median(rounds):.0f}", f"{shd.mean():.1f}"]
            )
    publish(
        "knowledge",
        f"Learning with knowledge: 2 d edges, {ROWS} d rows, {K} sites, {min(runs, 5)} seeds",
        ["d", "method", "known", "median s", "of the time without", "median rounds", "mean SHD"],
        table,
        f"Known are true statements: {TIERS} tiers cut a topological order; {SHARE:.0%} of the true edges are required "
        f"and {SHARE:.0%} of the pairs without an edge are forbidden, at random.  Seconds are the quickest of "
        f"{REPEATS} runs, reading included; the ratio is the median over seeds.",
    )
