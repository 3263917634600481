"""Where a column's values lie, from histograms that survive noise: all that clipping bounds may know of the data.

`magnitudes`   bins by sign and binary exponent: any unit in one histogram, but a value far from zero is only known to
               a factor of two
`positions`    equal bins over a range found before, for columns whose spread is small against their mean

A row counts once in a column at most, so a row changes d columns' histograms by sqrt(d) in L2 norm.  Reading a noisy
histogram is post-processing: it costs no privacy.
"""

from dataclasses import dataclass

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray

LARGEST = 40  # binary exponents from -40 to 40 have bins of their own, about 1e-12 to 1e12; others join the last
POSITIONS = 256

_BULK = 0.8  # share of the rows that a range holds: one more value than the commonest shows, and no tail does
_NORMAL = 2.563  # that share of a standard normal variable lies in an interval of this width

_POWERS = 2.0 ** np.arange(-LARGEST - 1.0, LARGEST + 1.0)
MAGNITUDE_EDGES = np.concatenate([-_POWERS[::-1], _POWERS])  # on the real line; the bin about zero is in the middle
MAGNITUDES = len(MAGNITUDE_EDGES) - 1


@dataclass(frozen=True)
class Ranges:
    """An interval a column that holds most of its values, and whether its width is known to tell the spread."""

    low: FloatArray
    high: FloatArray
    resolved: BoolArray

    @property
    def centre(self) -> FloatArray:
        """The middle."""
        middle: FloatArray = 0.5 * self.low + 0.5 * self.high
        return middle

    @property
    def scale(self) -> FloatArray:
        """The standard deviation, were the values normal."""
        deviation: FloatArray = (self.high - self.low) / _NORMAL
        return deviation


def magnitudes(rows: FloatArray) -> FloatArray:
    """Counts (d, MAGNITUDES) of each column's values by sign and binary exponent."""
    exponent = np.clip(np.frexp(rows)[1], -LARGEST, LARGEST) + LARGEST + 1  # 1, 2, ...: steps away from zero
    steps = np.where(np.abs(rows) < _POWERS[0], 0, exponent) * np.sign(rows).astype(np.int64)
    return _counts(steps + MAGNITUDES // 2, MAGNITUDES)


def positions(rows: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Counts (d, POSITIONS) of each column's values over equal bins from low to high; others count nowhere."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        place = np.floor((rows - low) / (high - low) * POSITIONS)
        inside = (place >= 0.0) & (place < POSITIONS)
    return _counts(np.where(inside, place, POSITIONS).astype(np.int64), POSITIONS + 1)[:, :POSITIONS]


def read_magnitudes(counts: FloatArray, noise: float) -> tuple[Ranges, float] | None:
    """The ranges, and about how many rows there are; None where the noise hides all values of some column."""
    d, middle = len(counts), MAGNITUDES // 2
    rows = float(counts.sum()) / d  # every row counts once in each column
    low, high, resolved = [], [], []
    for every in counts:
        column = _visible(every, noise, _BULK * rows)
        if not column.any():
            return None
        first, last = _shortest(column, MAGNITUDE_EDGES, _BULK * column.sum())
        if first == last == middle:  # mostly zeros: the other values tell the scale
            filled = np.flatnonzero(column)
            first, last = int(filled[0]), int(filled[-1])
        low.append(MAGNITUDE_EDGES[first])
        high.append(MAGNITUDE_EDGES[last + 1])
        # Two bins on one side of zero may hold values that all lie where the bins meet.
        resolved.append(first <= middle <= last or last - first > 1)
    return Ranges(np.array(low), np.array(high), np.array(resolved)), rows


def search_interval(ranges: Ranges, slack: float) -> tuple[FloatArray, FloatArray]:
    """Where to look more closely: the ranges, and beyond both ends that share of their width."""
    beyond = slack * (ranges.high - ranges.low)
    return ranges.low - beyond, ranges.high + beyond


def read_positions(
    counts: FloatArray, low: FloatArray, high: FloatArray, noise: float, rows: float, before: Ranges
) -> Ranges:
    """Ranges within low to high, for the columns that were not resolved before."""
    new_low, new_high, resolved = before.low.copy(), before.high.copy(), before.resolved.copy()
    for j in np.flatnonzero(~before.resolved):
        first, last, joined = _finest(counts[j], noise, _BULK * rows)
        width = (high[j] - low[j]) / POSITIONS
        new_low[j], new_high[j] = low[j] + first * width, low[j] + (last + 1) * width
        resolved[j] = joined > 1 or last - first > 1
    return Ranges(new_low, new_high, resolved)


def _finest(counts: FloatArray, noise: float, needed: float) -> tuple[int, int, int]:
    """First and last bin of the shortest run with the needed rows, seen through as few joined bins as noise allows."""
    joined = 1
    while joined < len(counts):
        level = _above_noise(counts.reshape(-1, joined).sum(axis=1), noise * np.sqrt(joined))
        if level.sum() >= needed:
            first, last = _shortest(level, np.arange(len(level) + 1.0), needed)
            return first * joined, (last + 1) * joined - 1, joined
        joined *= 2
    return 0, len(counts) - 1, joined


def _visible(counts: FloatArray, noise: float, needed: float) -> FloatArray:
    """The counts by magnitude that stand out of the noise, alone or with their neighbours and mirror images.

    Values about zero fill several bins of either sign: more of them stand out together than alone.
    """
    column = counts
    for reach, mirrored in ((0, False), (0, True), (1, True), (2, True)):
        group = np.ones(2 * reach + 1)
        sums = np.convolve(counts + counts[::-1] if mirrored else counts, group, "same")
        stands_out = _above_noise(sums, noise * np.sqrt(len(group) * (1 + mirrored))) > 0.0
        column = np.where(np.convolve(stands_out, group, "same") > 0.0, np.maximum(counts, 0.0), 0.0)
        if column.sum() >= needed:
            break
    return column


def _above_noise(counts: FloatArray, noise: float) -> FloatArray:
    """Zero where a count is no more than the largest of as many noises."""
    bins = counts.shape[-1]
    return np.where(counts > max(noise * np.sqrt(2.0 * np.log(bins)), 0.5), counts, 0.0)


def _shortest(counts: FloatArray, edges: FloatArray, needed: float) -> tuple[int, int]:
    """First and last bin of the narrowest run of bins that holds the needed rows."""
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    ends = np.searchsorted(sums, sums[:-1] + needed * (1.0 - 1e-12))  # sums up to here are enough
    possible = np.flatnonzero(ends < len(sums))
    widths = edges[ends[possible]] - edges[possible]
    first = int(possible[np.argmin(widths)])
    return first, int(ends[first]) - 1


def _counts(places: IntArray, bins: int) -> FloatArray:
    d = places.shape[1]
    flat = (places + bins * np.arange(d)).ravel()
    return np.bincount(flat, minlength=d * bins).reshape(d, bins).astype(np.float64)
