"""CSV files as streams of float64 chunks; a file that fails is read again, slowly, to say where and why."""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dagora.cells import bare
from dagora.data.arrow_tables import Chunk
from dagora.data.wording import place
from dagora.errors import InputError

SEPARATORS = {".csv": ",", ".txt": ",", ".tsv": "\t"}

_BLOCK_BYTES = 1 << 20
_SAMPLE_CHARACTERS = 1 << 16
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_MISSING = frozenset(pacsv.ConvertOptions().null_values)
_UNREADABLE = (pa.ArrowException, csv.Error, EOFError, OSError, UnicodeError, zlib.error)


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose header has been read: its column names, and how many lines the header took."""

    site: str
    path: Path
    separator: str
    names: tuple[str, ...]
    header_lines: int

    def read(self, columns: Sequence[int], keys: Sequence[int] = ()) -> Iterator[Chunk]:
        """Stream the columns at these positions; a bad cell, a bad row or no row ends in an `InputError`.

        Columns at `keys` come as text.
        """
        rows = 0
        # pyarrow's messages quote cells, so they are dropped and the plain reader describes the fault.
        with suppress(*_UNREADABLE):
            for chunk in self._stream(columns, keys):
                if not chunk.is_finite:
                    break
                yield chunk
                rows += len(chunk.rows)
            else:
                if rows:
                    return
        raise InputError(self._fault(columns, rows))

    def _stream(self, columns: Sequence[int], text: Sequence[int]) -> Iterator[Chunk]:
        keys = [str(j) for j in range(len(self.names))]  # positions, as names may hold anything
        wanted, labels = [keys[j] for j in columns], [keys[j] for j in text]
        types = dict.fromkeys(keys, pa.float64()) | dict.fromkeys(labels, pa.string())
        read = pacsv.ReadOptions(
            column_names=keys, skip_rows=self.header_lines, block_size=_BLOCK_BYTES, use_threads=False
        )
        parse = pacsv.ParseOptions(delimiter=self.separator, invalid_row_handler=_skip_if_blank)
        convert = pacsv.ConvertOptions(column_types=types, include_columns=[*wanted, *labels])
        compression = "gzip" if _is_gzip(self.path) else None
        with (
            pa.input_stream(str(self.path), compression=compression) as stream,
            pacsv.open_csv(stream, read, parse, convert) as batches,
        ):
            for batch in batches:
                yield Chunk.of(batch, wanted, labels)

    def _fault(self, columns: Sequence[int], sound: int) -> str:
        """Describe the first fault after this many sound rows."""
        where, file, row = place(self.site), repr(self.path.name), sound
        try:
            with _text(self.path, errors="replace") as text:
                reader = csv.reader(text, delimiter=self.separator)
                rows = islice(_filled(reader), 1 + sound, None)
                for row, cells in enumerate(rows, start=sound + 1):
                    if fault := self._row_fault(cells, columns, row, reader.line_num):
                        return fault
        except csv.Error:
            where = place(self.site, row=row + 1)
            return f"{where}: not readable as CSV; look for a quote that is never closed"
        except _UNREADABLE:
            return f"{where}: {file} cannot be read to its end; is it damaged or cut off?"
        if row == 0:
            return f"{where}: {file} has a header but no rows; add rows or leave the site out"
        return f"{where}: {file} is not readable as CSV after row {sound}; save it again as plain CSV"

    def _row_fault(self, cells: list[str], columns: Sequence[int], row: int, line: int) -> str | None:
        if len(cells) != len(self.names):
            where = place(self.site, row=row, line=line)
            return f"{where}: {len(cells)} cells where the header has {len(self.names)}; mend the row"
        for j in columns:
            if what := _cell_fault(cells[j]):
                return f"{place(self.site, self.names[j], row, line)}: {what}"
        return None


def open_csv(site: str, path: Path) -> CsvFile:
    """Read the header; refuse a file that is not text, is empty, or begins with data."""
    separator = SEPARATORS[Path(path.name.lower().removesuffix(".gz")).suffix]
    where, file = place(site), repr(path.name)
    try:
        with _text(path) as text:
            binary = "\0" in text.read(_SAMPLE_CHARACTERS)
        with _text(path) as text:
            reader = csv.reader(text, delimiter=separator)
            names = next(_filled(reader), None)
    except UnicodeError:
        raise InputError(f"{where}: {file} is not UTF-8 text; save it as UTF-8 CSV") from None
    except _UNREADABLE:
        raise InputError(f"{where}: {file} is not a readable CSV file; save it again as CSV") from None
    if binary:
        raise InputError(f"{where}: {file} is a binary file, not text; save it as UTF-8 CSV")
    if names is None:
        raise InputError(f"{where}: {file} is empty; add a header and rows or leave the site out")
    if all(_NUMBER.fullmatch(name.strip()) for name in names):
        raise InputError(f"{where}: {file} begins with numbers; add a header line of column names")
    return CsvFile(site, path, separator, tuple(bare(name.strip()) for name in names), reader.line_num)


def _cell_fault(cell: str) -> str | None:
    """Say what is wrong with a cell, without quoting it; None for a finite number."""
    bare = cell.strip(" \t")
    if not bare or bare in _MISSING:
        return "a missing value; fill it in or remove the row"
    if _INFINITY.fullmatch(bare):
        return "an infinite value; replace it or remove the row"
    if not _NUMBER.fullmatch(bare):
        return "not a number; write numbers like -1.5 or 2e-3, or remove the column"
    if not np.isfinite(float(bare)):
        return "a number too large for double precision; rescale the column"
    return None


def _filled(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Pass over blank lines, by the same rule as `_skip_if_blank`."""
    return (cells for cells in rows if len(cells) > 1 or any(cell.strip() for cell in cells))


def _skip_if_blank(row: pacsv.InvalidRow) -> str:
    return "skip" if row.actual_columns == 1 and not row.text.strip() else "error"


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _text(path: Path, errors: str = "strict") -> TextIO:
    """Open for the csv module: UTF-8 with or without a byte order mark, line ends left alone."""
    if _is_gzip(path):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors, newline="")
    return path.open(encoding="utf-8-sig", errors=errors, newline="")
