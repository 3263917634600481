"""JSON: names and edges.  A result.json is one, too."""

import json
from pathlib import Path
from typing import Any

from dagora.errors import InputError
from dagora.interchange.named import NamedEdge, NamedGraph


def write_json(graph: NamedGraph) -> str:
    """Names, and edges with weights and whether they have a direction."""
    return json.dumps({"names": graph.names, "edges": [edge._asdict() for edge in graph.edges()]}, indent=2) + "\n"


def read_json(path: Path, text: str) -> NamedGraph:
    """What `write_json` and `Result.save` write."""
    try:
        found: Any = json.loads(text)
        names = [str(name) for name in found.get("names", [])]
        edges = [
            NamedEdge(str(e["source"]), str(e["target"]), float(e.get("weight", 1.0)), bool(e.get("directed", True)))
            for e in found["edges"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"{str(path)!r}: is no JSON object with names and edges (source, target); check it") from None
    return NamedGraph.of(edges, names)
