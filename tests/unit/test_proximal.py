"""The proximal descent against grids, a generic optimiser and optimality conditions."""

import numpy as np
import pytest
import scipy.optimize

from dagora.arrays import BoolArray, FloatArray
from dagora.errors import NumericalError
from dagora.solvers.proximal import minimise_l1, soft_threshold

D = 6


@pytest.mark.parametrize("by", [0.0, 0.3, 1.0])
def test_soft_threshold_is_the_best_of_a_grid(by: float) -> None:
    grid = np.linspace(-3.0, 3.0, 60001)
    for v in np.random.default_rng(0).uniform(-2.0, 2.0, 20):
        best = grid[np.argmin(0.5 * (grid - v) ** 2 + by * np.abs(grid))]
        assert float(soft_threshold(np.array(v), by)) == pytest.approx(best, abs=6e-5)


def test_soft_threshold_takes_one_threshold_an_entry() -> None:
    V, by = np.array([[2.0, -2.0], [0.5, 0.1]]), np.array([[0.5, 1.0], [1.0, 0.0]])
    np.testing.assert_array_equal(soft_threshold(V, by), [[1.5, -1.0], [0.0, 0.1]])


class Quadratic:
    """f(W) = tr(W'AW)/2 - tr(W'C) with condition number about 100, its minimum outside the origin."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        Q, _ = np.linalg.qr(rng.standard_normal((D, D)))
        self.A: FloatArray = (Q * np.geomspace(0.1, 10.0, D)) @ Q.T
        self.C: FloatArray = rng.standard_normal((D, D))

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]:
        AW = self.A @ W
        return float((W * (0.5 * AW - self.C)).sum()), AW - self.C

    @property
    def metric(self) -> FloatArray:
        return np.broadcast_to(np.diag(self.A)[:, None], (D, D))


@pytest.mark.parametrize("seed", range(5))
def test_lasso_meets_its_optimality_conditions_and_a_generic_optimiser(seed: int) -> None:
    f, lam = Quadratic(seed), 0.4
    rng = np.random.default_rng(seed)
    free: BoolArray = rng.random((D, D)) < 0.8
    minimum = minimise_l1(f, rng.standard_normal((D, D)), lam, f.metric, free, 1e-9, 5000)
    assert minimum.converged
    W, gradient = minimum.W, f(minimum.W)[1]
    assert (W[~free] == 0.0).all()
    active = W != 0.0
    assert (free & ~active).any()  # the penalty bites, or this tests no lasso
    assert active.any()
    np.testing.assert_allclose(gradient[active], -lam * np.sign(W[active]), atol=1e-7)
    assert (np.abs(gradient[free & ~active]) <= lam + 1e-7).all()

    def split(halves: FloatArray) -> tuple[float, FloatArray]:  # W = V+ - V-, both >= 0: smooth with bounds
        value, gradient = f((halves[: D * D] - halves[D * D :]).reshape(D, D))
        return value + lam * float(halves.sum()), np.concatenate([gradient.ravel() + lam, lam - gradient.ravel()])

    upper = np.tile(np.where(free.ravel(), np.inf, 0.0), 2)
    bounds = scipy.optimize.Bounds(np.zeros(2 * D * D), upper)
    generic = scipy.optimize.minimize(
        split, np.zeros(2 * D * D), jac=True, bounds=bounds, method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000, "maxfun": 100000},
    )  # fmt: skip
    assert f(W)[0] + lam * float(np.abs(W).sum()) <= float(generic.fun) + 1e-9
    np.testing.assert_allclose(W.ravel(), generic.x[: D * D] - generic.x[D * D :], atol=1e-4)


def test_a_minimum_is_kept() -> None:
    f = Quadratic(0)
    free = np.ones((D, D), dtype=bool)
    W: FloatArray = np.linalg.solve(f.A, f.C).astype(np.float64)
    minimum = minimise_l1(f, W, 0.0, f.metric, free, 1e-8, 10)
    assert minimum.converged
    np.testing.assert_allclose(minimum.W, W, atol=1e-12)


def test_too_few_steps_are_owned_up_to() -> None:
    f = Quadratic(0)
    minimum = minimise_l1(f, np.zeros((D, D)), 0.1, f.metric, np.ones((D, D), dtype=bool), 1e-12, 2)
    assert not minimum.converged


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_start_outside_the_domain_is_refused(value: float) -> None:
    with pytest.raises(NumericalError, match="outside the objective's domain"):
        minimise_l1(lambda W: (value, W), np.ones((2, 2)), 0.1, np.ones((2, 2)), np.ones((2, 2), dtype=bool), 1e-6, 10)


@pytest.mark.parametrize("metric", [1e-6, 1.0, 1e6])
def test_no_step_leaves_the_domain_of_a_barrier(metric: float) -> None:
    """f = -log(1 - w^2) - 50 w pushes against the wall at 1; a metric far too small makes first steps huge.

    With lam on it, the minimum solves 2 w / (1 - w^2) = 50 - lam.
    """
    lam, outside = 1.0, 0

    def barrier(W: FloatArray) -> tuple[float, FloatArray]:
        nonlocal outside
        if (np.abs(W) >= 1.0).any():
            outside += 1
            return np.inf, np.full_like(W, np.nan)
        return float((-np.log1p(-(W**2)) - 50.0 * W).sum()), 2.0 * W / (1.0 - W**2) - 50.0

    start, free = np.full((2, 2), 0.1), np.ones((2, 2), dtype=bool)
    minimum = minimise_l1(barrier, start, lam, np.full((2, 2), metric), free, 1e-9, 2000)
    slope = 50.0 - lam
    expected = (np.sqrt(1.0 + slope**2) - 1.0) / slope
    np.testing.assert_allclose(minimum.W, expected, rtol=1e-6)
    assert outside > 0 or metric > 1.0  # the wall was met, so the test tests
