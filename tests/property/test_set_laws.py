"""Sets of variables as whole numbers, against numpy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dagora.arrays import BoolArray
from dagora.solvers.sets import as_columns, as_sets

COLUMNS = arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=70))


@given(columns=COLUMNS)
def test_columns_come_back(columns: BoolArray) -> None:
    np.testing.assert_array_equal(as_columns(as_sets(columns), len(columns)), columns)


@given(columns=COLUMNS, data=st.data())
def test_operations_are_those_of_columns(columns: BoolArray, data: st.DataObject) -> None:
    others = data.draw(arrays(np.bool_, columns.shape))
    for one, other, a, b in zip(columns.T, others.T, as_sets(columns), as_sets(others), strict=True):
        assert (a & b != 0) == (one & other).any()
        assert (a & ~b == 0) == (one <= other).all()
        assert a == sum(1 << k for k in np.flatnonzero(one).tolist())
        np.testing.assert_array_equal(as_columns([a | b], len(columns))[:, 0], one | other)
