"""Graphs in files: which format a file has, and how it is read and written."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dagora.errors import InputError
from dagora.files import write_text
from dagora.graphs import ARROW, UNDIRECTED, dag_to_cpdag, is_dag
from dagora.interchange.arrows import read_arrows, write_dagitty, write_dot
from dagora.interchange.csv_graphs import read_csv, write_csv
from dagora.interchange.json_graphs import read_json, write_json
from dagora.interchange.libraries import read_graphml, write_graphml
from dagora.interchange.named import NamedGraph
from dagora.interchange.tetrad import read_tetrad, write_tetrad


@dataclass(frozen=True)
class Format:
    """A kind of file: the ends of its names, and its two halves."""

    suffixes: tuple[str, ...]
    write: Callable[[NamedGraph], str]
    read: Callable[[Path, str], NamedGraph]


FORMATS = {
    "csv": Format((".csv",), write_csv, read_csv),
    "json": Format((".json",), write_json, read_json),
    "graphml": Format((".graphml",), write_graphml, read_graphml),
    "dot": Format((".dot", ".gv"), write_dot, read_arrows),
    "dagitty": Format((".dagitty", ".dag"), write_dagitty, read_arrows),
    "tetrad": Format((".txt", ".tetrad"), write_tetrad, read_tetrad),
}


def format_of(path: Path, chosen: str | None = None) -> Format:
    """By name, or by how the file's name ends."""
    if chosen is not None:
        if chosen not in FORMATS:
            raise InputError(f"format: there is no {chosen!r}; choose from {', '.join(FORMATS)}")
        return FORMATS[chosen]
    for known in FORMATS.values():
        if path.name.lower().endswith(known.suffixes):
            return known
    ends = ", ".join(suffix for known in FORMATS.values() for suffix in known.suffixes)
    raise InputError(f"{str(path)!r}: the format is not known by the file's name; name one of {ends}")


def write_graph(graph: NamedGraph, path: str | os.PathLike[str], format: str | None = None) -> Path:
    """Write a graph of one time, whole or not at all."""
    path = Path(path)
    known = format_of(path, format)
    return write_text(path, known.write(graph.without_lags(f"{str(path)!r}: this format")))


def read_graph(path: str | os.PathLike[str], names: tuple[str, ...] = (), format: str | None = None) -> NamedGraph:
    """Read a graph in any of the formats; a file without a known end is taken for CSV.

    names: for a list of edges in CSV, variables that no edge mentions.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = Path(folder, "graph.dot").write_text('digraph { "age" -> "blood pressure"; age -> bmi }')
    ...     graph = dagora.read_graph(Path(folder, "graph.dot"))
    >>> graph.names
    ('age', 'blood pressure', 'bmi')
    >>> graph.adjacency.tolist()
    [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    """
    path = Path(path)
    known = FORMATS["csv"] if format is None and not _known_end(path) else format_of(path, format)
    try:
        with path.open(encoding="utf-8-sig", newline="" if known is FORMATS["csv"] else None) as file:
            text = file.read()
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}; check the path") from None
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{str(path)!r} cannot be read as text; check the path") from None
    return read_csv(path, text, names) if known is FORMATS["csv"] else known.read(path, text)


def _known_end(path: Path) -> bool:
    return any(path.name.lower().endswith(known.suffixes) for known in FORMATS.values())


def read_estimate(
    path: str | os.PathLike[str], threshold: float | None = None, names: tuple[str, ...] = ()
) -> NamedGraph:
    """Read what `learn` or another tool wrote: a folder, edges as they are, or a matrix of weights above the threshold.

    `names` adds variables to a list of edges.  Without a threshold, that of the result.json beside the weights
    counts (none for learners that have none), or 0.3.
    """
    path = Path(path)
    if path.is_dir():
        graph = read_graph(path / "edges.csv", read_graph(path / "weights.csv").names)
    else:
        graph = read_graph(path, names)
    if graph.matrix:
        tau = _threshold_of(path) if threshold is None else threshold
        return NamedGraph(np.where(np.abs(graph.weights) > tau, graph.weights, 0.0), graph.names)
    if threshold is not None:
        raise InputError("threshold: edges that have been chosen already need none; leave it out, or give weights.csv")
    return graph


def read_class(path: str | os.PathLike[str]) -> NamedGraph:
    """The equivalence class: as `learn` wrote it to a folder, as a file holds it, or that of the DAG in a file."""
    path = Path(path)
    dag = read_estimate(path)
    if dag.lines is not None:
        return dag
    if not is_dag(dag.adjacency):
        raise InputError(f"{str(path)!r}: is no DAG, so that it has no class; check it")
    marks = dag_to_cpdag(dag.adjacency)
    if path.is_dir():
        index = {name: position for position, name in enumerate(dag.names)}
        marks = np.zeros_like(marks)
        for edge in _result_of(path / "result.json").get("class", []):
            marks[index[edge["source"]], index[edge["target"]]] = ARROW if edge["directed"] else UNDIRECTED
    return dag.with_marks(marks)


def _result_of(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{str(path)!r} cannot be read; learn again") from None
    return found


def _threshold_of(path: Path) -> float:
    try:
        return float(_result_of(path.with_name("result.json"))["settings"].get("threshold", 0.0))
    except (InputError, KeyError, TypeError):
        return 0.3
