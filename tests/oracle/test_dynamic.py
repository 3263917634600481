"""The dynamic model against generic optimisers that share no code with it, and against the static model."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import dagora
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.learners.notears import notears_path
from dagora.models.dynamic import DynamicModel, by_part
from tests.helpers import small_series, small_sites

LAM, LAG_LAM = 0.1, 0.05


def stack(series: list[FloatArray], lags: int) -> FloatArray:
    """Rows (x_t, x_t-1, ...), one by one."""
    return np.array(
        [np.concatenate([own[t - lag] for lag in range(lags + 1)]) for own in series for t in range(lags, len(own))]
    )


def objective(S: FloatArray, theta: FloatArray, bound: float = np.inf) -> float:
    """`bound`: where the price of an effect within a step stops growing."""
    d = theta.shape[1]
    R, counted = np.eye(len(S), d) - theta, np.minimum(np.abs(theta[:d]), bound)
    return (
        0.5 * float(np.trace(R.T @ S @ R))
        + LAM * float((counted - counted**2 / (2.0 * bound)).sum())
        + LAG_LAM * float(np.abs(theta[d:]).sum())
    )


def generic_lasso(S: FloatArray, child: int, parents: list[int], d: int) -> float:
    """The least penalised loss of one variable on others, by L-BFGS-B on positive and negative parts."""
    A, b = S[np.ix_(parents, parents)], S[parents, child]
    prices = np.where(np.array(parents) < d, LAM, LAG_LAM)

    def value(halves: FloatArray) -> tuple[float, FloatArray]:
        w = halves[: len(b)] - halves[len(b) :]
        slope = A @ w - b
        f = 0.5 * (S[child, child] + w @ A @ w) - w @ b + prices @ (halves[: len(b)] + halves[len(b) :])
        return float(f), np.concatenate([slope + prices, prices - slope])

    start = np.zeros(2 * len(b))
    found = scipy.optimize.minimize(
        value,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(start),
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    return float(found.fun)


@pytest.mark.parametrize("seed", range(5))
def test_pooled_solve_is_the_best_over_all_dags(seed: int) -> None:
    # The bound: 1e-4 in the objective value at d = 5, p = 2.  All orders by dynamic programming over which
    # variables come first; effects of the past are allowed in every order.
    d, lags = 5, 2
    _, (series,) = dagora.simulate_series(d, 7, 6, 50, 1, lags=lags, seed=seed)
    rows = stack(series, lags)
    S = np.cov(rows.T, bias=True)
    past = list(range(d, d * (lags + 1)))
    best = {0: 0.0}
    for first in range(1, 1 << d):
        members = [j for j in range(d) if first >> j & 1]
        best[first] = min(
            best[first ^ (1 << j)] + generic_lasso(S, j, [i for i in members if i != j] + past, d) for j in members
        )
    theta = notears_path(S, by_part(d, lags, LAM, LAG_LAM), d).weights
    assert objective(S, theta) == pytest.approx(best[(1 << d) - 1], abs=1e-4)
    assert objective(S, theta) < objective(S, np.zeros_like(theta)) - 1.0


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_sites_and_pooled_rows_have_one_minimum(preset: str) -> None:
    # One site or many: the totals are the same, and so is the answer of the covariance method.
    pooled = dagora.learn([list(chain(*small_series()))], model="dynamic", lags=2, method="pooled", preset=preset)
    total = dagora.learn(small_series(), model="dynamic", lags=2, method="covariance", preset=preset)
    close = 1e-9 if preset == "default" else 0.1
    for name in ("weights", "lag_weights"):
        np.testing.assert_allclose(getattr(total, name), getattr(pooled, name), rtol=0, atol=close)


@pytest.mark.parametrize("growing", [False, True])
def test_admm_minimises_the_pooled_objective(growing: bool) -> None:
    sites = small_series()
    if growing:  # short series whose variance grows: the past has another covariance than the present
        ramp = np.array([0.2, 0.5, 1.0, 2.0, 3.0])[:, None]
        sites = [[own[k : k + 5] * ramp for own in site for k in range(0, len(own) - 4, 5)] for site in sites]
    S = np.cov(stack(list(chain(*sites)), 2).T, bias=True)
    values = []
    for method in ("admm", "pooled"):
        result = dagora.learn(sites, model="dynamic", lags=2, method=method)
        assert result.lag_weights is not None
        theta = np.concatenate([result.weights, *result.lag_weights])
        values.append(objective(S, theta, 3.0 * LAM / float(np.diag(S).min())))
    assert values[0] == pytest.approx(values[1], abs=1e-4)


STATIC: list[dict[str, Any]] = [
    {"method": method, "preset": preset}
    for method in ("admm", "covariance", "voting", "average", "pooled")
    for preset in ("default", "paper")
]


@pytest.mark.parametrize("options", STATIC, ids=lambda options: "-".join(options.values()))
def test_without_lags_it_is_the_static_linear_model_to_the_bit(options: dict[str, Any]) -> None:
    static = {**options, "learner": "notears"} if options["method"] != "admm" else options
    result, linear = (
        dagora.learn(small_sites(), model="dynamic", lags=0, **options),
        dagora.learn(small_sites(), **static),
    )
    assert result.weights.tobytes() == linear.weights.tobytes()
    np.testing.assert_array_equal(result.adjacency, linear.adjacency)
    assert result.lag_weights is not None
    assert result.lag_weights.shape == (0, 5, 5)
    assert result.adjacency.any()


@pytest.mark.parametrize("lags", [1, 3])
def test_local_step_is_the_minimum_of_its_problem(lags: int) -> None:
    # Against scipy on the free entries; the diagonal of W is held at zero.
    rng = np.random.default_rng(lags)
    d, n, rho, weight = 3, 40, 0.7, 0.4
    z = d * (lags + 1)
    data, metric = Moments.of_rows(rng.standard_normal((n, z)) @ rng.standard_normal((z, z))), rng.uniform(0.5, 2.0, z)
    centre = rng.standard_normal((z, d))
    model = DynamicModel(lags=lags)
    assert model.shape(d) == (z, d)
    rows, mean = 90.0, rng.standard_normal(z)
    B, _ = model.prox(model.prepare(data, rows, mean, weight, metric), centre, rho)
    G = data.about(mean) / (rows * weight)
    free = np.eye(z, d) == 0.0

    def value(entries: FloatArray) -> float:
        theta = np.zeros((z, d))
        theta[free] = entries
        R = np.eye(z, d) - theta
        gap = theta - centre
        return 0.5 * float(np.trace(R.T @ G @ R)) + 0.5 * rho * float((metric[:, None] * gap * gap).sum())

    found = scipy.optimize.minimize(value, np.zeros(int(free.sum())), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(B[free], found.x, atol=1e-5)
    assert (B[~free] == 0.0).all()
