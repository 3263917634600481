"""What commands print with: consoles, progress bars, JSON."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dagora.federated.run import Watcher
from dagora.files import plain

# Names and paths are shown as they are: "Age [years]" is no markup, ":id:" no emoji.
out, err = Console(markup=False, emoji=False), Console(stderr=True, markup=False, emoji=False)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines instead of tables.")]


def choices(what: str, names: Iterable[str]) -> str:
    """A help text with the names to choose from."""
    return f"{what}: {', '.join(names)}."


@contextmanager
def watching(text: str, quiet: bool) -> Iterator[Watcher | None]:
    """A progress bar on a terminal's stderr, which leaves no trace in pipes."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("round {task.fields[round]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(text, total=1.0, round=0)
        yield lambda figures: bar.update(task, completed=figures["done"], round=int(figures["round"]))


@contextmanager
def counting(text: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """The same for work that comes in known pieces: with the time left."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def number_or_auto(text: str) -> float | str:
    """An option that may be left to the method."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor 'auto'") from None


def print_json(value: Any) -> None:
    """One line, in which JSON's missing numbers are null."""
    print(json.dumps(plain(value), allow_nan=False))


def count(number: int, noun: str) -> str:
    """1 edge, 2 edges."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def in_bytes(count: float) -> str:
    """1.5 kB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
