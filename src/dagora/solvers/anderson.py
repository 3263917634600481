"""Anderson mixing: the combination of the last iterates whose residual is smallest (Walker and Ni 2011)."""

import numpy as np

from dagora.arrays import FloatArray

_RIDGE = 1e-10  # keeps nearly parallel residuals from giving huge coefficients of opposite signs


def mixing(gram: FloatArray) -> FloatArray:
    """argmin over a with sum(a) = 1 of |sum_j a_j F_j|^2, given the inner products of the residuals F_j."""
    m = len(gram)
    size = float(np.trace(gram))
    if m == 1 or size <= 0.0:
        newest: FloatArray = np.eye(m)[-1]
        return newest
    a = np.linalg.solve(gram / size + _RIDGE * np.eye(m), np.ones(m))
    coefficients: FloatArray = a / a.sum()
    return coefficients
