"""Graphs in files: a list of edges, or a matrix with names along both sides."""

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.errors import InputError


@dataclass(frozen=True, eq=False)
class NamedGraph:
    """A weighted graph with names for its variables."""

    weights: FloatArray
    names: tuple[str, ...]
    lag_weights: FloatArray | None = None  # of time series, (lags, d, d)

    @property
    def adjacency(self) -> IntArray:
        """1 where there is an edge."""
        present: IntArray = (self.weights != 0).astype(np.int64)
        return present

    @property
    def lag_adjacency(self) -> IntArray | None:
        """1 where there is an effect of an earlier time."""
        return None if self.lag_weights is None else (self.lag_weights != 0).astype(np.int64)


def read_graph(path: str | os.PathLike[str], names: tuple[str, ...] = ()) -> NamedGraph:
    """Read edges (source, target[, weight]; a header row) or a matrix (names in the first row and column).

    Of time series, edges are (source, target, lag, weight), the lag 0 within a time step.
    `names` adds variables that no edge mentions, as a list of edges cannot.
    """
    rows = _rows(Path(path))
    header = [cell.strip() for cell in rows[0]]
    if header[0] == "" or header[1:] == [row[0].strip() for row in rows[1:]]:
        return _matrix(path, header[1:], rows[1:])
    if header[2:] == ["lag", "weight"]:
        return _lagged_edge_list(path, rows[1:], names)
    if len(header) not in (2, 3):
        raise InputError(f"{str(path)!r}: neither edges (source, target, weight) nor a matrix with names; check it")
    return _edge_list(path, rows[1:], names)


def read_estimate(
    path: str | os.PathLike[str], threshold: float | None = None, names: tuple[str, ...] = ()
) -> NamedGraph:
    """Read what `learn` wrote: a folder, its edges.csv as they are, or its weights.csv above the threshold.

    `names` adds variables to a list of edges.  Without a threshold, that of the result.json beside the weights
    counts (none for learners that have none), or 0.3.
    """
    path = Path(path)
    if threshold is not None and (path.is_dir() or path.name == "edges.csv"):
        raise InputError("threshold: edges that have been chosen already need none; leave it out, or give weights.csv")
    if path.is_dir():
        return read_graph(path / "edges.csv", read_graph(path / "weights.csv").names)
    graph = read_graph(path, names)
    if path.name == "edges.csv":
        return graph
    tau = _threshold_of(path) if threshold is None else threshold
    return NamedGraph(np.where(np.abs(graph.weights) > tau, graph.weights, 0.0), graph.names)


def _threshold_of(path: Path) -> float:
    try:
        settings = json.loads(path.with_name("result.json").read_text(encoding="utf-8"))["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0.3
    return float(settings.get("threshold", 0.0))


def _rows(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}; check the path") from None
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{str(path)!r} cannot be read as text; check the path") from None
    rows = [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
    if not rows:
        raise InputError(f"{str(path)!r} is empty; it should hold edges or a matrix")
    return rows


def _matrix(path: str | os.PathLike[str], names: list[str], rows: list[list[str]]) -> NamedGraph:
    if [row[0].strip() for row in rows] != names or any(len(row) != len(names) + 1 for row in rows):
        raise InputError(f"{str(path)!r}: the names along the two sides of the matrix differ; check it")
    weights = np.array([[_number(path, cell, i + 1) for cell in row[1:]] for i, row in enumerate(rows)])
    return NamedGraph(weights.reshape(len(names), len(names)), tuple(names))


def _edge_list(path: str | os.PathLike[str], rows: list[list[str]], names: tuple[str, ...]) -> NamedGraph:
    index = {name: position for position, name in enumerate(names)}
    edges: list[tuple[int, int, float]] = []
    for number, row in enumerate(rows, start=1):
        if len(row) not in (2, 3):
            raise InputError(f"{str(path)!r}, row {number}: not source, target[, weight]; check it")
        ends = [index.setdefault(cell.strip(), len(index)) for cell in row[:2]]
        edges.append((ends[0], ends[1], _number(path, row[2], number) if len(row) == 3 else 1.0))
    weights = np.zeros((len(index), len(index)))
    for source, target, weight in edges:
        weights[source, target] = weight
    return NamedGraph(weights, tuple(index))


def _lagged_edge_list(path: str | os.PathLike[str], rows: list[list[str]], names: tuple[str, ...]) -> NamedGraph:
    """Every lag is a list of edges of its own."""
    by_lag: dict[int, list[list[str]]] = {0: []}
    for number, row in enumerate(rows, start=1):
        if len(row) != 4 or not row[2].strip().isdecimal():
            raise InputError(f"{str(path)!r}, row {number}: not source, target, lag, weight; check it")
        by_lag.setdefault(int(row[2]), []).append([*row[:2], row[3]])
    all_names = tuple(dict.fromkeys([*names, *(cell.strip() for row in rows for cell in row[:2])]))
    layers = [_edge_list(path, by_lag.get(lag, []), all_names).weights for lag in range(max(by_lag) + 1)]
    return NamedGraph(layers[0], all_names, np.array(layers[1:]).reshape(-1, len(all_names), len(all_names)))


def _number(path: str | os.PathLike[str], cell: str, row: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise InputError(f"{str(path)!r}, row {row}: a weight is not a number; check it") from None
