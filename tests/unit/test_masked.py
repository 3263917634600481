"""Networks behind masks: derivatives against autodiff, steps against generic optimisers, and how masks are drawn."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from scipy.special import expit
from torch import Tensor

from dagora.algorithms.masked_schedule import MaskedSchedule
from dagora.algorithms.network_schedule import NetworkPlan
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.sample import Sample
from dagora.learners import mcsl
from dagora.learners.notears_mlp import Solved
from dagora.models.masked import Masked, MaskedFit, MaskedModel, MaskedSlopes, Masking, probabilities, start_masked
from dagora.models.network import Architecture
from dagora.solvers.mask_step import mask, mask_step
from tests.networks import forward, generic_minimum

D, N, DRAWS = 3, 7, 4
ROUND = 30  # on the way from warm to cold
HIDDEN = pytest.mark.parametrize("hidden", [(3,), (3, 2)], ids=str)
SEEDS = pytest.mark.parametrize("seed", range(3))


def outputs(hidden: tuple[int, ...], theta: Tensor, j: int, rows: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """(draws n,), the network of j with its logits behind the others in theta; noise [s, j, i] as the model has it."""
    size = len(theta) - rows.shape[1]
    masks = torch.sigmoid((theta[size:] + noise[:, j]) / temperature)
    return torch.cat([forward(rows.shape[1], hidden, theta[:size], rows * own) for own in masks])


class Setting:
    """Some rows about their mean, an arbitrary theta, and noise."""

    def __init__(self, hidden: tuple[int, ...], seed: int = 0, n: int = N) -> None:
        rng = np.random.default_rng(seed)
        self.hidden, self.architecture = hidden, Architecture(D, hidden)
        X = rng.standard_normal((n, D))
        X[:, 1] += 1.5 * np.tanh(2.0 * X[:, 0])
        self.X: FloatArray = X - X.mean(axis=0)
        self.size = self.architecture.size
        self.free = np.concatenate([self.architecture.free(), 1.0 - np.eye(D)], axis=1)
        self.theta = rng.standard_normal((D, self.size + D)) * self.free
        self.masking = Masking(seed)
        self.model = MaskedModel(self.architecture, self.theta, masking=self.masking)
        self.rows, self.weight = 2.0 * n, 0.5
        self.metric = rng.uniform(0.5, 2.0, (D, 1)) * np.ones((D, self.size + D))
        self.centre = self.theta + 0.3 * rng.standard_normal(self.theta.shape)  # also of what is not free: no pull

    def problem(self) -> MaskedFit:
        moments = Moments.of_rows(self.X)
        data = Sample(moments.n, moments.mean, moments.scatter, self.X)
        before = self.model.prepare(data, self.rows, None, self.weight, self.metric)
        assert before.count == 0
        return replace(before, count=ROUND)

    def noise(self, count: int) -> Tensor:
        return torch.tensor(self.masking.noise(count, D))

    def jacobian(self, theta: FloatArray, count: int = ROUND) -> FloatArray:
        """(d, draws n, size + d)."""
        X, noise, tau = torch.tensor(self.X), self.noise(count), self.masking.temperature(count)
        found = [
            torch.func.jacrev(lambda own, j=j: outputs(self.hidden, own, j, X, noise, tau))(torch.tensor(theta[j]))
            for j in range(D)
        ]
        jacobian: FloatArray = torch.stack(found).numpy()
        return jacobian

    def values(self, theta: FloatArray, count: int = ROUND) -> FloatArray:
        X, noise, tau = torch.tensor(self.X), self.noise(count), self.masking.temperature(count)
        found = [outputs(self.hidden, torch.tensor(theta[j]), j, X, noise, tau) for j in range(D)]
        values: FloatArray = torch.stack(found).numpy()
        return values

    def objective(self, theta: FloatArray, rho: float, count: int = ROUND) -> tuple[float, FloatArray]:
        """The mean loss over draws, and how far theta is from the centre."""
        scale, gap = self.rows * self.weight * DRAWS, theta - self.centre
        residual = self.values(theta, count) - np.tile(self.X.T, (1, DRAWS))
        value = float((residual**2).sum()) / (2.0 * scale) + 0.5 * rho * float((self.metric * gap**2).sum())
        gradient = np.einsum("dnp,dn->dp", self.jacobian(theta, count), residual) / scale + rho * self.metric * gap
        return value, gradient * self.free

    def slopes(self) -> MaskedSlopes:
        masked = Masked(self.architecture, torch.tensor(self.X), self.noise(ROUND), self.masking.temperature(ROUND))
        theta = torch.tensor(self.theta)
        return masked.slopes(theta, masked.evaluate(theta)[1])


# Derivatives


@HIDDEN
def test_outputs_are_those_of_masked_rows_draw_after_draw(hidden: tuple[int, ...]) -> None:
    at = Setting(hidden)
    masked = Masked(at.architecture, torch.tensor(at.X), at.noise(ROUND), at.masking.temperature(ROUND))
    found, _ = masked.evaluate(torch.tensor(at.theta))
    np.testing.assert_allclose(found.numpy(), at.values(at.theta), atol=1e-12)


@HIDDEN
@SEEDS
def test_products_with_the_jacobian_are_those_of_autodiff(hidden: tuple[int, ...], seed: int) -> None:
    at, rng = Setting(hidden, seed), np.random.default_rng(seed + 1)
    slopes, J = at.slopes(), at.jacobian(at.theta)
    v, y = rng.standard_normal(at.theta.shape), rng.standard_normal((D, DRAWS * N))
    np.testing.assert_allclose(slopes.along(torch.tensor(v)).numpy(), np.einsum("dnp,dp->dn", J, v), atol=1e-10)
    np.testing.assert_allclose(slopes.against(torch.tensor(y)).numpy(), np.einsum("dnp,dn->dp", J, y), atol=1e-10)
    np.testing.assert_allclose(slopes.rows(slice(3, 17)).numpy(), J[:, 3:17], atol=1e-12)
    np.testing.assert_allclose(slopes.rows(slice(None)).numpy(), J, atol=1e-12)


@HIDDEN
def test_the_kernel_is_that_of_the_jacobian(hidden: tuple[int, ...]) -> None:
    """The diagonal between is the same for all units of a layer, for weights of the same input; any for logits."""
    at, rng = Setting(hidden), np.random.default_rng(1)
    inverse, start = np.zeros_like(at.theta), 0
    for inputs, units in at.architecture.layers:
        inverse[:, start : start + inputs * units] = np.tile(rng.uniform(0.0, 2.0, (D, inputs)), units)
        inverse[:, start + inputs * units : start + (inputs + 1) * units] = rng.uniform(0.5, 2.0, (D, 1))
        start += (inputs + 1) * units
    inverse[:, start:] = rng.uniform(0.0, 2.0, (D, D))
    J = at.jacobian(at.theta)
    expected = np.einsum("dnp,dp,dmp->dnm", J, inverse, J)
    np.testing.assert_allclose(at.slopes().kernel(torch.tensor(inverse)).numpy(), expected, atol=1e-10)


def test_curvatures_are_squared_derivatives_averaged_over_draws_and_units() -> None:
    at = Setting((3,))
    found = at.model.curvature(at.problem())
    entries = (at.jacobian(at.theta) ** 2).sum(axis=1) / DRAWS
    np.testing.assert_allclose(found[:, at.size :], entries[:, at.size :], rtol=1e-10)
    first = entries[:, : 3 * D].reshape(D, 3, D).mean(axis=1)
    np.testing.assert_allclose(found[:, : 3 * D].reshape(D, 3, D), np.repeat(first[:, None], 3, axis=1), rtol=1e-10)
    for part in (slice(3 * D, 3 * D + 3), slice(3 * D + 3, 3 * D + 6), slice(3 * D + 6, at.size)):
        mean = entries[:, part].mean(axis=1, keepdims=True)
        np.testing.assert_allclose(found[:, part], np.broadcast_to(mean, found[:, part].shape), rtol=1e-10)


# Draws


def test_every_site_draws_the_same_noise_in_a_round_and_other_noise_in_another() -> None:
    noise = Masking(5).noise(7, D)
    assert noise.shape == (DRAWS, D, D)
    np.testing.assert_array_equal(noise, Masking(5).noise(7, D))
    for other in (Masking(5).noise(8, D), Masking(6).noise(7, D)):
        assert (noise != other).all()
    np.testing.assert_array_equal(noise[DRAWS // 2 :], -noise[: DRAWS // 2])


def test_noise_is_logistic_so_that_cold_masks_are_open_as_often_as_their_probability_says() -> None:
    masking, U = Masking(0, draws=20000), np.array([[-2.0, 0.0], [0.7, 3.0]])
    open_ = ((U + masking.noise(0, 2)) > 0.0).mean(axis=0)
    np.testing.assert_allclose(open_, expit(U), atol=0.01)


def test_the_temperature_falls_from_warm_to_cold_by_the_same_factor() -> None:
    masking = Masking(0)
    seen = np.array([masking.temperature(count) for count in range(masking.rounds + 20)])
    assert seen[0] == masking.warm
    assert seen[masking.rounds] == pytest.approx(masking.cold)
    assert (seen[masking.rounds :] == masking.cold).all()
    np.testing.assert_allclose(seen[1 : masking.rounds] / seen[: masking.rounds - 1], (0.5 / 1.0) ** (1.0 / 80.0))


# Steps at a site


@HIDDEN
@SEEDS
@pytest.mark.parametrize("n", [N, 60])  # fewer rows than parameters, and more
def test_a_rounds_steps_lower_the_objective_under_its_masks(hidden: tuple[int, ...], seed: int, n: int) -> None:
    at, rho = Setting(hidden, seed, n), 0.3
    problem = replace(at.problem(), count=5)
    theta, after = at.model.prox(problem, at.centre, rho)
    assert at.objective(theta, rho, 5)[0] < at.objective(at.theta, rho, 5)[0]
    assert isinstance(after, MaskedFit)
    assert after.count == 6  # the next round has other masks
    np.testing.assert_array_equal(after.theta, theta)
    assert (theta[at.free == 0.0] == 0.0).all()  # of own values, neither weights nor logits


@HIDDEN
@pytest.mark.parametrize("n", [N, 60])
def test_many_steps_come_to_the_minimum_of_a_generic_optimiser(hidden: tuple[int, ...], n: int) -> None:
    at, rho = Setting(hidden, n=n), 0.5
    model = replace(at.model, steps=200)
    problem: MaskedFit = at.problem()
    for _ in range(3):  # the factor of a call is that of its start
        theta, after = model.prox(problem, at.centre, rho)
        assert isinstance(after, MaskedFit)
        problem = replace(after, count=ROUND)  # the same masks again
    _, least = generic_minimum(lambda x: at.objective(x, rho), at.theta, free=at.free > 0.0)
    value, gradient = at.objective(theta, rho)
    assert value == pytest.approx(least, rel=1e-6)
    assert np.abs(gradient).max() < 1e-4
    assert least < 0.95 * at.objective(at.theta, rho)[0]  # there was a way to go


# The server's step


class Masks:
    """Logits U in h's domain, and a consensus Z."""

    def __init__(self, seed: int, d: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.U = np.full((d, d), np.log(0.4 / 0.6)) + 0.1 * rng.standard_normal((d, d))
        self.Z, self.c = 2.0 * rng.standard_normal((d, d)), rng.uniform(0.5, 2.0, (d, d))
        self.off = ~np.eye(d, dtype=bool)
        np.fill_diagonal(self.Z, 0.0)  # of the mask, no part

    def objective(self, U: FloatArray, lam: float, mu: float) -> float:
        """Written out: -log det(I - P o P) for h; infinite where a cycle's gain reaches 1."""
        P = expit(U) * self.off
        if np.abs(np.linalg.eigvals(P * P)).max() >= 1.0:
            return np.inf
        h = -float(np.linalg.slogdet(np.eye(len(P)) - P * P)[1])
        return 0.5 * float((self.c * (U - self.Z) ** 2)[self.off].sum()) + lam * float(P.sum()) + mu * h

    def least(self, lam: float, mu: float, start: FloatArray) -> float:
        def flat(x: FloatArray) -> float:
            U = np.zeros_like(start)
            U[self.off] = x
            return min(self.objective(U, lam, mu), 1e6)

        options: Any = {"maxiter": 5000, "maxfev": 10**6, "ftol": 1e-12, "xtol": 1e-9}
        found: Any = scipy.optimize.minimize(flat, start[self.off], method="Powell", options=options)
        return float(found.fun)


@SEEDS
@pytest.mark.parametrize("mu", [0.05, 1.0, 20.0])
def test_the_masks_step_is_as_low_as_a_generic_optimisers_and_in_hs_domain(seed: int, mu: float) -> None:
    at, lam = Masks(seed), 0.05
    U = mask_step(at.U, at.Z, at.c, lam, mu)
    for _ in range(20):  # each ends within its tolerance
        U = mask_step(U, at.Z, at.c, lam, mu)
    assert at.objective(U, lam, mu) < at.objective(at.U * at.off, lam, mu)
    assert at.objective(U, lam, mu) <= at.least(lam, mu, U) * (1.0 + 1e-5) + 1e-9
    P = mask(U)
    assert np.abs(np.linalg.eigvals(P * P)).max() < 1.0
    assert (U.diagonal() == 0.0).all()
    assert (P.diagonal() == 0.0).all()


def test_a_mask_is_a_probability_off_the_diagonal() -> None:
    U = np.random.default_rng(0).standard_normal((3, 3))
    kept = U.copy()
    np.testing.assert_allclose(mask(U), (1.0 / (1.0 + np.exp(-U))) * (1.0 - np.eye(3)))
    np.testing.assert_array_equal(U, kept)


# The schedule


@pytest.mark.parametrize("d", [1, 2, 5, 50])
def test_masks_start_as_open_as_hs_domain_allows(d: int) -> None:
    architecture = Architecture(d, (2,))
    theta = start_masked(architecture, 0)
    assert theta.shape == (d, architecture.size + d)
    P = probabilities(theta, architecture)
    assert np.abs(np.linalg.eigvals(P * P)).max() < 1.0
    assert (P[~np.eye(d, dtype=bool)] > 0.1).all()
    assert (architecture.norms(theta[:, : architecture.size]).diagonal() == 0.0).all()
    np.testing.assert_array_equal(theta, start_masked(architecture, 0))
    assert (theta[:, : architecture.size] != start_masked(architecture, 1)[:, : architecture.size]).any()


def test_probabilities_are_of_edges_from_rows_to_columns() -> None:
    architecture = Architecture(2, (2,))
    theta = start_masked(architecture, 0)
    theta[1, architecture.size :] = [3.0, 0.0]  # of the network of the second: it takes in the first
    P = probabilities(theta, architecture)
    assert P[0, 1] == pytest.approx(expit(3.0))
    assert P[1, 0] == pytest.approx(0.5)


def test_no_logits_metric_is_below_a_multiple_of_their_mean() -> None:
    architecture = Architecture(D, (2,))
    schedule, rng = MaskedSchedule(architecture, 0.01, 0.01), np.random.default_rng(0)
    curvature = rng.uniform(0.5, 2.0, (D, architecture.size + D))
    curvature[:, architecture.size :][np.eye(D, dtype=bool)] = 0.0
    curvature[0, -1] = 500.0
    kept = curvature.copy()
    metric, plan = schedule.measure(NetworkPlan(1.0, np.ones(D)), curvature, np.ones(D))
    np.testing.assert_array_equal(curvature, kept)
    logits, off = kept[:, architecture.size :], ~np.eye(D, dtype=bool)
    floor = 30.0 * logits[off].sum() / (D * (D - 1))
    np.testing.assert_allclose(metric[:, architecture.size :], np.maximum(logits, floor))
    assert metric.shape == curvature.shape
    assert not schedule.measuring(plan)


def test_the_path_of_masks_ends_once_edges_more_likely_than_not_have_no_cycle() -> None:
    architecture = Architecture(D, (2,))
    schedule = MaskedSchedule(architecture, 0.01, 0.01)
    theta = start_masked(architecture, 0)
    theta[:, architecture.size :] = -3.0
    theta[0, architecture.size + 1] = theta[1, architecture.size] = 3.0
    by_stage = [NetworkPlan(1.0, np.ones(D), stage=stage) for stage in (3, 4, 8, 9)]
    assert [schedule.ended(plan, theta) for plan in by_stage] == [False, False, False, True]
    theta[0, architecture.size + 1] = -0.1  # P below a half
    assert [schedule.ended(plan, theta) for plan in by_stage] == [False, True, True, True]


def test_a_step_shrinks_weights_leaves_biases_and_moves_logits() -> None:
    architecture, ridge = Architecture(D, (2,)), 0.5
    schedule, rng = MaskedSchedule(architecture, 0.01, ridge), np.random.default_rng(0)
    W = start_masked(architecture, 0)
    Z, metric = W + 0.1 * rng.standard_normal(W.shape), rng.uniform(0.5, 2.0, W.shape)
    plan = NetworkPlan(2.0, np.ones(D), rounds=1)
    theta, after = schedule.w_step(plan, W, Z, metric)
    c, size, weights = 2.0 * metric, architecture.size, architecture.weights()
    np.testing.assert_allclose(theta[:, :size][:, weights], (c * Z / (c + ridge))[:, :size][:, weights])
    np.testing.assert_allclose(theta[:, :size][:, ~weights], Z[:, :size][:, ~weights])
    off = ~np.eye(D, dtype=bool)
    assert (theta[:, size:][off] != W[:, size:][off]).all()
    assert np.isfinite(after.h)
    assert schedule.w_step(replace(plan, done=True), W, Z, metric)[0] is W


# The oracle of one place


def test_the_lagrangians_minimum_finds_an_obvious_edge_and_equal_seeds_give_equal_bits() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(200)
    X = np.column_stack([x, x**2 + 0.2 * rng.standard_normal(200)])
    X = X - X.mean(axis=0)
    architecture = Architecture(2, (4,))

    def solved(seed: int) -> Solved:
        start = start_masked(architecture, 0)
        return mcsl.solve(X, architecture, start, 0.01, 0.01, seed=seed, outer=7, steps=150)

    found, again, other = solved(1), solved(1), solved(2)
    np.testing.assert_array_equal(found.weights > 0.5, [[False, True], [False, False]])
    assert ((found.weights >= 0.0) & (found.weights <= 1.0)).all()
    assert found.h == 0.0
    np.testing.assert_array_equal(again.theta, found.theta)
    np.testing.assert_array_equal(again.weights, found.weights)
    assert (other.theta != found.theta).any()
    norms = architecture.norms(found.theta)
    np.testing.assert_array_equal(norms > 0.0, found.weights > 0.5)  # closed masks let nothing in
