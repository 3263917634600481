"""What a reversal would gain: against regressions of the two columns, with and without what former searches found."""

from collections.abc import Sequence

import numpy as np
import pytest

import dagora
from dagora.arrays import FloatArray
from dagora.solvers import trials
from dagora.solvers.bounded import Price, regress
from dagora.solvers.sets import as_columns, as_sets
from dagora.solvers.trials import Fit, Reversals, Table, gains
from tests.helpers import covariance, random_covariance

LAM = 0.1
PRICES = pytest.mark.parametrize("bounded", [False, True])


def prices(S: FloatArray, bounded: bool) -> Price:
    lam = np.full(S.shape, LAM)
    return Price.bounded(lam, float(np.diag(S).min())) if bounded else Price.lasso(lam)


def in_order(S: FloatArray, price: Price) -> FloatArray:
    """The best weights in the order of the columns."""
    return regress(S, np.eye(len(S)), np.zeros(S.shape), np.triu(np.ones(S.shape, dtype=bool), 1), price)[0]


def losses(S: FloatArray, columns: FloatArray, variables: list[int], price: Price) -> FloatArray:
    """Half the variance that is left, and prices."""
    residual = np.eye(len(S))[:, variables] - columns
    left: FloatArray = 0.5 * np.diag(residual.T @ S @ residual) + price.of(np.array(variables)).cost(columns).sum(
        axis=0
    )
    return left


def reversals(W: FloatArray, d: int = 0) -> Reversals:
    """All edges of W; what comes before both ends, in the order of the columns, is free, and so are the last p - d."""
    p, d = len(W), d or len(W)
    edges = [(int(i), int(j)) for i, j in np.argwhere(W[:d])]
    before = [(1 << min(edge)) - 1 | ((1 << p) - (1 << d)) for edge in edges]
    return Reversals(edges, before, [free | 1 << j for free, (_, j) in zip(before, edges, strict=True)])


def expected(S: FloatArray, W: FloatArray, some: Reversals, price: Price) -> FloatArray:
    """By regressions of both columns, one reversal at a time."""
    old, found = losses(S, W, list(range(W.shape[1])), price), []
    for (i, j), *both in zip(some.edges, some.targets_free, some.sources_free, strict=True):
        new = 0.0
        for variable, free in zip((j, i), both, strict=True):
            own = np.array([variable])
            columns = as_columns([free], len(S))
            w, _ = regress(S, np.eye(len(S))[:, own], np.zeros((len(S), 1)), columns, price.of(own))
            new += float(losses(S, w, [variable], price)[0])
        found.append(old[i] + old[j] - new)
    return np.array(found)


@PRICES
@pytest.mark.parametrize("seed", range(4))
def test_a_fit_knows_its_slopes_losses_and_what_would_change_it(bounded: bool, seed: int) -> None:
    S = random_covariance(6, seed)
    price = prices(S, bounded)
    fit = Fit.of(S, in_order(S, price), price)
    assert fit.loss > losses(S, in_order(S, price), list(range(6)), price).sum() - 1e-9
    for some in ([4, 1], [0, 3]):
        columns = np.random.default_rng(seed).uniform(-1.0, 1.0, (6, 2)) * (np.arange(6) % 2 == 0)[:, None]
        fit.put(S, columns, np.array(some), price)
        np.testing.assert_array_equal(fit.W[:, some], columns)
        np.testing.assert_allclose(fit.slope, S @ (fit.W - np.eye(6)), atol=1e-12)
        np.testing.assert_allclose([column.loss for column in fit.columns], losses(S, fit.W, list(range(6)), price))
        steep = (np.abs(fit.slope) > LAM + 1e-6) & (fit.W == 0.0)
        assert [column.used for column in fit.columns] == as_sets(fit.W != 0.0)
        assert [column.wants for column in fit.columns] == as_sets(steep)
        np.testing.assert_array_equal(fit.W[fit.columns[some[0]].parents, some[0]], fit.columns[some[0]].weights)


