"""What differential privacy costs: F1 of directed edges over epsilon (d = 20, K = 10, n = 10,000, ER with d edges)."""

from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import dagora
from benchmarks import tables
from benchmarks.tables import over_seeds, publish
from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.plain import Plain
from dagora.algorithms.private_covariance import PrivateCovarianceServer, PrivateCovarianceSite, Rows
from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.federated.protocol import Aggregation
from dagora.federated.run import run
from dagora.federated.site import Site
from dagora.graphs import break_cycles, skeleton
from dagora.learners.base import Learned, LearnerOptions
from dagora.learners.registry import LEARNERS
from dagora.transport.in_process import InProcess

D, K, N, DELTA = 20, 10, 10_000, 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
NAMES = ("notears", "boss")
SEEDS = 20


def f1(truth: IntArray, found: IntArray) -> float:
    """Of adjacency matrices."""
    return 2.0 * float((truth * found).sum()) / max(float(truth.sum() + found.sum()), 1.0)


def private(sites: list[FloatArray], name: str, epsilon: float | None) -> tuple[IntArray, int]:
    """The graph from noisy totals (from exact ones without epsilon), and how many rows they are worth."""
    entry, d, worth = LEARNERS[name], sites[0].shape[1], []

    def learn(moments: Moments) -> Learned:
        worth.append(moments.n)
        return entry.learner(moments, LearnerOptions(**entry.defaults))

    aggregation: Aggregation = Plain()
    noise = 0.0
    if epsilon is not None:
        aggregation = gaussian = Gaussian(Plain(), len(sites), epsilon, DELTA)
        noise = gaussian.multiplier
    parts = [
        Site(str(k), PrivateCovarianceSite(), Rows(lambda rows=rows: [rows], d), aggregation)  # type: ignore[misc]
        for k, rows in enumerate(sites)
    ]
    estimate = run(PrivateCovarianceServer(d, learn, noise), aggregation, InProcess(parts)).estimate
    return break_cycles(estimate.edges, estimate.strength)[0], worth[0]


def one(seed: int) -> list[list[float]]:
    """For every epsilon, and without noise: directed F1 of each learner, skeleton F1 of each, rows worth."""
    truth, sites = dagora.simulate(d=D, edges=D, n=N, sites=K, seed=seed)
    found = []
    with threadpool_limits(1):
        for epsilon in (*EPSILONS, None):
            graphs = [private(sites, name, epsilon) for name in NAMES]
            directed = [f1(truth.adjacency, graph) for graph, _ in graphs]
            joined = [f1(np.triu(skeleton(truth.adjacency)), np.triu(skeleton(graph))) for graph, _ in graphs]
            found.append([*directed, *joined, float(graphs[0][1])])
    return found


def main(runs: int, jobs: int) -> None:
    runs = min(runs, SEEDS)
    found = np.array(over_seeds(one, runs, jobs))  # seed, epsilon, figure
    means, errors = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(runs)
    publish(
        "dp",
        f"F1 over epsilon at delta = {DELTA:g}: d = {D}, {K} sites, n = {N:,}; means of {runs} seeds ± standard error",
        ["epsilon", *(f"{name}, directed" for name in NAMES), *(f"{name}, skeleton" for name in NAMES), "rows worth"],
        [
            [label, *_with_errors(means[row, :-1], errors[row, :-1]), f"{means[row, -1]:.0f}"]
            for row, label in enumerate([*(f"{epsilon:g}" for epsilon in EPSILONS), "no noise"])
        ],
        f"Up to {K // 2} of the {K} sites may collude.  Rows worth: what the learner is told, 1/n' = 1/n + noise^2.  "
        "boss leaves directions open that only equal variances tell; here it is charged for them.  "
        "The noise cannot be seeded: a repetition differs within the errors.",
    )
    figure = Figure(figsize=(5.2, 3.4), dpi=150, layout="constrained")
    axes = figure.subplots()
    for place, (name, colour, mark) in enumerate(zip(NAMES, ("#0072B2", "#D55E00"), ("o", "s"), strict=True)):
        axes.errorbar(EPSILONS, means[:-1, place], errors[:-1, place], fmt=f"{mark}-", color=colour, label=name)
        axes.axhline(means[-1, place], color=colour, linestyle=":", label=f"{name}, no noise")
    axes.set_xscale("log", base=2)
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set(xlabel=f"epsilon (delta = {DELTA:g})", ylabel="F1 of directed edges", ylim=(0.0, 1.03))
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(tables.RESULTS / "dp.png")


def _with_errors(means: Iterable[float], errors: Iterable[float]) -> list[str]:
    return [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)]
