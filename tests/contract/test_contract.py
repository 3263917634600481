"""What every algorithm keeps to, under every aggregation and over every transport."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import dagora
from dagora.aggregation.registry import AGGREGATIONS as KNOWN_AGGREGATIONS
from dagora.algorithms.options import METHODS, MODELS, PRESETS
from dagora.arrays import FloatArray, IntArray
from dagora.graphs import UNDIRECTED, skeleton
from dagora.learners.registry import LEARNERS
from dagora.wide import LOW
from tests.helpers import AGGREGATIONS, ALGORITHMS, TRANSPORTS, Recording, learn_over, small_sites

D = 5


def slow(algorithm: str, aggregation: str, transport: str) -> bool:
    """Two hundred rounds of homomorphic encryption: over one transport only.

    Networks take about a second a run: only the smallest of them goes all ways, the others those of a simulation.
    """
    if ALGORITHMS[algorithm].networks and algorithm != "mlp-unpolished":
        return aggregation in ("shared", "encrypted") or transport != "in-process"
    many_rounds = algorithm.startswith(("admm-paper", "mlp"))
    return many_rounds and aggregation == "encrypted" and transport != "in-process"


ALGORITHM = pytest.mark.parametrize("algorithm", ALGORITHMS)
# A network's random start depends on the place of its variable, so that in another order the descent is another.
WITHOUT_NETWORKS = pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if not ALGORITHMS[name].networks])
COMBINATION = pytest.mark.parametrize(
    ("algorithm", "aggregation", "transport"),
    [
        # Runs are cached by the process that made them.
        pytest.param(*case, marks=pytest.mark.xdist_group(f"{case[0]} {case[1]}"))
        for case in product(ALGORITHMS, AGGREGATIONS, TRANSPORTS)
        if not slow(*case)
    ],
)


@cache
def learned(algorithm: str, aggregation: str = "plain", transport: str = "in-process") -> dagora.Result:
    return learn_over(TRANSPORTS[transport], small_sites(), ALGORITHMS[algorithm], aggregation)[0]


def learn(algorithm: str, sites: Any, names: Sequence[str] = ("x1", "x2", "x3", "x4", "x5")) -> dagora.Result:
    return dagora.learn(sites, **ALGORITHMS[algorithm].arguments_for(names))


def frames(columns: list[list[int]], names: tuple[str, ...]) -> dict[str, pa.Table]:
    """The small sites as tables with named columns, each in an order of its own."""
    return {
        f"site-0{k + 1}": pa.table({names[j]: rows[:, j] for j in order})
        for k, (rows, order) in enumerate(zip(small_sites(), columns, strict=True))
    }


def both_ways(cpdag: IntArray) -> IntArray:
    """An undirected edge at [i, j] and at [j, i], so that no label matters."""
    return cpdag + np.where(cpdag == UNDIRECTED, cpdag, 0).T


def test_the_lists_are_complete() -> None:
    assert {(case.method, case.preset) for case in ALGORITHMS.values()} == set(product(METHODS, PRESETS))
    assert {*AGGREGATIONS, "gaussian"} == set(KNOWN_AGGREGATIONS)  # noise gives another answer
    assert {case.learner for case in ALGORITHMS.values() if case.method == "covariance"} == {None, *LEARNERS}
    assert {case.model for case in ALGORITHMS.values()} == set(MODELS) - {"dynamic"}  # of series


@COMBINATION
def test_result_is_sound(algorithm: str, aggregation: str, transport: str) -> None:
    result = learned(algorithm, aggregation, transport)
    assert result.adjacency.shape == result.weights.shape == (D, D)
    assert result.adjacency.dtype == np.int64
    assert set(np.unique(result.adjacency)) == {0, 1}  # this data has edges, and not all
    assert nx.is_directed_acyclic_graph(nx.from_numpy_array(result.adjacency, create_using=nx.DiGraph))
    assert result.weights.dtype == np.float64
    assert np.isfinite(result.weights).all()
    case = ALGORITHMS[algorithm]
    assert (np.abs(result.weights[result.adjacency == 1]) > case.threshold).all()
    assert case.signed or (result.weights >= 0.0).all()
    assert result.cpdag.shape == (D, D)
    np.testing.assert_array_equal(skeleton(result.cpdag), skeleton(result.adjacency))
    assert result.names == ("x1", "x2", "x3", "x4", "x5")
    assert list(result.site_rows.values()) == [83, 71, 97]
    assert not [text for text in result.warnings if "varsortability" not in text]  # simulated: variances do tell


@COMBINATION
def test_history_and_ledger_add_up(algorithm: str, aggregation: str, transport: str) -> None:
    result = learned(algorithm, aggregation, transport)
    assert result.rounds == len(result.history) == sum(entry.rounds for entry in result.ledger)
    assert [entry["round"] for entry in result.history] == list(range(1, result.rounds + 1))
    assert result.history[-1]["done"] == 1.0 or ALGORITHMS[algorithm].preset == "paper"
    assert all(0.0 <= entry["done"] <= 1.0 for entry in result.history)
    assert result.sent == sum(entry.sent for entry in result.ledger) > 0
    assert result.received == sum(entry.received for entry in result.ledger) > 0


@COMBINATION
def test_the_way_of_messages_changes_no_bit(algorithm: str, aggregation: str, transport: str) -> None:
    # Private sums are exact, so that they all give the same bits.
    result, same = (
        learned(algorithm, aggregation, transport),
        learned(algorithm, "plain" if aggregation == "plain" else "masked"),
    )
    assert result.weights.tobytes() == same.weights.tobytes()
    assert result.history == same.history
    assert [(entry.phase, entry.fields, entry.rounds) for entry in result.ledger] == [
        (entry.phase, entry.fields, entry.rounds) for entry in same.ledger
    ]


@COMBINATION
def test_private_sums_give_the_plain_answer(algorithm: str, aggregation: str, transport: str) -> None:
    # Plain sums round and private ones do not; `close` says how far each solver carries that.
    result, plain, case = learned(algorithm, aggregation, transport), learned(algorithm), ALGORITHMS[algorithm]
    np.testing.assert_array_equal(result.adjacency, plain.adjacency)
    np.testing.assert_array_equal(result.cpdag, plain.cpdag)
    close = 1e-6 if (case.method, case.preset) == ("covariance", "default") else case.close
    np.testing.assert_allclose(result.weights, plain.weights, rtol=0, atol=close)


@ALGORITHM
def test_equal_input_gives_equal_bits_and_stays_as_it_was(algorithm: str) -> None:
    sites = small_sites()
    before = [rows.copy() for rows in sites]
    for rows in sites:
        rows.flags.writeable = False  # a write would raise
    again = learn(algorithm, sites)
    assert again.weights.tobytes() == learned(algorithm).weights.tobytes()
    assert all((rows == copy).all() for rows, copy in zip(sites, before, strict=True))


@ALGORITHM
def test_order_of_sites_is_irrelevant(algorithm: str) -> None:
    # Sums in another order round differently; `close` says how far each solver carries that.
    a, b, c = small_sites()
    reordered, result = learn(algorithm, {"c": c, "a": a, "b": b}), learned(algorithm)
    np.testing.assert_array_equal(reordered.adjacency, result.adjacency)
    np.testing.assert_allclose(reordered.weights, result.weights, rtol=0, atol=ALGORITHMS[algorithm].close)


@ALGORITHM
def test_order_of_a_sites_columns_is_irrelevant(algorithm: str) -> None:
    # Columns are found by name, in the first site's order: not even rounding changes.
    names = ("v", "w", "x", "y", "z")
    straight = list(range(D))
    result = learn(algorithm, frames([straight, straight, straight], names), names)
    shuffled = learn(algorithm, frames([straight, [3, 1, 0, 2, 4], straight[::-1]], names), names)
    assert shuffled.names == result.names == names
    assert shuffled.weights.tobytes() == result.weights.tobytes()
    # Other names and another kind of table, the same graph.
    np.testing.assert_array_equal(result.adjacency, learned(algorithm).adjacency)


@WITHOUT_NETWORKS
def test_permuting_variables_permutes_the_weights(algorithm: str) -> None:
    # Not bit by bit: sums over variables round in another order, and solvers stop within their tolerance.
    order = [3, 0, 4, 2, 1]
    names = [f"x{order.index(place) + 1}" for place in range(D)]
    permuted, result = learn(algorithm, [rows[:, order] for rows in small_sites()], names), learned(algorithm)
    expected_class = both_ways(result.cpdag)[np.ix_(order, order)]
    np.testing.assert_array_equal(both_ways(permuted.cpdag), expected_class)
    if ALGORITHMS[algorithm].classes:
        return  # which DAG stands for the class depends on the labels
    np.testing.assert_array_equal(permuted.adjacency, result.adjacency[np.ix_(order, order)])
    expected = result.weights[np.ix_(order, order)]
    np.testing.assert_allclose(permuted.weights, expected, rtol=0, atol=ALGORITHMS[algorithm].close)


def crossed(algorithm: str, sites: Mapping[str, FloatArray]) -> Recording:
    transport = learn_over(Recording, sites, ALGORITHMS[algorithm])[1]
    assert isinstance(transport, Recording)
    return transport


@ALGORITHM
def test_only_declared_summands_leave_a_site(algorithm: str) -> None:
    sites = dict(zip("abc", small_sites(), strict=True))
    transport, case = crossed(algorithm, sites), ALGORITHMS[algorithm]
    values = {name: np.unique(rows) for name, rows in sites.items()}
    counts = {len(rows) for rows in sites.values()} | {sum(map(len, sites.values()))}
    assert {str(message["phase"]) for message, _ in transport.log} == set(case.leaves(D))
    for message, replies in transport.log:
        for site, reply in replies.items():
            shapes = {name: np.shape(value) for name, value in reply.items() if not name.endswith(LOW)}
            assert case.may_leave(D, str(message["phase"]), shapes)
            assert not any(counts & set(shape) for shape in shapes.values())  # nothing a row
            if case.method != "pooled":
                assert not any(np.isin(value, values[site]).any() for value in reply.values())


@ALGORITHM
def test_the_ledger_tells_what_left(algorithm: str) -> None:
    case, ledger = ALGORITHMS[algorithm], learned(algorithm).ledger
    assert [entry.phase for entry in ledger] == list(case.leaves(D))
    for entry in ledger:
        assert case.may_leave(D, entry.phase, dict(entry.fields))
