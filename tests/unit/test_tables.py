"""Tables: what is read, in which order, and what is refused, in one line that never shows a value."""

import gzip
import os
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagora.arrays import FloatArray
from dagora.data.tables import MOST_COLUMNS, Source, Table, open_table, open_tables
from dagora.errors import InputError

ROWS = np.array([[1.0, -2.5, 3e-3], [4.0, 0.0, 6e8], [7.0, 8.25, -9.0], [0.5, 1.5, 2.5]])
NAMES = ["a", "b", "c"]
SECRET = "Zebra77"


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_of(table: Table, order: list[str] | None = None) -> FloatArray:
    return np.concatenate(list(table.chunks(order or table.names)))


def refusal(action: Callable[[], object]) -> str:
    """The one line of the refusal; no cause is attached that could show values in a traceback."""
    with pytest.raises(InputError) as caught:
        action()
    line = str(caught.value)
    assert "\n" not in line
    assert SECRET not in line
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return line


def refusal_of(source: Any) -> str:
    """The refusal of one site's source, at opening or while streaming."""
    line = refusal(lambda: rows_of(open_table("north", source)))
    assert "'north'" in line
    return line


def csv_text(separator: str = ",", end: str = "\n") -> str:
    lines = [NAMES, *[[repr(float(x)) for x in row] for row in ROWS]]
    return end.join(separator.join(line) for line in lines) + end


# ---- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("s.csv", csv_text()),
        ("s.CSV", csv_text()),
        ("s.txt", csv_text()),
        ("s.tsv", csv_text("\t")),
        ("s.csv.gz", gzip.compress(csv_text().encode(), mtime=0)),
        ("s.tsv.gz", gzip.compress(csv_text("\t").encode(), mtime=0)),
        ("s.csv", b"\xef\xbb\xbf" + csv_text().encode()),
        ("s.csv", csv_text(end="\r\n")),
        ("s.csv", csv_text(end="\r")),
        ("s.csv", csv_text().rstrip("\n")),
        ("s.csv", csv_text() + "\n\n  \n\n"),
        ("s.csv", "\n  \n" + csv_text()),
        ("s.csv", csv_text().replace("a,b,c", '"a","b",c')),
        ("s.csv", csv_text().replace("a,b,c", " a,b , c")),
        ("s.csv", csv_text().replace("-2.5", '"-2.5"').replace("8.25", "  +8.25 ")),
    ],
)
def test_csv_dialects_give_the_same_rows(tmp_path: Path, name: str, content: str | bytes) -> None:
    table = open_table("s", write(tmp_path / name, content))
    assert table.names == ("a", "b", "c")
    np.testing.assert_array_equal(rows_of(table), ROWS)


def sources(folder: Path, order: list[str]) -> dict[str, Source]:
    """The same rows in every form that has column names, columns in the given order."""
    frame = pd.DataFrame(ROWS, columns=NAMES)[order]
    frame.to_csv(folder / "csv.csv", index=False)
    frame.to_parquet(folder / "parquet.parquet")
    return {
        "csv": folder / "csv.csv",
        "text": str(folder / "csv.csv"),
        "parquet": folder / "parquet.parquet",
        "pandas": frame,
        "arrow": pa.Table.from_pandas(frame),
    }


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "a", "b"]])
def test_column_order_is_irrelevant_in_every_form(tmp_path: Path, order: list[str]) -> None:
    tables = open_tables(sources(tmp_path, order))
    array = ROWS[:, [NAMES.index(name) for name in order]]
    tables.append(open_table("array", array, names=order))
    for table in tables:
        assert table.names == tuple(order)
        np.testing.assert_array_equal(rows_of(table, ["b", "c", "a"]), ROWS[:, [1, 2, 0]])
        np.testing.assert_array_equal(rows_of(table, ["b", "c", "a"]), ROWS[:, [1, 2, 0]], "a second pass")


def test_sites_may_order_their_columns_differently(tmp_path: Path) -> None:
    forms = sources(tmp_path, ["a", "b", "c"])
    mixed = {**forms, "pandas": pd.DataFrame(ROWS, columns=NAMES)[["c", "b", "a"]]}
    for table in open_tables(mixed):
        np.testing.assert_array_equal(rows_of(table, NAMES), ROWS)


