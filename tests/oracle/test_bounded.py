"""Regressions with a bounded price: against coordinate descent, optimality, brute force over orders, and the lasso."""

from itertools import permutations

import numpy as np
import pytest

import dagora
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.learners.base import LearnerOptions
from dagora.learners.notears import notears, notears_path
from dagora.solvers.bounded import Price, regress
from dagora.solvers.lasso import lasso
from dagora.solvers.polish import _settled, polish
from dagora.solvers.sets import as_sets
from dagora.solvers.trials import Fit
from tests.helpers import covariance, penalised_loss, random_covariance, regression

LAM = 0.1


@pytest.mark.parametrize("seed", range(10))
def test_coordinate_descent_ends_at_the_same_minimum(seed: int) -> None:
    d = 6
    S = random_covariance(d, seed)
    S = S + 0.5 * np.eye(d) * np.diag(S).min()  # enough for a convex problem: with one minimum, whatever the way
    assert np.linalg.eigvalsh(S)[0] > np.diag(S).min() / 3.0
    price, bound = Price.bounded(np.full((d, d), LAM), float(np.diag(S).min())), 3.0 * LAM / float(np.diag(S).min())
    np.testing.assert_allclose(price.bound, bound)
    W, ended = regress(S, np.eye(d), np.zeros((d, d)), ~np.eye(d, dtype=bool), price)
    assert ended
    for child in range(d):
        parents = [i for i in range(d) if i != child]
        wanted, loss = regression(S, child, parents, LAM, bound)
        np.testing.assert_allclose(W[parents, child], wanted, atol=1e-5)
        own = np.zeros((d, d))
        own[:, child] = W[:, child]
        rest = 0.5 * float(np.diag(S).sum() - S[child, child])
        assert penalised_loss(S, own, LAM, bound) - rest == pytest.approx(loss, abs=1e-9)
        assert price.cost(W)[:, child].sum() == pytest.approx(loss - _fit(S, W, child), abs=1e-9)


def _fit(S: FloatArray, W: FloatArray, child: int) -> float:
    r = np.eye(len(S))[:, child] - W[:, child]
    return 0.5 * float(r @ S @ r)


@pytest.mark.parametrize("seed", range(5))
def test_weights_beyond_the_bound_are_least_squares(seed: int) -> None:
    d, rng = 8, np.random.default_rng(seed)
    S = random_covariance(d, seed)
    lam = rng.uniform(0.02, 0.3, (d, d))
    price = Price.bounded(lam, float(np.diag(S).min()))
    W, _ = regress(S, np.eye(d), np.zeros((d, d)), ~np.eye(d, dtype=bool), price)
    slope = S @ (W - np.eye(d))
    np.fill_diagonal(slope, 0.0)
    large, none = np.abs(W) > price.bound, W == 0.0
    assert large.any()
    assert none.sum() > d  # more than the diagonal: small weights are priced
    assert np.abs(slope[large]).max() < 1e-5
    assert (np.abs(slope[none]) <= lam[none] + 1e-9).all()
    some = ~large & ~none
    np.testing.assert_allclose(slope[some], -(price.slope(W) * np.sign(W))[some], atol=1e-5)


def test_without_a_bound_it_is_the_lasso() -> None:
    S, free = random_covariance(7, 3), ~np.eye(7, dtype=bool)
    found, _ = regress(S, np.eye(7), np.zeros((7, 7)), free, Price.lasso(np.full((7, 7), LAM)))
    np.testing.assert_array_equal(found, lasso(S, np.eye(7), np.zeros((7, 7)), free, LAM)[0])


def test_what_has_no_price_has_no_bound_either() -> None:
    price = Price.bounded(np.array([[0.0, 0.1], [0.1, 0.0]]), 1.0)
    np.testing.assert_allclose(price.slope(np.full((2, 2), 0.15)), [[0.0, 0.05], [0.05, 0.0]])
    np.testing.assert_allclose(price.cost(np.full((2, 2), 9.0)).sum(axis=0), [0.015, 0.015])


@pytest.mark.parametrize("seed", range(6))
def test_the_second_search_ends_at_the_best_order(seed: int) -> None:
    d = 5
    S = random_covariance(d, seed)
    bound = 3.0 * LAM / float(np.diag(S).min())
    losses = {
        (child, first): regression(S, child, sorted(first), LAM, bound)[1]
        for order in permutations(range(d))
        for child, first in ((order[k], frozenset(order[:k])) for k in range(d))
    }
    best = min(sum(losses[order[k], frozenset(order[:k])] for k in range(d)) for order in permutations(range(d)))
    found = notears(Moments(1000, np.zeros(d), 1000 * S), LearnerOptions(lam=LAM))
    # A local search: at this size it ends at the best order, or next to it.
    assert best - 1e-9 <= penalised_loss(S, found.weights, LAM, bound) <= best + 0.01


def test_true_effects_are_no_longer_shrunk_below_the_threshold() -> None:
    # ER2, so that parents are correlated; here the lasso alone misses edges, in the right order.
    missed = {"lasso": 0, "bounded": 0}
    for seed in range(4):
        truth, (rows,) = dagora.simulate(20, 40, 1000, 1, seed=seed)
        S = covariance(rows)
        for kind in missed:
            W = notears_path(S, LAM, least=float(np.diag(S).min()) if kind == "bounded" else None).weights
            missed[kind] += int(((np.abs(W) <= 0.3) & (truth.adjacency == 1)).sum())
    assert missed["lasso"] >= 8
    assert missed["bounded"] <= 1


