"""Sums of shortened rows, whose sensitivity is known, and what can be read off their noisy total.

    z = A (x - c), shortened to length r at most;   summand: the triangle of  sum (1, z)(1, z)'

Entries off the diagonal stand for two, and weigh sqrt(2): the L2 norm of one row's triangle is then that of its full
matrix, 1 + |z|^2 <= 1 + r^2, which is the sensitivity, and covariances get less noise than variances.

The bound holds for the numbers that are computed, not only for real ones: rounding in a sum of doubles can exceed the
sensitivity of the exact sum (Casacuberta, Shoemate, Vadhan and Wagaman 2022).  So z is rounded to a grid on which every
sum is exact, whatever its order.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chdtrc

from dagora.arrays import FloatArray
from dagora.errors import InputError, MessageError
from dagora.federated.protocol import Summand, Total

_WEIGHT = 45 / 32  # a little less than sqrt(2), and exact in binary
_GRID = 2.0**-10  # of z, whose deviations are about 1: products are multiples of 2^-20, weighted ones of 2^-25
_LARGEST_SUM = 2.0**28  # multiples of 2^-25 are doubles up to here
_LEAST_ROWS = 3.0  # in deviations of the noise on their number


@dataclass(frozen=True)
class NoisyMoments:
    """Number, mean and covariance of the rows z, and the deviation of the noise in a covariance."""

    rows: float
    mean: FloatArray
    covariance: FloatArray
    noise: float


def sensitivity(radius: float) -> float:
    """The most that one row can add to the sums, in L2 norm."""
    return 1.0 + radius**2


def sums(chunks: Iterable[FloatArray], centre: FloatArray, whiten: FloatArray, radius: float) -> Summand:
    """The weighted triangle, by parts."""
    d, n = len(centre), 0
    if whiten.shape != (d, d) or not radius > 2.0 * np.sqrt(d) * _GRID:  # false for NaN, too
        raise MessageError("message refused: its matrix has another size than its centre, or its radius is too small")
    total, squares = np.zeros(d), np.zeros((d, d))
    for rows in chunks:
        z = shortened(rows, centre, whiten, radius)
        n += len(z)
        total += z.sum(axis=0)
        squares += z.T @ z
    if n * max(1.0, radius**2) * _WEIGHT > _LARGEST_SUM:
        raise InputError(f"too many rows for exact sums over {d} columns; divide them among several sites")
    return {
        "rows": np.array(float(n)),
        "sum": _WEIGHT * total,
        "squares": np.diag(squares).copy(),
        "products": _WEIGHT * squares[np.triu_indices(d, 1)],
    }


def read_sums(total: Total, deviation: float) -> NoisyMoments | None:
    """Undo the weights; None where the number of rows is lost in noise of this deviation."""
    rows = float(total["rows"])
    if rows <= max(_LEAST_ROWS * deviation, 1.0):
        return None
    mean = total["sum"] / (_WEIGHT * rows)
    products = np.diag(total["squares"] / rows)
    above = np.triu_indices(len(mean), 1)
    products[above] = products.T[above] = total["products"] / (_WEIGHT * rows)
    return NoisyMoments(rows, mean, products - np.outer(mean, mean), deviation / (_WEIGHT * rows))


def shortened(rows: FloatArray, centre: FloatArray, whiten: FloatArray, radius: float) -> FloatArray:
    """Rows z = whiten (x - centre), no longer than the radius, on the grid.  Each depends on its own row only."""
    z = np.zeros(rows.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        # Not a matrix product: its rounding of a row may depend on how many rows there are, so that one row more could
        # move the others on the grid.
        for j, column in enumerate(whiten.T):
            z += (rows[:, j] - centre[j])[:, None] * column
    z = np.nan_to_num(z, nan=0.0, posinf=1e100, neginf=-1e100).clip(-1e100, 1e100)
    length = np.sqrt((z * z).sum(axis=1))
    inner = radius - np.sqrt(len(centre)) * _GRID  # rounding to the grid lengthens a row by half of that at most
    z *= (inner / np.maximum(length, inner))[:, None]
    on_grid: FloatArray = np.rint(z / _GRID) * _GRID
    return on_grid


def shortened_share(d: int, radius: float) -> float:
    """E min(|z|^2, radius^2) / d for standard normal z: what shortening leaves of its variance."""
    most = radius**2
    return float(chdtr(d + 2, most) + most / d * chdtrc(d, most))
