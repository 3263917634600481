"""Comparing two sets of benchmark results: what changed is told, and what cannot be compared is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare


def table(*rows: list[str], machine: str = "m", header: tuple[str, ...] = ("d", "method", "s")) -> dict[str, Any]:
    return {"header": list(header), "rows": list(rows), "machine": machine, "processor": "p"}


def test_only_changes_beyond_the_tolerance_are_told() -> None:
    old = {"speed": table(["20", "ADMM", "1.00"], ["50", "ADMM", "2.00"])}
    new = {"speed": table(["20", "ADMM", "1.09"], ["50", "ADMM", "1.00"])}
    rows, notes = compare.changes(old, new, 0.1)
    assert rows == [["speed", "50, ADMM", "s", "2.00", "1.00", "-50%"]]
    assert notes == []
    assert len(compare.changes(old, new, 0.01)[0]) == 2
    assert compare.changes(old, old, 0.0)[0] == []


def test_a_run_that_ends_now_and_a_zero_are_changes() -> None:
    old = {"t": table(["20", "a", "too long"], ["20", "b", "0"])}
    new = {"t": table(["20", "a", "3.5"], ["20", "b", "1"])}
    assert [row[3:] for row in compare.changes(old, new, 0.1)[0]] == [["too long", "3.5", ""], ["0", "1", ""]]


def test_tables_of_another_shape_or_machine_are_named() -> None:
    old = {"a": table(["1", "x", "1"]), "b": table(["1", "x", "1"]), "c": table(), "e": table(["1", "x", "1"])}
    new = {"a": table(), "b": table(["1", "x", "1"], machine="other"), "d": table()}
    new["e"] = table(["1", "x", "1"], header=("d", "method", "ms"))
    rows, notes = compare.changes(old, new, 0.1)
    assert rows == []
    assert [note.split(":")[0] for note in notes] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("cell", "value"), [("1,655", 1655.0), ("-2.5e-3", -0.0025), ("12.3 ± 0.4", 12.3), ("ADMM", None), ("", None)]
)
def test_numbers_of_cells(cell: str, value: float | None) -> None:
    assert compare.number(cell) == value


def test_folders_are_compared_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seconds in (("old", "1.0"), ("new", "3.0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed.json").write_text(json.dumps(table(["20", "ADMM", seconds])))
    compare.main([str(tmp_path / "old"), str(tmp_path / "new")])
    assert "| speed | 20, ADMM | s | 1.0 | 3.0 | +200% |" in capsys.readouterr().out


def test_what_is_neither_folder_nor_revision_is_refused() -> None:
    with pytest.raises(SystemExit, match="neither a folder nor a git revision"):
        compare.main(["no-such-revision"])
