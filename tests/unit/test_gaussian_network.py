"""Parameters by one total, and queries, against least squares on pooled rows, scipy's densities and closed forms."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import dagora
from dagora.algorithms.parameters import ParametersSite, families
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import InputError, MessageError
from dagora.federated.protocol import Estimate
from dagora.gaussian_network import GaussianNetwork

NAMES = ("a", "b", "c", "d")
W = np.array([[0, 2.0, -1.0, 0], [0, 0, 0.5, 0], [0, 0, 0, 3.0], [0, 0, 0, 0]])
NETWORK = GaussianNetwork(NAMES, W, np.array([1.0, -2.0, 0.0, 5.0]), np.array([1.0, 0.5, 2.0, 0.1]))


def shuffled(network: GaussianNetwork, order: list[int]) -> GaussianNetwork:
    return GaussianNetwork(
        tuple(network.names[j] for j in order),
        network.coefficients[np.ix_(order, order)],
        network.intercepts[order],
        network.variances[order],
    )


def pooled_fit(rows: FloatArray, adjacency: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """An independent least squares: rows, a column of ones, numpy."""
    n, d = rows.shape
    weights, intercepts, variances = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for child in range(d):
        parents = np.flatnonzero(adjacency[:, child])
        design = np.column_stack([rows[:, parents], np.ones(n)])
        solution = np.linalg.lstsq(design, rows[:, child], rcond=None)[0]
        weights[parents, child], intercepts[child] = solution[:-1], solution[-1]
        variances[child] = ((rows[:, child] - design @ solution) ** 2).mean()
    return weights, intercepts, variances


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
@pytest.mark.parametrize("method", ["admm", "covariance", "voting", "average", "pooled"])
@pytest.mark.parametrize("far", [0.0, 1e6], ids=["near zero", "far from zero"])
def test_parameters_are_those_of_all_rows_together(method: str, aggregation: str, far: float) -> None:
    _, sites = dagora.simulate(d=6, n=400, sites=3, seed=3)
    sites = [rows + far for rows in sites]
    result = dagora.learn(sites, method=method, aggregation=aggregation, refit=True)
    assert result.network is not None
    weights, intercepts, variances = pooled_fit(np.concatenate(sites), result.adjacency)
    assert ((result.network.coefficients != 0) == (result.adjacency != 0)).all()
    np.testing.assert_allclose(result.network.coefficients, weights, rtol=0, atol=1e-7)
    np.testing.assert_allclose(result.network.intercepts, intercepts, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result.network.variances, variances, rtol=1e-6)
    assert result.ledger[-1].rounds <= 2


def test_a_total_more_is_asked_for_only_if_wanted() -> None:
    _, sites = dagora.simulate(d=5, n=200, sites=2, seed=0)
    without, with_ = dagora.learn(sites), dagora.learn(sites, refit=True)
    assert without.network is None
    assert with_.rounds == without.rounds + 1
    assert (with_.weights == without.weights).all()
    assert dagora.learn(sites, method="covariance", refit=False).network is None


def test_only_products_within_families_leave() -> None:
    chain = np.eye(6, k=1, dtype=bool)
    found = Estimate(chain * 1.0, chain, chain * 1.0)
    assert families(found, 6).T.tolist() == sorted([[j, j] for j in range(6)] + [[j, j + 1] for j in range(5)])
    collider = np.zeros((3, 3), dtype=bool)
    collider[[0, 1], 2] = True
    assert families(Estimate(collider * 1.0, collider, collider * 1.0), 3).shape == (2, 6)  # parents meet, too


def test_a_site_refuses_questions_about_no_variables() -> None:
    class Nothing:
        def init(self, data: Moments) -> None:
            return None

        def local_update(self, state: None, message: Any) -> tuple[None, dict[str, FloatArray]]:
            raise AssertionError

    site = ParametersSite(Nothing())
    state = site.init(Moments.of_rows(np.arange(8.0).reshape(4, 2)))
    good = np.array([[0, 0], [0, 1]])
    asked: dict[str, Any] = {"phase": "parameters", "centre": np.zeros(2), "pairs": good}
    assert site.local_update(state, asked)[1]["products"].tolist() == [56.0, 68.0]
    for wrong in (
        {"pairs": good - 1},
        {"pairs": good + 2},
        {"pairs": good * 1.0},
        {"pairs": 3},
        {"centre": np.zeros(3)},
    ):
        with pytest.raises(MessageError):
            site.local_update(state, asked | wrong)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1]])
def test_density_mean_and_covariance(order: list[int]) -> None:
    network = shuffled(NETWORK, order)
    inverse = np.linalg.inv(np.eye(4) - network.coefficients)
    np.testing.assert_allclose(network.mean, network.intercepts @ inverse)
    np.testing.assert_allclose(network.covariance, inverse.T @ np.diag(network.variances) @ inverse)
    rows = network.sample(50, seed=4)
    expected = multivariate_normal(network.mean, network.covariance).logpdf(rows).sum()
    assert network.log_likelihood(rows) == pytest.approx(expected)


def test_samples_follow_the_network() -> None:
    rows = NETWORK.sample(200_000, seed=1)
    errors = np.sqrt(np.diag(NETWORK.covariance) / 200_000)
    assert (np.abs(rows.mean(axis=0) - NETWORK.mean) < 5 * errors).all()
    np.testing.assert_allclose(np.cov(rows.T), NETWORK.covariance, rtol=0.05, atol=0.02)
    assert (NETWORK.sample(5, seed=1) == NETWORK.sample(5, seed=1)).all()
    assert (NETWORK.sample(5, seed=1) != NETWORK.sample(5, seed=2)).any()


@pytest.mark.parametrize("units", [[1, 1, 1, 1], [1e-6, 1e6, 1, 1e3]], ids=["alike", "apart"])
def test_what_is_seen_by_the_precision_matrix(units: list[float]) -> None:
    # In terms of the precision matrix P, x_u | x_s has precision P_uu and mean m_u - P_uu^-1 P_us (x_s - m_s).
    scale = np.array(units)
    network = GaussianNetwork(
        NAMES, W / scale[:, None] * scale, NETWORK.intercepts * scale, NETWORK.variances * scale**2
    )
    found = network.given({"d": 7.0 * scale[3], "b": 0.5 * scale[1]})
    P = np.linalg.inv(NETWORK.covariance)
    unseen, seen = [0, 2], [1, 3]
    Q = np.linalg.inv(P[np.ix_(unseen, unseen)])
    expected = NETWORK.mean[unseen] - Q @ P[np.ix_(unseen, seen)] @ (np.array([0.5, 7.0]) - NETWORK.mean[seen])
    assert found.names == ("a", "c")
    np.testing.assert_allclose(found.mean, expected * scale[unseen], rtol=1e-9)
    np.testing.assert_allclose(found.covariance, Q * np.outer(scale[unseen], scale[unseen]), rtol=1e-9)
    nothing = network.given({})
    np.testing.assert_allclose(nothing.mean, network.mean)


def test_setting_is_not_seeing() -> None:
    # a -> b: seeing b says something of a, setting it does not.
    done = NETWORK.do({"b": 10.0})
    assert done.mean[0] == NETWORK.mean[0]
    assert NETWORK.given({"b": 10.0}).mean[0] != pytest.approx(NETWORK.mean[0])
    # The mean of c is a's share and b's: -E[a] + 0.5 * 10; d follows.
    np.testing.assert_allclose(done.mean, [1.0, 10.0, -1.0 + 5.0, 5.0 + 3.0 * 4.0])
    assert (done.sample(10)[:, 1] == 10.0).all()
    np.testing.assert_allclose(done.covariance[1], 0.0)
    # What is seen after setting: the distribution of the cut graph.
    assert done.given({"c": 4.0}).mean[0] == pytest.approx(1.0)
    with pytest.raises(InputError, match="was set by do"):
        done.given({"b": 3.0})
    with pytest.raises(InputError, match="has no density"):
        done.log_likelihood(np.zeros((2, 4)))


def test_total_effects_are_slopes_of_what_is_set() -> None:
    for source in NAMES:
        slope = NETWORK.do({source: 1.0}).mean - NETWORK.do({source: 0.0}).mean
        for j, target in enumerate(NAMES):
            assert NETWORK.total_effect(source, target) == pytest.approx(slope[j])
    assert NETWORK.total_effect("a", "d") == pytest.approx((-1.0 + 2.0 * 0.5) * 3.0)  # two ways that cancel


def test_questions_about_no_variable_are_refused() -> None:
    for question in (NETWORK.do, NETWORK.given):
        with pytest.raises(InputError, match="there is no variable 'z'; choose from a, b, c, d"):
            question({"z": 1.0})
        with pytest.raises(InputError, match="a: the value must be a finite number"):
            question({"a": float("nan")})
    with pytest.raises(InputError, match="n: must be 1 or more"):
        NETWORK.sample(0)


def test_noise_reaches_the_parameters() -> None:
    pytest.importorskip("opendp")
    _, sites = dagora.simulate(d=4, n=8000, sites=4, seed=0)
    result = dagora.learn(sites, method="covariance", aggregation="gaussian", epsilon=8.0)
    exact = dagora.learn(sites, method="covariance", learner="notears")
    assert result.network is not None
    assert exact.network is not None
    assert (result.network.coefficients != exact.network.coefficients).any()
    np.testing.assert_allclose(result.network.variances, exact.network.variances, rtol=0.3)


def test_other_models_have_no_use_for_it() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 3))
    with pytest.raises(InputError, match="refit: model 'additive' has no use for it"):
        dagora.learn([rows], model="additive", method="covariance", refit=True)
    with pytest.raises(InputError, match="refit: must be True or False"):
        dagora.learn([rows], refit=1)  # type: ignore[arg-type]
