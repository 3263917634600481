"""Count, mean and scatter of rows: the sufficient statistics of the linear Gaussian model."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dagora.arrays import FloatArray


@dataclass(frozen=True)
class Moments:
    """n rows with mean (d,) and scatter (d, d) = sum (x - mean)(x - mean)'; `+` pools two sets of rows."""

    n: int
    mean: FloatArray
    scatter: FloatArray

    @classmethod
    def none(cls, d: int) -> "Moments":
        """Moments of no rows: the zero of `+`."""
        return cls(0, np.zeros(d), np.zeros((d, d)))

    @classmethod
    def of(cls, chunks: Iterable[FloatArray], d: int) -> "Moments":
        """One pass over chunks of rows; the result does not depend, up to rounding, on how they are cut."""
        return reduce(Moments.after, chunks, cls.none(d))

    @classmethod
    def of_rows(cls, rows: FloatArray) -> "Moments":
        """Two passes over rows in memory: exact centring keeps the scatter when the mean is huge."""
        n, d = rows.shape
        if n == 0:
            return cls.none(d)
        with np.errstate(over="ignore", invalid="ignore"):  # not finite: the caller's to refuse
            rough = rows.mean(axis=0)
            centred = rows - rough
            rest = centred.mean(axis=0)  # what rounding left out of the mean
            return cls(n, rough + rest, centred.T @ centred - n * np.outer(rest, rest))

    def after(self, rows: FloatArray) -> "Moments":
        """These moments with more rows, in one pass over them: they are centred at the mean so far.

        With g the distance of their own mean from it, m g g' is taken off the new scatter and n m / (n + m) g g' put
        on for the gap between old and new.  Only the difference, m^2 / (n + m) g g', is computed: while the new rows
        are no more than the old, at most half of what they bring cancels, so that no digits are lost.
        """
        m = len(rows)
        if self.n < m:
            return self + self.of_rows(rows)
        if m == 0:
            return self
        n = self.n + m
        with np.errstate(over="ignore", invalid="ignore"):  # not finite: the caller's to refuse
            centred = rows - self.mean
            total = centred.sum(axis=0)
            scatter = self.scatter + centred.T @ centred
            scatter -= np.outer(total, total) / n
            return Moments(n, self.mean + total / n, scatter)

    def __add__(self, other: "Moments") -> "Moments":
        """Pool (Chan, Golub and LeVeque 1983): no large numbers cancel."""
        n = self.n + other.n
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        with np.errstate(over="ignore", invalid="ignore"):
            gap = other.mean - self.mean
            between = (self.n * other.n / n) * np.outer(gap, gap)
            return Moments(n, self.mean + gap * (other.n / n), self.scatter + other.scatter + between)

    def about(self, centre: FloatArray) -> FloatArray:
        """Sum of (x - centre)(x - centre)'."""
        shift = self.mean - centre
        return self.scatter + self.n * np.outer(shift, shift)

    def scaled(self, centre: FloatArray, scale: FloatArray) -> "Moments":
        """Moments of (x - centre) / scale."""
        return Moments(self.n, (self.mean - centre) / scale, self.scatter / scale[:, None] / scale)

    @property
    def total(self) -> FloatArray:
        """Sum of the rows."""
        return self.n * self.mean

    @property
    def covariance(self) -> FloatArray:
        """Scatter divided by n, as in the paper."""
        return self.scatter / self.n