def test_fewer_rows_than_variables_keep_the_lasso() -> None:
    _, (rows,) = dagora.simulate(12, 12, 10, 1, seed=0)
    result = dagora.learn([rows], method="pooled")
    np.testing.assert_allclose(result.weights, notears_path(covariance(rows), LAM).weights, atol=1e-9)


@pytest.mark.parametrize("bounded", [False, True])
def test_minima_are_told_that_hold_with_other_entries_free(bounded: bool) -> None:
    d, lam, told = 8, np.full((8, 8), LAM), []
    for seed in range(6):
        rng, S = np.random.default_rng(seed), random_covariance(d, seed)
        price = Price.bounded(lam, float(np.diag(S).min())) if bounded else Price.lasso(lam)
        first, then = (np.triu(np.ones((d, d), dtype=bool), 1) & (rng.random((d, d)) < 0.8) for _ in range(2))
        W, _ = regress(S, np.eye(d), np.zeros((d, d)), first, price)
        anew, _ = regress(S, np.eye(d), np.zeros((d, d)), then, price)
        same = np.abs(W - anew).max(axis=0) < 1e-6
        holds = [column.holds(free) for column, free in zip(Fit.of(S, W, price).columns, as_sets(then), strict=True)]
        np.testing.assert_array_equal(holds, same)
        told.append(same[1:])
    assert np.any(told)
    assert not np.all(told)


def test_the_search_starts_from_the_better_of_two_orders() -> None:
    S = random_covariance(6, 1)
    orders = [np.array(order)[:, None] < np.array(order) for order in permutations(range(6))][::80]
    price = Price.bounded(np.full((6, 6), LAM), float(np.diag(S).min()))
    alone = [polish(S, np.zeros((6, 6)), order, price, search=False) for order in orders]
    losses = [penalised_loss(S, found.W, LAM, float(price.bound[0, 0])) for found in alone]
    best, worst = int(np.argmin(losses)), int(np.argmax(losses))
    assert losses[worst] > losses[best] + 0.1
    for one, other in ((best, worst), (worst, best)):
        found = polish(S, np.zeros((6, 6)), orders[one], price, search=False, other=orders[other])
        np.testing.assert_array_equal(found.allowed, orders[best])
        np.testing.assert_allclose(found.W, alone[best].W, atol=1e-9)


def test_effects_too_weak_to_count_lie_as_the_variances_say() -> None:
    S = np.diag([4.0, 1.0, 3.0, 2.0])
    W = np.zeros((4, 4))
    W[0, 1] = 0.8  # from the largest variance to the least: an edge, which the order has to follow
    weak = W.copy()
    weak[0, 3], weak[2, 3] = 1e-3, -1e-3
    none = np.zeros((4, 4), dtype=bool)
    for weights in (W, weak):
        assert np.argsort(_settled(S, weights, none).sum(axis=0)).tolist() == [3, 2, 0, 1]
    required = none.copy()
    required[2, 3] = True
    assert np.argsort(_settled(S, weak, required).sum(axis=0)).tolist() == [2, 3, 0, 1]


def test_a_descent_that_was_cut_short_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    S, free = random_covariance(8, 0), ~np.eye(8, dtype=bool)
    price = Price.bounded(np.full((8, 8), LAM), float(np.diag(S).min()))
    assert regress(S, np.eye(8), np.zeros((8, 8)), free, price)[1]
    monkeypatch.setattr("dagora.solvers.bounded._MOST_STEPS", 1)
    assert not regress(S, np.eye(8), np.zeros((8, 8)), free, price)[1]


def test_a_column_that_is_nothing_but_rounding_does_not_lift_the_bound() -> None:
    truth, (rows,) = dagora.simulate(20, 40, 1000, 1, seed=2)
    nothing = 1e-16 * np.random.default_rng(0).standard_normal((1000, 1))
    moments, more = Moments.of_rows(rows), Moments.of_rows(np.hstack([rows, nothing]))
    alone, beside = (notears(own, LearnerOptions(lam=LAM)).weights for own in (moments, more))
    np.testing.assert_allclose(beside[:20, :20], alone, atol=1e-9)
    assert (np.abs(alone) > 0.3)[truth.adjacency == 1].all()


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_whoever_is_left_out_at_first_is_not_left_out_at_the_end(
    seed: int, convex: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = 30
    _, (rows,) = dagora.simulate(d, 2 * d, 200, 1, seed=seed)
    S, free = covariance(rows), ~np.eye(d, dtype=bool)
    S = S + convex * 0.5 * np.diag(S).min() * np.eye(d)
    bound = 3.0 * LAM / float(np.diag(S).min())
    price = Price(np.full((d, d), LAM), np.full((d, d), bound))
    at_first = penalised_loss(S, lasso(S, np.eye(d), np.zeros((d, d)), free, LAM)[0], LAM, bound)
    found = []
    for near in (0.0, 0.5, np.inf):  # all, some, none but those that the lasso takes
        monkeypatch.setattr("dagora.solvers.bounded._NEAR", near)
        W, ended = regress(S, np.eye(d), np.zeros((d, d)), free, price)
        slope = S @ (W - np.eye(d))
        assert ended
        assert (np.abs(slope) <= LAM + 1e-6)[free & (W == 0.0)].all()
        np.testing.assert_allclose((slope + price.slope(W) * np.sign(W))[W != 0.0], 0.0, atol=1e-5)
        assert penalised_loss(S, W, LAM, bound) < at_first
        found.append(W)
    if convex:  # then there is one minimum
        np.testing.assert_allclose(found[1], found[0], atol=1e-6)
        np.testing.assert_allclose(found[2], found[0], atol=1e-6)