def test_a_default_named_array_meets_a_file_with_those_names(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", "x2,x1\n2,1\n4,3\n")
    first, second = open_tables([np.array([[1, 2], [3, 4]]), path])
    assert first.names == ("x1", "x2")
    np.testing.assert_array_equal(rows_of(first), rows_of(second, ["x1", "x2"]))


def test_a_subset_of_columns_ignores_faults_elsewhere(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", f"a,b,c\n1,2,{SECRET}\n3,4,\n")
    np.testing.assert_array_equal(rows_of(open_table("s", path), ["b", "a"]), [[2, 1], [4, 3]])


@pytest.mark.parametrize("kind", ["parquet", "pandas"])
@pytest.mark.parametrize("index", [None, "label", "a.b"])
def test_a_stored_pandas_index_is_no_variable(tmp_path: Path, kind: str, index: str | None) -> None:
    frame = pd.DataFrame(ROWS, columns=NAMES, index=pd.Index(list("uvwx"), name=index))
    frame.to_parquet(tmp_path / "s.parquet")
    table = open_table("s", tmp_path / "s.parquet" if kind == "parquet" else frame)
    assert table.names == ("a", "b", "c")
    np.testing.assert_array_equal(rows_of(table), ROWS)


def test_number_types_become_floats(tmp_path: Path) -> None:
    columns = {
        "int": pa.array([1, 2**60], pa.int64()),
        "unsigned": pa.array([1, 2], pa.uint8()),
        "half": pa.array(np.array([1, 2], dtype=np.float16)),
        "bool": pa.array([True, False]),
        "decimal": pa.array([Decimal(1), Decimal(2)], pa.decimal128(20, 2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "s.pq")
    rows = rows_of(open_table("s", tmp_path / "s.pq"))
    np.testing.assert_array_equal(rows, [[1, 1, 1, 1, 1], [2.0**60, 2, 2, 0, 2]])


@pytest.mark.parametrize(
    ("hole", "what"), [(None, "a missing value"), (np.nan, "a missing value"), (-np.inf, "an infinite value")]
)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_hole_is_named_whichever_row_group_it_is_in(
    tmp_path: Path, kind: pa.DataType, hole: float | None, what: str
) -> None:
    cells: list[float | None] = [0.5] * 50
    cells[36] = hole
    table = pa.table({"a": pa.array(range(50), pa.int32()), "b": pa.array(cells, kind)})
    pq.write_table(table, tmp_path / "north.parquet", row_group_size=10)
    line = refusal(lambda: rows_of(open_table("north", tmp_path / "north.parquet")))
    assert line == f"site 'north', row 37, column 'b': {what}; replace it or remove the row"


def test_sums_that_overflow_are_no_fault_of_the_rows() -> None:
    rows = np.full((4, 2), 1.7e308)
    np.testing.assert_array_equal(rows_of(open_table("s", rows)), rows)


def test_parquet_names_with_dots_do_not_mix(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x.1": [1.0, 2.0], "x": [3.0, 4.0]}), tmp_path / "s.parquet")
    np.testing.assert_array_equal(rows_of(open_table("s", tmp_path / "s.parquet"), ["x", "x.1"]), [[3, 1], [4, 2]])


def test_an_array_is_copied_and_left_alone() -> None:
    array = np.asfortranarray(ROWS)
    for chunk in open_table("s", array).chunks(["x1", "x2", "x3"]):
        chunk += 1.0
    np.testing.assert_array_equal(array, ROWS)


def test_chunks_are_bounded_in_every_form(tmp_path: Path) -> None:
    n = 200_000
    frame = pd.DataFrame({"a": np.arange(n) / 8, "b": np.arange(n) % 7, "c": 0.0})
    frame.to_parquet(tmp_path / "s.parquet")  # one row group
    frame.to_csv(tmp_path / "s.csv", index=False)
    for source in (frame, frame.to_numpy(), tmp_path / "s.parquet", tmp_path / "s.csv"):
        table = open_table("s", source)
        sizes = [chunk.nbytes for chunk in table.chunks(table.names)]
        assert len(sizes) > 1
        assert max(sizes) <= 4 << 20
        assert sum(sizes) == n * 3 * 8


def test_repr_shows_no_values() -> None:
    assert "8.25" not in repr(open_table("s", ROWS))
    assert "8.25" not in repr(open_table("s", pd.DataFrame(ROWS)))


# ---- names of sites -----------------------------------------------------------------------------


def test_sites_are_named_by_key_position_or_file(tmp_path: Path) -> None:
    assert [t.site for t in open_tables({"u": ROWS, "v": ROWS})] == ["u", "v"]
    assert [t.site for t in open_tables([ROWS, pd.DataFrame(ROWS, columns=["x1", "x2", "x3"])])] == [
        "site-01",
        "site-02",
    ]
    paths = [write(tmp_path / name, "a,b\n1,2\n") for name in ("east.csv", "west.txt")]
    zipped = write(tmp_path / "far.csv.gz", gzip.compress(b"a,b\n1,2\n"))
    assert [t.site for t in open_tables([*paths, str(zipped)])] == ["east", "west", "far"]


def test_equal_stems_take_more_of_the_path(tmp_path: Path) -> None:
    folders = [tmp_path / "p" / "u", tmp_path / "p" / "v", tmp_path / "q" / "u"]
    for folder in folders:
        folder.mkdir(parents=True)
    u, v, far = (write(folder / "s.csv", "x1,x2\n1,2\n") for folder in folders)
    assert [t.site for t in open_tables([u, v])] == ["u/s", "v/s"]
    assert [t.site for t in open_tables([u, v, far])] == [str(u), "v/s", str(far)]
    clash = write(tmp_path / "site-02.csv", "x1,x2\n1,2\n")
    assert [t.site for t in open_tables([clash, ROWS[:, :2]])] == [f"{tmp_path.name}/site-02", "site-02"]


# ---- refusals: collections ----------------------------------------------------------------------


@pytest.mark.parametrize("single", [ROWS, pd.DataFrame(ROWS), "s.csv", Path("s.csv"), pa.table({"a": [1]}), 3])
def test_a_single_source_must_be_put_in_a_list(single: Any) -> None:
    assert "[data]" in refusal(lambda: open_tables(single))


@pytest.mark.parametrize("empty", [[], (), {}])
def test_no_sites(empty: Any) -> None:
    assert "empty" in refusal(lambda: open_tables(empty))


def test_the_same_file_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", "a,b\n1,2\n")
    assert "twice" in refusal(lambda: open_tables([path, str(path)]))


def test_columns_are_compared_with_the_majority() -> None:
    odd, usual = pd.DataFrame(ROWS, columns=["a", "b", "z"]), pd.DataFrame(ROWS, columns=NAMES)
    line = refusal(lambda: open_tables({"odd": odd, "one": usual, "two": usual}))
    assert "site 'odd'" in line
    assert "lacks column 'c' and adds column 'z'" in line
    assert "'one'" in line


def test_a_missing_and_an_extra_column() -> None:
    full, part = pd.DataFrame(ROWS, columns=NAMES), pd.DataFrame(ROWS[:, :2], columns=NAMES[:2])
    assert "'two': lacks column 'c'," in refusal(lambda: open_tables({"one": full, "two": part}))
    assert "'two': adds column 'c'," in refusal(lambda: open_tables({"one": part, "two": full}))
    assert "'two': lacks column 'x3'," in refusal(lambda: open_tables({"one": ROWS, "two": ROWS[:, :2]}))


@pytest.mark.parametrize("order", [("array", "frame"), ("frame", "array")])
def test_an_array_cannot_be_matched_with_named_columns(order: tuple[str, str]) -> None:
    both: dict[str, Source] = {"array": ROWS, "frame": pd.DataFrame(ROWS, columns=NAMES)}
    line = refusal(lambda: open_tables({site: both[site] for site in order}))
    assert line.startswith("site 'array': an array has no column names")
    assert "'frame'" in line


def test_asking_for_a_column_that_is_not_there() -> None:
    line = refusal(lambda: open_table("north", ROWS).chunks(["x1", "x9"]))
    assert "'north'" in line
    assert "'x9'" in line


# ---- refusals: one source -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (np.zeros(3), "1 dimensions"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        (np.array([["1", SECRET]]), "numbers"),
        (np.zeros((2, 2), dtype=complex), "numbers"),
        (np.array([[1, SECRET]], dtype=object), "numbers"),
        (np.zeros((3, 0)), "no columns"),
        (np.zeros((3, 1)), "'x1'"),
        (np.zeros((0, 3)), "no rows"),
        ([[1.0, 2.0]], "cannot use a list"),
        (pd.Series([1.0, 2.0]), "not a table"),
        (pa.table({"a": [1.0], "b": [2.0]}).to_reader(), "only once"),
    ],
)
def test_refused_objects(source: Any, word: str) -> None:
    assert word in refusal_of(source)


def wide(folder: Path, form: str, columns: int) -> Source:
    """A table of two rows and so many columns."""
    rows, names = np.arange(2.0 * columns).reshape(2, columns), [f"x{j}" for j in range(columns)]
    if form == "array":
        return rows
    if form == "pandas":
        return pd.DataFrame(rows, columns=names)
    table = pa.table(list(rows.T), names=names)
    if form == "parquet":
        pq.write_table(table, folder / "s.parquet")
    if form in ("csv", "gz"):
        text = "\n".join(",".join(map(str, row)) for row in (names, *rows.tolist()))
        (folder / "s.csv").write_text(text)
        (folder / "s.csv.gz").write_bytes(gzip.compress(text.encode()))
    ends = {"csv": ".csv", "gz": ".csv.gz", "parquet": ".parquet"}
    return folder / f"s{ends[form]}" if form in ends else table


@pytest.mark.parametrize("form", ["csv", "gz", "parquet", "arrow", "pandas", "array"])
def test_too_many_columns_are_refused_before_anything_is_made_for_them(tmp_path: Path, form: str) -> None:
    assert len(open_table("north", wide(tmp_path, form, MOST_COLUMNS)).names) == MOST_COLUMNS
    source = wide(tmp_path, form, MOST_COLUMNS + 1)
    tracemalloc.start()
    line = refusal(lambda: open_tables({"north": source}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert line == ("site 'north': 10001 columns, but Dagora takes at most 10000; leave out what you do not need")
    assert peak < 8 * MOST_COLUMNS**2 / 10


def test_names_are_for_arrays() -> None:
    assert "arrays only" in refusal(lambda: open_table("s", pd.DataFrame(ROWS), names=NAMES))
    assert "2 names for 3 columns" in refusal(lambda: open_table("s", ROWS, names=NAMES[:2]))
    assert "'a'" in refusal(lambda: open_table("s", ROWS, names=["a", "b", " a "]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_in_arrays_and_frames(tmp_path: Path, bad: float) -> None:
    rows = np.tile(ROWS, (100_000, 1))
    rows[300_001, 1] = bad  # past the first chunk
    frame = pd.DataFrame(rows, columns=["x1", "x2", "x3"])
    frame.to_parquet(tmp_path / "s.parquet")
    for source in (rows, frame, tmp_path / "s.parquet"):
        line = refusal_of(source)
        assert "row 300002, column 'x2'" in line
        assert ("missing" if np.isnan(bad) else "infinite") in line


def test_nulls_and_masked_cells_are_missing() -> None:
    line = "row 2, column 'b': a missing value"
    assert line in refusal_of(pa.table({"a": [1, 2], "b": pa.array([1, None], pa.int64())}))
    masked = np.ma.masked_array(ROWS, mask=ROWS == 0.0)
    assert "row 2, column 'x2': a missing value" in refusal_of(masked)


@pytest.mark.parametrize(
    "column",
    [
        [SECRET, "v"],
        [1.0, SECRET],
        pd.to_datetime(["2020-01-01", "2020-01-02"]),
        pd.Categorical([SECRET, "v"]),
        [None, None],
        [2**70, 1],
    ],
)
def test_columns_that_are_not_numbers(tmp_path: Path, column: Any) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]}).assign(b=pd.Series(column))
    assert "column 'b'" in refusal_of(frame)


def test_text_in_parquet_is_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0], " b ": [SECRET], "c": [1.0]}), tmp_path / "s.parquet")
    assert "column 'b'" in refusal(lambda: open_table("north", tmp_path / "s.parquet"))


