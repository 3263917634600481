"""Sets of variables as whole numbers, bit k for variable k: to unite or compare two costs next to nothing."""

from collections.abc import Sequence

import numpy as np

from dagora.arrays import BoolArray


def as_sets(columns: BoolArray) -> list[int]:
    """Where each column is true."""
    packed = np.packbits(columns, axis=0, bitorder="little")
    return [int.from_bytes(column.tobytes(), "little") for column in packed.T]


def as_columns(members: Sequence[int], size: int) -> BoolArray:
    """A column for each set, true for its members, of so many variables."""
    length = (size + 7) // 8
    packed = np.frombuffer(b"".join(some.to_bytes(length, "little") for some in members), dtype=np.uint8)
    columns: BoolArray = np.unpackbits(packed.reshape(len(members), length), axis=1, count=size, bitorder="little") == 1
    return np.ascontiguousarray(columns.T)
