"""The server's W-steps: optimality conditions, closed form against grids, the paper's step against scipy."""

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

from dagora.acyclicity import log_determinant, trace_exponential
from dagora.arrays import FloatArray
from dagora.solvers.global_step import ordered_step, paper_step, path_step
from tests.helpers import finite_differences

D = 5


def centre(seed: int, rows: int = D) -> FloatArray:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (rows, D))


@pytest.mark.parametrize("mu", [0.03, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("seed", range(3))
def test_path_step_is_stationary(seed: int, mu: float) -> None:
    Z, lam = centre(seed), 0.1
    c = np.broadcast_to(np.random.default_rng(seed + 10).uniform(0.5, 3.0, (D, 1)), (D, D))
    minimum = path_step(np.zeros((D, D)), Z, c, lam, mu, 1e-9, most_steps=5000)
    assert minimum.converged
    W = minimum.W
    assert np.isfinite(log_determinant(W)[0])
    assert (np.diag(W) == 0.0).all()

    def smooth(V: FloatArray) -> float:  # written out anew
        return -mu * float(np.linalg.slogdet(np.eye(D) - V * V)[1]) + 0.5 * float((c * (V - Z) ** 2).sum())

    gradient = finite_differences(smooth, W)
    active, off = W != 0.0, ~np.eye(D, dtype=bool)
    assert active.any()
    assert (off & ~active).any()
    np.testing.assert_allclose(gradient[active], -lam * np.sign(W[active]), atol=1e-6)
    assert (np.abs(gradient[off & ~active]) <= lam + 1e-6).all()


def test_path_step_never_rises_from_its_start() -> None:
    Z, c, lam, mu = centre(0), np.ones((D, D)), 0.1, 0.3
    start = np.triu(centre(1), 1)

    def objective(W: FloatArray) -> float:
        return mu * log_determinant(W)[0] + 0.5 * float(((W - Z) ** 2).sum()) + lam * float(np.abs(W).sum())

    assert objective(path_step(start, Z, c, lam, mu, 1e-6).W) < objective(start)


def test_ordered_step_is_the_best_of_a_grid_entry_by_entry() -> None:
    Z, lam = centre(0), 0.2
    c = np.broadcast_to(np.linspace(0.5, 2.0, D)[:, None], (D, D))
    allowed = np.triu(np.ones((D, D), dtype=bool), 1)
    W = ordered_step(Z, c, lam, allowed)
    assert (W[~allowed] == 0.0).all()
    grid = np.linspace(-1.5, 1.5, 30001)
    for i, j in zip(*np.nonzero(allowed), strict=True):
        best = grid[np.argmin(0.5 * c[i, j] * (grid - Z[i, j]) ** 2 + lam * np.abs(grid))]
        assert W[i, j] == pytest.approx(best, abs=6e-5)


def paper_objective(W: FloatArray, Z: FloatArray, c: float, lam: float, alpha: float, rho1: float) -> float:
    """The paper's Eq. 6 up to a constant, written out anew."""
    weights = W[:D]
    h = float(np.trace(scipy.linalg.expm(weights * weights))) - D
    return 0.5 * c * float(((W - Z) ** 2).sum()) + lam * float(np.abs(weights).sum()) + alpha * h + 0.5 * rho1 * h * h


@pytest.mark.parametrize(("c", "alpha", "rho1"), [(0.01, 0.0, 1e-3), (1.0, 0.5, 2.0), (20.0, 3.0, 50.0)])
@pytest.mark.parametrize("rows", [D, D + 1])
def test_smooth_paper_step_is_stationary_and_as_low_as_a_generic_optimiser(
    c: float, alpha: float, rho1: float, rows: int
) -> None:
    Z, start = centre(0, rows), 0.3 * centre(1, rows)
    W = paper_step(start, Z, c, 0.0, alpha, rho1)

    def objective(V: FloatArray) -> float:
        return paper_objective(V.reshape(rows, D), Z, c, 0.0, alpha, rho1)

    scale = c + alpha + rho1
    assert np.abs(finite_differences(objective, W)).max() < 1e-3 * scale
    generic = scipy.optimize.minimize(objective, start.ravel(), method="BFGS")
    assert objective(W) <= float(generic.fun) + 1e-5 * scale


@pytest.mark.parametrize("seed", range(3))
def test_paper_step_with_its_penalty_ends_near_the_best_of_scipy(seed: int) -> None:
    # A subgradient makes no optimality condition exact; Powell's method needs no gradient and minds no kinks.
    Z, start, args = centre(seed), 0.3 * centre(seed + 5), (1.0, 0.05, 0.5, 2.0)
    W = paper_step(start, Z, *args)

    def objective(V: FloatArray) -> float:
        return paper_objective(V.reshape(D, D), Z, *args)

    generic = scipy.optimize.minimize(objective, start.ravel(), method="Powell")
    assert objective(W) <= float(generic.fun) + 1e-3  # measured: 7e-5
    assert objective(W) < objective(start)


def test_intercepts_are_free_of_penalties() -> None:
    Z = centre(0, D + 1)
    W = paper_step(np.zeros((D + 1, D)), Z, 1.0, 0.3, 1.0, 10.0)
    np.testing.assert_allclose(W[D], Z[D], atol=0.02)  # an l1 penalty on them would shift them by lam / c = 0.3
    assert trace_exponential(W[:D])[0] < trace_exponential(Z[:D])[0]


def test_the_papers_step_stays_where_h_is_finite() -> None:
    """Raw data of large variances put the centre where the exponential overflows; a step must not end there."""
    d = 6
    Z = np.random.default_rng(0).normal(scale=60.0, size=(d, d))
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(trace_exponential(Z)[0])
    W = paper_step(np.zeros((d, d)), Z, 1e-3, 0.01, 0.0, 1e-3)
    assert np.isfinite(trace_exponential(W)[0])
    assert np.abs(W).max() > 0.0
