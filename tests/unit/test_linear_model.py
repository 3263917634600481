"""The linear model's local step against rows: explicit normal equations, and a constrained generic optimiser."""

import numpy as np
import pytest
import scipy.optimize

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.models.linear import LinearModel

D = 5
FULL, THIN = 40, 3  # rows of a site: more and fewer than variables
SITES = pytest.mark.parametrize("n", [FULL, THIN])
PENALTIES = pytest.mark.parametrize("rho", [1e-3, 0.7, 1e3])


class Setting:
    """A site's rows, off the origin, and an arbitrary place in a run: total rows, weight, metric, centre."""

    def __init__(self, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, D)) @ rng.standard_normal((D, D)) + rng.uniform(-2.0, 2.0, D)
        self.moments = Moments.of_rows(self.X)
        self.rows, self.weight = 100.0, 0.3
        self.metric = rng.uniform(0.5, 3.0, D + 1)
        self.centre = rng.standard_normal((D + 1, D))
        self.mean = rng.standard_normal(D)

    def step(self, model: LinearModel, rho: float, mean: FloatArray | None = None) -> FloatArray:
        p = model.shape(D)[0]
        problem = model.prepare(self.moments, self.rows, mean, self.weight, self.metric[:p])
        return model.prox(problem, self.centre[:p], rho)[0]

    def normal_equations(self, X: FloatArray, targets: FloatArray, rho: float) -> FloatArray:
        """(G + rho D) B = rho D C + G E for the Gram matrix of the given columns (paper, Eq. 11 and Appendix A)."""
        p = X.shape[1]
        scale, M = 1.0 / (self.rows * self.weight), rho * np.diag(self.metric[:p])
        left = X.T @ X * scale + M
        return np.linalg.solve(left, M @ self.centre[:p] + X.T @ targets * scale).astype(np.float64)

    def constrained(self, X: FloatArray, targets: FloatArray, rho: float, j: int) -> FloatArray:
        """Column j of the minimum with B[j, j] = 0, by sequential quadratic programming."""
        metric, centre = self.metric[: X.shape[1]], self.centre[: X.shape[1], j]

        def objective(b: FloatArray) -> tuple[float, FloatArray]:
            residual, gap = targets[:, j] - X @ b, b - centre
            scale = 1.0 / (self.rows * self.weight)
            value = 0.5 * scale * residual @ residual + 0.5 * rho * (metric * gap) @ gap
            return float(value), -scale * X.T @ residual + rho * metric * gap

        at_j = np.eye(X.shape[1])[[j]]
        solution = scipy.optimize.minimize(
            objective, np.zeros(X.shape[1]), jac=True, method="SLSQP",
            constraints=scipy.optimize.LinearConstraint(at_j, 0.0, 0.0), options={"ftol": 1e-15, "maxiter": 1000},
        )  # fmt: skip
        return np.asarray(solution.x, dtype=np.float64)


@SITES
@PENALTIES
def test_paper_step_solves_its_normal_equations(n: int, rho: float) -> None:
    at = Setting(n)
    centred = at.X - at.X.mean(axis=0)
    B = at.step(LinearModel(no_self_loops=False), rho)
    np.testing.assert_allclose(B, at.normal_equations(centred, centred, rho), atol=1e-9)


@SITES
@PENALTIES
def test_a_given_mean_centres_the_rows(n: int, rho: float) -> None:
    at = Setting(n)
    centred = at.X - at.mean
    B = at.step(LinearModel(no_self_loops=False), rho, at.mean)
    np.testing.assert_allclose(B, at.normal_equations(centred, centred, rho), atol=1e-9)


@SITES
@PENALTIES
def test_intercepts_are_a_column_of_ones(n: int, rho: float) -> None:
    at = Setting(n)
    augmented = np.hstack([at.X, np.ones((n, 1))])
    B = at.step(LinearModel(no_self_loops=False, intercept=True), rho)
    assert B.shape == (D + 1, D)
    np.testing.assert_allclose(B, at.normal_equations(augmented, at.X, rho), atol=1e-9)


@SITES
@PENALTIES
@pytest.mark.parametrize("intercept", [False, True])
def test_without_self_loops_the_step_is_the_constrained_minimum(n: int, rho: float, intercept: bool) -> None:
    at = Setting(n)
    columns = np.hstack([at.X, np.ones((n, 1))]) if intercept else at.X - at.mean
    targets = at.X if intercept else at.X - at.mean
    B = at.step(LinearModel(intercept=intercept), rho, None if intercept else at.mean)
    assert (np.diag(B[:D]) == 0.0).all()
    for j in range(D):
        np.testing.assert_allclose(B[:, j], at.constrained(columns, targets, rho, j), atol=2e-5)


