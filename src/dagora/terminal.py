"""What commands print with: consoles, progress bars, JSON."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from dagora.federated.run import Watcher
from dagora.files import plain
from dagora.visible import visible


class SafeConsole(Console):
    """A console that shows names and paths as they are: "Age [years]" is no markup, ":id:" no emoji, ESC no command.

    A text that is printed, or is in a cell of a table, is one line.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """All plain texts come through here before they are laid out."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """All that is printed comes through here; of texts in other forms (Markdown, progress bars), lines stay."""
        for segment in super().render(renderable, options):
            if segment.control is None:
                segment = segment._replace(text="\n".join(map(visible, segment.text.split("\n"))))
            yield segment


out, err = SafeConsole(), SafeConsole(stderr=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines instead of tables.")]


def choices(what: str, names: Iterable[str]) -> str:
    """A help text with the names to choose from."""
    return f"{what}: {', '.join(names)}."


class _Description(ProgressColumn):
    """What is being done, as a plain text; rich's own column would read markup in it."""

    def render(self, task: Task) -> str:
        return task.description


@contextmanager
def watching(text: str, quiet: bool) -> Iterator[Watcher | None]:
    """A progress bar on a terminal's stderr, which leaves no trace in pipes."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (
        _Description(Column(no_wrap=True)),
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
        _Description(Column(no_wrap=True)), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
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


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"dagora: {visible(' '.join(text.split()))}", file=sys.stderr)


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
