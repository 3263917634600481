"""GOLEM against finite differences, its authors' Adam, and true graphs."""

import numpy as np
import pytest
import scipy.linalg

import dagora
import dagora.learners.golem as module
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import InputError
from dagora.graphs import is_dag
from dagora.learners.base import CollinearError, Learned, LearnerOptions
from dagora.learners.golem import ACYCLICITY, EQUAL_LAM, UNEQUAL_LAM, golem, minimum, smooth
from tests.helpers import covariance, finite_differences, random_covariance

EV = LearnerOptions(lam=EQUAL_LAM, score="least-squares")
NV = LearnerOptions(lam=UNEQUAL_LAM, score="likelihood")


def objective(S: FloatArray, W: FloatArray, lam: float, equal: bool) -> float:
    d = len(S)
    R = np.eye(d) - W
    V = np.diag(R.T @ S @ R)
    f = 0.5 * d * np.log(V.sum()) if equal else 0.5 * np.log(V).sum()
    h = np.trace(scipy.linalg.expm(W * W)) - d
    return float(f - np.linalg.slogdet(R)[1] + lam * np.abs(W).sum() + 5.0 * h)


def adam(S: FloatArray, W: FloatArray, lam: float, equal: bool, iterations: int) -> FloatArray:
    """The authors' trainer: Adam at a learning rate of 1e-3 on the objective, l1 by its subgradient."""
    d = len(S)
    first, second = np.zeros((d, d)), np.zeros((d, d))
    for t in range(1, iterations + 1):
        R = np.eye(d) - W
        SR = S @ R
        V = (R * SR).sum(axis=0)
        gradient = np.linalg.inv(R).T - SR * (d / V.sum() if equal else 1.0 / V) + lam * np.sign(W)
        gradient += 10.0 * W * scipy.linalg.expm(W * W).T
        np.fill_diagonal(gradient, 0.0)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        W = W - 1e-3 * (first / (1.0 - 0.9**t)) / (np.sqrt(second / (1.0 - 0.999**t)) + 1e-8)
    return W


def shd(truth: dagora.Truth, learned: Learned) -> float:
    return dagora.evaluate(truth, learned.edges.astype(np.int64))["shd"]


@pytest.mark.parametrize("equal", [True, False])
def test_gradient(equal: bool) -> None:
    S = random_covariance(6, 0)
    W = 0.3 * np.random.default_rng(0).standard_normal((6, 6))
    np.fill_diagonal(W, 0.0)
    value, gradient = smooth(S, W, equal)
    assert ACYCLICITY == 5.0
    assert value == pytest.approx(objective(S, W, 0.0, equal), rel=1e-12)
    np.testing.assert_allclose(gradient, finite_differences(lambda V: smooth(S, V, equal)[0], W), atol=1e-6)


def test_outside_the_domain_is_infinite() -> None:
    S = random_covariance(3, 0)
    for size in (2.0, 1e3, 1e200):
        cycle = size * np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])  # det(I - W) = 1 - size^2
        assert smooth(S, cycle, True)[0] == np.inf
        assert smooth(S, cycle, False)[0] == np.inf


NOISES = ("gaussian", "gaussian-unequal")
CASES = [(d, seed, noise) for d, seed in [(8, 0), (8, 1), (9, 2), (10, 3)] for noise in NOISES]


def covariance_of(d: int, seed: int, noise: str) -> FloatArray:
    _, (rows,) = dagora.simulate(d, 2 * d, 500, 1, seed=seed, noise=noise)
    return covariance(rows)


def test_ev_is_mostly_no_higher_than_the_authors_adam() -> None:
    """From W = 0 the two may end in different minima.  Measured: 2 of these 8 higher, by up to 0.024 of about 12.

    Others are lower by up to 0.053; over 20 cases, d from 8 to 10, 3 are higher.
    """
    excess = []
    for case in CASES:
        S = covariance_of(*case)
        ours, done = minimum(S, EQUAL_LAM, True)
        assert done
        theirs = adam(S, np.zeros(S.shape), EQUAL_LAM, True, 6000)
        excess.append(objective(S, ours, EQUAL_LAM, True) - objective(S, theirs, EQUAL_LAM, True))
    assert np.mean(np.array(excess) <= 1e-6) >= 0.75
    assert np.mean(excess) <= 0.0
    assert max(excess) < 0.05


