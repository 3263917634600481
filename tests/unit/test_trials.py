"""What a reversal would gain: against regressions of the two columns, with and without what former searches found."""

import numpy as np
import pytest

import dagora
from dagora.arrays import BoolArray, FloatArray
from dagora.solvers import trials
from dagora.solvers.bounded import Price, regress
from dagora.solvers.trials import Known, Reversals, gains, scores
from tests.helpers import covariance, random_covariance

LAM = 0.1


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
    old, found = scores(S, W, np.arange(len(S)), price), []
    for k, (i, j) in enumerate(zip(some.sources, some.targets, strict=True)):
        new = 0.0
        for variable, column in ((j, k), (i, k + len(some.sources))):
            own = np.array([variable])
            free: BoolArray = some.free[:, [column]]
            w, _ = regress(S, np.eye(len(S))[:, own], np.zeros((len(S), 1)), free, price.of(own))
            new += float(scores(S, w, own, price)[0])
        found.append(old[i] + old[j] - new)
    return np.array(found)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_scores_are_the_penalised_losses(bounded: bool, seed: int) -> None:
    S = random_covariance(6, seed)
    price = prices(S, bounded)
    W = in_order(S, price)
    residual = np.eye(6) - W
    loss = 0.5 * np.diag(residual.T @ S @ residual)
    np.testing.assert_allclose(scores(S, W, np.arange(6), price), loss + price.by_column(W), atol=1e-12)
    some = np.array([4, 1])
    np.testing.assert_allclose(scores(S, W[:, some], some, price), (loss + price.by_column(W))[some], atol=1e-12)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_gains_are_those_of_two_regressions(bounded: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    S = random_covariance(8, seed)
    price = prices(S, bounded)
    W = in_order(S, price)
    some = reversals(W)
    wanted = expected(S, W, some, price)
    found = gains(S, W, some, price, Known())
    tried = np.isfinite(found)
    np.testing.assert_allclose(found[tried], wanted[tried], atol=1e-9)
    monkeypatch.setattr(trials, "_HOPELESS", np.inf)
    monkeypatch.setattr(trials, "_BLOCK", 3)
    np.testing.assert_allclose(gains(S, W, some, price, Known()), wanted, atol=1e-9)


@pytest.mark.parametrize("bounded", [False, True])
def test_what_is_given_up_would_gain_nothing(bounded: bool) -> None:
    given_up = 0
    for seed in range(8):
        _, (rows,) = dagora.simulate(15, 30, 500, 1, seed=seed)
        S = covariance(rows)
        price = prices(S, bounded)
        W = in_order(S, price)  # not the true order: many reversals gain
        some = reversals(W)
        wanted, found = expected(S, W, some, price), gains(S, W, some, price, Known())
        given_up += int(np.isinf(found).sum())
        assert (wanted > 0.0).any()
        assert wanted[np.isinf(found)].max(initial=-1.0) < 0.0
    assert given_up > 100


def test_what_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    S = random_covariance(8, 3)
    price = prices(S, bounded=True)
    W = in_order(S, price)
    some, known = reversals(W), Known()
    first = gains(S, W, some, price, known)
    assert np.isinf(first).any()
    assert np.isfinite(first).any()
    asked: list[int] = []

    def counted(S: FloatArray, targets: FloatArray, *rest: object) -> object:
        asked.append(targets.shape[1])
        return regress(S, targets, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(trials, "regress", counted)
    np.testing.assert_array_equal(gains(S, W, some, price, known), first)
    assert sum(asked) == 0
    free = some.free.copy()
    free[:, 0] &= W[:, some.targets[0]] == 0.0  # the first target may keep none of its parents
    other = Reversals(some.sources, some.targets, free)
    np.testing.assert_allclose(gains(S, W, other, price, known), gains(S, W, other, price, Known()), atol=1e-9)


def test_an_edge_given_up_is_tried_again_when_more_is_free() -> None:
    # 0 and 1 are nearly the same, and 2 needs one of them: without the other it would be lost.
    S = np.array([[1.0, 0.99, 2.0], [0.99, 1.0, 1.98], [2.0, 1.98, 4.5]])
    price = prices(S, bounded=False)
    W, free = np.zeros((3, 3)), np.zeros((3, 2), dtype=bool)
    W[0, 2] = 1.9
    edge, known = (np.array([0]), np.array([2])), Known()
    free[2, 1] = True
    assert np.isinf(gains(S, W, Reversals(*edge, free), price, known)).all()
    more = free.copy()
    more[1, 0] = more[1, 1] = True
    W[1, 2] = 1e-3  # a parent now, if hardly
    np.testing.assert_allclose(
        gains(S, W, Reversals(*edge, more), price, known),
        expected(S, W, Reversals(*edge, more), price),
        atol=1e-9,
    )
