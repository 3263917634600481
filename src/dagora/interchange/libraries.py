"""Objects of other libraries: networkx (and GraphML through it), causal-learn, pgmpy."""

import io
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from dagora.errors import InputError
from dagora.gaussian_network import GaussianNetwork
from dagora.interchange.named import NamedEdge, NamedGraph

_LABELS = ("name", "label")  # where other tools keep names, if vertices are numbered


def to_networkx(graph: NamedGraph) -> "nx.DiGraph[str]":
    """Edges have `weight`, and `directed` False where there is no direction (the arrow's is then arbitrary)."""
    found: nx.DiGraph[str] = nx.DiGraph()
    found.add_nodes_from(graph.names)
    for edge in graph.edges():
        found.add_edge(edge.source, edge.target, weight=edge.weight, **({} if edge.directed else {"directed": False}))
    return found


def from_networkx(graph: "nx.Graph[Any]") -> NamedGraph:
    """Names are the vertices, or their `name` or `label` where all have one."""
    names: dict[Hashable, str] = {vertex: str(vertex) for vertex in graph.nodes}
    for label in _LABELS:
        told = nx.get_node_attributes(graph, label)
        if len(told) == len(names) == len(set(told.values())) > 0:
            names = {vertex: str(name) for vertex, name in told.items()}
            break
    edges = [
        NamedEdge(
            names[source],
            names[target],
            float(about.get("weight", 1.0)),
            graph.is_directed() and about.get("directed", True) is not False,
        )
        for source, target, about in graph.edges(data=True)
    ]
    return NamedGraph.of(edges, tuple(names.values()))


def write_graphml(graph: NamedGraph) -> str:
    """For yEd, Cytoscape, Gephi, igraph and others."""
    out = io.BytesIO()
    for name in graph.names:
        if not name.isprintable():
            raise InputError(f"variable {name!r}: GraphML has no place for a character in its name; rename it")
    nx.write_graphml(to_networkx(graph), out)
    return out.getvalue().decode() + "\n"


def read_graphml(path: Path, text: str) -> NamedGraph:
    """As networkx reads it."""
    try:
        return from_networkx(nx.parse_graphml(text))
    except Exception as error:  # of several XML parsers
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{str(path)!r}: networkx cannot read it as GraphML: {reason}; check it") from None


def to_causallearn(graph: NamedGraph) -> Any:
    """A causallearn.graph.GeneralGraph; weights have no place there."""
    try:
        from causallearn.graph.Edge import Edge
        from causallearn.graph.Endpoint import Endpoint
        from causallearn.graph.GeneralGraph import GeneralGraph
        from causallearn.graph.GraphNode import GraphNode
    except ImportError:
        raise InputError("causal-learn is not installed: pip install 'dagora[compare]'") from None
    nodes = {name: GraphNode(name) for name in graph.names}
    found = GeneralGraph(list(nodes.values()))
    for edge in graph.edges():
        head = Endpoint.ARROW if edge.directed else Endpoint.TAIL
        found.add_edge(Edge(nodes[edge.source], nodes[edge.target], Endpoint.TAIL, head))
    return found


def from_causallearn(graph: Any) -> NamedGraph:
    """From a GeneralGraph of arrows and lines."""
    edges = []
    for edge in graph.get_graph_edges():
        first, second = edge.get_node1().get_name(), edge.get_node2().get_name()
        match edge.get_endpoint1().name, edge.get_endpoint2().name:
            case "TAIL", "ARROW":
                edges.append(NamedEdge(first, second))
            case "ARROW", "TAIL":
                edges.append(NamedEdge(second, first))
            case "TAIL", "TAIL":
                edges.append(NamedEdge(first, second, directed=False))
            case _:
                raise InputError(f"the edge between {first!r} and {second!r} is neither an arrow nor a line; remove it")
    return NamedGraph.of(edges, [str(node.get_name()) for node in graph.get_nodes()])


def to_pgmpy(network: GaussianNetwork) -> Any:
    """A pgmpy LinearGaussianBayesianNetwork with all parameters."""
    try:
        from pgmpy.factors.continuous import LinearGaussianCPD
        from pgmpy.models import LinearGaussianBayesianNetwork
    except ImportError:
        raise InputError("pgmpy is not installed: pip install 'dagora[exchange]'") from None
    found = LinearGaussianBayesianNetwork()
    found.add_nodes_from(network.names)
    for j, child in enumerate(network.names):
        parents = np.flatnonzero(network.coefficients[:, j])
        evidence = [network.names[i] for i in parents]
        found.add_edges_from((parent, child) for parent in evidence)
        beta = [network.intercepts[j], *network.coefficients[parents, j]]
        found.add_cpds(LinearGaussianCPD(child, beta, float(np.sqrt(network.variances[j])), evidence))
    return found


def from_pgmpy(model: Any) -> GaussianNetwork:
    """From a LinearGaussianBayesianNetwork whose distributions are all there."""
    names = tuple(map(str, model.nodes()))
    index = {name: position for position, name in enumerate(names)}
    d = len(names)
    coefficients, intercepts, variances = np.zeros((d, d)), np.zeros(d), np.ones(d)
    for name in names:
        cpd = model.get_cpds(name)
        if cpd is None:
            raise InputError(f"variable {name!r}: the model has no distribution for it; fit it first")
        j = index[name]
        intercepts[j], variances[j] = float(cpd.beta[0]), float(cpd.std) ** 2
        coefficients[[index[str(parent)] for parent in cpd.evidence], j] = cpd.beta[1:]
    return GaussianNetwork(names, coefficients, intercepts, variances)
