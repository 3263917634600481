"""How error lines name places and lists; `repr` keeps odd names on one line."""

from collections.abc import Sequence


def place(site: str, column: str | None = None, row: int | None = None, line: int | None = None) -> str:
    """Say where in the data: site, column, data row (from 1, header not counted) and line of the file."""
    parts = [f"site {site!r}"]
    if row is not None:
        parts.append(f"row {row}" if line is None else f"row {row} (line {line} of the file)")
    if column is not None:
        parts.append(f"column {column!r}")
    return ", ".join(parts)


def listing(names: Sequence[str], most: int = 3) -> str:
    """Name the first few, then count the others."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
