"""Numbers with twice a double's digits: `high + low`, where high is the sum rounded to a double (Dekker 1971).

A summand may have such numbers: a field "x" and beside it "x.low".  Private sums add both into one number, whose words
are wide enough, and the total has both again.  So sums about zero lose nothing to large means, and a server need not be
asked, nor trusted, about which point to measure rows from.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dagora.arrays import FloatArray

LOW = ".low"

_SPLITTER = 2.0**27 + 1.0


@dataclass(frozen=True)
class Wide:
    """An array of such numbers."""

    high: FloatArray
    low: FloatArray

    @classmethod
    def of(cls, fields: Mapping[str, FloatArray], name: str) -> "Wide":
        """A field of a summand or total, whose low digits may be none."""
        high = np.asarray(fields[name])
        return cls(high, np.asarray(fields.get(name + LOW, np.zeros_like(high))))

    @classmethod
    def product(cls, a: FloatArray, b: FloatArray) -> "Wide":
        """Of doubles, exactly."""
        with np.errstate(over="ignore", invalid="ignore"):
            high = a * b
            (a1, a2), (b1, b2) = _halves(a), _halves(b)
            return cls(high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2).sane()

    def __add__(self, other: "Wide") -> "Wide":
        with np.errstate(over="ignore", invalid="ignore"):
            return _renormalised(*_exact_sum(self.high, other.high), self.low + other.low)

    def __sub__(self, other: "Wide") -> "Wide":
        return self + Wide(-other.high, -other.low)

    def times(self, other: "Wide") -> "Wide":
        """To about 106 digits."""
        with np.errstate(over="ignore", invalid="ignore"):
            exact = Wide.product(self.high, other.high)
            return _renormalised(exact.high, exact.low, self.high * other.low + self.low * other.high)

    def over(self, divisor: float) -> "Wide":
        """To about 106 digits."""
        with np.errstate(over="ignore", invalid="ignore"):
            high = self.high / divisor
            rest = self - Wide.product(high, np.broadcast_to(divisor, np.shape(high)))
            return _renormalised(high, rest.high / divisor, rest.low / divisor)

    def rounded(self, grid: FloatArray) -> "Wide":
        """To the nearest multiples of powers of two."""
        with np.errstate(over="ignore", invalid="ignore"):
            # Beyond 2^53 of them, every double is a multiple already.
            high = np.where(np.abs(self.high) < 2.0**53 * grid, grid * np.rint(self.high / grid), self.high)
            low = grid * np.rint(((self.high - high) + self.low) / grid)
            return _renormalised(high, low, np.zeros_like(low))

    def fields(self, name: str) -> dict[str, FloatArray]:
        """For a summand."""
        return {name: self.high, name + LOW: self.low}

    def sane(self) -> "Wide":
        """What is not finite has no digits below."""
        return Wide(self.high, np.where(np.isfinite(self.high) & np.isfinite(self.low), self.low, 0.0))


def without_low(names: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The fields as they are counted: a number is one, however many digits it has."""
    return {name: values for name, values in names.items() if not name.endswith(LOW)}


def _halves(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of at most 26 digits each (Veltkamp)."""
    c = _SPLITTER * a
    upper = c - (c - a)
    return upper, a - upper


def _exact_sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The rounded sum, and what rounding took (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _renormalised(high: FloatArray, rest: FloatArray, more: FloatArray) -> Wide:
    low = rest + more
    total = high + low
    return Wide(total, low - (total - high)).sane()
