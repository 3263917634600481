"""Cells of CSV files that a spreadsheet may open: a name that it would take for a formula has an apostrophe in front.

Numbers stay numbers, -0.5 too.  `bare` undoes `guarded` for every name; all that reads CSV here applies it to names.
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TextIO

_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # the last four: = + - @ at full width
_END = "\r\n"


def guarded(name: str) -> str:
    """The name as a cell; apostrophes that it begins with count too, so that no two names are the same cell."""
    return f"'{name}" if _FORMULA.match(name) else name


def bare(cell: str) -> str:
    """The name in a cell."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def write_rows(out: TextIO, rows: Iterable[Iterable[Any]]) -> None:
    """Rows of texts, which are names, and of numbers, in full precision."""
    writer = csv.writer(_Lines(out), lineterminator=_END)
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)


@dataclass(frozen=True)
class _Lines:
    r"""Ends lines with \n alone, while csv.writer quotes cells with \r or \n: it quotes what may end a line."""

    out: TextIO

    def write(self, row: str) -> None:
        self.out.write(row.removesuffix(_END) + "\n")