@PRICES
@pytest.mark.parametrize("seed", range(6))
def test_gains_are_those_of_two_regressions(bounded: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    S = random_covariance(8, seed)
    price = prices(S, bounded)
    W = in_order(S, price)
    some = reversals(W)
    wanted = expected(S, W, some, price)
    found = gains(S, Fit.of(S, W, price), some, price, Table())
    tried = np.isfinite(found)
    np.testing.assert_allclose(found[tried], wanted[tried], atol=1e-9)
    monkeypatch.setattr(trials, "_HOPELESS", np.inf)
    monkeypatch.setattr(trials, "_BLOCK", 4)
    np.testing.assert_allclose(gains(S, Fit.of(S, W, price), some, price, Table()), wanted, atol=1e-9)


def test_inputs_may_be_parents_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_HOPELESS", np.inf)
    S, d = random_covariance(9, 2), 6  # the last three are the past
    price = Price.lasso(np.full((9, d), LAM))
    free = np.concatenate([np.triu(np.ones((d, d), dtype=bool), 1), np.ones((3, d), dtype=bool)])
    W, _ = regress(S, np.eye(9)[:, :d], np.zeros((9, d)), free, price)
    assert (W[d:] != 0.0).any()
    some = reversals(W, d)
    np.testing.assert_allclose(
        gains(S, Fit.of(S, W, price), some, price, Table()), expected(S, W, some, price), atol=1e-9
    )


@PRICES
def test_what_is_given_up_would_gain_nothing(bounded: bool) -> None:
    given_up = 0
    for seed in range(8):
        _, (rows,) = dagora.simulate(15, 30, 500, 1, seed=seed)
        S = covariance(rows)
        price = prices(S, bounded)
        W = in_order(S, price)  # not the true order: many reversals gain
        some = reversals(W)
        wanted, found = expected(S, W, some, price), gains(S, Fit.of(S, W, price), some, price, Table())
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
    first = gains(S, Fit.of(S, W, price), some, price, table)
    assert np.isinf(first).any()
    assert np.isfinite(first).any()
    asked: list[int] = []

    def counted(S: FloatArray, targets: FloatArray, W: FloatArray, *rest: object) -> object:
        asked.append(targets.shape[1])
        return regress(S, targets, W, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(trials, "regress", counted)
    np.testing.assert_array_equal(gains(S, Fit.of(S, W, price), some, price, table), first)
    assert sum(asked) == 0


def fewer(sets: Sequence[int], rng: np.random.Generator) -> list[int]:
    return [some & int(rng.integers(1 << 9)) for some in sets]


@pytest.mark.parametrize("seed", range(6))
def test_a_table_changes_nothing_but_that_more_is_known(seed: int) -> None:
    rng, S = np.random.default_rng(seed), random_covariance(9, seed)
    price = prices(S, bounded=False)
    W = in_order(S, price)
    some, table = reversals(W), Table()
    before, changed = gains(S, Fit.of(S, W, price), some, price, table), 0
    for _ in range(4):
        other = Reversals(some.edges, *(fewer(free, rng) for free in (some.targets_free, some.sources_free)))
        elsewhere = W * (rng.random(W.shape) < 0.8)  # with other parents other first tries are hopeless
        found, anew = (gains(S, Fit.of(S, elsewhere, price), other, price, own) for own in (table, Table()))
        tried = np.isfinite(found)
        np.testing.assert_allclose(found[tried], expected(S, elsewhere, other, price)[tried], atol=1e-9)
        assert (tried >= np.isfinite(anew)).all()
        changed += int((found != before).sum())
    assert changed > 10


def test_regressions_that_do_not_end_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    S = random_covariance(8, 0)
    price = prices(S, bounded=True)
    W, table = in_order(S, price), Table()
    gains(S, Fit.of(S, W, price), reversals(W), price, table)
    assert table.ended
    monkeypatch.setattr("dagora.solvers.bounded._MOST_STEPS", 1)
    gains(S, Fit.of(S, W, price), reversals(W), price, short := Table())
    assert not short.ended
