"""The order by variances: brute force, what it must follow, and the truth where noise variances are equal."""

from itertools import pairwise, permutations

import numpy as np
import pytest

import dagora
from dagora.arrays import BoolArray, FloatArray
from dagora.solvers.top_down import top_down
from tests.helpers import covariance, random_covariance


def conditional(S: FloatArray, v: int, given: list[int]) -> float:
    """The variance of v given others, by a generic solver."""
    if not given:
        return float(S[v, v])
    weights = np.linalg.lstsq(S[np.ix_(given, given)], S[given, v], rcond=None)[0]
    return float(S[v, v] - S[given, v] @ weights)


def places(before: BoolArray) -> list[int]:
    """The order that the entries belong to."""
    order = np.argsort(before.sum(axis=0))
    assert sorted(before.sum(axis=0)) == list(range(len(before)))
    assert (before == (before.sum(axis=0)[:, None] < before.sum(axis=0))).all()
    return [int(v) for v in order]


@pytest.mark.parametrize("seed", range(6))
def test_each_next_variable_has_the_least_variance_given_those_before(seed: int) -> None:
    S = random_covariance(7, seed)
    order = places(top_down(S, np.zeros((7, 7), dtype=bool)))
    for k, v in enumerate(order):
        left = {u: conditional(S, u, order[:k]) for u in order[k:]}
        assert left[v] == pytest.approx(min(left.values()), rel=1e-9)


def test_inputs_are_given_to_all() -> None:
    S = random_covariance(7, 3)
    d, order = 4, places(top_down(S, np.zeros((4, 4), dtype=bool)))
    for k, v in enumerate(order):
        left = {u: conditional(S, u, [*range(d, 7), *order[:k]]) for u in order[k:]}
        assert left[v] == pytest.approx(min(left.values()), rel=1e-9)


def test_required_edges_are_followed() -> None:
    S = random_covariance(4, 0)
    for order in permutations(range(4)):
        required = np.zeros((4, 4), dtype=bool)
        for parent, child in pairwise(order):
            required[parent, child] = True
        assert places(top_down(S, required)) == list(order)


def test_with_equal_noise_and_many_rows_it_is_a_causal_order() -> None:
    for seed in range(5):
        truth, (rows,) = dagora.simulate(15, 25, 20_000, 1, seed=seed)
        before = top_down(covariance(rows), np.zeros((15, 15), dtype=bool))
        assert not ((truth.adjacency == 1) & ~before).any()


@pytest.mark.parametrize("seed", range(20))
def test_collinear_columns_are_no_obstacle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    S = covariance(rng.standard_normal((50, 3)) @ rng.standard_normal((3, 6)))
    required = np.triu(rng.random((6, 6)) < 0.3, 1)
    shuffled = rng.permutation(6)
    required = required[np.ix_(shuffled, shuffled)]
    order = places(top_down(S, required))
    assert all(order.index(i) < order.index(j) for i, j in np.argwhere(required))


def test_rounding_does_not_choose_among_equal_variances() -> None:
    S = random_covariance(8, 5)
    S = S / np.sqrt(np.outer(np.diag(S), np.diag(S)))
    noise = 1.0 + 1e-12 * np.random.default_rng(0).standard_normal(8)
    nearly = S * np.outer(noise, noise)
    none = np.zeros((8, 8), dtype=bool)
    assert places(top_down(S, none))[0] == 0
    np.testing.assert_array_equal(top_down(nearly, none), top_down(S, none))
