"""Laws of stacked rows: they keep to one series, whatever the pieces and the mixture in which rows arrive."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dagora.arrays import FloatArray
from dagora.data.lagged import Piece, Stacker
from dagora.data.series import open_series

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def tagged(number: int, length: int) -> FloatArray:
    """Rows that say where they are from: the series, and the time in it."""
    return np.column_stack([np.full(length, float(number)), np.arange(length, dtype=np.float64)])


def stacked_by_hand(lengths: list[int], lags: int) -> set[tuple[float, ...]]:
    return {
        tuple(x for lag in range(lags + 1) for x in (float(number), float(t - lag)))
        for number, length in enumerate(lengths)
        for t in range(lags, length)
    }


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, lags=st.integers(0, 4), data=st.data())
def test_no_stacked_row_crosses_into_another_series(lengths: list[int], lags: int, data: st.DataObject) -> None:
    # Pieces of random sizes, in a random mixture of series.
    left = {number: tagged(number, length) for number, length in enumerate(lengths)}
    stacker, found = Stacker("site", 2, lags), []
    while left:
        number = data.draw(st.sampled_from(sorted(left)))
        size = data.draw(st.integers(1, len(left[number])))
        piece, left[number] = left[number][:size], left[number][size:]
        if len(left[number]) == 0:
            del left[number]
        found += [row for rows in stacker.stack(Piece(str(number), piece)) for row in rows.tolist()]
    assert len(found) == sum(max(length - lags, 0) for length in lengths)
    assert set(map(tuple, found)) == stacked_by_hand(lengths, lags)


@settings(max_examples=30, deadline=None)
@given(lengths=LENGTHS.map(lambda lengths: [n + 2 for n in lengths]), lags=st.integers(0, 2), seed=st.integers(0, 99))
def test_a_long_table_in_any_mixture_gives_the_rows_of_the_arrays(lengths: list[int], lags: int, seed: int) -> None:
    series = [tagged(number, length) for number, length in enumerate(lengths)]
    rows = np.concatenate(series)
    # A random mixture that keeps every series in order of time.
    shuffled = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(lengths)), lengths))
    starts = np.cumsum([0, *lengths])[:-1]
    at = [starts[number] + (shuffled[:k] == number).sum() for k, number in enumerate(shuffled)]
    table = pa.table(
        {"a": rows[at, 0], "b": rows[at, 1], "t": 10.0 + 0.5 * rows[at, 1], "id": rows[at, 0].astype(int).astype(str)}
    )
    (from_arrays,) = open_series([series], lags, None, None)
    (from_table,) = open_series({"site": table}, lags, "id", "t")
    assert from_table.names == tuple(name.replace("x1", "a").replace("x2", "b") for name in from_arrays.names)
    both = [
        set(map(tuple, np.concatenate(list(table.chunks(table.names))).tolist())) for table in (from_arrays, from_table)
    ]
    assert both[0] == both[1] == stacked_by_hand(lengths, lags)
