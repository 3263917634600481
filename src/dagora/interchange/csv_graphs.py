"""CSV: a list of edges, or a matrix with names along both sides."""

import csv
import io
import os
from pathlib import Path

import numpy as np

from dagora.cells import bare, write_rows
from dagora.errors import InputError
from dagora.files import write_edges
from dagora.interchange.named import NamedEdge, NamedGraph


def read_csv(path: Path, text: str, names: tuple[str, ...] = ()) -> NamedGraph:
    """Read edges (source, target[, weight[, directed]]; a header row) or a matrix (names in the first row and column).

    Of time series, edges are (source, target, lag, weight), the lag 0 within a time step.
    `names` adds variables that no edge mentions, as a list of edges cannot.
    """
    rows = _rows(path, text)
    header = [cell.strip() for cell in rows[0]]
    if header[0] == "" or header[1:] == [row[0].strip() for row in rows[1:]]:
        return _matrix(path, header[1:], rows[1:])
    if header[2:] == ["lag", "weight"]:
        return _lagged_edge_list(path, rows[1:], names)
    if len(header) not in (2, 3) and header[2:] != ["weight", "directed"]:
        raise InputError(f"{str(path)!r}: neither edges (source, target, weight) nor a matrix with names; check it")
    return _edge_list(path, rows[1:], names)


def write_csv(graph: NamedGraph) -> str:
    """Edges; whether they have a direction is told only if some have none."""
    out = io.StringIO()
    if graph.lines is None:
        write_edges(out, [edge[:3] for edge in graph.edges()])
        return out.getvalue()
    write_rows(out, [("source", "target", "weight", "directed")])
    write_rows(out, ((e.source, e.target, e.weight, str(e.directed).lower()) for e in graph.edges()))
    return out.getvalue()


def _rows(path: Path, text: str) -> list[list[str]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if any(cell.strip() for cell in row)]
    except csv.Error:
        raise InputError(f"{str(path)!r}: cannot be read as CSV; look for a quote that is never closed") from None
    if not rows:
        raise InputError(f"{str(path)!r} is empty; it should hold edges or a matrix")
    return rows


def _matrix(path: str | os.PathLike[str], names: list[str], rows: list[list[str]]) -> NamedGraph:
    if [row[0].strip() for row in rows] != names or any(len(row) != len(names) + 1 for row in rows):
        raise InputError(f"{str(path)!r}: the names along the two sides of the matrix differ; check it")
    weights = np.array([[_number(path, cell, i + 1) for cell in row[1:]] for i, row in enumerate(rows)])
    return NamedGraph(weights.reshape(len(names), len(names)), tuple(map(bare, names)), matrix=True)


def _edge_list(path: str | os.PathLike[str], rows: list[list[str]], names: tuple[str, ...]) -> NamedGraph:
    edges = []
    for number, row in enumerate(rows, start=1):
        if len(row) not in (2, 3, 4) or (len(row) == 4 and row[3].strip().lower() not in ("true", "false")):
            raise InputError(f"{str(path)!r}, row {number}: not source, target[, weight]; check it")
        weight = _number(path, row[2], number) if len(row) > 2 else 1.0
        directed = len(row) < 4 or row[3].strip().lower() == "true"
        edges.append(NamedEdge(_name(row[0]), _name(row[1]), weight, directed))
    return NamedGraph.of(edges, names)


def _lagged_edge_list(path: str | os.PathLike[str], rows: list[list[str]], names: tuple[str, ...]) -> NamedGraph:
    """Every lag is a list of edges of its own."""
    by_lag: dict[int, list[list[str]]] = {0: []}
    for number, row in enumerate(rows, start=1):
        if len(row) != 4 or not row[2].strip().isdecimal():
            raise InputError(f"{str(path)!r}, row {number}: not source, target, lag, weight; check it")
        by_lag.setdefault(int(row[2]), []).append([*row[:2], row[3]])
    all_names = tuple(dict.fromkeys([*names, *(_name(cell) for row in rows for cell in row[:2])]))
    layers = [_edge_list(path, by_lag.get(lag, []), all_names).weights for lag in range(max(by_lag) + 1)]
    return NamedGraph(layers[0], all_names, np.array(layers[1:]).reshape(-1, len(all_names), len(all_names)))


def _name(cell: str) -> str:
    return bare(cell.strip())


def _number(path: str | os.PathLike[str], cell: str, row: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise InputError(f"{str(path)!r}, row {row}: a weight is not a number; check it") from None
