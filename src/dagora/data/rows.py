"""Rows that can be read again, for site parts to whom moments are not enough."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from dagora.arrays import FloatArray
from dagora.data.tables import Streamed


@dataclass(frozen=True)
class Rows:
    """A site's rows as chunks (n, d) that can be streamed once a round."""

    chunks: Callable[[], Iterable[FloatArray]]
    d: int

    @classmethod
    def of(cls, tables: Sequence[Streamed], names: Sequence[str]) -> "Rows":
        """The rows of one table, or of several, one after the other; columns in the order of the names."""
        return cls(partial(_chunks, tables, names), len(names))


def _chunks(tables: Sequence[Streamed], names: Sequence[str]) -> Iterable[FloatArray]:
    for table in tables:
        yield from table.chunks(names)