def test_duplicate_names_in_frames_and_parquet(tmp_path: Path) -> None:
    assert "column 'a': the name appears twice" in refusal_of(pd.DataFrame(ROWS, columns=["a", "b", "a"]))
    table = pa.table([[1.0], [2.0], [3.0]], names=["a", "b", "a "])
    pq.write_table(table, tmp_path / "s.parquet")
    assert "column 'a': the name appears twice" in refusal_of(tmp_path / "s.parquet")


# ---- refusals: files ----------------------------------------------------------------------------


def test_a_missing_file(tmp_path: Path) -> None:
    assert "no file" in refusal_of(tmp_path / "nowhere.csv")
    assert "no file" in refusal_of(str(tmp_path / "nowhere.parquet"))


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "s.csv").mkdir()
    assert "folder" in refusal_of(tmp_path / "s.csv")


@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz", "s.parquet"])
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / f"link-{name}").symlink_to(tmp_path / name)
    for path in (tmp_path / name, tmp_path / f"link-{name}"):
        with at_most_seconds(5):
            assert "a pipe or a device; write the rows to a regular file" in refusal_of(path)


def test_a_device(tmp_path: Path) -> None:
    (tmp_path / "s.csv").symlink_to("/dev/zero")
    assert "a pipe or a device" in refusal_of(tmp_path / "s.csv")


