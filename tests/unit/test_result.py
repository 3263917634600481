"""Results: what they say of themselves, and files that are whole or not there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest

import dagora
from dagora.arrays import IntArray
from dagora.errors import InputError
from dagora.files import plain, write_files
from dagora.graphs import UNDIRECTED, dag_to_cpdag
from dagora.interchange.registry import read_estimate, read_graph
from dagora.report.figures import draw_beside_truth


@pytest.fixture(scope="module")
def result() -> dagora.Result:
    _, sites = dagora.simulate(d=6, edges=7, n=300, sites=3, seed=2)
    return dagora.learn(sites)


def test_edges_graph_and_cpdag_tell_the_same(result: dagora.Result) -> None:
    edges = {(source, target): weight for source, target, weight in result.edges()}
    assert len(edges) == result.adjacency.sum() > 0
    assert all(abs(weight) > 0.3 for weight in edges.values())
    magnitudes = [abs(weight) for weight in edges.values()]
    assert magnitudes == sorted(magnitudes, reverse=True)
    graph = result.graph()
    assert {(u, v): data["weight"] for u, v, data in graph.edges(data=True)} == edges
    assert list(graph.nodes) == list(result.names)
    np.testing.assert_array_equal(result.cpdag, dag_to_cpdag(result.adjacency))


def test_ledger_accounts_for_every_byte_and_round(result: dagora.Result) -> None:
    assert sum(entry.rounds for entry in result.ledger) == result.rounds
    assert [entry.phase for entry in result.ledger] == ["count", "spread", "consensus"]
    consensus = result.ledger[-1]
    floats = sum(int(np.prod(shape)) for shape in consensus.fields.values())
    payload = 3 * consensus.rounds * 8 * floats
    assert payload <= consensus.sent <= payload + 3 * consensus.rounds * 200  # three sites; headers are small


def test_saved_files_read_back(result: dagora.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "out")
    np.testing.assert_array_equal(read_graph(tmp_path / "out" / "weights.csv").weights, result.weights)
    for source in ("out", "out/weights.csv"):
        estimate = read_estimate(tmp_path / source)
        assert estimate.names == result.names
        np.testing.assert_array_equal(estimate.adjacency, result.adjacency)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["rounds"] == result.rounds
    assert "-0.0" not in (tmp_path / "out" / "weights.csv").read_text().split(",")
    with pytest.raises(dagora.InputError, match="threshold: edges that have been chosen already need none"):
        read_estimate(tmp_path / "out", 0.3)


def test_weights_of_class_learners_are_read_without_a_threshold(tmp_path: Path) -> None:
    units = 10.0 ** np.arange(-3.0, 2.0)
    _, sites = dagora.simulate(5, 6, 300, 3, seed=0, noise="gaussian-unequal")
    learned = dagora.learn([rows * units for rows in sites], method="covariance")
    assert (np.abs(learned.weights[learned.adjacency == 1]) < 0.3).any()
    learned.save(tmp_path)
    np.testing.assert_array_equal(read_estimate(tmp_path / "weights.csv").adjacency, learned.adjacency)
    written = json.loads((tmp_path / "result.json").read_text())["class"]
    assert len(written) == len(learned.edges())
    assert sum(not edge["directed"] for edge in written) == len(learned.undirected())
    (tmp_path / "result.json").unlink()
    assert read_estimate(tmp_path / "weights.csv").adjacency.sum() < learned.adjacency.sum()  # above 0.3 only


@pytest.mark.filterwarnings("ignore::dagora.ConvergenceWarning")  # PC's class is that of no DAG here: the point
def test_the_class_that_was_identified_is_the_one_scored() -> None:
    truth, sites = dagora.simulate(15, 30, 500, 2, seed=10, noise="gaussian-unequal")
    learned = dagora.learn(sites, method="covariance", learner="pc")
    names = tuple(reversed(truth.names))
    backwards = replace(
        learned, names=names, adjacency=learned.adjacency[::-1, ::-1], identified=_reversed(learned.cpdag)
    )
    assert (learned.cpdag != dag_to_cpdag(learned.adjacency)).any()
    expected = dagora.evaluate(truth.adjacency, learned.cpdag)["cpdag_shd"]
    assert dagora.evaluate(truth, learned)["cpdag_shd"] == expected
    assert dagora.evaluate(truth, backwards)["cpdag_shd"] == expected


def _reversed(cpdag: IntArray) -> IntArray:
    turned = cpdag[::-1, ::-1]
    lines = turned == UNDIRECTED
    return np.where(lines, 0, turned) + np.where(np.triu(lines | lines.T), UNDIRECTED, 0)


def test_a_failure_leaves_the_old_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("old")

    def good(out: TextIO) -> None:
        out.write("new")

    def bad(out: TextIO) -> None:
        out.write("half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_files(tmp_path, {"a.csv": good, "b.csv": bad})
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "old"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another folder"):
        write_files(tmp_path / "file", {})


def test_plain_replaces_what_json_lacks() -> None:
    assert plain({"a": [1, float("inf"), float("nan"), 2.5], "b": "text"}) == {"a": [1, None, None, 2.5], "b": "text"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("a,b,c,d\n1,2,3,4\n", "neither edges"),
        ("source,target,weight\na,b,heavy\n", "row 1"),
        ("source,target\na\n", "row 1"),
        (",a,b\na,0,1\nc,0,0\n", "two sides"),
    ],
)
def test_bad_graph_files(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "graph.csv").write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_graph(tmp_path / "graph.csv")


def test_edge_lists_with_and_without_weights(tmp_path: Path) -> None:
    (tmp_path / "truth.csv").write_text("cause,effect\nErk,Akt\nPKA,Akt\n")
    graph = read_graph(tmp_path / "truth.csv", ("Akt", "Raf"))
    assert graph.names == ("Akt", "Raf", "Erk", "PKA")
    assert {(graph.names[i], graph.names[j]) for i, j in zip(*graph.adjacency.nonzero(), strict=True)} == {
        ("Erk", "Akt"),
        ("PKA", "Akt"),
    }


def test_figure_is_drawn_for_any_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for d in (2, 40):
        dag = np.triu(rng.random((d, d)) < 1.5 / d, 1).astype(int)
        draw_beside_truth(dag, dag.T, tuple(f"v{j}" for j in range(d)), tmp_path / f"{d}.png", "reversed")
        assert (tmp_path / f"{d}.png").stat().st_size > 5000
