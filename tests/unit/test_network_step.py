"""The server's steps for networks against a generic optimiser of the same objective, written out with torch."""

import itertools

import numpy as np
import pytest
import torch

from dagora.acyclicity import log_determinant, trace_exponential, trace_exponential_of_norms
from dagora.arrays import FloatArray
from dagora.models.network import Architecture
from dagora.solvers.network_step import network_step, paper_network_step
from tests.networks import Smooth, generic_minimum

D = 4
HIDDEN = pytest.mark.parametrize("hidden", [(3,), (3, 2)], ids=str)
SEEDS = pytest.mark.parametrize("seed", range(3))
LAM, RIDGE = 0.05, 0.1


def squared_norms(theta: torch.Tensor, units: int) -> torch.Tensor:
    """[i, j]: of the weights that take variable i into the network of j."""
    return (theta[:, : units * D].reshape(D, units, D) ** 2).sum(1).T


def prices(hidden: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Curvatures as they are measured: for each input of the first layer one, for all units of a layer the same."""
    parts = []
    for depth, (inputs, outputs) in enumerate(itertools.pairwise((D, *hidden, 1))):
        weights = rng.uniform(0.5, 3.0, (D, inputs if depth == 0 else 1))
        parts += [np.tile(weights, outputs if depth == 0 else inputs * outputs)]
        parts += [np.tile(rng.uniform(0.5, 3.0, (D, 1)), outputs)]
    return np.hstack(parts)


class Setting:
    """An arbitrary centre and start, without self-loops, cycles well inside the domain of the log-determinant."""

    def __init__(self, hidden: tuple[int, ...], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.hidden, self.architecture = hidden, Architecture(D, hidden)
        self.free = self.architecture.free()
        self.Z = 0.5 * rng.standard_normal(self.free.shape) * self.free
        self.start = 0.15 * rng.standard_normal(self.free.shape) * self.free
        self.c = prices(hidden, rng)
        self.lam: FloatArray = LAM * np.broadcast_to(self.architecture.first().astype(np.float64), self.Z.shape)

    def step(self, theta: FloatArray, mu: float) -> FloatArray:
        return network_step(self.architecture, theta, self.Z, self.c, LAM, RIDGE, mu, 1e-10)

    def settled(self, mu: float) -> FloatArray:
        """Where steps lead, each from the last one's end, as in a run whose sites agree."""
        theta = self.start
        for _ in range(20):
            theta = self.step(theta, mu)
        return theta

    def path_objective(self, mu: float) -> Smooth:
        """All but the l1 penalty."""
        Z, c, weights = torch.tensor(self.Z), torch.tensor(self.c), torch.tensor(self.architecture.weights())

        def smooth(x: FloatArray) -> tuple[float, FloatArray]:
            theta = torch.tensor(x, requires_grad=True)
            A = torch.eye(D) - squared_norms(theta, self.hidden[0])
            if float(torch.linalg.eigvals(torch.eye(D) - A.detach()).abs().max()) >= 1.0:  # outside the domain
                return 1e6, np.zeros_like(x)
            value = 0.5 * (c * (theta - Z) ** 2).sum() + 0.5 * RIDGE * (theta**2 * weights).sum()
            value = value - mu * torch.linalg.slogdet(A)[1]
            value.backward()
            assert theta.grad is not None
            return float(value.detach()), theta.grad.numpy() * self.free

        return smooth

    def paper_objective(self, c: float, alpha: float, rho1: float) -> Smooth:
        """All but the l1 penalty."""
        Z = torch.tensor(self.Z)

        def smooth(x: FloatArray) -> tuple[float, FloatArray]:
            theta = torch.tensor(x, requires_grad=True)
            h = torch.linalg.matrix_exp(squared_norms(theta, self.hidden[0])).trace() - D
            value = 0.5 * c * ((theta - Z) ** 2).sum() + alpha * h + 0.5 * rho1 * h * h
            value.backward()
            assert theta.grad is not None
            return float(value.detach()), theta.grad.numpy() * self.free

        return smooth

    def l1(self, theta: FloatArray) -> float:
        return float((self.lam * np.abs(theta)).sum())


@SEEDS
def test_the_trace_exponential_of_norms_has_autograds_gradient(seed: int) -> None:
    W = np.random.default_rng(seed).standard_normal((D, 3, D))
    tensor = torch.tensor(W, requires_grad=True)
    expected = torch.linalg.matrix_exp((tensor**2).sum(1).T).trace() - D
    expected.backward()
    h, gradient = trace_exponential_of_norms(W)
    assert h == pytest.approx(float(expected.detach()), rel=1e-12)
    assert tensor.grad is not None
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-10)


def test_the_trace_exponential_of_norms_is_that_of_the_adjacency_matrix() -> None:
    architecture = Architecture(D, (3,))
    theta = np.random.default_rng(0).standard_normal((D, architecture.size))
    h, _ = trace_exponential_of_norms(architecture.first_layer(theta))
    assert h == pytest.approx(trace_exponential(architecture.norms(theta))[0], rel=1e-12)
    architecture.first_layer(theta)[:] *= np.triu(np.ones((D, D)), 1).T[:, None]  # i before j only
    assert trace_exponential_of_norms(architecture.first_layer(theta))[0] == pytest.approx(0.0, abs=1e-12)


