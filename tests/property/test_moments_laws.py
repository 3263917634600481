"""Laws of moments and facts: cutting, order and grouping of rows do not matter."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.summary import Facts

pytestmark = pytest.mark.soak

D = 3
VALUES = st.floats(-1e6, 1e6, allow_subnormal=False)
UNDERFLOW = 100 * np.finfo(np.float64).smallest_subnormal  # products of small values are rounded to multiples of it


def rows_of(least: int) -> st.SearchStrategy[FloatArray]:
    return st.integers(least, 12).flatmap(lambda n: arrays(np.float64, (n, D), elements=VALUES))


def assert_same(left: Moments, right: Moments, scale: float) -> None:
    assert left.n == right.n
    np.testing.assert_allclose(left.mean, right.mean, rtol=0, atol=1e-14 * scale)
    np.testing.assert_allclose(left.scatter, right.scatter, rtol=0, atol=1e-13 * left.n * scale**2 + UNDERFLOW)


def size(*parts: FloatArray) -> float:
    return max((float(np.abs(part).max()) for part in parts if part.size), default=0.0)


@given(rows_of(0), st.lists(st.integers(0, 12)))
def test_chunking_is_irrelevant(rows: FloatArray, cuts: list[int]) -> None:
    chunks = np.split(rows, sorted(min(cut, len(rows)) for cut in cuts))
    assert_same(Moments.of(chunks, D), Moments.of([rows], D), size(rows))


@example(np.zeros((0, D)), np.zeros((1, D)), np.array([[2.85941553e-159, 0.0, 0.0], [0.0, 0.0, 0.0]]))
@given(rows_of(0), rows_of(0), rows_of(0))
def test_addition_is_commutative_associative_and_pools(a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    x, y, z = (Moments.of([part], D) for part in (a, b, c))
    scale = size(a, b, c)
    assert_same(x + y, y + x, scale)
    assert_same((x + y) + z, x + (y + z), scale)
    assert_same(x + y + z, Moments.of([np.concatenate([a, b, c])], D), scale)


@given(rows_of(1), arrays(np.float64, D, elements=VALUES))
def test_scatter_is_least_at_the_mean(rows: FloatArray, centre: FloatArray) -> None:
    moments = Moments.of([rows], D)
    assert np.linalg.eigvalsh(moments.scatter).min() >= -1e-12 * len(rows) * size(rows) ** 2
    more = moments.about(centre) - moments.scatter
    assert (np.diag(more) >= -1e-12 * np.diag(moments.about(centre))).all()


@given(rows_of(1), st.permutations(range(D)))
def test_renaming_columns_permutes(rows: FloatArray, order: list[int]) -> None:
    plain, renamed = Moments.of([rows], D), Moments.of([rows[:, order]], D)
    permuted = Moments(plain.n, plain.mean[order], plain.scatter[np.ix_(order, order)])
    assert_same(renamed, permuted, size(rows))


@given(rows_of(0), rows_of(0))
def test_facts_stream_and_add_alike(a: FloatArray, b: FloatArray) -> None:
    none = Facts.none(D)
    streamed, added, swapped = (
        none.after(a).after(b),
        none.after(a) + none.after(b),
        none.after(b) + none.after(a),
    )
    for other in (added, swapped, none.after(np.concatenate([a, b])), none + streamed):
        assert streamed.constant_columns() == other.constant_columns()
        alike = ~(streamed.low < streamed.high)  # the extremes of other columns are only those that were needed
        np.testing.assert_array_equal(streamed.low[alike], other.low[alike])
        np.testing.assert_array_equal(streamed.high[alike], other.high[alike])
        np.testing.assert_array_equal(streamed.twin, other.twin)
