"""What a reversal would gain: against regressions of the two columns, with and without what former searches found."""

import numpy as np
import pytest

import dagora
from dagora.arrays import BoolArray, FloatArray
from dagora.solvers import trials
from dagora.solvers.bounded import Price, regress
from dagora.solvers.trials import Reversals, Table, gains, scores
from tests.helpers import covariance, random_covariance

LAM = 0.1
PRICES = pytest.mark.parametrize("bounded", [False, True])


def prices(S: FloatArray, bounded: bool) -> Price:
    lam = np.full(S.shape, LAM)
    return Price.bounded(lam, float(np.diag(S).min())) if bounded else Price.lasso(lam)


def in_order(S: FloatArray, price: Price) -> FloatArray:
    """The best weights in the order of the columns."""
    return regress(S, np.eye(len(S)), np.zeros(S.shape), np.triu(np.ones(S.shape, dtype=bool), 1), price)[0]


def reversals(W: FloatArray) -> Reversals:
    """All edges of W; what comes before both ends, in the order of the columns, stays free."""
    sources, targets = np.nonzero(W)
    before = np.arange(len(W))[:, None] < np.minimum(sources, targets)
    more = before.copy()
    more[targets, np.arange(len(sources))] = True
    return Reversals(sources, targets, np.hstack([before, more]))


def expected(S: FloatArray, W: FloatArray, some: Reversals, price: Price) -> FloatArray:
    """By regressions of both columns, one reversal at a time."""
    old, found = scores(S, W, np.arange(W.shape[1]), price), []
    for k, (i, j) in enumerate(zip(some.sources, some.targets, strict=True)):
        new = 0.0
        for variable, column in ((j, k), (i, k + len(some.sources))):
            own = np.array([variable])
            free: BoolArray = some.free[:, [column]]
            w, _ = regress(S, np.eye(len(S))[:, own], np.zeros((len(S), 1)), free, price.of(own))
            new += float(scores(S, w, own, price)[0])
        found.append(old[i] + old[j] - new)
    return np.array(found)


@PRICES
@pytest.mark.parametrize("seed", range(4))
def test_scores_are_the_penalised_losses(bounded: bool, seed: int) -> None:
    S = random_covariance(6, seed)
    price = prices(S, bounded)
    W = in_order(S, price)
    residual = np.eye(6) - W
    loss = 0.5 * np.diag(residual.T @ S @ residual) + price.cost(W).sum(axis=0)
    np.testing.assert_allclose(scores(S, W, np.arange(6), price), loss, atol=1e-12)
    some = np.array([4, 1])
    np.testing.assert_allclose(scores(S, W[:, some], some, price), loss[some], atol=1e-12)


@PRICES
@pytest.mark.parametrize("seed", range(6))
def test_gains_are_those_of_two_regressions(bounded: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    S = random_covariance(8, seed)
    price = prices(S, bounded)
    W = in_order(S, price)
    some = reversals(W)
    wanted = expected(S, W, some, price)
    found = gains(S, W, some, price, Table())
    tried = np.isfinite(found)
    np.testing.assert_allclose(found[tried], wanted[tried], atol=1e-9)
    monkeypatch.setattr(trials, "_HOPELESS", np.inf)
    monkeypatch.setattr(trials, "_BLOCK", 4)
    np.testing.assert_allclose(gains(S, W, some, price, Table()), wanted, atol=1e-9)


def test_inputs_may_be_parents_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_HOPELESS", np.inf)
    S, d = random_covariance(9, 2), 6  # the last three are the past
    price = Price.lasso(np.full((9, d), LAM))
    free = np.concatenate([np.triu(np.ones((d, d), dtype=bool), 1), np.ones((3, d), dtype=bool)])
    W, _ = regress(S, np.eye(9)[:, :d], np.zeros((9, d)), free, price)
    assert (W[d:] != 0.0).any()
    within = reversals(W[:d])
    some = Reversals(
        within.sources, within.targets, np.concatenate([within.free, np.ones((3, within.free.shape[1]), dtype=bool)])
    )
    np.testing.assert_allclose(gains(S, W, some, price, Table()), expected(S, W, some, price), atol=1e-9)


@PRICES
def test_what_is_given_up_would_gain_nothing(bounded: bool) -> None:
    given_up = 0
    for seed in range(8):
        _, (rows,) = dagora.simulate(15, 30, 500, 1, seed=seed)
        S = covariance(rows)
        price = prices(S, bounded)
        W = in_order(S, price)  # not the true order: many reversals gain
        some = reversals(W)
        wanted, found = expected(S, W, some, price), gains(S, W, some, price, Table())
        given_up += int(np.isinf(found).sum())
        assert (wanted > 0.0).any()
        assert wanted[np.isinf(found)].max(initial=-1.0) < 0.0
    assert given_up > 50


def test_what_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (rows,) = dagora.simulate(15, 30, 500, 1, seed=1)
    S = covariance(rows)
    price = prices(S, bounded=True)
    W = in_order(S, price)
    some, table = reversals(W), Table()
    first = gains(S, W, some, price, table)
    assert np.isinf(first).any()
    assert np.isfinite(first).any()
    asked: list[int] = []

    def counted(S: FloatArray, targets: FloatArray, W: FloatArray, *rest: object) -> object:
        asked.append(targets.shape[1])
        return regress(S, targets, W, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(trials, "regress", counted)
    np.testing.assert_array_equal(gains(S, W, some, price, table), first)
    assert sum(asked) == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_table_changes_nothing_but_that_more_is_known(seed: int) -> None:
    rng, S = np.random.default_rng(seed), random_covariance(9, seed)
    price = prices(S, bounded=False)
    W = in_order(S, price)
    some, table = reversals(W), Table()
    before, changed = gains(S, W, some, price, table), 0
    for _ in range(4):
        other = Reversals(some.sources, some.targets, some.free & (rng.random(some.free.shape) < 0.7))
        elsewhere = W * (rng.random(W.shape) < 0.8)  # with other parents other first tries are hopeless
        found, anew = (gains(S, elsewhere, other, price, own) for own in (table, Table()))
        tried = np.isfinite(found)
        np.testing.assert_allclose(found[tried], expected(S, elsewhere, other, price)[tried], atol=1e-9)
        assert (tried >= np.isfinite(anew)).all()
        changed += int((found != before).sum())
    assert changed > 10


def test_regressions_that_do_not_end_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    S = random_covariance(8, 0)
    price = prices(S, bounded=True)
    W, table = in_order(S, price), Table()
    gains(S, W, reversals(W), price, table)
    assert table.ended
    monkeypatch.setattr("dagora.solvers.bounded._MOST_STEPS", 1)
    gains(S, W, reversals(W), price, short := Table())
    assert not short.ended
