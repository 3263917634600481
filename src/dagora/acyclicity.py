"""Smooth measures of how far W is from a DAG.  Both are zero exactly when W o W has no cycle.

Each returns h(W) and its gradient, an array of W's shape.  Both gradients are 2 W o E', where E >= 0 collects
the weights of all walks from i to j; E is returned too where a solver wants the curvature.
"""

import numpy as np
import scipy.linalg

from dagora.arrays import FloatArray
from dagora.devices import identity_like, inverted


def trace_exponential(W: FloatArray) -> tuple[float, FloatArray]:
    """h(W) = tr(exp(W o W)) - d (paper, Eq. 1; Zheng et al. 2018)."""
    E = scipy.linalg.expm(W * W)
    return float(np.trace(E)) - len(W), 2.0 * W * E.T


def trace_exponential_of_norms(W: FloatArray) -> tuple[float, FloatArray]:
    """The same h of the norms of weights W (d, units, d): those at [j, :, i] belong to the edge i -> j."""
    E = scipy.linalg.expm((W * W).sum(axis=1).T)
    return float(np.trace(E)) - len(W), 2.0 * W * E[:, None]


def log_determinant(W: FloatArray) -> tuple[float, FloatArray]:
    """h(W) = -log det(I - W o W) (Bello et al. 2022, with s = 1); infinite where a cycle's gain reaches 1."""
    walks, h = walk_weights(W)
    return h, 2.0 * W * walks.T


def walk_weights(W: FloatArray) -> tuple[FloatArray, float]:
    """(I - W o W)^-1, the total weight of all walks from i to j, and the log-determinant h(W).

    The domain is where every cycle's gain is below 1, that is, where A = I - W o W is an M-matrix: exactly when some
    x > 0 has A x > 0 (Berman and Plemmons 1994, Theorem 6.2.3), and then x = A^-1 1 does.  Unlike a look at single
    entries of the inverse, this asks nothing of their size.  Outside, h is infinite and the walks are NaN.
    """
    found = inverted(identity_like(W) - W * W)
    if found is None or not bool((found[0].sum(axis=1) > 0.0).all()):
        return W * np.nan, np.inf
    return found[0], -found[1]
