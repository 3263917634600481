"""Parquet files and Arrow data frames (pandas, polars, pyarrow) as streams of float64 chunks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dagora.arrays import FloatArray
from dagora.data.wording import place
from dagora.errors import InputError

_CHUNK_CELLS = 1 << 18  # 2 MiB of float64, whatever the number of columns
_BUFFER_BYTES = 1 << 18


@runtime_checkable
class ArrowStream(Protocol):
    """A data frame that can hand its columns over in Arrow form, as often as asked."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


@dataclass(frozen=True)
class Chunk:
    """Some rows: numbers, and beside them whole columns that are no variables (labels, times) in Arrow form."""

    rows: FloatArray  # column after column in memory: sums and products of columns are cheapest so
    keys: tuple[Any, ...] = ()

    @classmethod
    def of(cls, batch: pa.RecordBatch, names: Sequence[str], keys: Sequence[str]) -> "Chunk":
        """The named columns of a batch."""
        return cls(to_array(batch, names), tuple(batch.column(key) for key in keys))

    @property
    def is_finite(self) -> bool:
        """Whether no cell is missing or infinite: a finite sum proves it, and only without one are cells looked at."""
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(self.rows.sum()) or np.isfinite(self.rows).all())


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file whose schema has been read."""

    site: str
    path: Path
    names: tuple[str, ...]

    def read(self, columns: Sequence[int], keys: Sequence[int] = ()) -> Iterator[Chunk]:
        """Stream the columns at these positions, and those at `keys` as they are."""
        wanted, labels = [self.names[j] for j in columns], [self.names[j] for j in keys]
        try:
            with _parquet(self.path) as file:
                size = chunk_rows(len(wanted))
                for batch in file.iter_batches(batch_size=size, columns=[*wanted, *labels], use_threads=False):
                    yield Chunk.of(batch, wanted, labels)
        except (pa.ArrowException, OSError):
            raise _bad_parquet(self.site, self.path) from None


@dataclass(frozen=True)
class FrameTable:
    """A data frame whose schema has been read."""

    site: str
    frame: ArrowStream
    names: tuple[str, ...]

    def read(self, columns: Sequence[int], keys: Sequence[int] = ()) -> Iterator[Chunk]:
        """Stream the columns at these positions, and those at `keys` as they are."""
        wanted, labels = [self.names[j] for j in columns], [self.names[j] for j in keys]
        size = chunk_rows(len(wanted))
        for batch in _stream(self.site, self.frame):
            for start in range(0, batch.num_rows, size):
                yield Chunk.of(batch.slice(start, size), wanted, labels)


def chunk_rows(columns: int) -> int:
    """Rows of a chunk such that its memory does not depend on the number of columns."""
    return max(1, _CHUNK_CELLS // columns)


def to_array(batch: pa.RecordBatch, names: Sequence[str]) -> FloatArray:
    """Copy the named columns into one float64 array (rows, columns), column after column; nulls become NaN."""
    array = np.empty((len(names), batch.num_rows))
    for j, name in enumerate(names):
        column = batch.column(name)
        if column.type != pa.float64():
            column = column.cast(pa.float64(), safe=False)  # unsafe: rounds integers above 2^53
        array[j] = column.to_numpy(zero_copy_only=False)
    return array.T


def open_parquet(site: str, path: Path, keys: Sequence[str] = ()) -> ParquetTable:
    """Read the schema; refuse a file that is not Parquet or has columns, but for the keys, that are not numbers."""
    try:
        with _parquet(path) as file:
            schema = file.schema_arrow
    except (pa.ArrowException, OSError):
        raise _bad_parquet(site, path) from None
    return ParquetTable(site, path, _columns(site, schema, keys))


def open_frame(site: str, frame: ArrowStream, keys: Sequence[str] = ()) -> FrameTable:
    """Read the schema; refuse columns, but for the keys, that are not numbers."""
    if isinstance(frame, pa.RecordBatchReader):
        raise InputError(f"{place(site)}: a stream that can be read only once; pass a table")
    return FrameTable(site, frame, _columns(site, _stream(site, frame).schema, keys))


def _columns(site: str, schema: pa.Schema, keys: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns, without an index that pandas stored beside them."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    fields = [field for field in schema if field.name not in index]
    for field in fields:
        if field.name.strip() not in keys and not _is_number(field.type):
            where = place(site, field.name.strip())
            raise InputError(f"{where}: does not hold numbers; encode it as numbers or remove it")
    return tuple(field.name for field in fields)


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _stream(site: str, frame: ArrowStream) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(frame)
    except Exception:  # the frame's own code runs here, and its messages may quote values
        raise InputError(_frame_fault(site, frame)) from None


def _frame_fault(site: str, frame: Any) -> str:
    """Find the column that Arrow cannot convert (pandas lets one column mix numbers and text)."""
    names = [name for name in getattr(frame, "columns", ()) if isinstance(name, str | int)]
    for name in names:
        if names.count(name) > 1:
            return f"{place(site, str(name))}: the name appears twice; rename one column"
        try:
            pa.array(frame[name])
        except Exception:
            return f"{place(site, str(name))}: mixes numbers with something else; make it all numbers"
    return f"{place(site)}: not a table of columns; pass a data frame, a 2-D array or a path"


def _parquet(path: Path) -> pq.ParquetFile:
    # Small buffers and no pre-buffering: a row group may be as large as the file.
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _bad_parquet(site: str, path: Path) -> InputError:
    return InputError(f"{place(site)}: {path.name!r} is not a readable Parquet file; write it again")
