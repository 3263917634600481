"""From rows of time series to stacked rows z_t = (x_t, x_(t-1), ..., x_(t-p)), in one pass and bounded memory.

Rows arrive in pieces, each of one series, in any mixture of series.  Of every series only its last p rows, its last
time and its number of rows are kept, so that a row is never stacked onto rows of another series, and memory grows with
the number of series, not of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.data.arrow_tables import chunk_rows
from dagora.data.wording import place
from dagora.errors import InputError

_EVEN = 1e-6  # of a step: times may be rounded


def stacked_names(names: Sequence[str], lags: int) -> tuple[str, ...]:
    """Names of the variables of z: x1, x2, x1 (t-1), x2 (t-1), ..."""
    return (*names, *(f"{name} (t-{lag})" for lag in range(1, lags + 1) for name in names))


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one series; their times, and their numbers in the site's table, if it is one."""

    series: str
    rows: FloatArray
    times: FloatArray | None = None
    numbers: IntArray | None = None


@dataclass
class _Open:
    """What is remembered of a series."""

    tail: FloatArray
    rows: int = 0
    time: float | None = None


@dataclass
class Stacker:
    """Stacks the pieces of one site, and refuses times that are not one `step` apart."""

    site: str
    d: int
    lags: int
    step: float | None = None
    _known: dict[str, _Open] = field(default_factory=dict)

    def stack(self, piece: Piece) -> Iterator[FloatArray]:
        """The stacked rows that this piece completes, (n, d (lags + 1)), a bounded number at a time."""
        of = self._known.setdefault(piece.series, _Open(np.empty((0, self.d))))
        if piece.times is not None:
            self._check_times(piece, of.time)
            of.time = float(piece.times[-1])
        of.rows += len(piece.rows)
        size = chunk_rows(self.d * (self.lags + 1))
        for start in range(0, len(piece.rows), size):
            rows = np.concatenate([of.tail, piece.rows[start : start + size]])
            if len(rows) > self.lags:
                last = len(rows)
                stacked = np.hstack([rows[self.lags - lag : last - lag] for lag in range(self.lags + 1)])
                yield np.asfortranarray(stacked)  # the layout, and so the bits, of a table's chunks
            of.tail = rows[len(rows) - min(self.lags, len(rows)) :].copy()  # a view would keep all rows in memory

    def close(self) -> None:
        """Refuse series that were too short to give a single stacked row."""
        for series, of in self._known.items():
            if of.rows <= self.lags:
                raise InputError(
                    f"{place(self.site)}, series {series!r}: {of.rows} rows, but {self.lags + 1} or more are needed "
                    f"for {self.lags} lags; leave the series out or use fewer lags"
                )

    def _check_times(self, piece: Piece, before: float | None) -> None:
        assert piece.times is not None
        times = piece.times if before is None else np.concatenate([[before], piece.times])
        steps = np.diff(times)
        step = np.nan if self.step is None else self.step
        slack = _EVEN * step + 4.0 * np.finfo(np.float64).eps * np.abs(times[1:])
        wrong = np.flatnonzero((steps <= 0.0) | (np.abs(steps - step) > slack))
        if len(wrong) == 0:
            return
        first = int(wrong[0])
        row = None if piece.numbers is None else int(piece.numbers[first + (before is None)])
        where = f"{place(self.site, row=row)}, series {piece.series!r}"
        if steps[first] == 0.0:
            raise InputError(f"{where}: the same time as in the row before of the series; keep one row a time")
        if steps[first] < 0.0:
            raise InputError(
                f"{where}: a time before that of an earlier row of the series; sort each series by time, and look for "
                "times that occur twice"
            )
        raise InputError(
            f"{where}: the time since the row before is not the first step of the table (a gap, or irregular times); "
            "fill the gap, or give the parts series ids of their own; number the times 1, 2, 3, ... if they follow a "
            "calendar"
        )
