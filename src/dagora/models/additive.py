"""Additive effects: x_j = sum over its parents i of f_ij(x_i), plus noise, each f_ij in a space of five functions.

    z = (x - centre) / scale;   the functions of a variable: z, and the Legendre polynomials P2 to P5 of 2 Phi(z) - 1

Centre and scale are the mean and standard deviation of all rows, so that all sites have the same functions.  Phi makes
the variable about uniform, where Legendre polynomials are about uncorrelated and no outlier is worth more than 1; z
itself is there so that linear effects are exact.  With functions fixed, least squares needs only their sums of
products: a nonlinear network is learned from totals, as a linear one is (a sieve: the more rows, the more functions).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import eval_legendre, ndtr

from dagora.arrays import FloatArray

FUNCTIONS = 5  # a variable, chosen on simulated MLP data


@dataclass(frozen=True)
class Basis:
    """The functions of every variable."""

    centre: FloatArray
    scale: FloatArray

    def expand(self, rows: FloatArray) -> FloatArray:
        """From rows (n, d) to (n, d FUNCTIONS), variable after variable, z first."""
        z = (rows - self.centre) / self.scale
        u = 2.0 * ndtr(z) - 1.0
        curved = [eval_legendre(degree, u) for degree in range(2, FUNCTIONS + 1)]
        return np.stack([z, *curved], axis=2).reshape(len(rows), -1)


@dataclass(frozen=True, eq=False)
class Curves:
    """Fitted effects."""

    basis: Basis
    means: FloatArray  # of the functions, over all rows
    coefficients: FloatArray  # (d FUNCTIONS, d): of functions, for each variable, in its units

    @property
    def centre(self) -> FloatArray:
        """Means of the variables."""
        return self.basis.centre

    @property
    def scale(self) -> FloatArray:
        """Their standard deviations."""
        return self.basis.scale

    def predict(self, rows: FloatArray) -> FloatArray:
        """Expected values of all variables."""
        expected: FloatArray = self.centre + (self.basis.expand(rows) - self.means) @ self.coefficients
        return expected
