"""A site's step with networks: explicit Gauss-Newton equations, a generic optimiser, and sums from autograd."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from torch import Tensor

from dagora.algorithms.covariance import unfolded
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.sample import Sample
from dagora.errors import NumericalError
from dagora.models import gauss_newton, network
from dagora.models.mlp import Fit, MlpModel, PaperMlpModel, joined
from dagora.models.network import Architecture
from tests.networks import generic_minimum, jacobian_of, outputs_of

D = 4
HIDDEN = pytest.mark.parametrize("hidden", [(3,), (3, 2)], ids=str)
FEW, MANY = 9, 400  # rows of a site: fewer and many more than the 19 or 24 parameters of a network
SITES = pytest.mark.parametrize("n", [FEW, MANY])


def sample(rows: FloatArray) -> Sample:
    moments = Moments.of_rows(rows)
    return Sample(moments.n, moments.mean, moments.scatter, rows)


class Setting:
    """A site's rows, off the origin, and an arbitrary place in a run: total rows, weight, metric, centre."""

    def __init__(self, hidden: tuple[int, ...], n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.hidden, self.architecture = hidden, Architecture(D, hidden)
        X = rng.standard_normal((n, D))
        X[:, 1] += np.tanh(2.0 * X[:, 0])
        X[:, 3] += np.sin(X[:, 1]) * X[:, 2]
        self.mean = rng.standard_normal(D)
        self.data, self.X = sample(X + self.mean), X  # the model sees rows about the mean
        self.rows, self.weight = 3.0 * n, 0.5
        self.metric = self._alike(rng.uniform(0.5, 2.0, (D, self.architecture.size)))
        self.start = self.architecture.start(seed)
        self.centre = self.start + 0.3 * rng.standard_normal(self.start.shape) * self.architecture.free()

    def _alike(self, metric: FloatArray) -> FloatArray:
        """The same for all units of a layer, as measured ones are."""
        at = 0
        for inputs, outputs in self.architecture.layers:
            middle, end = at + inputs * outputs, at + (inputs + 1) * outputs
            metric[:, at:middle] = np.tile(metric[:, at : at + inputs], outputs)
            metric[:, middle:end] = metric[:, middle : middle + 1]
            at = end
        return metric

    def model(self, steps: int = 2) -> MlpModel:
        return MlpModel(self.architecture, self.start, steps=steps)

    def problem(self, model: MlpModel) -> Fit:
        return model.prepare(self.data, self.rows, self.mean, self.weight, self.metric)

    def parts(self, theta: FloatArray, rho: float) -> tuple[FloatArray, FloatArray]:
        """F of each variable, and its gradient, with autograd's Jacobian."""
        N, gap = self.rows * self.weight, theta - self.centre
        residual = outputs_of(self.hidden, theta, self.X) - self.X.T
        values = (residual**2).sum(axis=1) / (2.0 * N) + 0.5 * rho * (self.metric * gap**2).sum(axis=1)
        J = jacobian_of(self.hidden, theta, self.X)
        gradient = np.einsum("dnp,dn->dp", J, residual) / N + rho * self.metric * gap
        return values, gradient * self.architecture.free()

    def total(self, theta: FloatArray, rho: float) -> tuple[float, FloatArray]:
        values, gradient = self.parts(theta, rho)
        return float(values.sum()), gradient

    def gauss_newton(self, theta: FloatArray, rho: float) -> FloatArray:
        """(J'J / N + D) s = -gradient, self-loops struck out."""
        gradient, moved = self.parts(theta, rho)[1], theta.copy()
        for j, J in enumerate(jacobian_of(self.hidden, theta, self.X)):
            free = self.architecture.free()[j] > 0.0
            H = J.T @ J / (self.rows * self.weight) + rho * np.diag(self.metric[j])
            moved[j, free] -= np.linalg.solve(H[np.ix_(free, free)], gradient[j, free])
        return moved


@HIDDEN
@SITES
@pytest.mark.parametrize("rho", [0.5, 20.0])
def test_a_step_solves_the_gauss_newton_equations(hidden: tuple[int, ...], n: int, rho: float) -> None:
    at = Setting(hidden, n)
    expected = at.gauss_newton(at.start, rho)
    assert (at.parts(expected, rho)[0] < at.parts(at.start, rho)[0]).all()  # so that no step is shortened
    model = at.model(steps=1)
    theta, after = model.prox(at.problem(model), at.centre, rho)
    np.testing.assert_allclose(theta, expected, atol=1e-10)
    np.testing.assert_array_equal(after.theta, theta)  # the next round starts here


@pytest.mark.parametrize("steps", [1, 2])
def test_few_rows_and_the_same_rows_many_times_give_the_same_step(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at, model = Setting((3,), FEW), Setting((3,), FEW).model(steps)
    thin = at.problem(model)
    rows, targets = thin.rows.repeat(50, 1), thin.targets.repeat(1, 50)
    thick = replace(thin, rows=rows, targets=targets, scale=50.0 * thin.scale)
    used: list[str] = []

    def recorded(name: str, own: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*args: object) -> Tensor:
            used.append(name)
            return own(*args)

        return call

    for name in ("kernel", "jacobian"):
        monkeypatch.setattr(network, name, recorded(name, getattr(network, name)))
    by_rows, _ = model.prox(thin, at.centre, 0.7)
    by_parameters, _ = model.prox(thick, at.centre, 0.7)
    assert used == ["kernel", "jacobian"]  # each took its own way, and factored once
    np.testing.assert_allclose(by_rows, by_parameters, atol=1e-10)


def test_a_jacobian_too_large_for_memory_is_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    at, model = Setting((3,), MANY), Setting((3,), MANY).model()
    whole, _ = model.prox(at.problem(model), at.centre, 0.7)
    monkeypatch.setattr(gauss_newton, "_BLOCK", 150 * D * at.architecture.size)  # 400 rows: blocks of 150, 150 and 100
    in_blocks, _ = model.prox(at.problem(model), at.centre, 0.7)
    np.testing.assert_allclose(in_blocks, whole, atol=1e-11)


@HIDDEN
@SITES
def test_steps_come_to_the_minimum_of_a_generic_optimiser(hidden: tuple[int, ...], n: int) -> None:
    at, model, rho = Setting(hidden, n), Setting(hidden, n).model(), 0.2
    problem = at.problem(model)
    for _ in range(100):
        theta, problem = model.prox(problem, at.centre, rho)
    _, least = generic_minimum(lambda x: at.total(x, rho), at.start, free=at.architecture.free() > 0.0)
    value, gradient = at.total(theta, rho)
    assert value == pytest.approx(least, rel=1e-6)
    assert np.abs(gradient).max() < 1e-5
    assert least < 0.9 * at.total(at.start, rho)[0]  # there was a way to go


@HIDDEN
@SITES
def test_the_papers_step_is_the_minimum_of_a_generic_optimiser(hidden: tuple[int, ...], n: int) -> None:
    at, rho = Setting(hidden, n), 0.2
    model = PaperMlpModel(at.architecture, at.start)
    theta, after = model.prox(at.problem(model), at.centre, rho)
    _, least = generic_minimum(lambda x: at.total(x, rho), at.start, free=at.architecture.free() > 0.0)
    value, gradient = at.total(theta, rho)
    assert value == pytest.approx(least, rel=1e-5)
    assert np.abs(gradient).max() < 1e-3
    assert (at.architecture.norms(theta).diagonal() == 0.0).all()
    np.testing.assert_array_equal(after.theta, theta)


@SITES
@pytest.mark.parametrize("seed", range(3))
def test_no_step_raises_any_variables_objective_even_from_far_off(n: int, seed: int) -> None:
    at, model, rho = Setting((3,), n, seed), Setting((3,), n, seed).model(), 1e-3
    far = 5.0 * np.random.default_rng(seed).standard_normal(at.start.shape) * at.architecture.free()
    problem, shortened = replace(at.problem(model), theta=far), False
    for _ in range(10):
        before = at.parts(problem.theta, rho)[0]
        shortened |= bool((at.parts(at.gauss_newton(problem.theta, rho), rho)[0] > before).any())
        theta, problem = model.prox(problem, at.centre, rho)
        assert (at.parts(theta, rho)[0] <= before * (1.0 + 1e-9)).all()
        assert (at.architecture.norms(theta).diagonal() == 0.0).all()
    assert shortened  # whole steps would have raised some


def test_a_variables_step_does_not_depend_on_how_the_others_fare() -> None:
    at, model, rho = Setting((3,), FEW), Setting((3,), FEW).model(), 0.5
    near = at.problem(model)
    disturbed = near.theta.copy()
    disturbed[0] = 8.0 * np.random.default_rng(1).standard_normal(at.architecture.size) * at.architecture.free()[0]
    plain, _ = model.prox(near, at.centre, rho)
    other, _ = model.prox(replace(near, theta=disturbed), at.centre, rho)
    assert np.abs(other[0] - plain[0]).max() > 0.1
    np.testing.assert_allclose(other[1:], plain[1:], atol=1e-12)


def test_a_metric_of_one_number_a_variable_is_that_of_all_its_parameters() -> None:
    at, model = Setting((3,), FEW), Setting((3,), FEW).model()
    own = np.array([0.5, 1.0, 2.0, 3.0])
    by_variable = model.prepare(at.data, at.rows, at.mean, at.weight, own)
    by_entry = model.measured(at.problem(model), np.tile(own[:, None], at.architecture.size))
    np.testing.assert_array_equal(model.prox(by_variable, at.centre, 0.5)[0], model.prox(by_entry, at.centre, 0.5)[0])


def test_without_a_centre_rows_stay_as_they_are() -> None:
    at, model = Setting((3,), FEW), Setting((3,), FEW).model()
    problem = model.prepare(at.data, at.rows, None, at.weight, np.ones(D))
    np.testing.assert_array_equal(problem.rows.numpy(), at.data.rows)
    assert problem.scale == at.rows * at.weight


@SITES
def test_a_step_without_a_solution_is_told(n: int) -> None:
    at, model = Setting((3,), n), Setting((3,), n).model()
    with pytest.raises(NumericalError, match="equations of a Gauss-Newton step cannot be solved"):
        model.prox(model.measured(at.problem(model), 0.0 * at.metric), at.centre, 1.0)


def test_curvatures_are_squared_derivatives_averaged_over_units() -> None:
    at, model = Setting((3,), FEW), Setting((3,), FEW).model()
    theta = np.random.default_rng(2).standard_normal(at.start.shape)
    found = model.curvature(replace(at.problem(model), theta=theta))
    entries = (jacobian_of((3,), theta, at.X) ** 2).sum(axis=1)
    first = entries[:, : 3 * D].reshape(D, 3, D).mean(axis=1)
    np.testing.assert_allclose(found[:, : 3 * D].reshape(D, 3, D), np.repeat(first[:, None], 3, axis=1), rtol=1e-10)
    for part in (slice(3 * D, 3 * D + 3), slice(3 * D + 3, 3 * D + 6), slice(3 * D + 6, None)):
        mean = entries[:, part].mean(axis=1, keepdims=True)
        np.testing.assert_allclose(found[:, part], np.broadcast_to(mean, found[:, part].shape), rtol=1e-10)


class Asked:
    """Networks of some variables, one of them twice, with some inputs in use."""

    variables = np.array([2, 0, 2])
    used = np.array([[True, False, False, True], [False, True, True, True], [False, False, False, False]])

    def __init__(self, at: Setting) -> None:
        rng = np.random.default_rng(5)
        self.using = np.stack([at.architecture.using(own) for own in self.used])
        self.theta = rng.standard_normal(self.using.shape) * self.using


PRODUCTS = pytest.mark.parametrize("products", list(itertools.product([False, True], repeat=3)), ids=str)


@HIDDEN
@PRODUCTS
def test_normal_equations_are_those_of_autograd(hidden: tuple[int, ...], products: tuple[bool, ...]) -> None:
    at, asked = Setting(hidden, 30), Asked(Setting(hidden, 30))
    model = at.model()
    sums = model.normal_equations(at.problem(model), asked.variables, asked.theta, asked.used, np.array(products))
    J = jacobian_of(hidden, asked.theta, at.X)
    residual = outputs_of(hidden, asked.theta, at.X) - at.X.T[asked.variables]
    np.testing.assert_allclose(sums["squares"], (residual**2).sum(axis=1), rtol=1e-10)
    np.testing.assert_allclose(sums["gradient"], np.einsum("knp,kn->kp", J, residual), atol=1e-10)
    assert ("products" in sums) == any(products)  # sent only when asked for
    start = 0
    for own, using, wanted in zip(J, asked.using, products, strict=True):
        if wanted:
            p = int(using.sum())
            JJ = unfolded(sums["products"][start : start + p * (p + 1) // 2], p)
            np.testing.assert_allclose(JJ, own[:, using].T @ own[:, using], atol=1e-10)
            start += p * (p + 1) // 2
    assert start == (len(sums["products"]) if any(products) else 0)


@HIDDEN
def test_normal_equations_of_two_sites_add_up_to_those_of_their_rows_together(hidden: tuple[int, ...]) -> None:
    at, asked = Setting(hidden, 30), Asked(Setting(hidden, 30))
    model, products = at.model(), np.array([True, False, True])

    def sums(rows: FloatArray) -> dict[str, FloatArray]:
        problem = model.prepare(sample(rows), at.rows, at.mean, len(rows) / at.rows, at.metric)
        return dict(model.normal_equations(problem, asked.variables, asked.theta, asked.used, products))

    one, other, together = sums(at.data.rows[:11]), sums(at.data.rows[11:]), sums(at.data.rows)
    assert sorted(together) == ["gradient", "products", "squares"]
    for name, total in together.items():
        np.testing.assert_allclose(one[name] + other[name], total, atol=1e-10)


@HIDDEN
def test_networks_of_several_sites_take_the_steps_that_each_would_take(hidden: tuple[int, ...]) -> None:
    settings = [Setting(hidden, FEW, seed) for seed in range(3)]
    model = settings[0].model()
    problems = [at.problem(model) for at in settings]
    assert [places for places, _ in model.together(problems)] == [[0], [1], [2]]  # on the CPU
    assert len(MlpModel(model.architecture, model.start, "cpu:0").together(problems)) == 3  # another name of the CPU
    together, centres = joined(problems), np.stack([at.centre for at in settings])
    for scale in (1.0, 0.5):
        found, together = model.prox(together, scale * centres, 0.7)
        for k, own in enumerate(problems):
            theta, problems[k] = model.prox(own, scale * centres[k], 0.7)
            np.testing.assert_allclose(found[k], theta, atol=1e-9)
    np.testing.assert_allclose(model.curvature(together), np.concatenate([*map(model.curvature, problems)]), atol=1e-9)
    for places in ([1], [2, 0]):
        apart, _ = model.prox(model.apart(together, places), centres[places], 0.7)
        for theta, place in zip(apart, places, strict=True):
            np.testing.assert_allclose(theta, model.prox(problems[place], centres[place], 0.7)[0], atol=1e-9)
    metric = np.full(settings[0].start.shape, 2.0)
    other, _ = model.prox(model.measured(together, metric), centres, 0.7)
    np.testing.assert_allclose(other[1], model.prox(model.measured(problems[1], metric), centres[1], 0.7)[0], atol=1e-9)
