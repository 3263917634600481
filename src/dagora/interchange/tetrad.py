"""Tetrad's text, which causal-learn reads, too: a line of vertices, then an edge a line.

Blanks and semicolons separate there, so that a name with one, or with a percent sign, has it as %20, %3B or %25.
"""

import re
from pathlib import Path
from urllib.parse import unquote

from dagora.errors import InputError
from dagora.interchange.named import NamedEdge, NamedGraph

_NODES, _EDGES = "Graph Nodes:", "Graph Edges:"
_SPECIAL = re.compile(r"[%;,\s]")
_EDGE = re.compile(r"\d+\.\s+(\S+)\s+(-->|<--|---)\s+(\S+)")


def write_tetrad(graph: NamedGraph) -> str:
    """Weights have no place there."""
    lines = [_NODES, ";".join(map(_escaped, graph.names)), "", _EDGES]
    for number, edge in enumerate(graph.edges(), start=1):
        mark = "-->" if edge.directed else "---"
        lines.append(f"{number}. {_escaped(edge.source)} {mark} {_escaped(edge.target)}")
    return "\n".join([*lines, ""])


def read_tetrad(path: Path, text: str) -> NamedGraph:
    """DAGs and patterns; marks that stand for unmeasured causes are refused."""
    lines = [line.strip() for line in text.splitlines()]
    if _NODES not in lines or _EDGES not in lines:
        raise InputError(f"{str(path)!r}: lacks 'Graph Nodes:' or 'Graph Edges:'; check it")
    nodes = " ".join(lines[lines.index(_NODES) + 1 : lines.index(_EDGES)]).replace(",", ";")
    names = [unquote(name.strip()) for name in nodes.split(";") if name.strip()]
    edges = []
    for number, line in enumerate(lines[lines.index(_EDGES) + 1 :], start=lines.index(_EDGES) + 2):
        if not line:
            break
        found = _EDGE.match(line)
        if found is None:
            raise InputError(
                f"{str(path)!r}, line {number}: no edge of the form '1. a --> b' or '1. a --- b'; check it"
            )
        first, mark, second = unquote(found[1]), found[2], unquote(found[3])
        ends = (second, first) if mark == "<--" else (first, second)
        edges.append(NamedEdge(*ends, directed=mark != "---"))
    return NamedGraph.of(edges, names)


def _escaped(name: str) -> str:
    return _SPECIAL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)
