"""Reading time series: every kind of source gives the same stacked rows; what cannot be used is refused by name."""

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dagora
from dagora.arrays import FloatArray
from dagora.data import arrow_tables
from dagora.data.lagged import Piece, Stacker
from dagora.data.series import SeriesTable, open_series
from dagora.errors import InputError

RNG = np.random.default_rng(0)
SERIES = {"left": RNG.standard_normal((5, 2)), "right": RNG.standard_normal((4, 2))}


def frame(start: str | None = None) -> pd.DataFrame:
    """A long table: 9 rows, times from 1, or days from a start."""
    parts = []
    for name, rows in SERIES.items():
        times: Any = pd.date_range(start, periods=len(rows)) if start else np.arange(1, len(rows) + 1)
        parts.append(pd.DataFrame({"id": name, "t": times, "x1": rows[:, 0], "x2": rows[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def all_rows(table: SeriesTable) -> FloatArray:
    return np.concatenate(list(table.chunks(table.names)))


def refusal(read: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    line = str(caught.value)
    assert "\n" not in line
    return line


def read_frame(table: pd.DataFrame, lags: int = 1) -> FloatArray:
    return all_rows(open_series({"a": table.reset_index(drop=True)}, lags, "id", "t")[0])


def by_hand() -> FloatArray:
    """Two lags: x1, x2, then both a step before, then both two steps before."""
    return np.array([[*rows[t], *rows[t - 1], *rows[t - 2]] for rows in SERIES.values() for t in range(2, len(rows))])


def test_arrays_give_stacked_rows() -> None:
    (table,) = open_series([list(SERIES.values())], 2, None, None)
    assert table.names == ("x1", "x2", "x1 (t-1)", "x2 (t-1)", "x1 (t-2)", "x2 (t-2)")
    np.testing.assert_array_equal(all_rows(table), by_hand())


def test_an_array_is_one_series_and_a_block_is_several() -> None:
    block = RNG.standard_normal((3, 6, 2))
    tables = open_series({"one": block[0], "three": block}, 1, None, None)
    assert [len(all_rows(table)) for table in tables] == [5, 15]


@pytest.mark.parametrize("start", [None, "2024-02-26"])
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "frame"])
def test_long_tables_give_the_same_rows(kind: str, start: str | None, tmp_path: Path) -> None:
    table, path = frame(start), tmp_path / f"site.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(table.to_csv(index=False).encode()))
    elif kind == "parquet":
        table.to_parquet(path)
    (opened,) = open_series([table if kind == "frame" else path], 2, "id", "t")
    np.testing.assert_allclose(all_rows(opened), by_hand(), rtol=1e-15)


def test_a_table_without_ids_is_one_series() -> None:
    table = frame().query("id == 'left'").drop(columns="id")
    (opened,) = open_series([table], 2, None, "t")
    np.testing.assert_array_equal(all_rows(opened), by_hand()[:3])


def test_rows_of_series_may_be_mixed_and_chunks_small(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three rows a chunk and a stacked chunk: tails have to be carried over.
    monkeypatch.setattr(arrow_tables, "_CHUNK_CELLS", 6)
    mixed = frame().sort_values(["t", "id"])
    expected = by_hand()
    found = read_frame(mixed, 2)
    assert sorted(found.tolist()) == sorted(expected.tolist())


def test_memory_is_bounded() -> None:
    # 500 series of 1,000 rows are 8 MB; what is kept of them, and one stacked chunk, is far less.
    stacker, rows = Stacker("site", 2, 1), np.zeros((1000, 2))
    tracemalloc.start()
    for number in range(500):
        for _ in stacker.stack(Piece(str(number), rows)):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


def test_gap_is_named() -> None:
    line = refusal(lambda: read_frame(frame().drop(index=2)))
    assert "site 'a', row 3, series 'left'" in line
    assert "a gap" in line


def test_duplicate_time_is_named() -> None:
    line = refusal(lambda: read_frame(frame().iloc[[0, 1, 1, 2, 5, 6, 7]]))
    assert "site 'a', row 3, series 'left': the same time" in line


def test_time_that_goes_back_is_named() -> None:
    line = refusal(lambda: read_frame(frame().iloc[[0, 1, 2, 5, 7, 6]]))
    assert "row 5, series 'right'" in line
    assert "a gap" in line
    assert "row 3, series 'left': a time before" in refusal(lambda: read_frame(frame().iloc[[0, 1, 0, 5, 6, 7]]))


def test_irregular_float_times_may_be_rounded_only() -> None:
    table, times = frame(), np.round(np.array([1, 2, 3, 4, 5, 1, 2, 3, 4]) / 3.0, 9)  # thirds, to nine digits
    assert len(read_frame(table.assign(t=times))) == 7
    times[3] += 0.01
    assert "a gap, or irregular" in refusal(lambda: read_frame(table.assign(t=times)))


def test_short_series_is_named() -> None:
    line = refusal(lambda: read_frame(frame().iloc[:7], 2))
    assert "series 'right': 2 rows, but 3 or more are needed for 2 lags" in line
    line = refusal(lambda: all_rows(open_series([[np.zeros((3, 2)), np.zeros((2, 2))]], 2, None, None)[0]))
    assert "site 'site-01', series '2': 2 rows" in line


def test_too_many_columns_with_their_past_are_refused() -> None:
    rows = np.zeros((3, 4000))
    line = refusal(lambda: open_series({"north": [rows]}, 2, None, None))
    assert "site 'north': 12000 columns with those of 2 lags, but Dagora takes at most 10000; leave out" in line
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(4000)]).assign(t=[1, 2, 3])
    assert "12000 columns" in refusal(lambda: open_series({"north": table}, 2, None, "t"))


def test_missing_keys_are_named() -> None:
    assert "'id'" in refusal(lambda: open_series({"a": frame().drop(columns="id")}, 1, "id", "t"))
    assert "which column holds the times" in refusal(lambda: open_series({"a": frame()}, 1, "id", None))
    assert "cannot tell both" in refusal(lambda: open_series({"a": frame()}, 1, "t", "t"))
    ids: Any = ["left", None, *["right"] * 7]
    holes = frame().assign(id=ids)
    assert "row 2, column 'id': a missing series id" in refusal(lambda: read_frame(holes))
    late = frame().assign(t=[1.0, 2.0, 3.0, 4.0, 5.0, 1.0, np.nan, 3.0, 4.0])
    assert "row 7, column 't': neither a number nor a date" in refusal(lambda: read_frame(late))


def test_text_that_is_no_time_is_named(tmp_path: Path) -> None:
    text = frame().assign(t=["1", "2", "3", "4", "soon", "1", "2", "3", "4"])
    text.to_csv(tmp_path / "site.csv", index=False)
    line = refusal(lambda: open_series([tmp_path / "site.csv"], 1, "id", "t"))
    assert "row 5, column 't': neither a number nor a date" in line
    assert "soon" not in line


def test_bad_values_are_named_with_their_series() -> None:
    holes = [SERIES["left"], SERIES["right"].copy()]
    holes[1][2, 0] = np.nan
    line = refusal(lambda: all_rows(open_series([holes], 1, None, None)[0]))
    assert "series '2' of site 'site-01', row 3, column 'x1': a missing value" in line
    bad = frame().assign(x2=[1.0, np.inf, *[2.0] * 7])
    assert "row 2, column 'x2': an infinite value" in refusal(lambda: read_frame(bad))


def test_lists_hold_arrays_of_the_same_variables() -> None:
    assert "series '2': 3 columns" in refusal(lambda: open_series([[np.ones((4, 2)), np.ones((4, 3))]], 1, None, None))
    assert "no series" in refusal(lambda: open_series([[]], 1, None, None))
    mixed: Any = [[np.ones((4, 2)), "b.csv"]]
    assert "no str" in refusal(lambda: open_series(mixed, 1, None, None))


def test_sites_must_step_alike() -> None:
    hourly = frame().assign(t=60.0 * np.array([1, 2, 3, 4, 5, 1, 2, 3, 4]))
    line = refusal(lambda: open_series({"a": frame(), "b": hourly}, 1, "id", "t"))
    assert "site 'b', column 't'" in line
    assert "site 'a'" in line


def test_learn_wants_time_columns_for_series_only() -> None:
    rows = RNG.standard_normal((20, 2))
    assert "time: model 'linear'" in refusal(lambda: dagora.learn([rows], time="t"))
    assert "series: model 'linear'" in refusal(lambda: dagora.learn([rows], series="id"))


def test_numbers_and_dates_in_one_column_of_times() -> None:
    table = frame()
    table["t"] = [str(t) for t in table["t"]]
    table.loc[3, "t"] = "2020-01-01"
    assert "'t': numbers and dates are mixed; write all times alike" in refusal(lambda: read_frame(table))
