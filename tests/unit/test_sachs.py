import csv
from importlib.resources import files

import numpy as np

import dagora
from dagora.graphs import is_dag

PROTEINS = ("Raf", "Mek", "Plcg", "PIP2", "PIP3", "Erk", "Akt", "PKA", "PKC", "P38", "Jnk")


def cells(name: str) -> list[list[str]]:
    """A bundled file as the csv module reads it, without this package's readers."""
    return list(csv.reader((files("dagora.data") / "sachs" / name).read_text(encoding="utf-8").splitlines()))


def test_rows_are_those_of_the_file() -> None:
    truth, rows = dagora.load_sachs()
    header, *values = cells("sachs_observational.csv")
    assert rows.shape == (853, 11)
    assert rows.dtype == np.float64
    assert np.isfinite(rows).all()
    assert truth.names == tuple(header) == PROTEINS
    np.testing.assert_array_equal(rows, np.array(values, dtype=np.float64))


def test_known_cells() -> None:
    truth, rows = dagora.load_sachs()
    assert rows[0, truth.names.index("Raf")] == 26.4  # raw, neither centred nor scaled
    assert rows[0, truth.names.index("PKA")] == 414.0


def test_truth_is_the_accepted_graph() -> None:
    truth, _ = dagora.load_sachs()
    assert truth.adjacency.shape == (11, 11)
    assert truth.adjacency.sum() == 17
    assert is_dag(truth.adjacency)
    np.testing.assert_array_equal(truth.weights, truth.adjacency)
    edges = {(truth.names[i], truth.names[j]) for i, j in np.argwhere(truth.adjacency)}
    assert edges == {(cause, effect) for cause, effect in cells("sachs_truth.csv")[1:]}
    assert ("Raf", "Mek") in edges  # the direction, from cause to effect


def test_a_caller_s_change_does_not_leak() -> None:
    truth, rows = dagora.load_sachs()
    rows[:] = 0.0
    truth.weights[:] = 0.0
    again, rows_again = dagora.load_sachs()
    assert rows_again[0, 0] == 26.4
    assert again.adjacency.sum() == 17


def test_columns_and_graph_are_in_the_same_order() -> None:
    # Half of the learned adjacencies being true is far from chance (17 of 55 pairs); a permuted graph would be at it.
    truth, rows = dagora.load_sachs()
    result = dagora.learn(np.array_split(rows, 4), method="covariance")
    assert dagora.evaluate(truth.adjacency, result.adjacency)["skeleton_precision"] > 0.5
