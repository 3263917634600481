"""Scores and fits from moments against regressions on rows, which share no code with them."""

from itertools import combinations

import numpy as np
import pytest

from dagora import simulate
from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.graphs import is_dag
from dagora.learners.base import CollinearError, correlations, fit, most_parents, turned_weights
from dagora.learners.bic import Bic, Parents

D = 6
UNITS = np.array([1000.0, 1.0, 0.001, 7.3e5, 1.0, 2.0])


def rows_of(n: int = 200, d: int = D, seed: int = 0) -> FloatArray:
    _, (rows,) = simulate(d, 2 * d, n, 1, seed=seed, noise="gaussian-unequal")
    return rows


def coefficients(rows: FloatArray, child: int, parents: list[int]) -> FloatArray:
    X = rows - rows.mean(axis=0)
    solution: FloatArray = np.linalg.lstsq(X[:, parents], X[:, child], rcond=None)[0]
    return solution


def score(rows: FloatArray, child: int, parents: Parents, penalty: float) -> float:
    n, P = len(rows), sorted(parents)
    X = rows - rows.mean(axis=0)
    residual = X[:, child] - X[:, P] @ coefficients(rows, child, P)
    left = (residual @ residual) / (X[:, child] @ X[:, child])
    return -0.5 * n * float(np.log(left)) - penalty * 0.5 * float(np.log(n)) * len(P)


def parent_sets(child: int, d: int = D, most: int = D) -> list[Parents]:
    others = [x for x in range(d) if x != child]
    return [frozenset(chosen) for size in range(most) for chosen in combinations(others, size)]


def total(bic: Bic, dag: IntArray | BoolArray) -> float:
    return sum(bic.local(child, frozenset(np.flatnonzero(dag[:, child]).tolist())) for child in range(bic.d))


@pytest.mark.parametrize("penalty", [1.0, 2.0])
@pytest.mark.parametrize("n", [7, 200])
def test_local_scores_are_those_of_regressions_on_rows(n: int, penalty: float) -> None:
    rows = rows_of(n) * UNITS + 3.0
    bic = Bic(Moments.of_rows(rows), penalty)
    for child in range(D):
        for parents in parent_sets(child):
            expected = score(rows, child, parents, penalty)
            assert bic.local(child, parents) == pytest.approx(expected, abs=1e-7, rel=1e-9)
            assert bic.local(child, parents) == bic.local(child, parents)


def test_gains_are_differences_of_local_scores() -> None:
    rows = rows_of() * UNITS
    bic = Bic(Moments.of_rows(rows), 1.5)
    for child in range(D):
        for parents in parent_sets(child):
            gains = bic.gains(child, parents)
            assert gains.shape == (D,)
            for x in range(D):
                if x == child or x in parents:
                    assert gains[x] == -np.inf
                else:
                    expected = score(rows, child, parents | {x}, 1.5) - score(rows, child, parents, 1.5)
                    assert gains[x] == pytest.approx(expected, abs=1e-7)


def test_scores_without_each_parent_are_those_of_the_smaller_sets() -> None:
    rows = rows_of() * UNITS
    bic = Bic(Moments.of_rows(rows), 1.5)
    for child in range(D):
        for parents in parent_sets(child)[1:]:
            shorter = bic.without_each(child, parents)
            assert set(shorter) == parents
            for x, found in shorter.items():
                assert found == pytest.approx(score(rows, child, parents - {x}, 1.5), abs=1e-7)


def test_gains_add_up_in_any_order_of_parents() -> None:
    bic = Bic(Moments.of_rows(rows_of()), 1.0)
    rng = np.random.default_rng(0)
    for child in range(D):
        for _ in range(5):
            parents: Parents = frozenset()
            reached = bic.local(child, parents)
            for x in rng.permutation([x for x in range(D) if x != child]).tolist():
                reached += bic.gains(child, parents)[x]
                parents |= {x}
                assert reached == pytest.approx(bic.local(child, parents), abs=1e-8)


def test_turning_a_covered_edge_keeps_the_total_and_turning_another_does_not() -> None:
    """Covered: both ends have the same other parents (Chickering 1995)."""
    bic = Bic(Moments.of_rows(rows_of(300)), 2.0)
    rng = np.random.default_rng(0)
    covered = others = 0
    for _ in range(40):
        order = rng.permutation(D)
        dag = np.triu(rng.random((D, D)) < 0.5, 1)[np.ix_(order, order)]
        for i, j in np.argwhere(dag):
            turned = dag.copy()
            turned[i, j], turned[j, i] = False, True
            if not is_dag(turned):
                continue
            if (np.delete(dag[:, i], [i, j]) == np.delete(dag[:, j], [i, j])).all():
                assert total(bic, turned) == pytest.approx(total(bic, dag), abs=1e-8)
                covered += 1
            else:
                assert abs(total(bic, turned) - total(bic, dag)) > 1e-4
                others += 1
    assert min(covered, others) > 20


