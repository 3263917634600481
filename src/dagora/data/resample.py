"""Rows drawn again from a site's own, with replacement: what a bootstrap replicate is made of.

A replicate is how often each of the n rows is taken: counts that sum to n.  They are drawn block by block, and rows are
repeated chunk by chunk as they are streamed, so that memory does not grow with n.

Whoever knows the counts and n or more totals can solve for single rows (audit/resampling.py).  So counts come from a
key that is the site's own: on a network random, and never sent; in one process made of the run's seed and the site's
name, so that equal input gives equal bits.
"""

import hmac
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.data.rows import Rows
from dagora.errors import InputError

_BLOCK = 1 << 16  # rows whose counts are drawn together


class RowsError(InputError):
    """Rows that cannot be read again, or are others than before: no replicate can help that."""


@dataclass(frozen=True)
class Resamples:
    """What a bootstrap starts from at a site: its data, and all that makes the same kind of data of rows drawn again.

    The key is asked for only once rows are drawn: where it is kept on a disk, its folder is there by then.
    """

    data: Any  # of the rows as they are
    rows: Rows
    n: int
    start: Callable[[Rows], Any]  # how data is made of rows
    key: Callable[[], bytes]

    def drawn(self, replicate: int) -> Any:
        """Data of a replicate; the same whenever it is asked for."""
        return self.start(resampled(self.rows, self.n, self.key(), replicate))


def key_of(seed: int, site: str) -> bytes:
    """The key of a site in a simulation, where nothing is hidden from anybody."""
    return sha256(f"{seed} {site}".encode()).digest()


def resampled(rows: Rows, n: int, key: bytes, replicate: int) -> Rows:
    """n rows drawn from n, as chunks that can be streamed like the original ones."""
    return Rows(partial(_repeated, rows, n, key, replicate), rows.d)


def counts(key: bytes, replicate: int, n: int) -> Iterator[IntArray]:
    """How often each of n rows is taken, a block of rows at a time; n in all.

    Every replicate has a generator of its own, by HMAC: one that is found out tells nothing of the others.
    """
    mixed = hmac.digest(key, f"replicate {replicate}".encode(), "sha256")
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(mixed)))
    left = n  # draws that are still to be given to rows
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        here = int(rng.binomial(left, size / (n - start)))
        left -= here
        yield np.bincount(rng.integers(size, size=here), minlength=size)


def _repeated(rows: Rows, n: int, key: bytes, replicate: int) -> Iterator[FloatArray]:
    drawn, seen = _Stream(counts(key, replicate, n)), 0
    for chunk in _read(rows.chunks()):
        seen += len(chunk)
        yield np.repeat(chunk, drawn.take(len(chunk)), axis=0)
    if seen != n:
        raise RowsError("the rows are others than when the run began; put them back, or start a new run")


class _Stream:
    """Blocks of numbers, cut anew."""

    def __init__(self, blocks: Iterator[IntArray]) -> None:
        self._blocks, self._rest = blocks, np.zeros(0, dtype=np.int64)

    def take(self, size: int) -> IntArray:
        while len(self._rest) < size:
            block = next(self._blocks, None)
            if block is None:
                raise RowsError("there are more rows than when the run began; put them back, or start a new run")
            self._rest = np.concatenate([self._rest, block])
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def _read(chunks: Iterable[FloatArray]) -> Iterator[FloatArray]:
    try:
        yield from chunks
    except InputError as error:
        raise RowsError(str(error)) from error
