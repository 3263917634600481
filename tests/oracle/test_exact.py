"""The dynamic programme against all DAGs one by one, with scores from regressions on rows."""

from functools import cache
from itertools import product

import numpy as np
import pytest

import dagora
from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.errors import InputError
from dagora.graphs import dag_to_cpdag, is_dag
from dagora.learners.base import CollinearError, LearnerOptions
from dagora.learners.exact import exact, log_minors
from tests.helpers import random_covariance


@cache
def every_dag(d: int) -> IntArray:
    """All DAGs on d variables, (number, d, d): those adjacencies whose d-th power is zero."""
    pairs = [(i, j) for i in range(d) for j in range(i)]
    states = np.array(list(product((0, 1, 2), repeat=len(pairs))), dtype=np.int64)
    graphs = np.zeros((len(states), d, d), dtype=np.int64)
    for column, (i, j) in zip(states.T, pairs, strict=True):
        graphs[:, i, j], graphs[:, j, i] = column == 1, column == 2
    power = np.linalg.matrix_power(graphs.astype(np.float64), d)
    return graphs[~power.any(axis=(1, 2))]


def scores_of(rows: FloatArray, dags: IntArray, penalty: float, most: int) -> FloatArray:
    """BIC of every DAG by least squares on the rows; minus infinity for more than `most` parents."""
    n, d = rows.shape
    X = rows - rows.mean(axis=0)
    table = np.full((d, 1 << d), -np.inf)
    for child, P in product(range(d), range(1 << d)):
        parents = [i for i in range(d) if P >> i & 1]
        if child in parents or len(parents) > most:
            continue
        residual = X[:, child] - X[:, parents] @ np.linalg.lstsq(X[:, parents], X[:, child], rcond=None)[0]
        share = (residual @ residual) / (X[:, child] @ X[:, child])
        table[child, P] = -0.5 * n * np.log(share) - penalty * 0.5 * np.log(n) * len(parents)
    codes = (dags * (1 << np.arange(d))[:, None]).sum(axis=1)  # of every DAG, the parents of every child
    totals: FloatArray = table[np.arange(d), codes].sum(axis=1)
    return totals


def rows_of(d: int, n: int, seed: int) -> FloatArray:
    _, (rows,) = dagora.simulate(d, d * (d - 1) // 2 if d < 5 else 6, n, 1, seed=seed)
    return rows


def learn(rows: FloatArray, penalty: float = 1.0) -> tuple[IntArray, IntArray]:
    """CPDAG and DAG."""
    learned = exact(Moments.of_rows(rows), LearnerOptions(penalty=penalty))
    assert learned.cpdag is not None
    assert learned.warnings == ()
    return learned.cpdag, learned.edges.astype(np.int64)


@pytest.mark.parametrize("penalty", [1.0, 2.0])
@pytest.mark.parametrize(("d", "n"), [(1, 9), (2, 3), (2, 50), (3, 20), (4, 5), (4, 100), (5, 6), (5, 30), (5, 1000)])
def test_exact_is_the_best_of_all_dags(d: int, n: int, penalty: float) -> None:
    dags = every_dag(d)
    for seed in range(5):
        rows = rows_of(d, n, seed)
        scores = scores_of(rows, dags, penalty, min(d - 1, (n - 1) // 2))
        cpdag, dag = learn(rows, penalty)
        assert is_dag(dag)
        assert scores[(dags == dag).all(axis=(1, 2))].item() == pytest.approx(scores.max(), rel=0, abs=1e-8)
        np.testing.assert_array_equal(cpdag, dag_to_cpdag(dags[scores.argmax()]))
        np.testing.assert_array_equal(cpdag, dag_to_cpdag(dag))


@pytest.mark.parametrize(("n", "most"), [(2, 0), (3, 1), (4, 1), (5, 2)])
def test_few_rows_get_few_parents(n: int, most: int) -> None:
    dags = every_dag(5)
    for seed in range(5):
        rows = rows_of(5, n, seed)
        scores = scores_of(rows, dags, 1.0, most)
        cpdag, dag = learn(rows)
        assert dag.sum(axis=0).max() <= most
        assert scores[(dags == dag).all(axis=(1, 2))].item() == pytest.approx(scores.max(), rel=0, abs=1e-8)
        np.testing.assert_array_equal(cpdag, dag_to_cpdag(dags[scores.argmax()]))


@pytest.mark.parametrize("n", [8, 12, 200])
def test_neither_units_nor_the_order_of_columns_matter(n: int) -> None:
    rows = rows_of(10, n, 3)
    cpdag, dag = learn(rows)
    units = np.where(np.arange(10) % 2, 1000.0, 0.001)
    for other, expected in zip(learn(rows * units), (cpdag, dag), strict=True):
        np.testing.assert_array_equal(other, expected)
    order = np.random.default_rng(n).permutation(10)
    np.testing.assert_array_equal(learn(rows[:, order])[0], dag_to_cpdag(dag[np.ix_(order, order)]))


def test_weights_are_the_regressions_of_the_graph() -> None:
    rows = rows_of(5, 300, 0)
    learned = exact(Moments.of_rows(rows), LearnerOptions())
    X = rows - rows.mean(axis=0)
    for child in range(5):
        parents = np.flatnonzero(learned.edges[:, child])
        expected = np.linalg.lstsq(X[:, parents], X[:, child], rcond=None)[0]
        np.testing.assert_allclose(learned.weights[parents, child], expected, rtol=1e-9)
    assert not learned.weights[~learned.edges].any()


def test_minors_are_determinants() -> None:
    S = random_covariance(7, 0)
    subsets = [[i for i in range(7) if P >> i & 1] for P in range(1 << 7)]
    expected = [np.linalg.slogdet(S[np.ix_(P, P)])[1] for P in subsets]
    np.testing.assert_allclose(log_minors(S), expected, rtol=0, atol=1e-10)


def test_collinear_columns_are_named() -> None:
    rows = rows_of(5, 50, 0)
    rows[:, 4] = rows[:, 0] - 2.0 * rows[:, 2]
    with pytest.raises(CollinearError) as caught:
        learn(rows)
    assert caught.value.columns == (0, 2, 4)


def test_equal_columns_and_few_rows() -> None:
    """Twins explain each other exactly, which the floor makes finite: they are joined, whichever comes first."""
    rows = rows_of(6, 6, 1)
    rows[:, 5] = rows[:, 2]
    cpdag, dag = learn(rows)
    assert is_dag(dag)
    assert cpdag[2, 5] != cpdag[5, 2]


def test_too_many_variables_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^learner 'exact' takes at most 20 variables; use 'boss'$"):
        learn(np.random.default_rng(0).standard_normal((30, 21)))
