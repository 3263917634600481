"""Smooth measures of how far W is from a DAG.  Both are zero exactly when W o W has no cycle.

Each returns h(W) and its gradient, an array of W's shape.  Both gradients are 2 W o E', where E >= 0 collects
the weights of all walks from i to j; E is returned too where a solver wants the curvature.
"""

import numpy as np
import scipy.linalg

from dagora.arrays import FloatArray


def trace_exponential(W: FloatArray) -> tuple[float, FloatArray]:
    """h(W) = tr(exp(W o W)) - d (paper, Eq. 1; Zheng et al. 2018)."""
    E = scipy.linalg.expm(W * W)
    return float(np.trace(E)) - len(W), 2.0 * W * E.T


def log_determinant(W: FloatArray) -> tuple[float, FloatArray]:
    """h(W) = -log det(I - W o W) (Bello et al. 2022, with s = 1); infinite where a cycle's gain reaches 1."""
    walks, h = walk_weights(W)
    return h, 2.0 * W * walks.T


def walk_weights(W: FloatArray) -> tuple[FloatArray, float]:
    """(I - W o W)^-1, the total weight of all walks from i to j, and the log-determinant h(W).

    I - W o W lies in the domain (it is an M-matrix: cycles' gains are below 1) exactly when its inverse has
    no negative entry; outside, h is infinite and the walks are NaN.
    """
    d = len(W)
    M = np.eye(d) - W * W
    factor, pivots, singular = scipy.linalg.lapack.dgetrf(M)
    if not singular and np.isfinite(factor).all():
        inverse, failed = scipy.linalg.lapack.dgetri(factor, pivots)
        diagonal = factor.diagonal()
        swaps = np.count_nonzero(pivots != np.arange(d))
        positive = (np.count_nonzero(diagonal < 0) + swaps) % 2 == 0
        if not failed and positive and inverse.min() >= -1e-10:
            return inverse, -float(np.log(np.abs(diagonal)).sum())
    return np.full((d, d), np.nan), np.inf
