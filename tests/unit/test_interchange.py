"""Graphs go out to other tools and come back as they were, read by those tools themselves where they can be."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import dagora
from dagora.cli import app
from dagora.errors import InputError
from dagora.graphs import is_dag
from dagora.interchange.libraries import (
    from_causallearn,
    from_networkx,
    from_pgmpy,
    to_causallearn,
    to_networkx,
)
from dagora.interchange.named import NamedEdge, NamedGraph
from dagora.interchange.registry import FORMATS, read_class, read_estimate, read_graph, write_graph

PLAIN = NamedGraph.of(
    [NamedEdge("a", "b", -0.5), NamedEdge("a", "c", 2.0), NamedEdge("b", "c", 1e-3)], ("c", "alone", "a", "b")
)
CLASS = NamedGraph.of([NamedEdge("a", "c", 0.5), NamedEdge("b", "c", 1.5), NamedEdge("d", "e", 2.0, False)])
ODD = (
    "blood pressure",
    "100 %",
    'the "best"',
    "a;b, c",
    "größe→Δ",
    "x-->y",
    "back\\slash",
    "it's",
    "{node} [1] = 2",
    "n",
)

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)


def same(one: NamedGraph, other: NamedGraph, weights: bool = True) -> None:
    assert set(one.names) == set(other.names)
    order = [other.names.index(name) for name in one.names]
    if one.lines is None:
        np.testing.assert_array_equal(other.adjacency[np.ix_(order, order)], one.adjacency)
    assert {frozenset(e[:2]) if not e.directed else e[:2] for e in one.edges()} == {
        frozenset(e[:2]) if not e.directed else e[:2] for e in other.edges()
    }
    if weights:
        assert {frozenset(e[:2]): e.weight for e in one.edges()} == {frozenset(e[:2]): e.weight for e in other.edges()}


@pytest.mark.parametrize("graph", [PLAIN, CLASS], ids=["dag", "class"])
@pytest.mark.parametrize("format", FORMATS)
def test_round_trip(graph: NamedGraph, format: str, tmp_path: Path) -> None:
    path = write_graph(graph, tmp_path / f"graph{FORMATS[format].suffixes[0]}")
    back = read_graph(path, graph.names if format == "csv" else ())
    same(graph, back, weights=format != "tetrad")  # which has no place for weights
    assert format == "csv" or back.names == graph.names


@pytest.mark.parametrize("format", FORMATS)
@given(names=st.lists(NAMES, min_size=2, max_size=6, unique=True), data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_names_survive(format: str, names: list[str], data: st.DataObject, tmp_path: Path) -> None:
    pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    weights = st.floats(allow_nan=False, allow_infinity=False).filter(bool)
    graph = NamedGraph.of([NamedEdge(names[i], names[j], data.draw(weights)) for i, j in chosen], names)
    path = write_graph(graph, tmp_path / "graph", format)
    same(graph, read_graph(path, graph.names if format == "csv" else (), format), weights=format != "tetrad")


@pytest.mark.parametrize("format", FORMATS)
def test_odd_names_survive(format: str, tmp_path: Path) -> None:
    graph = NamedGraph.of([NamedEdge(a, b, 0.25) for a, b in pairwise(ODD)], ODD)
    path = write_graph(graph, tmp_path / "graph", format)
    same(graph, read_graph(path, ODD if format == "csv" else (), format), weights=format != "tetrad")


def test_networkx_reads_graphml(tmp_path: Path) -> None:
    found = nx.read_graphml(write_graph(PLAIN, tmp_path / "g.graphml"))
    assert set(found) == set(PLAIN.names)
    assert found["a"]["b"]["weight"] == -0.5
    assert isinstance(found, nx.DiGraph)


def test_names_that_other_tools_keep_as_labels_are_read() -> None:
    numbered: nx.DiGraph[str] = nx.DiGraph([("n0", "n1")])
    nx.set_node_attributes(numbered, {"n0": "age", "n1": "weight"}, "label")
    assert from_networkx(numbered).edges() == [NamedEdge("age", "weight", 1.0)]
    undirected: nx.Graph[str] = nx.Graph([("a", "b")])
    assert from_networkx(undirected).edges() == [NamedEdge("a", "b", 1.0, directed=False)]
    same(PLAIN, from_networkx(to_networkx(PLAIN)))
    same(CLASS, from_networkx(to_networkx(CLASS)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own parts
def test_graphviz_grammar_by_pydot(tmp_path: Path) -> None:
    pydot = pytest.importorskip("pydot")
    graph = NamedGraph.of([NamedEdge("blood pressure", 'the "best"', 0.5)], ("alone",))
    (found,) = pydot.graph_from_dot_file(str(write_graph(graph, tmp_path / "g.dot")))
    (edge,) = found.get_edges()
    assert (edge.get_source(), edge.get_destination()) == ('"blood pressure"', '"the \\"best\\""')
    assert edge.get("effect") == '"0.5"'
    assert '"alone"' in [node.get_name() for node in found.get_nodes()]


def test_causal_learn_reads_tetrads_text(tmp_path: Path) -> None:
    text = pytest.importorskip("causallearn.utils.TXT2GeneralGraph")
    found = text.txt2generalgraph(str(write_graph(CLASS, tmp_path / "g.txt")))
    same(CLASS, from_causallearn(found), weights=False)


@pytest.mark.parametrize("graph", [PLAIN, CLASS], ids=["dag", "class"])
def test_causal_learns_graph(graph: NamedGraph) -> None:
    pytest.importorskip("causallearn")
    found = to_causallearn(graph)
    same(graph, from_causallearn(found), weights=False)
    a, c = found.get_node("a"), found.get_node("c")
    assert found.is_directed_from_to(a, c)


def test_an_edge_with_two_heads_is_refused() -> None:
    pytest.importorskip("causallearn")
    from causallearn.graph.Edge import Edge
    from causallearn.graph.Endpoint import Endpoint

    found = to_causallearn(PLAIN)
    found.add_edge(Edge(found.get_node("alone"), found.get_node("a"), Endpoint.ARROW, Endpoint.ARROW))
    with pytest.raises(InputError, match="neither an arrow nor a line"):
        from_causallearn(found)


@pytest.mark.filterwarnings("ignore")  # its own
def test_pgmpy_reads_dagitty(tmp_path: Path) -> None:
    base = pytest.importorskip("pgmpy.base")
    found = base.DAG.from_dagitty(filename=str(write_graph(PLAIN, tmp_path / "g.dagitty")))
    assert set(found.nodes()) == {"a", "b", "c", "alone"}
    assert set(found.edges()) == {("a", "b"), ("a", "c"), ("b", "c")}


@pytest.mark.filterwarnings("ignore")  # its own
def test_pgmpy_has_the_same_distribution() -> None:
    pytest.importorskip("pgmpy")
    _, sites = dagora.simulate(d=5, n=500, sites=2, seed=2)
    result = dagora.learn([rows + 3.0 for rows in sites], refit=True)
    assert result.network is not None
    model = result.to_pgmpy()
    mean, covariance = model.to_joint_gaussian()
    # pgmpy sorts its joint distribution topologically.
    names = [str(name) for name in nx.topological_sort(model)]
    order = [names.index(name) for name in result.names]
    np.testing.assert_allclose(np.asarray(mean)[order], result.network.mean, atol=1e-3)
    np.testing.assert_allclose(np.asarray(covariance)[np.ix_(order, order)], result.network.covariance, atol=1e-2)
    back = from_pgmpy(model)
    order = [back.names.index(name) for name in result.names]
    np.testing.assert_array_equal(back.coefficients[np.ix_(order, order)], result.network.coefficients)
    np.testing.assert_allclose(back.variances[order], result.network.variances, rtol=1e-14)
    np.testing.assert_array_equal(back.intercepts[order], result.network.intercepts)


def test_a_result_without_parameters_says_what_to_do() -> None:
    _, sites = dagora.simulate(d=4, n=100, sites=2, seed=2)
    with pytest.raises(InputError, match="refit=True"):
        dagora.learn(sites).to_pgmpy()


def test_files_of_others_are_read(tmp_path: Path) -> None:
    texts = {
        "a.dot": 'strict digraph "my graph" { rankdir=LR; node [shape=box]\n a -> b -> c; // chain\n d }',
        "b.dag": "dag{ a [exposure,pos=\"0,1\"] c [outcome]\n a -> b b -> c\n'd e'; /* none */ }",
        "c.txt": "Graph Nodes:\na,b,c,d\n\nGraph Edges:\n1. a --> b dd nl\n2. c <-- b\n\nGraph Attributes:\n",
        "d.gv": "digraph { c -> b [dir=back]; b -> a [dir=back]; d }",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found = read_graph(tmp_path / name)
        assert len(found.names) == 4
        expected = {("a", "b"), ("b", "c")} if name != "d.gv" else {("b", "c"), ("a", "b")}
        assert {edge[:2] for edge in found.edges()} == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.dot", "digraph { a -> }", "has no end"),
        ("a.dot", "digraph { a -> b", "is no graph of the form"),
        ("a.dot", "digraph { a <-> b }", "two heads"),
        ("a.dot", "digraph { subgraph x { a } }", "where a name is expected"),
        ("a.dot", 'digraph { a -> b [effect="much"] }', "effect is not a number"),
        ("a.dot", "digraph { a -> b [effect=}", "in the middle"),
        ("a.dot", 'digraph { "a }', "line 1: cannot be read"),
        ("a.txt", "Graph Nodes:\na;b\n\nGraph Edges:\n1. a o-> b\n", "line 5: no edge of the form"),
        ("a.txt", "nodes", "lacks 'Graph Nodes:'"),
        ("a.json", "[1]", "no JSON object with names and edges"),
        ("a.json", '{"edges": [{"source": "a"}]}', "no JSON object with names and edges"),
        ("a.graphml", "<graph>", "networkx cannot read it"),
        ("a.csv", "source,target,weight,directed\na,b,1,perhaps\n", "row 1"),
    ],
)
def test_what_cannot_be_read_is_told(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_graph(tmp_path / name)


def test_formats_are_known_by_name_or_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not known by the file's name"):
        write_graph(PLAIN, tmp_path / "graph")
    with pytest.raises(InputError, match="there is no 'bif'"):
        write_graph(PLAIN, tmp_path / "graph", "bif")
    with pytest.raises(InputError, match="there is no file"):
        read_graph(tmp_path / "none.dot")
    with pytest.raises(InputError, match=r"'a\\x01'.*GraphML"):
        write_graph(NamedGraph.of([NamedEdge("a\x01", "b")]), tmp_path / "g.graphml")
    with pytest.raises(InputError, match="no place for effects of earlier times"):
        write_graph(NamedGraph(np.eye(2, k=1), ("a", "b"), np.ones((1, 2, 2))), tmp_path / "g.dot")


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "tetrad"])
def test_edges_that_a_file_lists_are_chosen_already(format: str, tmp_path: Path) -> None:
    # Weaker ones than any threshold, and those without direction, go from tool to tool like the rest.
    graph = NamedGraph.of([NamedEdge("a", "c", 0.01), NamedEdge("b", "c", 0.2), NamedEdge("c", "d", 0.1, False)])
    source = write_graph(graph, tmp_path / f"a{FORMATS[format].suffixes[0]}")
    same(graph, read_estimate(source, names=graph.names))
    same(graph, read_class(source))
    with pytest.raises(InputError, match="chosen already"):
        read_estimate(source, threshold=0.3)
    assert run("convert", source, tmp_path / "b.json").exit_code == 0
    same(graph, read_graph(tmp_path / "b.json"))
    assert run("convert", source, tmp_path / "c.json", "--class").exit_code == 0
    same(graph, read_graph(tmp_path / "c.json"))


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_commands(tmp_path: Path) -> None:
    truth, sites = dagora.simulate(d=5, n=400, sites=2, seed=1)
    for k, rows in enumerate(sites):
        np.savetxt(tmp_path / f"s{k}.csv", rows, delimiter=",", header=",".join(truth.names), comments="")
    files, out = [tmp_path / "s0.csv", tmp_path / "s1.csv"], tmp_path / "out"
    exports = ["--export", tmp_path / "g.dot", "--export", tmp_path / "g.graphml"]
    assert run("learn", *files, "--out", out, "--method", "covariance", *exports).exit_code == 0
    learned = read_graph(out / "edges.csv", truth.names)
    for name in ("g.dot", "g.graphml"):
        same(learned, read_graph(tmp_path / name))
    assert run("convert", out, tmp_path / "g.txt").exit_code == 0
    same(learned, read_graph(tmp_path / "g.txt"), weights=False)
    told = json.loads(run("convert", out, tmp_path / "class.json", "--class", "--json").stdout)
    assert told["edges"] == len(learned.edges())
    whole = read_graph(tmp_path / "class.json")
    about = json.loads((out / "result.json").read_text())["class"]
    assert {(e.source, e.target, e.directed) for e in whole.edges()} == {
        (e["source"], e["target"], e["directed"]) for e in about
    }
    # From one tool's file to another's, the class included.
    assert run("convert", tmp_path / "g.dot", tmp_path / "g.dagitty", "--class").exit_code == 0
    assert is_dag(read_graph(tmp_path / "g.dagitty").adjacency == 1)
    with pytest.raises(InputError, match="the format is not known"):
        run("learn", *files, "--export", tmp_path / "graph.xyz")
    # A truth in any format can be compared with.
    scores = json.loads(run("evaluate", tmp_path / "g.graphml", out, "--json").stdout)
    assert scores["shd"] == 0
