"""Time series as a user of the command line meets them."""

import json
from pathlib import Path

import pytest

from tests.unit.test_cli import dagora as command

NAMES = ("data/site-01.csv", "data/site-02.csv", "data/site-03.csv")
COLUMNS = ("--series", "series", "--time", "time")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("series")
    options = ("--model", "dynamic", "--d", 5, "--lags", 2, "--series", 9, "--length", 60, "--sites", 3)
    done = command("simulate", *options, "--out", "data", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "9 series in all" in done.stdout
    return folder


def test_long_tables_are_written(folder: Path) -> None:
    header, first, *rest = (folder / "data" / "site-02.csv").read_text().splitlines()
    assert header == "series,time,x1,x2,x3,x4,x5"
    assert first.startswith("s4,1,")  # sites have series of their own
    assert len(rest) == 3 * 60 - 1
    assert (folder / "data" / "truth.csv").read_text().startswith("source,target,lag,weight\n")


def test_learn_draw_and_evaluate(folder: Path) -> None:
    options = ("--model", "dynamic", "--lags", 2, *COLUMNS)
    done = command("learn", *NAMES, *options, "--out", "result", "--drawing", "drawn/network.png", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "of the past" in done.stdout
    assert (folder / "drawn" / "network.png").read_bytes().startswith(b"\x89PNG")
    done = command("evaluate", "data/truth.csv", "result", "--json", cwd=folder)
    scores = json.loads(done.stdout)
    assert scores["f1"] > 0.8
    assert scores["lag_f1"] > 0.8
    assert scores["lag_true_edges"] == 10


def test_json_tells_both_parts(folder: Path) -> None:
    done = command("learn", *NAMES, "--model", "dynamic", "--lag-threshold", 0.2, *COLUMNS, "--json", cwd=folder)
    summary = json.loads(done.stdout)
    assert {edge["lag"] for edge in summary["lagged_edges"]} == {1}
    assert all(abs(edge["weight"]) > 0.2 for edge in summary["lagged_edges"])
    assert summary["settings"]["lags"] == 1


def test_lags(folder: Path) -> None:
    done = command("lags", *NAMES, *COLUMNS, "--most", 3, "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert found["lags"] == 2
    assert found["rows"] == 9 * 57
    assert "<- least" in command("lags", *NAMES, *COLUMNS, "--most", 2, cwd=folder).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("learn", *NAMES, "--model", "dynamic", "--out", "x"),  # no time column named
        ("learn", *NAMES, "--lags", 1, "--out", "x"),
        ("learn", *NAMES, *COLUMNS, "--out", "x"),
        ("learn", *NAMES, "--drawing", "x/a.png"),
        ("learn", *NAMES, "--model", "dynamic", *COLUMNS, "--drawing", "x/a.docx"),
        ("learn", *NAMES, "--model", "dynamic", "--lags", 60, *COLUMNS, "--out", "x"),  # longer than the series
        ("simulate", "--model", "dynamic", "--n", 100, "--out", "x"),
        ("simulate", "--model", "linear", "--length", 100, "--out", "x"),
        ("lags", *NAMES, "--series", "series"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[-5:])),
)
def test_what_does_not_fit_is_refused_in_one_line(folder: Path, arguments: tuple[object, ...]) -> None:
    done = command(*arguments, cwd=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("dagora: ")
    assert done.stderr.count("\n") == 1
    assert not (folder / "x").exists()
