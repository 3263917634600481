"""Figures that changed between two sets of results: python -m benchmarks.compare OLD NEW [--tolerance 0.1].

OLD and NEW are folders of JSON files (benchmarks/results) or git revisions.  Times of two machines, or of one that was
busy, do not compare: where the machine differs, the table says so.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.tables import RESULTS, markdown

Results: TypeAlias = Mapping[str, Mapping[str, Any]]
_NUMBER = re.compile(r"\s*([-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)")
HEADER = ["table", "row", "column", "old", "new", "change"]


def read(where: str) -> dict[str, dict[str, Any]]:
    """The results in a folder, or those of a git revision."""
    if Path(where).is_dir():
        return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(where).glob("*.json"))}
    folder = f"{where}:benchmarks/results"
    names = [name for name in _git("ls-tree", "--name-only", folder).split() if name.endswith(".json")]
    return {name.removesuffix(".json"): json.loads(_git("show", f"{folder}/{name}")) for name in names}


def changes(old: Results, new: Results, tolerance: float) -> tuple[list[list[str]], list[str]]:
    """Cells that changed by more than the tolerance, relative to the old; and what could not be compared."""
    rows, notes = [], []
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            notes.append(f"{name}: only in {'new' if name in new else 'old'}")
            continue
        a, b = old[name], new[name]
        if a["header"] != b["header"] or len(a["rows"]) != len(b["rows"]):
            notes.append(f"{name}: its rows or columns are others now")
            continue
        if (a["machine"], a["processor"]) != (b["machine"], b["processor"]):
            notes.append(f"{name}: measured on another machine or with other versions")
        for before, after in zip(a["rows"], b["rows"], strict=True):
            rows += [[name, _label(before, after), *found] for found in _cells(a["header"], before, after, tolerance)]
    return rows, notes


def number(cell: str) -> float | None:
    """The number a cell begins with."""
    found = _NUMBER.match(cell)
    return None if found is None else float(found[1].replace(",", ""))


def _cells(header: list[str], before: list[str], after: list[str], tolerance: float) -> list[list[str]]:
    found = []
    for column, was, now in zip(header, before, after, strict=True):
        x, y = number(was), number(now)
        if x is None or y is None:
            if was != now and (x is None) != (y is None):  # e.g. a run that did not end before
                found.append([column, was, now, ""])
        elif abs(y - x) > tolerance * abs(x):
            found.append([column, was, now, f"{(y - x) / abs(x):+.0%}" if x else ""])
    return found


def _label(before: list[str], after: list[str]) -> str:
    """What the row is about: its first cells, as far as they are the same."""
    same = [was == now for was, now in zip(before, after, strict=True)]
    length = same.index(False) if False in same else len(same)
    return ", ".join(before[: min(length, 3)])


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=RESULTS.parent.parent)
    if done.returncode:
        sys.exit(f"neither a folder nor a git revision with results: {done.stderr.strip()}")
    return done.stdout


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default=str(RESULTS), help="default: the results as they are now")
    parser.add_argument("--tolerance", type=float, default=0.1, help="relative change to pass over (default 0.1)")
    options = parser.parse_args(arguments)
    rows, notes = changes(read(options.old), read(options.new), options.tolerance)
    print("\n".join([*(markdown(HEADER, rows) if rows else ["nothing changed"]), "", *notes]).rstrip())


if __name__ == "__main__":
    main()
