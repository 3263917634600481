"""Minimise f(W) + sum_ij lam_ij |W_ij| by proximal gradient steps, wherever W is (devices.py)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from dagora.arrays import BoolArray, FloatArray
from dagora.errors import NumericalError

Smooth = Callable[[FloatArray], tuple[float, FloatArray]]  # value (may be infinite) and gradient

_MEMORY = 8  # values that a step may not exceed: a little patience lets Barzilai-Borwein steps work
_DECREASE = 1e-4
_STEEPEST = 1e16


@dataclass(frozen=True)
class Minimum:
    """Where the descent stopped, after how many evaluations, and whether its tolerance was met."""

    W: FloatArray
    evaluations: int
    converged: bool


def soft_threshold(V: FloatArray, by: float | FloatArray) -> FloatArray:
    """argmin over W of |W - V|^2 / 2 + by |W|, entry by entry."""
    shrunk: FloatArray = V - V.clip(-by, by)
    return shrunk


def l1(W: FloatArray, lam: float | FloatArray) -> float:
    """The penalty: one price for all entries, or an array of prices."""
    if isinstance(lam, float | int):
        return lam * float(abs(W).sum())
    return float((lam * abs(W)).sum())


def minimise_l1(
    f: Smooth,
    W: FloatArray,
    lam: float | FloatArray,
    metric: FloatArray,
    free: BoolArray,
    tolerance: float,
    most_steps: int,
) -> Minimum:
    """Descend from W, keeping entries that are not `free` at zero (SpaRSA: Wright, Nowak, Figueiredo 2009).

    `metric` approximates the diagonal of f's Hessian; the step length in it alternates between the two
    of Barzilai and Borwein, and is shortened until f + lam |W|_1 is below its largest recent value.
    Where f is infinite the step is shortened too, so that W never leaves f's domain.
    Stops when the step, measured as a gradient (metric x step length), is at most `tolerance`.
    """
    value, gradient = f(W)
    if not np.isfinite(value):
        raise NumericalError("the descent starts outside the objective's domain; standardise the data")
    recent = [value + l1(W, lam)]
    scale, evaluations = 1.0, 1
    for step in range(most_steps):
        while True:
            length = 1.0 / (scale * metric)
            candidate = soft_threshold(W - gradient * length, lam * length) * free
            move = candidate - W
            moved = float((metric * move * move).sum())
            if moved == 0.0:
                return Minimum(W, evaluations, True)
            value, next_gradient = f(candidate)
            evaluations += 1
            if value < np.inf:
                value += l1(candidate, lam)
                if value <= max(recent[-_MEMORY:]) - _DECREASE * scale * moved:
                    break
            scale *= 2.0
            if scale > _STEEPEST:  # rounding hides any further descent
                return Minimum(W, evaluations, False)
        change = next_gradient - gradient
        W, gradient = candidate, next_gradient
        recent.append(value)
        if scale * sqrt(float(((metric * move) ** 2).sum())) <= tolerance:
            return Minimum(W, evaluations, True)
        along = float((move * change).sum())
        if along > 0.0:
            curvature = float((change * change / metric).sum()) / along if step % 2 else along / moved
            scale = min(max(curvature, 1e-2), 1e10)
        else:
            scale = max(scale / 2.0, 1e-2)
    return Minimum(W, evaluations, False)
