"""Time series beyond reading them: simulation, options, the server's view of the past, results, scores, orders."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.algorithms.implied import implied_covariance
from dagora.algorithms.options import Options
from dagora.algorithms.schedules import PaperSchedule, PathSchedule
from dagora.data.dynamic_simulation import RADIUS, spectral_radius
from dagora.data.simulation_files import write_series_simulation
from dagora.errors import InputError
from dagora.interchange.registry import read_estimate, read_graph
from dagora.lag_order import residual_variances
from dagora.report.unrolled import draw_unrolled
from dagora.solvers.polish import polish
from tests.helpers import covariance, random_covariance, small_series


@pytest.fixture(scope="module")
def result() -> dagora.Result:
    return dagora.learn(small_series(), model="dynamic", lags=2)


# Simulation


@pytest.mark.parametrize("graph", ["er", "scale-free"])
@pytest.mark.parametrize("lags", [1, 3])
def test_simulated_processes_are_stationary_and_decay(lags: int, graph: str) -> None:
    for seed in range(3):
        truth, _ = dagora.simulate_series(6, 8, 1, 2, 1, lags=lags, lag_edges=5, seed=seed, graph=graph, decay=2.0)
        assert truth.lag_weights is not None
        assert spectral_radius(truth.weights, truth.lag_weights) <= RADIUS
        assert truth.adjacency.sum() == 8
        for lag, own in enumerate(truth.lag_weights):
            sizes = np.abs(own[own != 0.0]) * 2.0**lag
            assert len(sizes) == 5
            assert ((sizes >= 0.3) & (sizes <= 0.5)).all()


def test_spectral_radius_is_that_of_a_known_process() -> None:
    # x_t = 0.5 x_t-1 + 0.24 x_t-2: roots of z^2 - 0.5 z - 0.24 are 0.8 and -0.3.
    A = np.array([[[0.5]], [[0.24]]])
    assert spectral_radius(np.zeros((1, 1)), A) == pytest.approx(0.8)
    # Within a step, x2 gets twice x1, and passes 0.4 of itself on to x1: 0.8 a step.
    W, back = np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([[[0.0, 0.0], [0.4, 0.0]]])
    assert spectral_radius(W, back) == pytest.approx(0.8)


def test_series_follow_their_model() -> None:
    truth, (series,) = dagora.simulate_series(4, 4, 3, 400, 1, lags=2, seed=1, noise="gaussian-unequal")
    assert truth.lag_weights is not None
    left = np.concatenate(
        [
            own[2:] - own[2:] @ truth.weights - own[1:-1] @ truth.lag_weights[0] - own[:-2] @ truth.lag_weights[1]
            for own in series
        ]
    )
    np.testing.assert_allclose(left.var(axis=0), truth.noise_variances, rtol=0.15)
    np.testing.assert_allclose(np.corrcoef(left.T), np.eye(4), atol=0.1)


def test_sites_share_out_whole_series() -> None:
    one, many = (dagora.simulate_series(3, 3, 7, 10, k, seed=4)[1] for k in (1, 3))
    assert [len(own) for own in many] == [3, 2, 2]
    for a, b in zip(one[0], [series for own in many for series in own], strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(InputError, match="no stationary process"):
        dagora.simulate_series(5, 5, 2, 10, 1, lag_edges=25, lag_weight_range=(2.0, 3.0), seed=0)
    for options in ({"decay": 0.5}, {"lag_edges": 99}, {"lags": -1}, {"length": 0}, {"lag_weight_range": (0.0, 1.0)}):
        with pytest.raises(InputError, match=next(iter(options))):
            dagora.simulate_series(**{"series": 2, "sites": 1, **options})  # type: ignore[arg-type]


# Options


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lags": -1}, "lags"),
        ({"lags": 1.5}, "lags"),
        ({"lags": True}, "lags"),
        ({"lags": 10**6}, "lags"),
        ({"lag_lam": -0.1}, "lag_lam"),
        ({"lag_threshold": float("nan")}, "lag_threshold"),
        ({"lags": 0, "lag_lam": 0.1}, "lag_lam"),
        ({"preset": "paper", "intercept": True}, "intercept"),
        ({"method": "covariance", "learner": "boss"}, "learner"),
        ({"method": "voting", "learner": "golem"}, "learner"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Options(model="dynamic", **options)


def test_lags_are_for_series_only() -> None:
    with pytest.raises(InputError, match="lags"):
        Options(lags=1)


def test_noise_for_privacy_is_refused() -> None:
    # One row is part of several stacked rows, so that the bound of a row's influence would be wrong.
    with pytest.raises(InputError, match="'gaussian' is for model 'linear'"):
        dagora.learn(small_series(), model="dynamic", method="covariance", aggregation="gaussian", epsilon=1.0)


# The server's view of the past


def test_covariance_is_implied_by_the_gradient_and_the_inputs() -> None:
    d, z = 4, 12
    S = random_covariance(z, 3)
    B = 0.3 * np.random.default_rng(0).standard_normal((z, d))
    np.fill_diagonal(B[:d], 0.0)
    gradient = S @ (B - np.eye(z, d))
    np.fill_diagonal(gradient[:d], 99.0)  # unknown to the server
    np.testing.assert_allclose(implied_covariance(B, gradient, np.diag(S), S[d:, d:]), S, atol=1e-8)


def test_lagged_rows_are_shrunk_by_their_own_price() -> None:
    rng = np.random.default_rng(0)
    W, Z, metric = np.zeros((6, 3)), rng.standard_normal((6, 3)), rng.uniform(0.5, 2.0, 6)
    path, paper = PathSchedule(lam=0.1, lag_lam=0.3), PaperSchedule(lam=0.1, lag_lam=0.3)
    start = path.start(3, 2.0, 50.0)
    found = path.w_step(start, W, Z, metric)[0]
    expected = np.sign(Z[3:]) * np.maximum(np.abs(Z[3:]) - 0.3 / (start.rho * metric[3:, None]), 0.0)
    np.testing.assert_allclose(found[3:], expected, atol=1e-12)
    plan = paper.start(3, 2.0, 50.0)
    found = paper.w_step(plan, W, Z * 400.0, np.ones(6))[0]
    expected = np.sign(Z[3:]) * np.maximum(400.0 * np.abs(Z[3:]) - 0.3 / plan.rho, 0.0)
    np.testing.assert_allclose(found[3:], expected, atol=1e-9)


def test_polish_lets_inputs_into_every_order() -> None:
    # Whatever order the search starts from, it ends at the same minimum, with the inputs' weights at their price.
    S = random_covariance(8, 5)
    ends = []
    for seed in range(4):
        place = np.random.default_rng(seed).permutation(4)
        prices = np.repeat([0.1, 0.02], 4)
        found = polish(S, np.zeros((8, 4)), place[:, None] < place, prices)
        slope = S @ (found.W - np.eye(8, 4))
        active = found.W[4:] != 0.0
        assert active.any()
        np.testing.assert_allclose(slope[4:][active], -0.02 * np.sign(found.W[4:][active]), atol=1e-6)
        assert (np.abs(slope[4:][~active]) <= 0.02 + 1e-6).all()
        R = np.eye(8, 4) - found.W
        ends.append(0.5 * np.trace(R.T @ S @ R) + prices @ np.abs(found.W).sum(axis=1))
    assert max(ends) - min(ends) < 0.02 * min(ends)


# Results and scores


def test_result_tells_both_parts(result: dagora.Result, tmp_path: Path) -> None:
    assert result.lag_weights is not None
    lagged = result.lagged_edges()
    assert [abs(edge[3]) for edge in lagged] == sorted((abs(edge[3]) for edge in lagged), reverse=True)
    source, target, lag, weight = lagged[0]
    i, j = result.names.index(source), result.names.index(target)
    assert weight == result.lag_weights[lag - 1, i, j]
    written = [path.name for path in result.save(tmp_path)]
    assert written == ["edges.csv", "weights.csv", "lag_weights.csv", "result.json"]
    rows = list(csv.DictReader((tmp_path / "edges.csv").read_text().splitlines()))
    assert list(rows[0]) == ["source", "target", "lag", "weight"]
    assert [row["lag"] for row in rows].count("0") == len(result.edges())
    assert len(rows) == len(result.edges()) + len(lagged)
    matrix = list(csv.reader((tmp_path / "lag_weights.csv").read_text().splitlines()))
    assert matrix[0] == ["lag", "", "x1", "x2", "x3", "x4"]
    assert [row[:2] for row in matrix[1:]] == [[str(lag), f"x{i}"] for lag in (1, 2) for i in (1, 2, 3, 4)]
    np.testing.assert_array_equal(np.array([row[2:] for row in matrix[1:]], float), np.vstack([*result.lag_weights]))
    assert len(json.loads((tmp_path / "result.json").read_text())["lagged_edges"]) == len(lagged)


def test_static_results_have_no_past(tmp_path: Path) -> None:
    static = dagora.learn(small_series()[0], method="pooled")
    assert static.lag_weights is None
    assert static.lagged_edges() == []
    assert [path.name for path in static.save(tmp_path)] == ["edges.csv", "weights.csv", "result.json"]
    assert (tmp_path / "edges.csv").read_text().startswith("source,target,weight\n")
    assert "lagged_edges" not in static.summary()


class Network:
    """Two variables, a graph within a step, and one of the past."""

    def __init__(self, lagged: Any, names: tuple[str, ...] = ("a", "b")) -> None:
        self.adjacency = np.array([[0, 1], [0, 0]])
        self.lag_adjacency = None if lagged is None else np.array(lagged)
        self.names = names


def test_scores_of_the_past() -> None:
    truth = Network([[[1, 1], [0, 0]], [[0, 0], [0, 1]]])
    estimate = Network([[[1, 0], [1, 0]]])
    scores = dagora.evaluate(truth, estimate)
    # One of three found, one false; the second lag has not been looked for.
    assert {name: score for name, score in scores.items() if name.startswith("lag_")} == {
        "lag_shd": 3,
        "lag_tpr": pytest.approx(1 / 3),
        "lag_fdr": 0.5,
        "lag_precision": 0.5,
        "lag_recall": pytest.approx(1 / 3),
        "lag_f1": 0.4,
        "lag_edges": 2,
        "lag_true_edges": 3,
    }
    assert scores["f1"] == 1.0


def test_the_past_is_matched_by_name() -> None:
    truth = Network([[[0, 1], [0, 0]]])
    turned = Network([[[0, 0], [1, 0]]], ("b", "a"))
    turned.adjacency = turned.adjacency.T
    scores = dagora.evaluate(truth, turned)
    assert (scores["f1"], scores["lag_f1"]) == (1.0, 1.0)
    assert not any(name.startswith("lag_") for name in dagora.evaluate(truth, Network(None)))


def test_files_of_truth_and_result_are_read_back(result: dagora.Result, tmp_path: Path) -> None:
    truth, sites = dagora.simulate_series(3, 3, 4, 12, 2, lags=2, seed=2)
    assert truth.lag_weights is not None
    written = write_series_simulation(tmp_path, truth, sites)
    assert [path.name for path in written] == ["site-01.csv", "site-02.csv", "truth.csv"]
    read = read_graph(tmp_path / "truth.csv", truth.names)
    np.testing.assert_array_equal(read.weights, truth.weights)
    np.testing.assert_array_equal(read.lag_weights, truth.lag_weights)
    paths = [str(path) for path in written[:2]]
    options: dict[str, Any] = {"model": "dynamic", "lags": 2, "method": "pooled"}
    from_files = dagora.learn(paths, series="series", time="time", **options)
    assert from_files.weights.tobytes() == dagora.learn(sites, **options).weights.tobytes()
    result.save(tmp_path / "result")
    estimate = read_estimate(tmp_path / "result")
    np.testing.assert_array_equal(estimate.lag_adjacency, result.lag_adjacency)
    np.testing.assert_array_equal(estimate.adjacency, result.adjacency)


def test_unrolled_network_is_drawn(result: dagora.Result, tmp_path: Path) -> None:
    draw_unrolled(result, tmp_path / "network.svg")
    text = (tmp_path / "network.svg").read_text()
    assert text.count("<!-- x1 -->") == 3  # once a column: t - 2, t - 1, t
    assert f"<!-- lag 1 ({int(result.lag_adjacency[0].sum())}) -->" in text  # type: ignore[index]
    with pytest.raises(InputError, match="only time series"):
        draw_unrolled(dagora.learn(small_series()[0], method="pooled"), tmp_path / "static.svg")


# Order selection


@pytest.mark.parametrize("lags", [0, 1, 2])
def test_the_order_is_found_from_one_masked_total(lags: int) -> None:
    _, sites = dagora.simulate_series(4, 4, 12, 40, 3, lags=lags, seed=1)
    found = dagora.select_lags(sites, 3, aggregation="masked")
    assert found.lags == lags
    assert found.bic[lags] == pytest.approx(min(found.bic))
    assert all(bic > found.bic[lags] + 1.0 for bic in found.bic[:lags])
    assert len(found.bic) == 4
    assert found.rows == 12 * 37
    assert [(entry.phase, entry.rounds) for entry in found.ledger] == [("moments", 1)]


def test_the_bic_prices_every_edge() -> None:
    # With `most` lags, `learn` has the rows on which that order was judged.
    sites = small_series()
    bic = dagora.select_lags(sites, 2).bic[2]
    result = dagora.learn(sites, model="dynamic", lags=2, method="covariance")
    assert result.lag_adjacency is not None
    rows = np.concatenate([np.hstack([own[2:], own[1:-1], own[:-2]]) for site in sites for own in site])
    graph = np.concatenate([result.adjacency, *result.lag_adjacency]) == 1
    centred = rows - rows.mean(axis=0)
    left = [np.linalg.lstsq(centred[:, graph[:, j]], centred[:, j])[1] for j in range(4)]
    expected = len(rows) * np.log(np.array(left) / len(rows)).sum() + np.log(len(rows)) * graph.sum()
    assert bic == pytest.approx(expected, abs=1e-6)


def test_residual_variances_are_those_of_regressions() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((80, 5)) @ rng.standard_normal((5, 5))
    edges = rng.uniform(size=(5, 2)) < 0.6
    np.fill_diagonal(edges, False)
    centred = rows - rows.mean(axis=0)
    for j, found in enumerate(residual_variances(covariance(rows), edges)):
        left = np.linalg.lstsq(centred[:, edges[:, j]], centred[:, j])[1]
        assert found == pytest.approx(float(left[0]) / 80)


def test_order_selection_refuses_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="most"):
        dagora.select_lags(small_series(), 0)
    with pytest.raises(InputError, match="gaussian"):
        dagora.select_lags(small_series(), 1, aggregation="gaussian")
