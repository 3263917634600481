"""The covariance method against pooled rows: moments, graphs, rounds (d = 50, K = 64, n = 256, ER with d edges)."""

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish
from dagora.aggregation.plain import Plain
from dagora.algorithms.covariance import CovarianceSite, pooled_moments
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess

D, K, N = 50, 64, 256
LEARNERS = ({"learner": "notears"}, {"preset": "paper"}, {"learner": "boss"}, {"learner": "ges"}, {"learner": "pc"})


def moments_apart(sites: list[FloatArray]) -> float:
    """Largest difference between the covariance from totals and that of the pooled rows, over their variances."""
    parts = [Site(str(k), CovarianceSite(), Moments.of_rows(rows), Plain()) for k, rows in enumerate(sites)]
    total = Plain().total(InProcess(parts), {"phase": "moments", "centre": np.zeros(D)})
    rows = np.vstack(sites)
    S = np.cov(rows.T, ddof=0)
    scale = np.sqrt(np.diag(S))
    return float(np.abs((pooled_moments(total, np.zeros(D)).covariance - S) / scale / scale[:, None]).max())


def one(seed: int) -> tuple[float, list[tuple[bool, int]]]:
    _, sites = dagora.simulate(d=D, edges=D, n=N, sites=K, seed=seed)
    found = []
    for options in LEARNERS:
        totals = dagora.learn(sites, method="covariance", **options)  # type: ignore[arg-type]
        pooled = dagora.learn(sites, method="pooled", **options)  # type: ignore[arg-type]
        same = (totals.adjacency == pooled.adjacency).all() and (totals.cpdag == pooled.cpdag).all()
        found.append((bool(same), totals.rounds))
    return moments_apart(sites), found


def main(runs: int, jobs: int) -> None:
    found = over_seeds(one, runs, jobs)
    table = []
    for place, options in enumerate(LEARNERS):
        same = sum(graphs[place][0] for _, graphs in found)
        rounds = max(graphs[place][1] for _, graphs in found)
        name = "NOTEARS as published (preset='paper')" if "preset" in options else options["learner"]
        table.append([name, f"{same} of {runs}", rounds])
    apart = max(apart for apart, _ in found)
    publish(
        "totals",
        f"The covariance method and pooled rows, d = {D}, K = {K}, n = {N}: runs with the same graph and class",
        ["learner", "same graph", "most rounds"],
        table,
        f"Largest difference of a covariance from numpy.cov of the pooled rows, over both deviations: {apart:.1e}",
    )
