"""Choosing lam and the threshold: of all graphs that they lead to, the one with the best extended BIC.

    score(DAG) = fit + |E| log(n)/2 + log C(d (d - 1), |E|)           fit: n d/2 log mean v, or n/2 sum log v_j

v_j is what least squares on its parents leaves of variable j's variance: equal variances, or any.  The last term counts
the graphs with as many edges (Chen and Chen 2008, gamma = 1): without it, the more variables, the more false edges.

Solutions for neighbouring lam are started from one another, outwards from the lam that a solution is given for.  All
that is needed is the covariance and n: totals, so that a federation chooses as pooled rows would.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import lgamma, log

import numpy as np
import scipy.linalg

from dagora.arrays import BoolArray, FloatArray

FIRST = 0.1  # of the least variance, which under equal variances is about that of the noise
_TIE = 1e-9
GRID = (0.5, 0.3, 0.2, FIRST, 0.05, 0.03, 0.02, 0.01)

Solve = Callable[[FloatArray, float], FloatArray]  # from a neighbour's solution and lam to weights that are a DAG's


@dataclass(frozen=True)
class Choice:
    """The best score, where it was found, and the weights there."""

    score: float
    lam: float
    threshold: float
    W: FloatArray


def first_lam(variances: FloatArray) -> float:
    """Where a choice of lam starts; it has the unit of a variance."""
    return FIRST * float(variances.min())


def choose(
    S: FloatArray,
    n: float,
    W: FloatArray,
    lam: float,
    solve: Solve | None,
    threshold: float | None,
    equal: bool = True,
    required: BoolArray | None = None,
) -> Choice:
    """Start from the solution W at lam; solve: for other lam (None: this one it is); threshold: None to choose it.

    required: edges that are there whatever their weight.
    """
    found = [best_threshold(S, n, W, lam, threshold, equal, required)]
    if solve is not None:
        unit, place = lam / FIRST, GRID.index(FIRST)
        for way in (GRID[place + 1 :], GRID[:place][::-1]):
            near = W
            for step in way:
                near = solve(near, unit * step)
                found.append(best_threshold(S, n, near, unit * step, threshold, equal, required))
    least = min(choice.score for choice in found)
    # Neighbours often lead to the same graph, hence to the same score up to rounding: the largest lam of them.
    alike = [choice for choice in found if choice.score <= least + _TIE * max(1.0, abs(least))]
    return max(alike, key=lambda choice: choice.lam)


def best_threshold(
    S: FloatArray,
    n: float,
    W: FloatArray,
    lam: float,
    threshold: float | None,
    equal: bool = True,
    required: BoolArray | None = None,
) -> Choice:
    """Edges enter from the largest weight on; the threshold is halfway between the last that pays and the next."""
    d = len(S)
    magnitude = np.abs(W) if required is None else np.where(required, np.inf, np.abs(W))
    sources, targets = np.unravel_index(np.argsort(-magnitude, axis=None, kind="stable"), W.shape)
    size = np.append(magnitude[sources, targets], 0.0)
    left = np.diag(S).copy()
    parents: list[list[int]] = [[] for _ in range(d)]
    scores = [extended_bic(left, n, 0, equal)]
    present, told = size[:-1] > 0.0, True
    for i, j in zip(sources[present].tolist(), targets[present].tolist(), strict=True):
        parents[j].append(i)
        left[j] = _left(S, j, parents[j])
        told = told and 2 * len(parents[j]) < n  # with more parents, few rows are fitted by whatever there is
        scores.append(extended_bic(left, n, len(scores), equal) if told else np.inf)
    if threshold is None:
        given = int(np.isinf(size).sum())
        best = given + int(np.argmin(scores[given:]))
        # Halfway to the last edge that pays; where none does, what is left below those required.
        threshold = 0.5 * float(size[best - 1] + size[best]) if best > given else float(size[best])
    else:
        best = int(np.count_nonzero(size > threshold))
    return Choice(scores[best], lam, threshold, W)


def extended_bic(left: FloatArray, n: float, edges: int, equal: bool = True) -> float:
    """Lower is better; `left` are the variances that parents leave."""
    d = len(left)
    fit = 0.5 * n * d * log(float(left.mean())) if equal else 0.5 * n * float(np.log(left).sum())
    pairs = d * (d - 1)
    return fit + 0.5 * edges * log(n) + lgamma(pairs + 1) - lgamma(edges + 1) - lgamma(pairs - edges + 1)


def _left(S: FloatArray, child: int, parents: list[int]) -> float:
    """Never nothing: what parents determine up to rounding would make any graph worth its price."""
    b = scipy.linalg.lstsq(S[np.ix_(parents, parents)], S[parents, child])[0]
    return max(float(S[child, child] - S[parents, child] @ b), 1e-9 * float(S[child, child]))
