"""Networks behind masks: graphs from all the ways to learn them, what their weights mean, and what is refused."""

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.arrays import FloatArray
from dagora.errors import InputError
from dagora.graphs import is_dag
from dagora.learners import mcsl

SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


@cache
def sites_of(seed: int) -> list[FloatArray]:
    """240 rows of four variables at three sites."""
    return dagora.simulate(4, 4, 240, 3, seed=seed, model="mlp")[1]


@cache
def learned(seed: int, **options: Any) -> dagora.Result:
    return dagora.learn(sites_of(seed), model="masked", **options)


@SEEDS
def test_the_graph_has_no_cycle_and_most_of_the_true_edges(seed: int) -> None:
    truth, _ = dagora.simulate(4, 4, 240, 3, seed=seed, model="mlp")
    result = learned(seed)
    assert is_dag(result.adjacency)
    scores = dagora.evaluate(truth, result)
    assert scores["tpr"] >= 0.5
    assert result.warnings == ()


@SEEDS
def test_weights_are_probabilities_and_edges_those_above_a_half(seed: int) -> None:
    result = learned(seed)
    assert ((result.weights >= 0.0) & (result.weights <= 1.0)).all()
    assert (result.weights.diagonal() == 0.0).all()
    likely = result.weights > 0.5
    for i, j in result.removed:  # they closed a cycle
        assert likely[i, j]
        likely[i, j] = False
    np.testing.assert_array_equal(result.adjacency == 1, likely)
    assert likely.any()


def test_a_higher_threshold_keeps_the_edges_above_it() -> None:
    strict = dagora.learn(sites_of(0), model="masked", threshold=0.9)
    np.testing.assert_array_equal(strict.weights, learned(0).weights)
    assert ((strict.adjacency == 1) <= (strict.weights > 0.9)).all()


def test_equal_seeds_give_equal_bits_and_other_seeds_other_masks() -> None:
    again, other = dagora.learn(sites_of(0), model="masked", seed=0), dagora.learn(sites_of(0), model="masked", seed=1)
    assert again.weights.tobytes() == learned(0).weights.tobytes()
    assert again.functions is not None
    rows = np.vstack(sites_of(0))
    np.testing.assert_array_equal(again.predict(rows), learned(0).predict(rows))
    assert (other.weights != again.weights).any()


@SEEDS
def test_private_sums_give_the_same_graph(seed: int) -> None:
    private = dagora.learn(sites_of(seed), model="masked", aggregation="masked")
    np.testing.assert_array_equal(private.adjacency, learned(seed).adjacency)
    np.testing.assert_allclose(private.weights, learned(seed).weights, atol=1e-2)  # observed: 1e-4


def test_pooled_rows_are_those_of_one_site() -> None:
    pooled, alone = learned(0, method="pooled"), dagora.learn([np.vstack(sites_of(0))], model="masked")
    np.testing.assert_array_equal(pooled.weights, alone.weights)
    np.testing.assert_array_equal(pooled.adjacency, alone.adjacency)


@SEEDS
def test_three_sites_find_about_what_one_place_does(seed: int) -> None:
    together, apart = learned(seed, method="pooled"), learned(seed)
    assert (together.adjacency != apart.adjacency).sum() <= 2


def test_functions_explain_the_data_and_leave_the_noise_that_is_told() -> None:
    result, rows = learned(0), np.vstack(sites_of(0))
    left = ((rows - result.predict(rows)) ** 2).mean(axis=0)
    np.testing.assert_allclose(left, result.extras["noise_variances"], rtol=1e-6)
    children = result.adjacency.any(axis=0)
    assert (left[children] < rows.var(axis=0)[children]).all()


@pytest.mark.parametrize("method", ["voting", "average"])
def test_sites_that_learn_alone_are_combined(method: str) -> None:
    alone = [dagora.learn([rows], model="masked", hidden=3) for rows in sites_of(0)]
    result = learned(0, method=method, hidden=3)
    assert result.rounds == 1
    if method == "voting":
        votes = np.sum([own.weights > 0.5 for own in alone], axis=0)
        assert ((result.adjacency == 1) <= (votes > 1.5)).all()
        np.testing.assert_array_equal(result.adjacency.sum() + len(result.removed), (votes > 1.5).sum())
    else:
        np.testing.assert_allclose(result.weights, np.mean([own.weights for own in alone], axis=0), atol=1e-12)


def test_the_papers_preset_is_for_one_place_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^preset: 'paper' gives no figures for model 'masked'") as told:
        dagora.learn(sites_of(0), model="masked", preset="paper")
    assert "\n" not in str(told.value)
    monkeypatch.setattr(mcsl, "solve", partial(mcsl.solve, outer=7, steps=150))
    result = dagora.learn(sites_of(0), model="masked", preset="paper", method="pooled", hidden=4)
    assert is_dag(result.adjacency)
    assert result.adjacency.any()
    assert ((result.weights >= 0.0) & (result.weights <= 1.0)).all()
    assert result.functions is None
    assert result.rounds == 1
    assert np.isfinite(result.extras["objective"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"polish": True}, "polish: model 'masked' has no use for it"),
        ({"polish": False}, "polish: model 'masked' has no use for it"),
        ({"method": "covariance"}, "method: 'covariance' does not fit model 'masked'"),
        ({"learner": "notears"}, "learner: model 'masked' has its own"),
        ({"device": "nonsense"}, "device: torch cannot use 'nonsense'"),
        ({"hidden": 0}, "hidden: "),
        ({"ridge": -1.0}, "ridge: "),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}") as told:
        dagora.learn(sites_of(0), model="masked", **options)
    assert "\n" not in str(told.value)