@PENALTIES
def test_without_self_loops_each_column_regresses_on_the_others(rho: float) -> None:
    # The same minimum to the last digits: drop variable j from its own column's normal equations.
    at = Setting(FULL)
    centred = at.X - at.X.mean(axis=0)
    B = at.step(LinearModel(), rho)
    for j in range(D):
        others = np.arange(D) != j
        G = centred.T @ centred / (at.rows * at.weight)
        M = rho * np.diag(at.metric[:D])
        left = (G + M)[np.ix_(others, others)]
        right = (M @ at.centre[:D])[others, j] + G[others, j]
        np.testing.assert_allclose(B[others, j], np.linalg.solve(left, right), atol=1e-9)


def test_a_thin_site_is_factored_thinly() -> None:
    at = Setting(THIN)
    problem = LinearModel().prepare(at.moments, at.rows, at.mean, at.weight, at.metric[:D])
    assert problem.factor.shape == (THIN, D)  # rank: one a row, for the mean is not the site's own


@pytest.mark.parametrize("rho", [0.2, 5.0])
def test_units_do_not_matter_in_the_metric_of_the_variances(rho: float) -> None:
    # x -> x s turns W[i, j] into W[i, j] s_j / s_i, and a metric that scales as variances do follows.
    at, scales = Setting(FULL), np.array([0.01, 1.0, 3.0, 100.0, 7.0])
    metric = at.metric[:D]
    model = LinearModel()
    plain, _ = model.prox(model.prepare(at.moments, 100.0, None, 0.3, metric), at.centre[:D], rho)
    rescaled = model.prepare(Moments.of_rows(at.X * scales), 100.0, None, 0.3, metric * scales**2)
    B, _ = model.prox(rescaled, at.centre[:D] / scales[:, None] * scales, rho)
    np.testing.assert_allclose(B * scales[:, None] / scales, plain, atol=1e-9)


@SITES
@PENALTIES
@pytest.mark.parametrize("model", [LinearModel(), LinearModel(False), LinearModel(False, intercept=True)], ids=str)
def test_steps_after_the_first_with_a_rho_are_no_other_steps(model: LinearModel, n: int, rho: float) -> None:
    at, p = Setting(n), model.shape(D)[0]
    problem = model.prepare(at.moments, at.rows, None, at.weight, at.metric[:p])
    for centre in (at.centre[:p], 2.0 * at.centre[:p], 3.0 * at.centre[:p]):
        wanted, _ = model.prox(model.prepare(at.moments, at.rows, None, at.weight, at.metric[:p]), centre, rho)
        B, problem = model.prox(problem, centre, rho)
        np.testing.assert_allclose(B, wanted, atol=1e-12 * np.abs(wanted).max())
    assert problem.gained is not None
    assert (problem.gained.shape == (p, p)) == (n == FULL)  # thin factors are the quicker ones
    again, problem = model.prox(problem, at.centre[:p], 2.0 * rho)
    np.testing.assert_allclose(again, at.step(model, 2.0 * rho), atol=1e-12)
    assert problem.rho == 2.0 * rho


@SITES
@PENALTIES
@pytest.mark.parametrize("model", [LinearModel(), LinearModel(False), LinearModel(intercept=True)], ids=str)
def test_steps_taken_together_are_those_taken_alone_bit_for_bit(model: LinearModel, n: int, rho: float) -> None:
    settings, p = [Setting(n, seed) for seed in range(4)], model.shape(D)[0]
    metric = settings[0].metric[:p]
    problems = [model.prepare(at.moments, at.rows, None, at.weight, metric) for at in settings]
    ((places, together),) = model.together(problems)
    assert places == [0, 1, 2, 3]
    apart = model.apart(together, [2, 0])
    for scale in (1.0, 2.0):
        centres = scale * np.stack([at.centre[:p] for at in settings])
        found, together = model.prox(together, centres, rho)
        some, apart = model.prox(apart, centres[[2, 0]], rho)
        for k, own in enumerate(problems):
            ((_, alone),) = model.together([own])
            np.testing.assert_array_equal(found[[k]], model.prox(alone, centres[[k]], rho)[0])
        np.testing.assert_array_equal(some, found[[2, 0]])


def test_only_what_has_one_shape_and_fits_a_cache_goes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LinearModel()
    problems = [model.prepare(Setting(n).moments, 100.0, None, 0.3, np.ones(D)) for n in (40, 3, 40, 3, 40)]
    assert [places for places, _ in model.together(problems)] == [[0, 2, 4], [1, 3]]
    monkeypatch.setattr("dagora.models.linear._ENTRIES", 2 * D * D)
    assert [places for places, _ in model.together(problems)] == [[0, 2], [1, 3], [4]]
