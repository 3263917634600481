import numpy as np
import pytest

from dagora import simulate
from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.graphs import consistent_extension, dag_to_cpdag, is_dag, skeleton
from dagora.learners import pc as module
from dagora.learners.base import CollinearError, LearnerOptions
from dagora.learners.pc import pc

OPTIONS = LearnerOptions()


def dag(d: int, *edges: tuple[int, int]) -> IntArray:
    adjacency = np.zeros((d, d), dtype=np.int64)
    for i, j in edges:
        adjacency[i, j] = 1
    return adjacency


def population(W: FloatArray, n: int = 1000) -> Moments:
    """Moments whose covariance is exactly that of X = X W + E with E of unit variances."""
    effects = np.linalg.inv(np.eye(len(W)) - W)
    return Moments(n, np.zeros(len(W)), n * effects.T @ effects)


def rows(n: int, d: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d))


GRAPHS = {
    "chain": dag(3, (0, 1), (1, 2)),
    "fork": dag(3, (1, 0), (1, 2)),
    "collider": dag(3, (0, 2), (1, 2)),
    "triangle": dag(3, (0, 1), (0, 2), (1, 2)),
    "below a collider": dag(4, (0, 2), (1, 2), (2, 3)),
    "diamond": dag(4, (0, 1), (0, 2), (1, 3), (2, 3)),
    "three causes": dag(4, (0, 3), (1, 3), (2, 3)),
    "rule 3": dag(4, (0, 1), (0, 2), (0, 3), (1, 3), (2, 3)),
    "no edges": dag(4),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_exact_correlations_give_the_exact_class(name: str) -> None:
    W = np.where(GRAPHS[name], 0.7, 0.0)
    learned = pc(population(W), OPTIONS)
    assert learned.cpdag is not None
    np.testing.assert_array_equal(learned.cpdag, dag_to_cpdag(GRAPHS[name]))
    np.testing.assert_array_equal(learned.edges, consistent_extension(learned.cpdag))
    assert learned.warnings == ()
    if np.array_equal(learned.edges, GRAPHS[name]):
        np.testing.assert_allclose(learned.weights, W, atol=1e-12)


def test_the_level_decides_between_an_edge_and_none() -> None:
    # r = 0.1, n = 403: z = 20 atanh(0.1) = 2.0067, so p = 0.0448.
    moments = Moments(403, np.zeros(2), np.array([[1.0, 0.1], [0.1, 1.0]]))
    assert pc(moments, LearnerOptions(alpha=0.046)).edges.sum() == 1
    assert pc(moments, LearnerOptions(alpha=0.044)).edges.sum() == 0


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_units_do_not_matter(factor: float) -> None:
    _, (X,) = simulate(8, 12, 200, 1, seed=3, noise="gaussian-unequal")
    scale = np.where(np.arange(8) % 2, factor, 1.0)
    plain, scaled = pc(Moments.of_rows(X), OPTIONS), pc(Moments.of_rows(X * scale), OPTIONS)
    assert plain.cpdag is not None
    np.testing.assert_array_equal(plain.cpdag, scaled.cpdag)
    np.testing.assert_array_equal(plain.edges, scaled.edges)
    np.testing.assert_allclose(plain.weights * scale / scale[:, None], scaled.weights, rtol=1e-9)


def test_contradictory_tests_keep_the_skeleton_and_warn() -> None:
    contradictions = 0
    for seed in range(30):
        _, (X,) = simulate(15, 30, 100, 1, seed=seed, noise="gaussian-unequal")
        learned = pc(Moments.of_rows(X), OPTIONS)
        assert learned.cpdag is not None
        assert is_dag(learned.edges)
        np.testing.assert_array_equal(skeleton(learned.edges), skeleton(learned.cpdag))
        assert learned.edges[learned.cpdag == 1].all() or not is_dag(learned.cpdag == 1)
        assert learned.warnings or consistent_extension(learned.cpdag) is not None
        assert all(line.startswith("PC's tests contradict each other: ") for line in learned.warnings)
        contradictions += len(learned.warnings)
    assert 0 < contradictions < 30


def test_a_contradiction_that_meeks_rules_hide_is_told() -> None:
    # The tests find 4 -> 7 <- 10 and 3 - 7 with 3 and 10 not joined, so 7 -> 3; other arrows ask for 3 -> 7.
    _, (X,) = simulate(12, 24, 1000, 1, seed=108, noise="gaussian-unequal")
    learned = pc(Moments.of_rows(X), LearnerOptions(alpha=0.2))
    assert learned.cpdag is not None
    assert consistent_extension(learned.cpdag) is not None
    assert learned.warnings


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_too_few_rows_for_any_test_give_no_edges(n: int) -> None:
    learned = pc(Moments.of_rows(rows(n, 4)), OPTIONS)
    assert not learned.edges.any()
    assert not learned.weights.any()


def test_a_set_too_large_for_the_rows_separates_nothing() -> None:
    # A chain in exact numbers: given 1, the correlation of 0 and 2 is 0.  Four rows leave no degree of freedom for
    # that test, so the edge between them stays; with five it goes.
    W = np.where(GRAPHS["chain"], 30.0, 0.0)
    assert skeleton(pc(population(W, 4), OPTIONS).edges)[0, 2] == 1
    assert skeleton(pc(population(W, 5), OPTIONS).edges)[0, 2] == 0


def test_one_variable() -> None:
    learned = pc(Moments.of_rows(rows(10, 1)), OPTIONS)
    assert learned.edges.shape == learned.weights.shape == (1, 1)
    assert not learned.edges.any()


def test_a_constant_column_has_no_edges() -> None:
    X = rows(50, 3)
    X[:, 1] = 7.0
    X[:, 2] += X[:, 0]
    learned = pc(Moments.of_rows(X), OPTIONS)
    np.testing.assert_array_equal(skeleton(learned.edges), skeleton(dag(3, (0, 2))))


def test_copies_of_a_column_stay_joined_where_rows_are_few() -> None:
    """n <= d: |r| = 1 is as dependent as can be, and no test given a copy is possible."""
    X = rows(12, 14)
    X[:, :4] = X[:, :1] * [1.0, 3.0, -0.7, 1.1]  # no powers of 2: copies up to rounding
    learned = pc(Moments.of_rows(X), OPTIONS)
    assert skeleton(learned.edges)[:4, :4].sum() == 12
    assert np.isfinite(learned.weights).all()


def test_a_set_with_a_copy_in_it_separates_nothing() -> None:
    # 1 is a copy of 0.  Given 0 alone, 2 and 3 have a partial correlation of 1/3: with 60 rows, an edge.
    scatter = np.eye(60)
    scatter[:4, :4] = 0.5 + 0.5 * np.eye(4)
    scatter[0, 1] = scatter[1, 0] = 1.0
    learned = pc(Moments(60, np.zeros(60), scatter), OPTIONS)
    assert skeleton(learned.edges).sum() == skeleton(learned.edges)[:4, :4].sum() == 12


def test_copies_of_a_column_are_refused_where_rows_are_many() -> None:
    X = rows(50, 3)
    X[:, 1] = X[:, 0]
    with pytest.raises(CollinearError):
        pc(Moments.of_rows(X), OPTIONS)


@pytest.mark.parametrize(("alpha", "edges"), [(0.0, 0), (1e-300, 0), (1.0, 10)])
def test_extreme_levels(alpha: float, edges: int) -> None:
    assert pc(Moments.of_rows(rows(30, 5)), LearnerOptions(alpha=alpha)).edges.sum() == edges


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (X,) = simulate(12, 24, 500, 1, seed=0, noise="gaussian-unequal")
    whole = pc(Moments.of_rows(X), OPTIONS)
    monkeypatch.setattr(module, "_BATCH", 100)
    np.testing.assert_array_equal(pc(Moments.of_rows(X), OPTIONS).edges, whole.edges)