@contextmanager
def at_most_seconds(seconds: int) -> Iterator[None]:
    """What waits for ever ends in a TimeoutError."""

    def ring(*_: object) -> None:
        raise RuntimeError("waited")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "s.csv", csv_text())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything, so the mode alone tests nothing
    assert "permission" in refusal_of(path)


def test_an_unknown_kind_of_file_names_the_known_ones(tmp_path: Path) -> None:
    line = refusal_of(write(tmp_path / "s.xlsx", b"PK"))
    assert ".csv" in line
    assert ".parquet" in line


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n", b"PAR1" + b"\0" * 64 + b"PAR1"])
def test_bad_parquet(tmp_path: Path, content: bytes) -> None:
    assert "Parquet" in refusal_of(write(tmp_path / "s.parquet", content))


def test_parquet_damaged_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    pd.DataFrame(np.random.default_rng(0).normal(size=(5000, 3)), columns=NAMES).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:2000] = b"\xff" * 1996
    assert "Parquet" in refusal_of(write(path, bytes(content)))


@pytest.mark.parametrize("content", [b"", b" \n\t \r\n\n", b"\xef\xbb\xbf"])
def test_empty_csv(tmp_path: Path, content: bytes) -> None:
    assert "is empty" in refusal_of(write(tmp_path / "s.csv", content))


