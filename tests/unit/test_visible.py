"""Names and words of others in terminals and logs: shown, never obeyed."""

import io
import json
import logging
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unicodedata import category
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

import dagora
from dagora import terminal
from dagora.aggregation.ledger import Ledger
from dagora.cli import main
from dagora.cli_results import print_edges
from dagora.federation.process import say_in_lines
from dagora.terminal import SafeConsole
from dagora.visible import Lines, visible

# Clears the screen; goes back and overwrites; rings; the same by C1 controls; turns the direction of text; ends a line.
HOSTILE = "a\x1b[2Jb\rc\x07d\x9b2Je\u202ef\nrun 7 is done\x85g\u2028h\x7f[red]i[/red]:id:"
SHOWN = (
    r"a\x1b[2Jb\rc\x07d\x9b2Je\u202ef\nrun 7 is done\x85g\u2028h\x7f"  # as it is to be seen
    "[red]i[/red]:id:"
)


def steers(text: str) -> bool:
    return any(category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text.replace("\n", ""))


def run(*arguments: object) -> tuple[Any, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["dagora", *map(str, arguments)]),
        patch.dict("os.environ", {"COLUMNS": "500"}),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    return stop.value.code, stdout.getvalue(), stderr.getvalue()


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_visible_steers_nothing_and_is_stable(text: str) -> None:
    shown = visible(text)
    assert not steers(shown)
    assert "\n" not in shown
    assert visible(shown) == shown
    assert steers(text) or "\n" in text or shown == text


def test_hostile_names_are_shown() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("Größe [cm] 身長 é") == "Größe [cm] 身長 é"


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> SafeConsole:
    monkeypatch.setenv("COLUMNS", "500")
    console = SafeConsole()
    console.file = io.StringIO()
    return console


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_console_shows_texts_and_tables_a_line_each(console: SafeConsole) -> None:
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    console.print(HOSTILE, soft_wrap=True)
    console.print(table)
    assert printed(console).count(SHOWN) == 4
    assert not steers(printed(console))
    assert not any(line.startswith("run 7") for line in printed(console).splitlines())


@pytest.mark.parametrize("form", [Text, Markdown])
def test_other_forms_of_text_do_not_steer_either(form: Any, console: SafeConsole) -> None:
    console.print(form(HOSTILE))
    assert r"\x1b[2J" in printed(console)
    assert not steers(printed(console))


@pytest.mark.parametrize("bar", [terminal.watching, terminal.counting])
def test_a_progress_bar_neither(bar: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(SafeConsole, "is_terminal", property(lambda self: True))
    console = SafeConsole()
    console.file = io.StringIO()
    monkeypatch.setattr(terminal, "err", console)
    with bar("[red]name\x9b2J\u202e", quiet=False):
        pass
    assert r"[red]name\x9b2J\u202e" in printed(console)
    assert "\x9b" not in printed(console)
    assert "\u202e" not in printed(console)


def test_a_result_with_hostile_names(monkeypatch: pytest.MonkeyPatch, console: SafeConsole) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pa.table({HOSTILE: x, "effect": 2 * x + rng.normal(size=200)})
    monkeypatch.setattr("dagora.cli_results.out", console)
    print_edges(dagora.learn({"north": frame}, method="pooled"))
    assert SHOWN in printed(console)
    assert not steers(printed(console))


def test_an_error_with_hostile_names_is_one_line(tmp_path: Path) -> None:
    code, out, err = run("learn", tmp_path / "no\x1b[2J\u202e[red]where.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert r"no\x1b[2J\u202e[red]where.csv" in err
    assert not steers(err)


def test_an_error_in_the_words_of_another_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise dagora.errors.DagoraError(f"site 'north': {HOSTILE}")

    monkeypatch.setattr("dagora.cli.simulate", refuse)
    code, _, err = run("simulate", "--out", tmp_path)
    assert r"site 'north': a\x1b[2J" in err
    assert (code, err.count("\n")) == (2, 1)
    assert not steers(err)


def test_a_ledger_with_hostile_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: SafeConsole) -> None:
    with Ledger("north", tmp_path / "north.jsonl") as ledger:
        ledger.note("refused", HOSTILE, "run\x1b]0;title\x07", HOSTILE)
    assert not steers((tmp_path / "north.jsonl").read_text())
    with monkeypatch.context() as patch:
        patch.setattr("dagora.cli_privacy.out", console)
        assert run("ledger", tmp_path / "north.jsonl")[0] == 0
    assert r"run\x1b]0;title\x07" in printed(console)
    assert not steers(printed(console))
    _, out, _ = run("ledger", tmp_path / "north.jsonl", "--json")
    assert json.loads(out)["notes"][0]["who"] == HOSTILE
    assert not steers(out)


def test_a_line_of_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("dagora")
    before = log.handlers[:], log.level, log.propagate
    try:
        say_in_lines("north")
        log.info("run %s submitted by %s", HOSTILE, "eve")
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("a message could not be answered")
    finally:
        log.handlers[:], level, log.propagate = before
        log.setLevel(level)
    lines = capsys.readouterr().err.split("\n")
    assert f"run {SHOWN} submitted by eve" in lines[0]
    assert "a message could not be answered" in lines[1]
    assert all(line.startswith("    ") for line in lines[2:-1])  # of the traceback: no line looks like an event
    assert not any(map(steers, lines))


def test_warnings_where_no_log_is_set_up(tmp_path: Path) -> None:
    assert logging.lastResort is not None
    run("learn", tmp_path / "nowhere.csv")
    record = logging.LogRecord("dagora.network", logging.WARNING, "", 0, "from %s", (HOSTILE,), None)
    assert isinstance(logging.lastResort.formatter, Lines)
    assert logging.lastResort.format(record) == f"from {SHOWN}"
