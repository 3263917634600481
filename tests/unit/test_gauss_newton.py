"""Gauss-Newton steps for functions that are no networks, with a Jacobian that is written out."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from dagora.arrays import FloatArray
from dagora.errors import NumericalError
from dagora.models.gauss_newton import Proximal
from tests.networks import generic_minimum

D, P = 2, 5
FEW, MANY = 4, 60  # rows: fewer and more than parameters
ROWS = pytest.mark.parametrize("n", [FEW, MANY])


@dataclass(frozen=True, eq=False)
class Dense:
    """J as it is."""

    J: Tensor

    def along(self, direction: Tensor) -> Tensor:
        return torch.einsum("dnp,dp->dn", self.J, direction)

    def against(self, y: Tensor) -> Tensor:
        return torch.einsum("dnp,dn->dp", self.J, y)

    def kernel(self, inverse: Tensor) -> Tensor:
        return torch.einsum("dnp,dp,dmp->dnm", self.J, inverse, self.J)

    def rows(self, part: slice) -> Tensor:
        return self.J[:, part]


@dataclass(frozen=True, eq=False)
class Waves:
    """f = sin(A theta) for each variable."""

    A: Tensor  # (d, n, p)
    bend: float

    def evaluate(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        sums = torch.einsum("dnp,dp->dn", self.A, theta)
        return torch.sin(self.bend * sums) / self.bend, sums

    def slopes(self, theta: Tensor, evaluated: Tensor) -> Dense:
        return Dense(torch.cos(self.bend * evaluated).unsqueeze(2) * self.A)


class Setting:
    def __init__(self, n: int, bend: float = 0.3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.f, self.n = Waves(torch.tensor(rng.standard_normal((D, n, P))), bend), n
        self.y, self.N = rng.standard_normal((D, n)), 1.5 * n
        self.D, self.centre = rng.uniform(0.1, 1.0, (D, P)), rng.standard_normal((D, P))
        self.free = np.ones((D, P))
        self.free[0, 1] = self.free[1, 3] = 0.0
        self.centre *= self.free
        self.theta = 0.2 * rng.standard_normal((D, P)) * self.free

    def descend(self, theta: FloatArray, steps: int) -> FloatArray:
        given = [torch.tensor(values) for values in (self.D, self.centre, self.free)]
        proximal = Proximal(self.f, torch.tensor(self.y), self.N, *given)
        found: FloatArray = proximal.descend(torch.tensor(theta), steps).numpy()
        return found

    def parts(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """F and its gradient for each variable, and J, by numpy."""
        A = self.f.A.numpy()
        sums, gap = np.einsum("dnp,dp->dn", A, theta), theta - self.centre
        residual = np.sin(self.f.bend * sums) / self.f.bend - self.y
        J = np.cos(self.f.bend * sums)[:, :, None] * A
        value = (residual**2).sum(axis=1) / (2.0 * self.N) + 0.5 * (self.D * gap**2).sum(axis=1)
        gradient = np.einsum("dnp,dn->dp", J, residual) / self.N + self.D * gap
        return value, gradient * self.free, J


@ROWS
def test_a_step_solves_the_equations_of_the_parameters_that_are_free(n: int) -> None:
    at = Setting(n)
    _, gradient, J = at.parts(at.theta)
    expected = at.theta.copy()
    for j in range(D):
        free = at.free[j] > 0.0
        H = J[j][:, free].T @ J[j][:, free] / at.N + np.diag(at.D[j, free])
        expected[j, free] -= np.linalg.solve(H, gradient[j, free])
    np.testing.assert_allclose(at.descend(at.theta, 1), expected, atol=1e-12)


@ROWS
@pytest.mark.parametrize("seed", range(3))
def test_many_steps_come_to_a_minimum(n: int, seed: int) -> None:
    at = Setting(n, seed=seed)
    theta = at.descend(at.theta, 300)

    def smooth(x: FloatArray) -> tuple[float, FloatArray]:
        value, gradient, _ = at.parts(x)
        return float(value.sum()), gradient

    _, least = generic_minimum(smooth, at.theta, free=at.free > 0.0)
    value, gradient = smooth(theta)
    assert value == pytest.approx(least, rel=1e-8)
    assert np.abs(gradient).max() < 1e-5
    assert (theta[at.free == 0.0] == 0.0).all()


def test_steps_that_would_raise_a_variables_objective_are_shortened_for_it_alone() -> None:
    at, rng, shortened = Setting(FEW, bend=2.0), np.random.default_rng(1), 0
    at.D *= 0.01  # a loose hold
    for _ in range(30):
        theta = rng.standard_normal((D, P)) * at.free
        value, gradient, J = at.parts(theta)
        moved = at.descend(theta, 1)
        assert (at.parts(moved)[0] <= value * (1.0 + 1e-9)).all()
        for j in range(D):
            free = at.free[j] > 0.0
            H = J[j][:, free].T @ J[j][:, free] / at.N + np.diag(at.D[j, free])
            whole = theta.copy()
            whole[j, free] -= np.linalg.solve(H, gradient[j, free])
            if at.parts(whole)[0][j] > value[j]:
                shortened += 1
            else:
                np.testing.assert_allclose(moved[j], whole[j], atol=1e-10)
    assert 0 < shortened < 60


def test_no_steps_go_nowhere() -> None:
    at = Setting(FEW)
    np.testing.assert_array_equal(at.descend(at.theta, 0), at.theta)


@ROWS
def test_a_step_that_nothing_holds_is_told(n: int) -> None:
    at = Setting(n)
    at.D[:] = 0.0
    with pytest.raises(NumericalError, match="equations of a Gauss-Newton step cannot be solved"):
        at.descend(at.theta, 1)
