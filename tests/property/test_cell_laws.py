"""Laws of cells: no name is a formula to a spreadsheet, numbers stay numbers, and what is read is what was written."""

import csv
import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dagora
from dagora import Knowledge
from dagora.cells import bare, guarded, write_rows
from dagora.data.simulate import Truth
from dagora.data.simulation_files import write_simulation
from dagora.data.tables import open_table
from dagora.experiments import runner
from dagora.interchange.csv_graphs import read_csv, write_csv
from dagora.interchange.knowledge_files import parse_csv
from dagora.interchange.knowledge_files import write_csv as write_knowledge
from dagora.interchange.named import NamedEdge, NamedGraph
from dagora.interchange.registry import read_estimate, read_graph, write_graph

BEGINS = tuple("=+-@\t\r\n＝＋－＠")
FORMULAS = (
    "=1+2",
    "+1",
    "-1.5",
    "@SUM(A1)",
    "'=1",
    "''-2",
    "'''@x",
    '=HYPERLINK("http://x","y")',
    "=a,b",
    "=a\rb",
    "=a\nb",
)

texts = st.text(st.characters(codec="utf-8"), max_size=6)
formulas = st.builds("".join, st.tuples(st.sampled_from(("", "'", "''")), st.sampled_from(BEGINS), texts))
any_name = st.one_of(texts, formulas)
# Readers take blanks off both ends of a cell, as people write them after commas.
names = any_name.filter(lambda name: name != "" and name == name.strip())


def is_formula(cell: str) -> bool:
    return cell.startswith(BEGINS)


def cells_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@given(any_name)
@example("'")
@example("'=")
def test_a_guarded_name_is_no_formula_and_comes_back(name: str) -> None:
    assert not is_formula(guarded(name))
    assert bare(guarded(name)) == name


@given(any_name, any_name)
def test_no_two_names_are_one_cell(one: str, other: str) -> None:
    assert (guarded(one) == guarded(other)) == (one == other)


@pytest.mark.parametrize("name", ["x1", "Age [years]", "it's", "'quoted'", "", " =1", "a=b", "(-1)"])
def test_other_names_are_left_alone(name: str) -> None:
    assert guarded(name) == bare(name) == name


@given(st.lists(st.lists(st.one_of(any_name, st.integers(), st.floats(allow_nan=False)), min_size=1), min_size=1))
def test_rows_come_back_and_numbers_have_no_apostrophe(rows: list[list[str | float]]) -> None:
    out = io.StringIO()
    write_rows(out, rows)
    found = cells_of(out.getvalue())
    assert [[bare(cell) for cell in row] for row in found] == [[str(cell) for cell in row] for row in rows]
    for row, cells in zip(rows, found, strict=True):
        for cell, written in zip(row, cells, strict=True):
            assert written == (guarded(cell) if isinstance(cell, str) else repr(cell))


@given(st.lists(names, min_size=2, max_size=5, unique=True), st.floats(-9, 9).filter(bool), st.booleans())
@example(list(FORMULAS), -0.5, True)
@example(list(FORMULAS), -0.5, False)
def test_graphs_come_back(found: list[str], weight: float, directed: bool) -> None:
    graph = NamedGraph.of([NamedEdge(found[0], found[1], weight, directed), NamedEdge(found[1], found[-1], 0.5)], found)
    text = write_csv(graph)
    assert not any(is_formula(cell) for row in cells_of(text)[1:] for cell in row[:2])
    back = read_csv(Path("a.csv"), text, graph.names)
    assert back.edges() == graph.edges()
    assert back.names == graph.names


@given(st.lists(names, min_size=3, max_size=3, unique=True))
@example(["=1+2", "'=1+2", "-1.5"])
def test_knowledge_comes_back(found: list[str]) -> None:
    a, b, c = found
    known = Knowledge(required=[(a, b)], forbidden=[(b, a)], tiers=[[a], [b, c]])
    text = write_knowledge(known)
    assert not any(is_formula(cell) for row in cells_of(text) for cell in row)
    assert parse_csv(text) == known


@settings(max_examples=10, deadline=None)
@given(st.lists(names.filter(lambda name: "\0" not in name), min_size=3, max_size=3, unique=True))  # Arrow ends there
@example(["=1+2", "'=1+2", "-1.5"])
@example(["a\rb", "=a\rb", "@\rb"])
def test_results_come_back(found: list[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)) @ np.array([[1.0, -2.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1.0]])
    table = pa.table(list(x.T), names=found)
    result = dagora.learn({"north": table}, method="covariance", aggregation="plain", bootstrap=2)
    with tempfile.TemporaryDirectory() as folder:
        result.save(folder)
        for file in ("edges.csv", "weights.csv", "confidence.csv"):
            written = cells_of(Path(folder, file).read_bytes().decode())
            for cell in (cell for row in written for cell in row):
                assert not is_formula(cell) or float(cell) < 0  # numbers stay numbers
        assert read_graph(Path(folder, "weights.csv")).names == result.names
        estimate = read_estimate(folder)
        np.testing.assert_array_equal(estimate.weights, np.where(result.adjacency == 1, result.weights, 0.0))
        exported = write_graph(estimate, Path(folder, "graph.csv"))
        assert read_graph(exported, result.names).edges() == estimate.edges()
        summary = json.loads(Path(folder, "result.json").read_text())
        assert summary["names"] == found


@settings(max_examples=20, deadline=None)
@given(st.lists(names.filter(lambda name: "\0" not in name and name != "x"), min_size=1, max_size=4, unique=True))
@example(["=1+2", "'=1+2", "-1.5"])
def test_sites_columns_come_back(found: list[str]) -> None:
    found = ["x", *found]  # a header of numbers alone would be taken for a row
    d = len(found)
    weights = np.zeros((d, d))
    weights[0, 1] = -1.5
    truth = Truth(weights, (weights != 0).astype(np.int64), tuple(found), noise_variances=np.ones(d))
    rows = np.arange(2.0 * d).reshape(2, d) - 1.0
    with tempfile.TemporaryDirectory() as folder:
        write_simulation(folder, truth, [rows])
        table = open_table("north", Path(folder, "site-01.csv"))
        assert table.names == truth.names
        np.testing.assert_array_equal(np.concatenate(list(table.chunks(truth.names))), rows)
        assert read_graph(Path(folder, "truth.csv"), truth.names).names == truth.names
        assert read_graph(Path(folder, "truth.csv"), truth.names).edges()[0][:2] == (found[0], found[1])


def test_methods_of_experiments_come_back(tmp_path: Path) -> None:
    row: runner.Row = dict.fromkeys(runner.COLUMNS, 1) | {"method": "=cmd", "version": dagora.__version__}
    row |= dict.fromkeys(("tpr", "fdr", "skeleton_f1", "seconds"), 0.5)
    path = tmp_path / "figure.csv"
    runner._write(path, [row])
    runner._append(path, [row])
    assert ",'=cmd," in path.read_text()
    assert runner.read_rows(path) == [row, row]