@HIDDEN
@SEEDS
@pytest.mark.parametrize("mu", [0.01, 0.1])
def test_steps_come_to_the_minimum_of_a_generic_optimiser(hidden: tuple[int, ...], seed: int, mu: float) -> None:
    at = Setting(hidden, seed)
    smooth = at.path_objective(mu)
    minimum, least = generic_minimum(smooth, at.start, at.lam, at.free > 0.0)
    one = at.step(at.start, mu)
    assert smooth(one)[0] + at.l1(one) == pytest.approx(least, rel=5e-3)  # its descent ends after some steps
    theta = at.settled(mu)
    assert smooth(theta)[0] + at.l1(theta) == pytest.approx(least, rel=1e-9)
    np.testing.assert_allclose(theta, minimum, atol=1e-5)
    norms = at.architecture.norms(theta)
    assert log_determinant(norms)[0] > 0.1  # the penalty is at work
    assert (norms.diagonal() == 0.0).all()


@HIDDEN
@pytest.mark.parametrize("mu", [1.0, 30.0])
def test_from_where_steps_settle_a_generic_optimiser_gains_nothing(hidden: tuple[int, ...], mu: float) -> None:
    # With cycles dear there are several minima, one for each order of the variables.
    at = Setting(hidden, 0)
    theta = at.settled(mu)
    smooth = at.path_objective(mu)
    _, least = generic_minimum(smooth, theta, at.lam, at.free > 0.0)
    assert smooth(theta)[0] + at.l1(theta) == pytest.approx(least, rel=1e-6)
    mild = log_determinant(at.architecture.norms(at.settled(0.1)))[0]
    assert 0.0 <= log_determinant(at.architecture.norms(theta))[0] < mild


@HIDDEN
def test_biases_are_free_and_later_layers_only_shrink(hidden: tuple[int, ...]) -> None:
    at = Setting(hidden, 0)
    theta = at.step(at.start, 1.0)
    biases, later = ~at.architecture.weights(), at.architecture.weights() & ~at.architecture.first()
    np.testing.assert_array_equal(theta[:, biases], at.Z[:, biases])
    np.testing.assert_allclose(theta[:, later], (at.c * at.Z / (at.c + RIDGE))[:, later], rtol=1e-12)


def test_inputs_whose_weights_are_all_below_the_penalty_are_dropped() -> None:
    at = Setting((3,), 0)
    at.architecture.first_layer(at.Z)[2, :, 1] = 0.9 * LAM / at.architecture.first_layer(at.c)[2, :, 1]
    theta = at.step(at.start, 0.1)
    norms = at.architecture.norms(theta)
    assert norms[1, 2] == 0.0
    assert (norms > 0.0).sum() >= D


@HIDDEN
@SEEDS
@pytest.mark.parametrize(("c", "alpha", "rho1"), [(0.1, 0.0, 0.1), (1.0, 0.5, 2.0), (20.0, 3.0, 50.0)])
def test_the_papers_smooth_step_is_as_low_as_a_generic_optimiser(
    hidden: tuple[int, ...], seed: int, c: float, alpha: float, rho1: float
) -> None:
    at = Setting(hidden, seed)
    theta, h = paper_network_step(at.architecture, at.start, at.Z, c, 0.0, alpha, rho1)
    smooth = at.paper_objective(c, alpha, rho1)
    _, least = generic_minimum(smooth, at.start, 0.0, at.free > 0.0)
    value, gradient = smooth(theta)
    assert value <= least + 1e-6 * (c + alpha + rho1)
    assert np.abs(gradient).max() < 1e-3 * (c + alpha + rho1)
    expected = float(torch.linalg.matrix_exp(squared_norms(torch.tensor(theta), hidden[0])).trace()) - D
    assert h == pytest.approx(expected, abs=1e-10)
    assert (at.architecture.norms(theta).diagonal() == 0.0).all()


@SEEDS
def test_the_papers_step_with_its_penalty_ends_near_a_generic_optimiser(seed: int) -> None:
    # A subgradient makes no optimality condition exact.
    at = Setting((3,), seed)
    theta, _ = paper_network_step(at.architecture, at.start, at.Z, 1.0, LAM, 0.5, 2.0)
    smooth = at.paper_objective(1.0, 0.5, 2.0)
    _, least = generic_minimum(smooth, at.start, at.lam, at.free > 0.0)
    value = smooth(theta)[0] + at.l1(theta)
    assert value == pytest.approx(least, rel=5e-3)
    assert value < smooth(at.start)[0] + at.l1(at.start)
    later = ~at.architecture.first()
    np.testing.assert_array_equal(theta[:, later], at.Z[:, later])  # no penalty there


def test_the_papers_step_stays_where_h_is_finite() -> None:
    """A centre where the exponential overflows: a step must not end there."""
    at = Setting((3,), 0)
    Z = 60.0 * at.Z
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(trace_exponential_of_norms(at.architecture.first_layer(Z))[0])
    theta, h = paper_network_step(at.architecture, 0.1 * at.start, Z, 1e-3, 0.01, 0.0, 1e-3)
    assert np.isfinite(h)
    assert at.architecture.norms(theta).max() > 0.0