@pytest.mark.parametrize("content", [b"a,b", b"a,b\n", b"a,b\r\n\r\n  \r\n"])
def test_header_only(tmp_path: Path, content: bytes) -> None:
    assert "no rows" in refusal_of(write(tmp_path / "s.csv", content))


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,\0\0\0\n",
        bytes(range(256)) * 50,
        "a,b\n1,2\n".encode("utf-16"),
        "größe,b\n1,2\n".encode("latin-1"),
    ],
)
def test_binary_or_other_encodings(tmp_path: Path, content: bytes) -> None:
    assert "UTF-8" in refusal_of(write(tmp_path / "s.csv", content))


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", gzip.compress(b"a,b\n" + b"1,2\n" * 9999, mtime=0)[:-9]])
def test_damaged_gzip(tmp_path: Path, content: bytes) -> None:
    line = refusal_of(write(tmp_path / "s.csv.gz", content))
    assert "not a readable" in line or "cut off" in line


CELLS = {
    "": "missing",
    '""': "missing",
    " ": "missing",
    "NA": "missing",
    "NaN": "missing",
    "nan": "missing",
    "inf": "infinite",
    "-Infinity": "infinite",
    "1e999": "too large",
    SECRET: "not a number",
    '"1,5"': "not a number",
    "1.234.567": "not a number",
    "1_000": "not a number",
    "0x1F": "not a number",
    "TRUE": "not a number",
    "12 %": "not a number",
    "²": "not a number",
}