@pytest.mark.parametrize(("d", "seed", "noise"), CASES)
def test_nv_is_no_higher_than_the_authors_adam_from_the_same_start(d: int, seed: int, noise: str) -> None:
    S = covariance_of(d, seed, noise)
    ours, done = minimum(S, UNEQUAL_LAM, False)
    assert done
    theirs = adam(S, minimum(S, EQUAL_LAM, True)[0], UNEQUAL_LAM, False, 1500)
    assert objective(S, ours, UNEQUAL_LAM, False) <= objective(S, theirs, UNEQUAL_LAM, False) + 1e-6


def test_ev_finds_graphs_of_equal_variances() -> None:
    """Measured: all ten."""
    right = 0
    for seed in range(10):
        truth, (rows,) = dagora.simulate(20, 20, 256, 1, seed=seed)
        learned = golem(Moments.of_rows(rows), EV)
        assert learned.warnings == ()
        right += shd(truth, learned) == 0
    assert right >= 9


def test_nv_is_nearer_than_ev_where_variances_differ() -> None:
    """Measured, mean SHD: 2.0 against 6.2, of 20 edges; local minima keep it from the truth."""
    errors = []
    for seed in range(5):
        truth, (rows,) = dagora.simulate(20, 20, 256, 1, seed=seed, noise="gaussian-unequal")
        moments = Moments.of_rows(rows)
        errors.append([shd(truth, golem(moments, options)) for options in (EV, NV)])
    ev, nv = np.mean(errors, axis=0)
    assert nv < 4.0 < ev


def test_threshold_and_cycles() -> None:
    _, (rows,) = dagora.simulate(10, 20, 100, 1, seed=0, noise="gaussian-unequal")
    for tau in (0.0, 0.3, 1.0):
        learned = golem(Moments.of_rows(rows), LearnerOptions(lam=EQUAL_LAM, score="least-squares", threshold=tau))
        assert is_dag(learned.edges)
        assert (np.abs(learned.weights[learned.edges]) > tau).all()
        assert not learned.weights.diagonal().any()


@pytest.mark.parametrize("options", [EV, NV])
def test_few_rows_are_refused(options: LearnerOptions) -> None:
    _, (rows,) = dagora.simulate(8, 8, 8, 1, seed=0)
    with pytest.raises(InputError, match="more rows than variables; use 'notears' or 'boss'"):
        golem(Moments.of_rows(rows), options)


def test_columns_that_determine_each_other() -> None:
    _, (rows,) = dagora.simulate(5, 5, 100, 1, seed=0)
    rows[:, 4] = 2.0 * rows[:, 1]
    for options in (EV, NV):
        with pytest.raises(CollinearError):
            golem(Moments.of_rows(rows), options)


@pytest.mark.parametrize("options", [EV, NV])
def test_a_constant_column_has_no_edges(options: LearnerOptions) -> None:
    _, (rows,) = dagora.simulate(5, 8, 100, 1, seed=0)
    rows[:, 2] = 7.0
    learned = golem(Moments.of_rows(rows), options)
    assert learned.edges.any()
    assert not learned.edges[2].any()
    assert not learned.edges[:, 2].any()
    rows[:] = 7.0
    assert not golem(Moments.of_rows(rows), options).edges.any()


def test_a_descent_that_ends_outside_the_domain_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """det(I - W) < 0 there: the likelihood is not defined, and neither is the metric."""
    outside = np.array([[0.0, 2.0], [2.0, 0.0]])
    monkeypatch.setattr(module, "_lbfgs", lambda S, W, *rest: outside)
    learned = golem(Moments(100, np.zeros(2), 100.0 * np.array([[1.0, 0.5], [0.5, 1.0]])), EV)
    assert not learned.weights.any()
    assert learned.warnings == ("GOLEM stopped before its tolerance was met",)
