"""Anderson mixing against constrained least squares, and on a linear iteration that it must finish at once."""

import numpy as np
import pytest

from dagora.arrays import FloatArray
from dagora.solvers.anderson import mixing


def residuals(m: int, seed: int) -> FloatArray:
    return np.random.default_rng(seed).standard_normal((m, 12))


@pytest.mark.parametrize("m", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_coefficients_minimise_the_mixed_residual(m: int, size: float) -> None:
    F = residuals(m, seed=m) * size
    a = mixing(F @ F.T)
    # Eliminate sum(a) = 1 by a_0 = 1 - the rest: ordinary least squares for the rest.
    rest = np.linalg.lstsq((F[0] - F[1:]).T, F[0], rcond=None)[0] if m > 1 else np.zeros(0)
    np.testing.assert_allclose(a, [1.0 - rest.sum(), *rest], atol=1e-6)


def test_a_linear_iteration_is_finished_by_as_many_residuals_as_it_has_dimensions_and_one() -> None:
    # x <- g(x) = A x + b in 3 dimensions: residuals g(x_j) - x_j are affine in x, so 4 points determine the fixed one.
    rng = np.random.default_rng(0)
    A, b = 0.4 * rng.standard_normal((3, 3)), rng.standard_normal(3)
    points = [rng.standard_normal(3)]
    for _ in range(3):
        points.append(A @ points[-1] + b)
    F = np.array([A @ x + b - x for x in points])
    mixed = mixing(F @ F.T) @ np.array(points)
    np.testing.assert_allclose(mixed, np.linalg.solve(np.eye(3) - A, b), atol=1e-5)


def test_nearly_parallel_residuals_give_bounded_coefficients() -> None:
    F = np.vstack([np.ones(12), np.ones(12), np.ones(12) + 1e-14])
    a = mixing(F @ F.T)
    assert a.sum() == pytest.approx(1.0)
    assert np.abs(a).max() < 10.0


def test_without_any_residual_the_newest_position_is_kept() -> None:
    np.testing.assert_array_equal(mixing(np.zeros((3, 3))), [0.0, 0.0, 1.0])
