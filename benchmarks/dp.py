"""What differential privacy costs: F1 of directed edges over epsilon (d = 20, K = 10, n = 10,000, ER with d edges)."""

from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

import dagora
from benchmarks import tables
from benchmarks.tables import over_seeds, publish
from dagora.arrays import FloatArray

D, K, N, DELTA = 20, 10, 10_000, 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
NAMES = ("notears", "boss")
SEEDS = 20


def scores(
    truth: dagora.Truth, sites: list[FloatArray], name: str, epsilon: float | None
) -> tuple[float, float, float]:
    """Directed F1, skeleton F1, and how many rows the noisy totals are worth."""
    if epsilon is None:
        result = dagora.learn(sites, method="covariance", aggregation="masked", learner=name)
        worth = float(N)
    else:
        result = dagora.learn(
            sites, method="covariance", aggregation="gaussian", epsilon=epsilon, delta=DELTA, learner=name
        )
        worth = float(result.extras["rows_worth"])
    found = dagora.evaluate(truth, result)
    return found["f1"], found["skeleton_f1"], worth


def one(seed: int) -> list[list[float]]:
    """For every epsilon, and without noise: directed F1 of each learner, skeleton F1 of each, rows worth."""
    truth, sites = dagora.simulate(d=D, edges=D, n=N, sites=K, seed=seed)
    found = []
    for epsilon in (*EPSILONS, None):
        directed, joined, worth = zip(*(scores(truth, sites, name, epsilon) for name in NAMES), strict=True)
        found.append([*directed, *joined, worth[0]])
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
        f"Up to {K // 2} of the {K} sites may collude.  No noise: exact totals of all rows.  "
        "Rows worth: what the learner is told, 1/n' = 1/n + noise^2.  "
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
