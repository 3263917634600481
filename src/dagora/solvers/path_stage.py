"""One stage of the path from a covariance, by Newton-like steps: few inverses, each followed by sparse regressions.

    min over W of  F(W) = tr((E - W)' S (E - W)) / 2 + sum_ij lam_ij |W_ij| + mu h(W),     E the first d columns of I

Where cycles are as at W, h grows by the walks that an edge closes: with T_ij the weight of all walks from j to i
(acyclicity.py), h is sum_ij T_ij W_ij^2 up to a constant, to first order and in its diagonal curvature.  Then F falls
apart into columns, lassos with ridges 2 mu T (lasso.py).  A step goes towards their minimum, half as far until F falls.

An inverse costs d^3 and a lasso some rows of S: descending by gradients would take an inverse for every short step.
"""

import numpy as np

from dagora.acyclicity import walk_weights
from dagora.arrays import BoolArray, FloatArray
from dagora.devices import CPU, Device
from dagora.errors import NumericalError
from dagora.solvers.lasso import lasso, product
from dagora.solvers.proximal import l1

_SHORTEST = 1e-3  # of a step: below it the descent has ended


def descend(
    S: FloatArray,
    W: FloatArray,
    lam: float | FloatArray,
    mu: float,
    tolerance: float,
    free: BoolArray,
    device: Device = CPU,
    most_steps: int = 8,
) -> FloatArray:
    """Steps from W, with entries that are not `free` at zero, until one is short, measured as a gradient.

    What ends the path is a search over orders, so that few steps will do.  device: where inverses are taken.
    """
    d = W.shape[1]
    identity, variances = np.eye(len(S), d), np.diag(S)[:, None]
    ridge = np.zeros(W.shape)
    prices = np.broadcast_to(lam, W.shape)

    def value_and_walks(W: FloatArray) -> tuple[float, FloatArray]:
        walks, h = walk_weights(device.put(W[:d]))
        there = W.nonzero()
        weights = W[there]
        fit = 0.5 * float(variances[:d].sum() + ((product(S, W)[there] - 2.0 * S[there]) * weights).sum())
        return fit + mu * h + l1(weights, prices[there]), walks

    value, walks = value_and_walks(W)
    if not np.isfinite(value):
        raise NumericalError("the path starts outside the log-determinant's domain; standardise the data")
    for _ in range(most_steps):
        np.maximum(2.0 * mu * device.get(walks).T, 0.0, out=ridge[:d])
        goal, _ = lasso(S, identity, W, free, prices, ridge)
        share = 1.0
        while True:
            near = W + share * (goal - W) if share < 1.0 else goal
            next_value, next_walks = value_and_walks(near)
            if next_value <= value:
                break
            share /= 2.0
            if share < _SHORTEST:  # rounding hides any further descent
                return W
        moved = float(np.linalg.norm((variances + ridge) * (near - W)))
        W, value, walks = near, next_value, next_walks
        if moved <= tolerance * float(np.linalg.norm(variances)):
            break
    return W
