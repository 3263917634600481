"""Whether frequencies can be believed: the share of true arrows among those found in so many bootstrap replicates.

The paper's data (ER graphs with d edges, equal variances), learned by ADMM; and data of unequal variances in random
units, learned from totals by boss, whose arrows are those that the class compels.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import dagora
from benchmarks import tables
from benchmarks.score_search import random_units
from benchmarks.tables import over_seeds, publish
from dagora.arrays import FloatArray

N, K, REPLICATES = 256, 8, 100
SEEDS = 10
CASES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "ADMM, d = 10": (10, "gaussian", {}),
    "ADMM, d = 20": (20, "gaussian", {}),
    "boss, d = 10": (10, "gaussian-unequal", {"method": "covariance"}),
    "boss, d = 20": (20, "gaussian-unequal", {"method": "covariance"}),
}
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # over the first, up to the last
SURE = 0.9
_LOOKS = {"ADMM": "#0072B2", "boss": "#D55E00"}


class Found(NamedTuple):
    """Of every arrow, or of every two variables, that were found in some replicate: how often, and whether truly."""

    frequency: FloatArray
    true: FloatArray


def one(seed: int, case: str) -> tuple[Found, Found]:
    """Arrows and adjacencies of one data set."""
    d, noise, options = CASES[case]
    truth, (rows,) = dagora.simulate(d=d, edges=d, n=N, sites=1, seed=seed, noise=noise)
    rows = rows if noise == "gaussian" else random_units(rows, seed)
    result = dagora.learn(np.array_split(rows, K), bootstrap=REPLICATES, **options)
    sure = result.confidence
    assert sure is not None
    arrows, pairs = sure.arrow > 0.0, np.triu(sure.edge) > 0.0
    joined = truth.adjacency + truth.adjacency.T
    return (
        Found(sure.arrow[arrows], truth.adjacency[arrows].astype(np.float64)),
        Found(sure.edge[pairs], joined[pairs].astype(np.float64)),
    )


def main(runs: int, jobs: int) -> None:
    runs = min(runs, SEEDS)
    table, lines, curves = [], [], {}
    for case in CASES:
        found = over_seeds(one, runs, jobs, case)
        arrows, pairs = (_together([run[k] for run in found]) for k in range(2))
        curves[case] = arrows, pairs
        for low, high in pairwise(BINS):
            table.append([case, f"{low:g} to {high:g}", *_cells(arrows, low, high), *_cells(pairs, low, high)])
        lines.append(f"{case}: {_sure(arrows)} arrows, {_sure(pairs)} adjacencies")
    publish(
        "confidence",
        f"True arrows and adjacencies by their frequency in {REPLICATES} bootstrap replicates: ER graphs with d edges, "
        f"n = {N}, {K} sites, {runs} seeds",
        ["method", "frequency", "arrows", "mean frequency", "true", "adjacencies", "mean frequency", "true"],
        table,
        f"**Frequency above {SURE:g}, truly there**: {'; '.join(lines)}.  Adjacencies: two variables joined, either "
        "way.  boss gives classes: an arrow is one that the class compels.  Variances are equal for ADMM; unequal, in "
        "random units, for boss.  [Figure](confidence.png)",
    )
    _draw(curves)


def _together(parts: list[Found]) -> Found:
    return Found(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _within(found: Found, low: float, high: float) -> Found:
    here = (found.frequency > low + 1e-12) & (found.frequency <= high + 1e-12)
    return Found(found.frequency[here], found.true[here])


def _cells(found: Found, low: float, high: float) -> list[str]:
    here = _within(found, low, high)
    if len(here.true) == 0:
        return ["0", "-", "-"]
    return [str(len(here.true)), f"{here.frequency.mean():.2f}", f"{here.true.mean():.2f}"]


def _sure(found: Found) -> str:
    here = _within(found, SURE, 1.0)
    return f"{here.true.mean():.1%} of {len(here.true)}" if len(here.true) else "none"


def _draw(curves: dict[str, tuple[Found, Found]]) -> None:
    figure = Figure(figsize=(8.0, 3.8), dpi=150, layout="constrained")
    for axes, place, title in zip(figure.subplots(1, 2), (0, 1), ("arrows", "adjacencies"), strict=True):
        axes.plot([0, 1], [0, 1], color="#999999", linestyle=":", linewidth=1, label="frequency = share")
        for case, found in curves.items():
            cells = [_within(found[place], *ends) for ends in pairwise(BINS)]
            cells = [cell for cell in cells if len(cell.true)]
            x, y = ([float(values.mean()) for values in part] for part in zip(*cells, strict=True))
            sizes = [12 + 10 * np.sqrt(len(cell.true)) for cell in cells]
            colour, dense = _LOOKS[case.split(",")[0]], case.endswith("20")
            axes.plot(x, y, "-" if dense else "--", color=colour, linewidth=1.2, label=case)
            axes.scatter(x, y, sizes, color=colour, alpha=0.5, linewidths=0)
        axes.set(xlabel="frequency in replicates", ylabel="share that is true", title=title)
        axes.set(xlim=(-0.04, 1.06), ylim=(-0.04, 1.06))
        axes.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(tables.RESULTS / "confidence.png")