@pytest.mark.parametrize(("n", "most"), [(1, 0), (2, 0), (3, 1), (5, 2), (8, 3)])
def test_few_rows_give_finite_scores_and_few_parents(n: int, most: int) -> None:
    d = 8
    assert most_parents(n, d) == most
    bic = Bic(Moments.of_rows(rows_of(n, d)), 1.0)
    assert bic.most_parents == most
    for child in range(d):
        for parents in parent_sets(child, d, most + 1):
            assert np.isfinite(bic.local(child, parents))
            gains = bic.gains(child, parents)
            free = [x for x in range(d) if x != child and x not in parents]
            if len(parents) < most:
                assert np.isfinite(gains[free]).all()
            else:
                assert (gains == -np.inf).all()
            assert np.isfinite(list(bic.without_each(child, parents).values())).all()


@pytest.mark.parametrize("n", [5, 6])
def test_few_rows_are_scored_as_regressions_too(n: int) -> None:
    rows = rows_of(n)
    bic = Bic(Moments.of_rows(rows), 1.0)
    for child in range(D):
        for parents in parent_sets(child, most=bic.most_parents + 1):
            assert bic.local(child, parents) == pytest.approx(score(rows, child, parents, 1.0), abs=1e-3)


def test_twice_as_many_rows_as_columns_allow_all_parents() -> None:
    assert Bic(Moments.of_rows(rows_of(2 * D - 1)), 1.0).most_parents == D - 1
    assert Bic(Moments.of_rows(rows_of(2 * D - 2)), 1.0).most_parents == D - 2
    assert most_parents(1000, D) == D - 1
    assert most_parents(0, D) == 0


def test_a_column_that_is_constant_explains_nothing() -> None:
    rows = rows_of(20)
    rows[:, 2] = 7.0
    bic = Bic(Moments.of_rows(rows), 1.0)
    for child in (0, 1, 3):
        assert bic.gains(child, frozenset())[2] == pytest.approx(-0.5 * np.log(20))
    assert bic.gains(2, frozenset()).max() == pytest.approx(-0.5 * np.log(20))


@pytest.mark.parametrize("n", [D + 1, 100])
@pytest.mark.parametrize("members", [(1, 2, 3), (0, 5), (0, 2, 3, 5), tuple(range(D))])
def test_exactly_the_columns_of_a_linear_relation_are_named(members: tuple[int, ...], n: int) -> None:
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n, D))
    *free, last = members
    rows[:, last] = rows[:, free] @ rng.uniform(0.5, 1.5, size=len(free))
    with pytest.raises(CollinearError) as caught:
        Bic(Moments.of_rows(rows * UNITS), 1.0)
    assert caught.value.columns == members


def test_columns_that_are_nearly_collinear_are_accepted() -> None:
    rows = rows_of(100)
    rows[:, 3] = rows[:, 1] + rows[:, 2] + 1e-3 * np.random.default_rng(0).normal(size=100)
    bic = Bic(Moments.of_rows(rows), 1.0)
    parents = frozenset({1, 2})
    assert bic.local(3, parents) == pytest.approx(score(rows, 3, parents, 1.0), rel=1e-6)


def test_correlations_have_no_units() -> None:
    rows = rows_of(50)
    R = correlations(Moments.of_rows(rows * UNITS))
    np.testing.assert_allclose(R, np.corrcoef(rows.T), rtol=0, atol=1e-12)
    assert (np.diag(R) == 1.0).all()
    np.testing.assert_array_equal(R, R.T)


def random_dag(seed: int, d: int = D) -> BoolArray:
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    dag: BoolArray = np.triu(rng.random((d, d)) < 0.6, 1)[np.ix_(order, order)]
    return dag


@pytest.mark.parametrize("n", [4, 200])  # 4: more parents than rows, and the shortest solution of those that fit
def test_the_fit_of_a_graph_is_that_of_regressions_on_rows(n: int) -> None:
    for seed in range(5):
        rows, dag = rows_of(n, seed=seed), random_dag(seed)
        standard = rows / (rows.std(axis=0) if n < D else UNITS)  # "shortest" is in standard units
        W = fit(Moments.of_rows(standard).scatter, dag)
        assert not W[~dag].any()
        for child in range(D):
            parents = np.flatnonzero(dag[:, child]).tolist()
            np.testing.assert_allclose(W[parents, child], coefficients(standard, child, parents), rtol=1e-7, atol=1e-9)


def test_turned_weights_are_those_of_the_turned_edge() -> None:
    for seed in range(5):
        rows, dag = rows_of(seed=seed) * UNITS, random_dag(seed)
        S = Moments.of_rows(rows).scatter
        weights = fit(S, dag)
        both = turned_weights(S, dag, weights)
        np.testing.assert_array_equal(both[dag], weights[dag])
        assert not both[~(dag | dag.T)].any()
        for i, j in np.argwhere(dag).tolist():
            onto = [j, *np.flatnonzero(dag[:, j] & (np.arange(D) != i)).tolist()]
            assert both[j, i] == pytest.approx(coefficients(rows, i, onto)[0], rel=1e-7)
            assert both[j, i] * both[i, j] > 0.0  # the sign of a partial correlation is that of both
