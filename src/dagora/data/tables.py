"""One site's rows (array, data frame, CSV or Parquet file) as a stream of finite float64 chunks."""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dagora.arrays import FloatArray
from dagora.data.arrow_tables import ArrowStream, Chunk, chunk_rows, open_frame, open_parquet
from dagora.data.csv_files import SEPARATORS, open_csv
from dagora.data.wording import listing, place
from dagora.errors import InputError

AnyArray: TypeAlias = npt.NDArray[Any]
Source: TypeAlias = str | os.PathLike[str] | AnyArray | ArrowStream

MOST_COLUMNS = 10_000  # a matrix of columns by columns then takes 800 MB; learning needs several

_PARQUET = (".parquet", ".pq")
_HINTS = {";": "a semicolon", "\t": "a tab", ",": "a comma", "|": "a bar"}


class Reader(Protocol):
    """A source that has been opened: its names as written there, and its rows by column position."""

    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102

    def read(self, columns: Sequence[int], keys: Sequence[int] = ()) -> Iterator[Chunk]: ...  # noqa: D102


class Streamed(Protocol):
    """What a run reads: one site's rows, by the names of its columns, as often as asked."""

    @property
    def site(self) -> str: ...  # noqa: D102

    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102

    def chunks(self, order: Sequence[str]) -> Iterator[FloatArray]: ...  # noqa: D102


