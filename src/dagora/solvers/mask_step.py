"""The server's W-step for masks: consensus on logits U, a price for every expected edge, and acyclicity.

min over U of  c/2 |U - Z|^2 + lam sum_ij P_ij + mu h(P),   P = sigmoid(U) off the diagonal, h the log-determinant
"""

import numpy as np
from scipy.special import expit

from dagora.acyclicity import walk_weights
from dagora.arrays import FloatArray
from dagora.solvers.proximal import minimise_l1

_TOLERANCE, _MOST_STEPS = 1e-4, 100


def mask(U: FloatArray) -> FloatArray:
    """Probabilities of edges; [i, j] is i -> j."""
    P: FloatArray = expit(U)
    np.fill_diagonal(P, 0.0)
    return P


def mask_step(U: FloatArray, Z: FloatArray, c: FloatArray, lam: float, mu: float) -> FloatArray:
    """Descend from U, which is in h's domain."""

    def objective(U: FloatArray) -> tuple[float, FloatArray]:
        P, gap = mask(U), U - Z
        walks, h = walk_weights(P)
        value = 0.5 * float((c * gap * gap).sum()) + lam * float(P.sum()) + mu * h
        return value, c * gap + (lam + 2.0 * mu * P * walks.T) * P * (1.0 - P)

    P = mask(U)
    bend = 2.0 * mu * walk_weights(P)[0].T * (P * (1.0 - P)) ** 2
    off = ~np.eye(len(U), dtype=bool)
    return minimise_l1(objective, U * off, 0.0, c + bend, off, _TOLERANCE, _MOST_STEPS).W
