"""A site's time series: a list of arrays, or a long table with a column of series ids and one of times.

What comes out has the face of a table (`names`, `chunks`) whose rows are stacked: x_t beside the rows before it in the
same series.  So moments, checks and algorithms need not know that time is involved.

Nothing is resampled, filled or sorted: the steps between times must be equal, within a series and over all sites.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagora.arrays import FloatArray
from dagora.data.arrow_tables import Chunk
from dagora.data.lagged import Piece, Stacker, stacked_names
from dagora.data.tables import AnyArray, Source, Table, check_number, check_same_columns, named_sites, open_table
from dagora.data.wording import listing, place
from dagora.errors import InputError

SeriesSource: TypeAlias = Source | Sequence[AnyArray]
_MOMENTS = (pa.timestamp("us"), pa.timestamp("us", "UTC"))


@dataclass(frozen=True)
class SeriesTable:
    """One site's series; `variables` are those of x_t, `names` those of a stacked row."""

    site: str
    variables: tuple[str, ...]
    lags: int
    pieces: Callable[[Sequence[str]], Iterator[Piece]] = field(repr=False)
    step: float | None = None  # between times; None where there are none

    @property
    def names(self) -> tuple[str, ...]:
        """x1, x2, x1 (t-1), x2 (t-1), ..."""
        return stacked_names(self.variables, self.lags)

    def chunks(self, order: Sequence[str]) -> Iterator[FloatArray]:
        """Stream all stacked rows, with the variables (and so their past) in the order of the names given."""
        variables = order[: len(self.variables)]
        stacker = Stacker(self.site, len(variables), self.lags, self.step)
        for piece in self.pieces(variables):
            yield from stacker.stack(piece)
        stacker.close()


def open_series(
    sites: Sequence[SeriesSource] | Mapping[str, SeriesSource], lags: int, series: str | None, time: str | None
) -> list[SeriesTable]:
    """Open every site.  series, time: the columns of a long table that tell the series and when (None: one series)."""
    named = named_sites(sites)
    if series is not None and series == time:
        raise InputError(f"series, time: column {time!r} cannot tell both; name two columns")
    keys = [key for key in (series, time) if key is not None]
    opened = {site: _open_arrays(site, source) for site, source in named.items() if _is_arrays(source)}
    tables = {site: open_table(site, source, keys=keys) for site, source in named.items() if site not in opened}
    for table in tables.values():
        _check_keys(table, series, time)
    check_same_columns([opened[site][0] if site in opened else _without(tables[site], keys) for site in named])
    found = []
    for site in named:
        variables = opened[site][0].names if site in opened else _without(tables[site], keys).names
        check_number(site, len(variables) * (lags + 1), f"columns with those of {lags} lags")
        if site in opened:
            found.append(SeriesTable(site, variables, lags, _Arrays(opened[site]).pieces))
        else:
            long = _Long(tables[site], series, str(time))
            found.append(SeriesTable(site, variables, lags, long.pieces, long.first_step(variables)))
    _check_same_step(found, str(time))
    return found


@dataclass(frozen=True)
class _Arrays:
    """Arrays whose rows are in time order, one a series: numbered from 1."""

    tables: Sequence[Table]

    def pieces(self, order: Sequence[str]) -> Iterator[Piece]:
        for number, table in enumerate(self.tables, start=1):
            try:
                for rows in table.chunks(order):
                    yield Piece(str(number), rows)
            except InputError as error:
                raise InputError(f"series '{number}' of {error}") from None


