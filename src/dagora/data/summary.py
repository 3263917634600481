"""What one pass over a site's rows tells, and the checks that need all sites together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.data.tables import Streamed
from dagora.data.wording import listing
from dagora.errors import InputError


@dataclass(frozen=True)
class Facts:
    """Whether each column is constant (low == high), and for each column the first one that equals it in every row.

    Exact where moments round: 0.1 repeated is constant, and 1e8 with a spread of 1e-3 is not.  What is settled is not
    looked at again: of a column with two values, low < high are the extremes of the rows that first told them apart.
    They are values of single rows, so facts stay with whoever holds the rows.
    """

    low: FloatArray
    high: FloatArray
    twin: IntArray

    @classmethod
    def none(cls, d: int) -> "Facts":
        """Facts of no rows: the zero of `+`."""
        return cls(np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d, dtype=np.int64))

    def after(self, rows: FloatArray) -> "Facts":
        """These facts with more rows; only columns that were constant, or equal to another, so far are compared."""
        if len(rows) == 0:
            return self
        low, high, twin = self.low, self.high, self.twin
        if (one := np.flatnonzero(~(low < high))).size:
            low, high, those = low.copy(), high.copy(), rows[:, one]
            low[one] = np.minimum(low[one], those.min(axis=0))
            high[one] = np.maximum(high[one], those.max(axis=0))
        if (shared := np.bincount(twin, minlength=len(twin))[twin] > 1).any():
            # Bytes as keys compare exactly; adding zero turns -0.0 into 0.0.
            cells = [(rows[:, j] + 0.0).tobytes() if shared[j] else b"" for j in range(len(shared))]
            twin = _first_equal(list(zip(twin.tolist(), cells, strict=True)))
        return Facts(low, high, twin)

    def __add__(self, other: "Facts") -> "Facts":
        """Facts of the rows of both."""
        return Facts(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            _first_equal(list(zip(self.twin.tolist(), other.twin.tolist(), strict=True))),
        )

    def constant_columns(self) -> list[int]:
        """Columns with one value in all rows."""
        return np.flatnonzero(self.low == self.high).tolist()

    def identical_columns(self) -> list[tuple[int, int]]:
        """Pairs (first, later) of columns that agree in all rows."""
        return [(i, j) for j, i in enumerate(self.twin.tolist()) if i != j]


@dataclass(frozen=True)
class SiteSummary:
    """Moments and facts of one site's rows."""

    site: str
    moments: Moments
    facts: Facts


@dataclass(frozen=True)
class Prepared:
    """A site's rows after one pass: what they are like, and what the site part starts from."""

    summary: SiteSummary
    data: Any


def summarise(table: Streamed, order: Sequence[str]) -> SiteSummary:
    """Stream a site's rows once, columns in the given order."""
    moments, facts = Moments.none(len(order)), Facts.none(len(order))
    for rows in table.chunks(order):
        moments, facts = moments.after(rows), facts.after(rows)
    return SiteSummary(table.site, moments, facts)


def check_together(names: Sequence[str], summaries: Sequence[SiteSummary]) -> Moments:
    """Pool the moments of all sites; refuse columns from which nothing can be learned."""
    moments = reduce(add, (summary.moments for summary in summaries))
    facts = reduce(add, (summary.facts for summary in summaries))
    where = ("site " if len(summaries) == 1 else "sites ") + listing([s.site for s in summaries])
    if moments.n < 2:
        raise InputError(f"{where}: a single row in all; add rows")
    if constant := facts.constant_columns():
        columns = listing([names[j] for j in constant])
        raise InputError(f"{where}: the same value in every row of column {columns}; remove it")
    if pairs := facts.identical_columns():
        first, later = (names[j] for j in pairs[0])
        raise InputError(f"{where}: columns {first!r} and {later!r} agree in every row; remove one")
    squares = np.diag(moments.scatter)
    if lost := np.flatnonzero(~np.isfinite(squares) | (squares <= 0)).tolist():
        columns = listing([names[j] for j in lost])
        raise InputError(f"{where}: squares leave double precision in column {columns}; rescale it")
    return moments


def _first_equal(keys: Sequence[tuple[int, object]]) -> IntArray:
    """For each position, the first position with an equal key."""
    first: dict[tuple[int, object], int] = {}
    return np.array([first.setdefault(key, j) for j, key in enumerate(keys)], dtype=np.int64)
