"""What every algorithm for time series keeps to, under every aggregation and over every transport."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import dagora
from dagora.algorithms.options import LAG_DEFAULTS, METHODS, PRESETS
from dagora.arrays import FloatArray
from dagora.wide import LOW
from tests.helpers import AGGREGATIONS, SERIES_ALGORITHMS, TRANSPORTS, Recording, learn_over, small_series

D, LAGS = 4, 2
NAMES = ("v", "w", "x", "y")


def slow(algorithm: str, aggregation: str, transport: str) -> bool:
    """Many rounds under costly protection: the contract of the static model runs them, the messages are alike."""
    if algorithm == "admm-paper":
        return aggregation in ("shared", "encrypted") or (aggregation, transport) == ("masked", "over-bytes")
    return (
        algorithm.startswith("admm") and aggregation == "encrypted" and (algorithm, transport) != ("admm", "in-process")
    )


ALGORITHM = pytest.mark.parametrize("algorithm", SERIES_ALGORITHMS)
COMBINATION = pytest.mark.parametrize(
    ("algorithm", "aggregation", "transport"),
    [
        # Runs are cached by the process that made them.
        pytest.param(*case, marks=pytest.mark.xdist_group(f"series {case[0]} {case[1]}"))
        for case in product(SERIES_ALGORITHMS, AGGREGATIONS, TRANSPORTS)
        if not slow(*case)
    ],
)


@cache
def learned(algorithm: str, aggregation: str = "plain", transport: str = "in-process") -> dagora.Result:
    return learn_over(TRANSPORTS[transport], small_series(), SERIES_ALGORITHMS[algorithm], aggregation)[0]


def learn(algorithm: str, sites: Any, **columns: Any) -> dagora.Result:
    return dagora.learn(sites, **SERIES_ALGORITHMS[algorithm].arguments, **columns)


def both_parts(result: dagora.Result) -> FloatArray:
    assert result.lag_weights is not None
    return np.concatenate([result.weights[None], result.lag_weights])


def both_graphs(result: dagora.Result) -> FloatArray:
    assert result.lag_adjacency is not None
    return np.concatenate([result.adjacency[None], result.lag_adjacency])


def long_tables(columns: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, pa.Table]:
    """The small series as long tables, each with its columns in an order of its own."""
    tables = {}
    for site, (own, order) in enumerate(zip(small_series(), columns, strict=True)):
        rows = np.concatenate(own)
        ids = [f"s{k}" for k, series in enumerate(own) for _ in series]
        times = [t for series in own for t in range(len(series))]
        table = {names[j]: rows[:, j] for j in order} | {"id": ids, "t": times}
        tables[f"site-0{site + 1}"] = pa.table(table)
    return tables


def test_the_lists_are_complete() -> None:
    assert {(case.method, case.preset) for case in SERIES_ALGORITHMS.values()} == set(product(METHODS, PRESETS))


@COMBINATION
def test_result_is_sound(algorithm: str, aggregation: str, transport: str) -> None:
    result = learned(algorithm, aggregation, transport)
    assert result.lag_weights is not None
    assert result.lag_adjacency is not None
    assert result.adjacency.shape == result.weights.shape == (D, D)
    assert result.lag_adjacency.shape == result.lag_weights.shape == (LAGS, D, D)
    assert result.lag_adjacency.dtype == np.int64
    assert set(np.unique(result.adjacency)) == set(np.unique(result.lag_adjacency)) == {0, 1}
    assert nx.is_directed_acyclic_graph(nx.from_numpy_array(result.adjacency, create_using=nx.DiGraph))
    assert np.isfinite(both_parts(result)).all()
    assert (np.abs(result.weights[result.adjacency == 1]) > 0.3).all()
    assert (np.abs(result.lag_weights[result.lag_adjacency == 1]) > LAG_DEFAULTS["lag_threshold"]).all()
    assert result.names == ("x1", "x2", "x3", "x4")
    # Lengths 60, 41 | 55 | 37, 60, 50; two rows of every series only serve as the past of others.
    assert list(result.site_rows.values()) == [97, 53, 141]
    assert result.rounds == len(result.history) == sum(entry.rounds for entry in result.ledger)
    assert result.warnings == ()


@COMBINATION
def test_the_way_of_messages_changes_no_bit(algorithm: str, aggregation: str, transport: str) -> None:
    result, same = (
        learned(algorithm, aggregation, transport),
        learned(algorithm, "plain" if aggregation == "plain" else "masked"),
    )
    assert both_parts(result).tobytes() == both_parts(same).tobytes()
    assert result.history == same.history


@COMBINATION
def test_private_sums_give_the_plain_answer(algorithm: str, aggregation: str, transport: str) -> None:
    result, plain = learned(algorithm, aggregation, transport), learned(algorithm)
    np.testing.assert_array_equal(both_graphs(result), both_graphs(plain))
    close = SERIES_ALGORITHMS[algorithm].close
    np.testing.assert_allclose(both_parts(result), both_parts(plain), rtol=0, atol=close)


@ALGORITHM
def test_order_of_sites_and_of_their_series_is_irrelevant(algorithm: str) -> None:
    a, b, c = small_series()
    reordered, result = learn(algorithm, {"c": c[::-1], "a": a, "b": b}), learned(algorithm)
    np.testing.assert_array_equal(both_graphs(reordered), both_graphs(result))
    close = SERIES_ALGORITHMS[algorithm].close
    np.testing.assert_allclose(both_parts(reordered), both_parts(result), rtol=0, atol=close)


@ALGORITHM
def test_order_of_a_sites_columns_is_irrelevant(algorithm: str) -> None:
    straight = list(range(D))
    result = learn(algorithm, long_tables([straight, straight, straight], NAMES), series="id", time="t")
    shuffled = learn(algorithm, long_tables([straight, [3, 1, 0, 2], straight[::-1]], NAMES), series="id", time="t")
    assert shuffled.names == result.names == NAMES
    assert both_parts(shuffled).tobytes() == both_parts(result).tobytes()
    np.testing.assert_array_equal(both_graphs(result), both_graphs(learned(algorithm)))


@ALGORITHM
def test_permuting_variables_permutes_both_parts(algorithm: str) -> None:
    order = [3, 0, 2, 1]
    permuted = learn(algorithm, [[rows[:, order] for rows in own] for own in small_series()])
    index = np.ix_(range(LAGS + 1), order, order)
    np.testing.assert_array_equal(both_graphs(permuted), both_graphs(learned(algorithm))[index])
    close = SERIES_ALGORITHMS[algorithm].close
    np.testing.assert_allclose(both_parts(permuted), both_parts(learned(algorithm))[index], rtol=0, atol=close)


@ALGORITHM
def test_only_declared_summands_leave_a_site(algorithm: str) -> None:
    sites = dict(zip("abc", small_series(), strict=True))
    transport = learn_over(Recording, sites, SERIES_ALGORITHMS[algorithm])[1]
    declared = SERIES_ALGORITHMS[algorithm].leaves(D)
    assert {str(message["phase"]) for message, _ in transport.log} == set(declared)
    for message, replies in transport.log:
        for site, reply in replies.items():
            assert {name: np.shape(value) for name, value in reply.items() if not name.endswith(LOW)} == declared[
                str(message["phase"])
            ]
            if SERIES_ALGORITHMS[algorithm].method != "pooled":
                values = np.concatenate(sites[site])
                assert not any(np.isin(value, values).any() for value in reply.values())
    assert {entry.phase: dict(entry.fields) for entry in learned(algorithm).ledger} == declared