@dataclass(frozen=True)
class Table:
    """One site's columns, in the source's own order, and a way to stream its rows."""

    site: str
    names: tuple[str, ...]
    reader: Reader = field(repr=False)  # an array's repr would show values

    def chunks(self, order: Sequence[str]) -> Iterator[FloatArray]:
        """Stream all rows as finite (rows, len(order)) arrays that the caller may keep or change."""
        return (chunk.rows for chunk in self.with_keys(order, ()))

    def with_keys(self, order: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        """The same with columns beside them that are no variables."""
        if lacking := [name for name in (*order, *keys) if name not in self.names]:
            raise InputError(f"{place(self.site)}: lacks column {listing(lacking)}; add it")
        return self._checked(order, keys)

    def _checked(self, order: Sequence[str], keys: Sequence[str]) -> Iterator[Chunk]:
        rows = 0
        for chunk in self.reader.read(*([self.names.index(name) for name in names] for names in (order, keys))):
            if not chunk.is_finite:
                i, j = np.argwhere(~np.isfinite(chunk.rows))[0]
                what = "a missing value" if np.isnan(chunk.rows[i, j]) else "an infinite value"
                where = place(self.site, order[j], row=rows + int(i) + 1)
                raise InputError(f"{where}: {what}; replace it or remove the row")
            rows += len(chunk.rows)
            yield chunk
        if rows == 0:
            raise InputError(f"{place(self.site)}: has no rows; add rows or leave the site out")


@dataclass(frozen=True)
class ArrayTable:
    """A numeric 2-D array with names for its columns."""

    array: AnyArray = field(repr=False)
    names: tuple[str, ...]

    def read(self, columns: Sequence[int], keys: Sequence[int] = ()) -> Iterator[Chunk]:
        """Copy the columns at these positions, a bounded number of rows at a time; an array has no keys."""
        size = chunk_rows(len(columns))
        for start in range(0, len(self.array), size):
            rows = self.array[start : start + size]
            chosen = np.ma.filled(rows.astype(np.float64), np.nan)[:, columns]  # a masked cell is missing
            yield Chunk(np.asfortranarray(chosen))  # the same layout, and so the same bits, as from files


def open_table(site: str, source: Source, names: Sequence[str] | None = None, keys: Sequence[str] = ()) -> Table:
    """Read only the header or schema, and refuse what can be refused there.

    names: for an array, which has none of its own (default: x1, x2, ...).  keys: columns that need not be numbers.
    """
    if isinstance(source, np.ndarray):
        reader: Reader = _open_array(site, source, names)
    elif names is not None:
        raise InputError(f"{place(site)}: names are for arrays only; this source has its own")
    elif isinstance(source, str | os.PathLike):
        reader = _open_file(site, Path(source), keys)
    elif isinstance(source, ArrowStream):
        reader = open_frame(site, source, keys)
    else:
        kind = type(source).__name__
        raise InputError(f"{place(site)}: cannot use a {kind}; pass a 2-D array, a data frame or a path")
    stripped = tuple(name.strip() for name in reader.names)
    check_number(site, len(stripped))
    _check_names(site, stripped)
    return Table(site, stripped, reader)


def open_tables(sites: Sequence[Source] | Mapping[str, Source]) -> list[Table]:
    """Open one table a site, named by key, by file, or site-01, site-02, ...; all need the same columns."""
    tables = [open_table(site, source) for site, source in named_sites(sites).items()]
    check_same_columns(tables)
    return tables


def named_sites(sites: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """The sites' sources by name."""
    single = isinstance(sites, str | os.PathLike | np.ndarray | ArrowStream)
    if single or not isinstance(sites, Sequence | Mapping):
        raise InputError("sites: pass a list with one entry a site; for a single site, a list of one: [data]")
    if not sites:
        raise InputError("sites: the collection is empty; pass at least one array, data frame or path")
    named = sites.items() if isinstance(sites, Mapping) else zip(_site_names(sites), sites, strict=True)
    return {str(site): source for site, source in named}


def _open_array(site: str, array: AnyArray, names: Sequence[str] | None) -> ArrayTable:
    if array.ndim != 2:
        raise InputError(f"{place(site)}: the array has {array.ndim} dimensions; pass rows by columns")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{place(site)}: the array does not hold numbers; convert it to float")
    if names is None:
        names = [f"x{j}" for j in range(1, array.shape[1] + 1)]
    if len(names) != array.shape[1]:
        raise InputError(f"{place(site)}: {len(names)} names for {array.shape[1]} columns; give one a column")
    return ArrayTable(array, tuple(names))


def check_number(site: str, columns: int, what: str = "columns") -> None:
    """Refuse more columns than memory has room for, before anything is allocated for them."""
    if columns > MOST_COLUMNS:
        raise InputError(
            f"{place(site)}: {columns} {what}, but Dagora takes at most {MOST_COLUMNS}; leave out what you do not need"
        )


def check_file(site: str, path: Path) -> None:
    """Whether there is a file that can be read.  A pipe could be read only once, and might never end."""
    where = place(site)
    try:
        mode = path.stat().st_mode
        usual = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        if usual:  # to open a pipe would wait for its writer
            path.open("rb").close()
    except FileNotFoundError:
        raise InputError(f"{where}: there is no file {str(path)!r}; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{where}: {str(path)!r} is a folder; name the files in it") from None
    except PermissionError:
        raise InputError(f"{where}: no permission to read {str(path)!r}; change its mode") from None
    except (OSError, ValueError):
        raise InputError(f"{where}: {str(path)!r} cannot be opened; check the path") from None
    if not usual:
        raise InputError(
            f"{where}: {str(path)!r} is a pipe or a device; write the rows to a regular file and name that"
        )


def _open_file(site: str, path: Path, keys: Sequence[str]) -> Reader:
    check_file(site, path)
    lower = path.name.lower()
    if lower.endswith(_PARQUET):
        return open_parquet(site, path, keys)
    if lower.removesuffix(".gz").endswith(tuple(SEPARATORS)):
        return open_csv(site, path)
    known = ", ".join([*SEPARATORS, *_PARQUET])
    raise InputError(f"{place(site)}: unknown kind of file {path.name!r}; supported are {known}, and .gz of text")


def _check_names(site: str, names: tuple[str, ...]) -> None:
    if not names:
        raise InputError(f"{place(site)}: has no columns; two or more are needed")
    if len(names) == 1:
        for mark, word in _HINTS.items():
            if mark in names[0]:  # the name is not shown: without a header it would hold values
                raise InputError(
                    f"{place(site)}: one column in all; is the separator {word}? .csv and .txt take commas, .tsv tabs"
                )
        raise InputError(f"{place(site, names[0])}: the only column; two or more are needed")
    if "" in names:
        position = names.index("") + 1
        raise InputError(f"{place(site)}: column {position} has no name; name it, or remove an index")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{place(site, twice[0])}: the name appears twice; rename one column")


def check_same_columns(tables: Sequence[Table]) -> None:
    """Compare every site with the most common set of columns (at a tie, that of the earliest site)."""
    usual = Counter(frozenset(table.names) for table in tables).most_common(1)[0][0]
    model = next(table for table in tables if usual == set(table.names))
    for table in tables:
        if usual == set(table.names):
            continue
        arrays = [t.site for t in (table, model) if isinstance(t.reader, ArrayTable)]
        if len(arrays) == 1 and len(table.names) == len(usual):
            other = model.site if arrays == [table.site] else table.site
            raise InputError(
                f"{place(arrays[0])}: an array has no column names to match with those of site {other!r}; "
                "pass a data frame with the same names"
            )
        lacks = [name for name in model.names if name not in table.names]
        extra = [name for name in table.names if name not in usual]
        differences = " and ".join(
            f"{verb} column {listing(names)}" for verb, names in (("lacks", lacks), ("adds", extra)) if names
        )
        raise InputError(
            f"{place(table.site)}: {differences}, compared with site {model.site!r}; give all sites the same columns"
        )


def _site_names(sources: Sequence[Source]) -> list[str]:
    """site-01, site-02, ... or the file's stem; equal stems become folder/stem, then the full path."""
    choices = [_choices(number, source) for number, source in enumerate(sources, start=1)]
    names = [choice[0] for choice in choices]
    for level in (1, 2):
        counts = Counter(names)
        names = [
            choice[min(level, len(choice) - 1)] if counts[name] > 1 else name
            for name, choice in zip(names, choices, strict=True)
        ]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"sites: the file {twice[0]!r} is given twice; name each file once")
    return names


def _choices(number: int, source: Source) -> list[str]:
    if not isinstance(source, str | os.PathLike):
        return [f"site-{number:02d}"]
    path = Path(source).absolute()
    stem = Path(path.name.removesuffix(".gz")).stem
    return [stem, f"{path.parent.name}/{stem}", str(path)]
