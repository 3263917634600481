"""What units do to a result, and what keeps them out: likelihoods, standardised columns, sortability."""

import importlib
from functools import partial
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.arrays import BoolArray, FloatArray
from dagora.sortability import alignment, explained, sortability
from tests.helpers import covariance, penalised_loss, small_sites


def unequal(seed: int, d: int = 10, n: int = 2000, sites: int = 4) -> tuple[dagora.Truth, list[FloatArray]]:
    return dagora.simulate(d=d, edges=d, n=n, sites=sites, seed=seed, noise="gaussian-unequal")


def units(d: int, seed: int) -> FloatArray:
    return np.random.default_rng(seed).choice([1000.0, 1.0, 0.001], size=d)


@pytest.mark.parametrize("options", [{"score": "likelihood"}, {"standardize": True}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_columns_in_other_units_give_the_same_graph(options: dict[str, Any], seed: int) -> None:
    _, sites = unequal(seed)
    factors = units(10, seed)
    assert len(set(factors)) > 1
    one, other = (dagora.learn(data, **options) for data in (sites, [rows * factors for rows in sites]))
    assert (one.adjacency == other.adjacency).all()
    assert (one.cpdag == other.cpdag).all()
    raw = dagora.learn([rows * factors for rows in sites])
    assert (raw.cpdag != one.cpdag).any()  # and without the option they do not


@pytest.mark.parametrize("seed", range(4))
def test_likelihood_over_sites_is_order_search_on_pooled_rows(seed: int) -> None:
    _, sites = unequal(seed)
    apart, together = dagora.learn(sites, score="likelihood"), dagora.learn(sites, method="pooled", learner="boss")
    assert (apart.cpdag == together.cpdag).all()
    np.testing.assert_allclose(apart.weights, together.weights, atol=5e-3)
    assert "penalty" in apart.settings
    assert "lam" not in apart.settings


def test_likelihood_sends_what_admm_sends_and_no_more() -> None:
    d = 5
    result = dagora.learn(small_sites(d), score="likelihood", aggregation="masked")
    assert {entry.phase: dict(entry.fields) for entry in result.ledger} == {
        "count": {"rows": (), "sites": (), "sum": (d,)},
        "spread": {"squares": (d,)},
        "consensus": {"position": (d, d), "products": (5,)},
    }
    assert result.warnings == ()


def test_likelihood_says_when_there_was_no_consensus(monkeypatch: pytest.MonkeyPatch) -> None:
    presets = importlib.import_module("dagora.algorithms.presets")
    hasty = partial(presets.LikelihoodSchedule, first_rounds=1, final_rounds=1, tolerance=1e-13)
    monkeypatch.setattr(presets, "LikelihoodSchedule", hasty)
    with pytest.warns(dagora.ConvergenceWarning, match="no consensus"):
        dagora.learn(small_sites(), score="likelihood")


@pytest.mark.parametrize("method", ["admm", "pooled", "covariance"])
def test_standardized_is_what_standardised_rows_give(method: str) -> None:
    sites = [rows * np.array([1.0, 50.0, 0.1, 3.0, 7.0]) + 5.0 for rows in small_sites()]
    rows = np.concatenate(sites)
    scaled = [(own - rows.mean(axis=0)) / rows.std(axis=0) for own in sites]
    learner: dict[str, Any] = {"learner": "notears"} if method == "covariance" else {}
    asked = dagora.learn(sites, method=method, standardize=True, **learner)
    given = dagora.learn(scaled, method=method, **learner)
    np.testing.assert_allclose(asked.weights, given.weights, atol=1e-6)
    assert (asked.adjacency == given.adjacency).all()


def test_standardized_series_are_what_standardised_series_give() -> None:
    _, sites = dagora.simulate_series(4, 4, 6, 50, 3, lags=1, seed=0)
    stacked = [np.hstack([own[1:], own[:-1]]) for series in sites for own in series]
    rows = np.concatenate(stacked)
    asked = dagora.learn(sites, model="dynamic", standardize=True)
    # The past and the present have deviations of their own, but nearly the same.
    scaled = [[own / rows.std(axis=0)[:4] for own in series] for series in sites]
    given = dagora.learn(scaled, model="dynamic")
    np.testing.assert_allclose(asked.weights, given.weights, atol=0.05)


def test_likelihoods_are_no_worse_than_ges_on_pooled_rows() -> None:
    ours, theirs = [], []
    for seed in range(4):
        truth, sites = unequal(seed, d=12, sites=8)
        rows = np.concatenate(sites)
        scaled = [own / rows.std(axis=0) for own in sites]
        ours.append(dagora.evaluate(truth, dagora.learn(scaled, score="likelihood").cpdag)["cpdag_shd"])
        theirs.append(dagora.evaluate(truth, dagora.learn(scaled, method="pooled", learner="ges").cpdag)["cpdag_shd"])
    assert np.mean(ours) <= np.mean(theirs)


def paths(edges: BoolArray) -> list[tuple[int, int]]:
    """Every pair once for each length of a path that joins it, by walking."""
    found: list[tuple[int, int]] = []
    ends = {(i, j) for i, j in np.argwhere(edges).tolist()}
    while ends:
        found += sorted(ends)
        ends = {(i, k) for i, j in ends for k in np.flatnonzero(edges[j]).tolist()}
    return found


@pytest.mark.parametrize("seed", range(5))
def test_sortability_counts_pairs_by_length_of_path(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.triu(rng.random((7, 7)) < 0.4, 1)
    criterion = rng.integers(1, 5, 7).astype(float)
    pairs = paths(edges)
    by_hand = np.mean([1.0 if criterion[i] < criterion[j] else 0.5 * (criterion[i] == criterion[j]) for i, j in pairs])
    assert alignment(edges, criterion) == pytest.approx(by_hand)


def test_r2_is_that_of_regressions() -> None:
    rows = np.concatenate(small_sites())
    rows = rows - rows.mean(axis=0)
    for j, share in enumerate(explained(covariance(rows))):
        others = np.delete(rows, j, axis=1)
        rest = rows[:, j] - others @ np.linalg.lstsq(others, rows[:, j], rcond=None)[0]
        assert share == pytest.approx(1.0 - rest.var() / rows[:, j].var(), abs=1e-6)


def test_sortability_of_no_edges_is_nothing_and_of_unknown_covariances_only_of_variances() -> None:
    S = np.diag([1.0, 2.0])
    assert sortability(np.zeros((2, 2)), S) == {}
    S[0, 1] = S[1, 0] = np.nan
    assert sortability(np.array([[0, 1], [0, 0]]), S) == {"variance": 1.0}


def test_a_warning_tells_of_directions_that_follow_variances() -> None:
    _, sites = dagora.simulate(d=8, edges=10, n=1000, sites=4, seed=3)
    with pytest.warns(dagora.ScaleWarning, match="varsortability 0.95"):
        result = dagora.learn(sites)
    pooled = dagora.learn(sites, method="pooled")
    assert result.sortability["variance"] == pooled.sortability["variance"]
    assert result.sortability["r2"] == pytest.approx(pooled.sortability["r2"], abs=0.1)
    assert any("varsortability" in text for text in result.warnings)
    free: tuple[dict[str, Any], ...] = ({"score": "likelihood"}, {"standardize": True}, {"method": "covariance"})
    for unit_free in free:
        assert not any("varsortability" in text for text in dagora.learn(sites, **unit_free).warnings)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_objective_of_the_history_is_that_of_pooled_rows(preset: str) -> None:
    sites = small_sites()
    result = dagora.learn(sites, preset=preset, lam=0.1)
    rows = np.concatenate(sites)
    if preset == "paper":  # centres each site by its own mean
        rows = np.concatenate([own - own.mean(axis=0) for own in sites])
    S = rows.T @ rows / len(rows) if preset == "paper" else covariance(rows)
    last = [entry["objective"] for entry in result.history if "objective" in entry][-1]
    assert last == pytest.approx(penalised_loss(S, result.weights, 0.1), rel=1e-2)
    assert "objective" not in result.history[0]  # the setup has none