@dataclass(frozen=True)
class _Long:
    """A table with times, and with ids where it holds several series."""

    table: Table
    series: str | None
    time: str

    def pieces(self, order: Sequence[str]) -> Iterator[Piece]:
        """The rows of each series in each chunk; rows of one series need not be together, only in order of time."""
        keys = [self.time] if self.series is None else [self.time, self.series]
        first = 1
        for chunk in self.table.with_keys(order, keys):
            times = self._times(chunk.keys[0], first)
            for label, members in self._members(chunk, first):
                yield Piece(label, chunk.rows[members], times[members], first + members)
            first += len(chunk.rows)

    def first_step(self, order: Sequence[str]) -> float | None:
        """The time between the first two rows of the first series that has two; others are held against it."""
        last: dict[str, float] = {}
        for piece in self.pieces(order):
            assert piece.times is not None
            times = [last[piece.series]] if piece.series in last else []
            for before, after in pairwise([*times, *piece.times[:2].tolist()]):
                return float(after - before)
            last[piece.series] = float(piece.times[-1])
        return None

    def _members(self, chunk: Chunk, first: int) -> Iterator[tuple[str, Any]]:
        """Every series of the chunk with the positions of its rows, by first appearance."""
        if self.series is None:
            yield "1", np.arange(len(chunk.rows))
            return
        labels = chunk.keys[1].cast(pa.string()).dictionary_encode()
        codes, names = labels.indices, labels.dictionary.to_pylist()
        if codes.null_count or "" in names:
            row = pc.index(pc.fill_null(chunk.keys[1].cast(pa.string()), ""), "").as_py()
            raise InputError(f"{place(self.table.site, self.series, first + row)}: a missing series id; fill it in")
        codes = codes.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        yield from zip(names, np.split(order, ends[:-1]), strict=True)

    def _times(self, column: Any, first: int) -> FloatArray:
        """Numbers, or microseconds of dates and times."""
        times = _as_numbers(column)
        if times is None or not np.isfinite(times).all():
            bad = next((i for i in range(len(column)) if not _is_time(column.slice(i, 1))), None)
            if bad is None:  # each is a time by itself
                raise InputError(
                    f"{place(self.table.site, self.time)}: numbers and dates are mixed; write all times alike"
                )
            where = place(self.table.site, self.time, first + bad)
            raise InputError(f"{where}: neither a number nor a date and time (2024-01-31T12:00:00); mend it")
        return times


def _as_numbers(column: Any) -> FloatArray | None:
    """None where some cell is no time; NaN where it is missing."""
    kinds: tuple[Any, ...] = (pa.float64(), *_MOMENTS)
    if pa.types.is_temporal(column.type):
        zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
        kinds = (pa.int64(),) if pa.types.is_duration(column.type) else (_MOMENTS[1 if zoned else 0],)
    for kind in kinds:
        try:
            found = column.cast(kind, safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        if pa.types.is_timestamp(kind):
            found = found.cast(pa.int64())
        return np.asarray(found.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    return None


def _is_time(cell: Any) -> bool:
    number = _as_numbers(cell)
    return number is not None and bool(np.isfinite(number).all())


def _is_arrays(source: Any) -> bool:
    return isinstance(source, list | tuple | np.ndarray)


def _open_arrays(site: str, source: Any) -> list[Table]:
    """One table a series, all with the same number of columns."""
    several = not isinstance(source, np.ndarray) or source.ndim == 3
    arrays = list(source) if several else [source]
    if not arrays:
        raise InputError(f"{place(site)}: has no series; add one or leave the site out")
    if other := [type(item).__name__ for item in arrays if not isinstance(item, np.ndarray)]:
        raise InputError(f"{place(site)}: a list of series holds 2-D arrays, but no {other[0]}; or pass a long table")
    tables = [open_table(site, array) for array in arrays]
    for number, table in enumerate(tables, start=1):
        if len(table.names) != len(tables[0].names):
            raise InputError(
                f"{place(site)}, series '{number}': {len(table.names)} columns where series '1' has "
                f"{len(tables[0].names)}; give all the same variables"
            )
    return tables


def _check_keys(table: Table, series: str | None, time: str | None) -> None:
    if time is None:
        raise InputError(f"{place(table.site)}: which column holds the times? give its name as time (--time)")
    if lacking := [key for key in (series, time) if key is not None and key not in table.names]:
        raise InputError(f"{place(table.site)}: lacks column {listing(lacking)}, which is to tell series and times")
    if len(table.names) - len({series, time} - {None}) < 2:
        raise InputError(f"{place(table.site)}: fewer than two columns beside series and times; two are needed")


def _without(table: Table, keys: Sequence[str]) -> Table:
    return Table(table.site, tuple(name for name in table.names if name not in keys), table.reader)


def _check_same_step(tables: Sequence[SeriesTable], time: str) -> None:
    """Lags must mean the same time at all sites."""
    timed = [table for table in tables if table.step is not None and table.step > 0.0]
    for table in timed:
        assert table.step is not None
        assert timed[0].step is not None
        if abs(table.step - timed[0].step) > 1e-6 * timed[0].step:
            raise InputError(
                f"{place(table.site, time)}: its steps differ from those of site {timed[0].site!r}, so that lags would "
                "differ in meaning; resample one of them"
            )