@pytest.mark.parametrize(("cell", "what"), CELLS.items())
def test_a_bad_cell_is_placed(tmp_path: Path, cell: str, what: str) -> None:
    content = f"a,b,c\n1,2,3\n\n4,5,6\n7,{cell},9\n1,2,3\n"  # data row 3 stands on line 5
    line = refusal_of(write(tmp_path / "s.csv", content))
    assert line.startswith("site 'north', row 3 (line 5 of the file), column 'b': ")
    assert what in line
    assert len(cell) < 4 or cell.strip('"') not in line.replace("'north'", "")


def test_bytes_that_are_no_text_in_a_cell_far_down(tmp_path: Path) -> None:
    content = b"a,b\n" + b"1,2\n" * 40_000 + b"1,\xff\0\n"
    assert "row 40001 (line 40002 of the file), column 'b'" in refusal_of(write(tmp_path / "s.csv", content))


def test_a_bad_cell_in_a_later_block_and_in_gzip(tmp_path: Path) -> None:
    content = "a,b\n" + "1.25,2.5\n" * 300_000 + f"1,{SECRET}\n"
    for path in (
        write(tmp_path / "s.csv", content),
        write(tmp_path / "s.csv.gz", gzip.compress(content.encode(), 1)),
    ):
        assert "row 300001 (line 300002 of the file), column 'b'" in refusal_of(path)


@pytest.mark.parametrize(("row", "cells"), [("1", 1), ("1,2", 2), ("1,2,3,4", 4), ("1,2,3,", 4)])
def test_a_ragged_row_is_placed(tmp_path: Path, row: str, cells: int) -> None:
    line = refusal_of(write(tmp_path / "s.csv", f"a,b,c\n1,2,3\n{row}\n1,2,3\n"))
    assert line.startswith(f"site 'north', row 2 (line 3 of the file): {cells} cells where the header has 3")


def test_a_quote_that_is_never_closed(tmp_path: Path) -> None:
    content = 'a,b\n1,2\n3,"4\n' + "5,6\n" * 100_000
    assert "row 2" in refusal_of(write(tmp_path / "s.csv", content))


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ("a,b, a ", "column 'a': the name appears twice"),
        ("a,,c", "column 2 has no name"),
        (",b,c", "column 1 has no name"),
        ('a,"  ",c', "column 2 has no name"),
        ("1.5,-2,3e4", "add a header"),
        ("0, 1,2", "add a header"),
    ],
)
def test_bad_headers(tmp_path: Path, header: str, word: str) -> None:
    path = write(tmp_path / "s.csv", f"{header}\n1,2,3\n")
    line = refusal(lambda: open_table("north", path))
    assert "'north'" in line
    assert word in line


@pytest.mark.parametrize(
    ("name", "header", "word"),
    [
        ("s.csv", "a;b", "a semicolon?"),
        ("s.csv", f"1.5;{SECRET}", "a semicolon?"),
        ("s.txt", "a\tb", "a tab?"),
        ("s.tsv", "a,b", "a comma?"),
        ("s.csv", "alone", "column 'alone': the only column"),
    ],
)
def test_one_column(tmp_path: Path, name: str, header: str, word: str) -> None:
    path = write(tmp_path / name, f"{header}\n1\n")
    line = refusal(lambda: open_table("north", path))
    assert "'north'" in line
    assert word in line


def test_names_with_line_breaks_stay_on_one_line(tmp_path: Path) -> None:
    line = refusal_of(write(tmp_path / "s.csv", f'"a\nb",c\n1,2\n{SECRET},2\n'))
    assert r"row 2 (line 4 of the file), column 'a\nb'" in line


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_a_file_that_disappears_after_opening(tmp_path: Path, name: str) -> None:
    path = Path(str(sources(tmp_path, NAMES)[name]))
    table = open_table("north", path)
    path.unlink()
    assert "'north'" in refusal(lambda: rows_of(table))
