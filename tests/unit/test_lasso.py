"""Lasso regressions: leaps and search against each other, and both against a generic optimiser."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagora.arrays import BoolArray, FloatArray
from dagora.solvers import lasso as module
from dagora.solvers.lasso import Column, _leaped, _to_minimum, lasso, product
from tests.networks import generic_minimum

SEEDS = range(40)


class Problem:
    """w'Sw / 2 - w'cross + sum of lam |w|, some entries held at zero, from some start."""

    def __init__(self, seed: int, p: int = 8, collinear: bool = False, rows: int = 40) -> None:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((rows, p)) @ rng.standard_normal((p, p))
        if collinear:
            X[:, 1], X[:, 2] = X[:, 0], X[:, 3] - 2.0 * X[:, 4]
        y = X @ np.where(rng.random(p) < 0.5, rng.standard_normal(p), 0.0) + rng.standard_normal(rows)
        S = np.cov(np.column_stack([X, y]).T, bias=True)  # of the columns, the last is regressed on the others
        self.S = S + 1e-12 * np.diag(np.diag(S))  # as `lasso` has it
        self.target = np.arange(p + 1) == p
        self.cross: FloatArray = self.S[:, p].copy()
        self.lam = rng.uniform(0.0, 0.3, p + 1) * np.abs(self.cross[:p]).max()
        self.free: BoolArray = (rng.random(p + 1) < 0.8) & ~self.target
        self.start = np.where(self.free & (rng.random(p + 1) < 0.6), rng.standard_normal(p + 1), 0.0)
        self.column = Column(self.cross, self.free, self.lam, 1e-9 * np.sqrt(np.diag(self.S) * self.S[p, p]))

    def value(self, w: FloatArray) -> float:
        return float(0.5 * w @ self.S @ w - w @ self.cross + self.lam @ np.abs(w))

    def smooth(self, w: FloatArray) -> tuple[float, FloatArray]:
        slope = self.S @ w - self.cross
        return float(0.5 * w @ (slope - self.cross)), slope

    def leaps(self) -> tuple[FloatArray, bool]:
        w = self.start.copy()
        return w, _leaped(self.S, self.column, w)

    def search(self) -> tuple[FloatArray, bool]:
        w = self.start.copy()
        return w, _to_minimum(self.S, self.column, w)

    def assert_minimum(self, w: FloatArray) -> None:
        """The conditions of a minimum, which is one place if no columns are collinear."""
        assert (w[~self.free] == 0.0).all()
        slope, unit = self.S @ w - self.cross, np.sqrt(np.diag(self.S) * self.S[-1, -1])
        off = np.where(w != 0.0, np.abs(slope + self.lam * np.sign(w)), np.abs(slope) - self.lam)
        assert (off[self.free] <= 1e-7 * unit[self.free]).all()


@given(seed=st.integers(0, 10**6), p=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_leaps_and_search_end_at_the_same_minimum(seed: int, p: int) -> None:
    at = Problem(seed, p)
    searched, ended = at.search()
    assert ended
    at.assert_minimum(searched)
    leaped, arrived = at.leaps()
    if arrived:
        at.assert_minimum(leaped)
        np.testing.assert_allclose(leaped, searched, atol=1e-7)
    else:
        np.testing.assert_array_equal(leaped, at.start)


def test_most_leaps_arrive() -> None:
    assert np.mean([Problem(seed).leaps()[1] for seed in range(100)]) > 0.7


@pytest.mark.parametrize("seed", SEEDS)
def test_no_generic_optimiser_goes_lower(seed: int) -> None:
    at = Problem(seed)
    W, ended = lasso(at.S, at.target[:, None].astype(float), at.start[:, None], at.free[:, None], at.lam)
    assert ended
    w, least = generic_minimum(at.smooth, at.start * at.free, at.lam, at.free)
    assert at.value(W[:, 0]) <= least + 1e-8 * at.S[-1, -1]
    np.testing.assert_allclose(at.value(W[:, 0]), at.value(w), atol=1e-6 * at.S[-1, -1])


@pytest.mark.parametrize("seed", SEEDS)
def test_with_collinear_columns_the_minimum_is_as_low(seed: int) -> None:
    at = Problem(seed, collinear=True)
    assert np.linalg.eigvalsh(at.S[:-1, :-1])[0] < 1e-9 * at.S[0, 0]
    W, _ = lasso(at.S, at.target[:, None].astype(float), at.start[:, None], at.free[:, None], at.lam)
    assert np.isfinite(W).all()
    _, least = generic_minimum(at.smooth, at.start * at.free, at.lam, at.free)
    assert at.value(W[:, 0]) == pytest.approx(least, abs=1e-6 * at.S[-1, -1])
    assert (W[~at.free, 0] == 0.0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_without_leaps_all_columns_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at, rng = Problem(seed), np.random.default_rng(seed)
    p = len(at.S)
    free = ~np.eye(p, dtype=bool) & (rng.random((p, p)) < 0.7)
    start = rng.standard_normal((p, p))
    kept = start.copy()
    leaped, one = lasso(at.S, np.eye(p), start, free, at.lam)
    np.testing.assert_array_equal(start, kept)
    monkeypatch.setattr(module, "_leaped", lambda *_: False)
    searched, other = lasso(at.S, np.eye(p), start, free, at.lam)
    assert one
    assert other
    np.testing.assert_allclose(leaped, searched, atol=1e-6)
    assert ((leaped != 0.0) <= free).all()


def test_one_price_for_all_is_the_same_as_that_price_for_each() -> None:
    at = Problem(0)
    p, free = len(at.S), ~np.eye(len(at.S), dtype=bool)
    one, _ = lasso(at.S, np.eye(p), np.zeros((p, p)), free, 0.3)
    each, _ = lasso(at.S, np.eye(p), np.zeros((p, p)), free, np.full(p, 0.3))
    np.testing.assert_array_equal(one, each)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ridge_is_as_much_more_variance(seed: int) -> None:
    """w' (S + diag ridge) w: the same minimum as with the ridge on the diagonal, the targets' covariances unchanged."""
    at, rng = Problem(seed), np.random.default_rng(seed)
    p = len(at.S)
    ridge = rng.uniform(0.0, 2.0, (p, p))
    free = ~np.eye(p, dtype=bool)
    W, ended = lasso(at.S, np.eye(p), rng.standard_normal((p, p)), free, at.lam, ridge)
    assert ended
    for k in range(p):
        firm = at.S + np.diag(ridge[:, k])
        target: FloatArray = np.linalg.solve(firm, at.S[:, k]).astype(np.float64)
        other, _ = lasso(firm, target[:, None], np.zeros((p, 1)), free[:, [k]], at.lam)
        np.testing.assert_allclose(W[:, k], other[:, 0], atol=1e-7)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_product_is_the_same_however_few_entries_there_are(share: float) -> None:
    rng = np.random.default_rng(0)
    S = np.cov(rng.standard_normal((130, 400)))
    W = np.where(rng.random((130, 120)) < share, rng.standard_normal((130, 120)), 0.0)
    np.testing.assert_allclose(product(S, W), S @ W, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_leaps_that_do_not_arrive_leave_the_column_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at = Problem(seed)
    monkeypatch.setattr(module, "_LEAPS", 1)
    w, arrived = at.leaps()
    searched, _ = at.search()
    # One leap arrives only if it starts with the right signs.
    assert arrived == bool((np.sign(at.start) == np.sign(searched)).all())
    if not arrived:
        np.testing.assert_array_equal(w, at.start)


def test_leaps_that_go_round_in_circles_leave_the_column_alone() -> None:
    """Nearly collinear columns push one another out and in again; then the search has to do it."""
    circling = [at for at in (Problem(seed, 10, rows=11) for seed in range(300)) if not at.leaps()[1]]
    assert circling
    for at in circling:
        np.testing.assert_array_equal(at.leaps()[0], at.start)
        W, ended = lasso(at.S, at.target[:, None].astype(float), at.start[:, None], at.free[:, None], at.lam)
        assert ended
        at.assert_minimum(W[:, 0])
