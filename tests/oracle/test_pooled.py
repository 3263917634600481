"""Learners and federated runs against oracles: exact minima over all DAGs, pooled data, a plain transcription."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.acyclicity import trace_exponential
from dagora.aggregation.plain import Plain
from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.admm import AdmmServer, AdmmSite, Consensus
from dagora.algorithms.options import Options
from dagora.algorithms.presets import build
from dagora.algorithms.schedules import PaperSchedule, PathSchedule
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.federated.message import Message
from dagora.federated.protocol import Total, Transport
from dagora.federated.run import Run, run
from dagora.federated.site import Site
from dagora.graphs import is_dag, order_of
from dagora.learners.notears import notears_path, notears_published
from dagora.models.linear import LinearModel, read_weights
from dagora.solvers.path_stage import descend
from dagora.transport.in_process import InProcess
from tests.helpers import (
    ALGORITHMS,
    best_dag,
    covariance,
    finite_differences,
    penalised_loss,
    random_covariance,
    sites_with_a_cycle,
    small_sites,
)

LAM = 0.1
SEEDS = range(20)


@pytest.mark.parametrize("d", [3, 4, 5])
def test_path_mostly_ends_at_the_best_dag(d: int) -> None:
    excess = []
    for seed in SEEDS:
        S = random_covariance(d, seed)
        learned = notears_path(S, LAM)
        assert learned.warnings == ()
        assert is_dag(learned.weights)  # exactly, before any threshold
        excess.append(penalised_loss(S, learned.weights, LAM) - best_dag(S, LAM))
    assert min(excess) >= -1e-9
    assert sum(gap < 1e-6 for gap in excess) >= 17  # a heuristic for a hard problem: measured 20, 19, 19 of 20


@pytest.mark.parametrize("mu", [0.03, 3.0])
def test_a_stage_of_the_path_ends_stationary(mu: float) -> None:
    d = 5
    S = random_covariance(d, 0)
    W = descend(S, np.zeros((d, d)), LAM, mu, 1e-9, ~np.eye(d, dtype=bool), most_steps=500)

    def smooth(V: FloatArray) -> float:
        R = np.eye(d) - V
        return 0.5 * float(np.trace(R.T @ S @ R)) - mu * float(np.linalg.slogdet(np.eye(d) - V * V)[1])

    gradient, active, off = finite_differences(smooth, W), W != 0.0, ~np.eye(d, dtype=bool)
    assert active.any()
    np.testing.assert_allclose(gradient[active], -LAM * np.sign(W[active]), atol=1e-5)
    assert (np.abs(gradient[off & ~active]) <= LAM + 1e-5).all()


@pytest.mark.parametrize("d", [3, 4, 5])
def test_notears_ends_stationary_and_no_lower_than_the_best_dag(d: int) -> None:
    """h <= 1e-8 leaves traces of cycles in W, which buy a little loss; cut them and W is a DAG."""
    excess = []
    for seed in SEEDS[:8]:
        S = random_covariance(d, seed)
        learned = notears_published(S, LAM)
        W = learned.weights
        assert learned.warnings == ()
        assert trace_exponential(W)[0] <= 1e-8
        edges = np.abs(W) > 0.05
        # On an edge h has no slope worth its multiplier: the lasso's own condition is left.  L-BFGS-B's stopping
        # rule on an augmented Lagrangian leaves up to 0.01 of it (measured); the penalty itself is 0.1.
        np.testing.assert_allclose((S @ (W - np.eye(d)))[edges], -LAM * np.sign(W[edges]), atol=0.03)
        excess.append(penalised_loss(S, W * order_of(W), LAM) - best_dag(S, LAM))
    assert min(excess) >= -1e-9
    assert max(excess) < 0.2  # a local minimum, but of this problem: the losses here are between 1.5 and 5


@pytest.mark.parametrize("sites", [1, 8])
def test_admm_finds_the_graph_of_the_pooled_rows(sites: int) -> None:
    agreed = 0
    for seed in range(10):
        _, data = dagora.simulate(10, 10, 256, sites, seed=seed)
        pooled = dagora.learn(data, method="pooled")
        agreed += bool((dagora.learn(data).adjacency == pooled.adjacency).all())
    assert agreed >= 9


def test_one_site_that_learns_alone_is_the_pooled_oracle() -> None:
    # With the lasso's price for all weights: what is free of it is for those who have enough rows.
    rows = [np.vstack(small_sites())]
    alone, pooled = dagora.learn(rows, method="average"), dagora.learn(rows, method="pooled")
    np.testing.assert_allclose(alone.weights, notears_path(covariance(rows[0]), LAM).weights, atol=1e-9)
    np.testing.assert_array_equal(alone.adjacency, pooled.adjacency)
    np.testing.assert_array_equal(dagora.learn(rows, method="voting").adjacency, pooled.adjacency)


def test_averaging_takes_the_mean_of_what_sites_learn_alone() -> None:
    sites = small_sites()
    each = [notears_path(covariance(rows), LAM).weights for rows in sites]
    result = dagora.learn(sites, method="average")
    np.testing.assert_allclose(result.weights, np.mean(each, axis=0), atol=1e-6)


def test_votes_for_a_cycle_give_a_dag() -> None:
    result = dagora.learn(sites_with_a_cycle(), method="voting")
    assert is_dag(result.adjacency)
    assert len(result.removed) == 1
    assert result.adjacency.sum() == 2


def test_an_edge_needs_more_than_half_of_the_votes() -> None:
    """Three sites agree on one edge; a fourth and a fifth see another: 3 of 5 is enough, 2 of 4 is not."""
    rng = np.random.default_rng(0)

    def site(strong: int) -> FloatArray:
        X = rng.standard_normal((300, 4))
        X[:, strong + 1] += 1.5 * X[:, strong]
        return X

    first, second = [site(0) for _ in range(3)], [site(2) for _ in range(2)]
    assert [edge[:2] for edge in dagora.learn(first + second, method="voting").edges()] == [("x1", "x2")]
    assert dagora.learn(first[:2] + second, method="voting").edges() == []


@pytest.mark.parametrize("seed", range(3))
def test_rows_count_alike_wherever_they_are(seed: int) -> None:
    """A site of 5 rows from another model weighs 5 rows, not half of everything."""
    _, (many,) = dagora.simulate(6, 6, 1000, 1, seed=seed)
    _, (few,) = dagora.simulate(6, 6, 5, 1, seed=seed + 100)
    W = dagora.learn([many, few]).weights
    together = dagora.learn([np.vstack([many, few])]).weights
    equal_say = dagora.learn([many, np.tile(few, (200, 1))]).weights
    np.testing.assert_allclose(W, together, rtol=0, atol=0.02)
    assert np.abs(W - equal_say).max() > 0.2


def yardstick() -> Callable[..., FloatArray]:
    path = Path(__file__).parents[2] / "benchmarks" / "yardstick.py"
    spec = importlib.util.spec_from_file_location("yardstick", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    transcribed: Callable[..., FloatArray] = module.notears_admm
    return transcribed


@pytest.mark.parametrize("seed", [0, 2, 4])  # on others L-BFGS stops at once, or not, by rounding in the second round
def test_paper_preset_is_the_papers_algorithm_transcribed(seed: int) -> None:
    _, sites = dagora.simulate(10, 10, 256, 4, seed=seed)
    algorithm, plain = build(Options(method="admm", preset="paper"), tuple("abcdefghij")), Plain()
    assert isinstance(algorithm.server, AdmmServer)
    server = replace(algorithm.server, schedule=PaperSchedule(rounds=5))
    transport = InProcess([Site(str(k), algorithm.site, Moments.of_rows(x), plain) for k, x in enumerate(sites)])
    np.testing.assert_allclose(
        run(server, plain, transport).estimate.weights, yardstick()(sites, rounds=5), rtol=0, atol=1e-4
    )
    # In all rounds L-BFGS on the kinks of l1 carries rounding into W (up to 0.03 in ten seeds), so the graph is the
    # same but for weights that near the threshold: with seed 4 one is 0.297, and the last bit decides.
    W, result = yardstick()(sites), dagora.learn(sites, preset="paper")
    np.testing.assert_allclose(result.weights, W, rtol=0, atol=0.1)
    clear = np.abs(np.abs(W) - 0.3) > 0.03
    assert clear.sum() >= W.size - 2
    np.testing.assert_array_equal(result.adjacency[clear], (np.abs(W) > 0.3)[clear])


def test_where_zero_is_does_not_matter() -> None:
    sites = small_sites()
    shift = np.array([10.0, -3.0, 0.5, 100.0, -40.0])
    shifted = dagora.learn([rows + shift for rows in sites])
    np.testing.assert_allclose(shifted.weights, dagora.learn(sites).weights, rtol=0, atol=1e-6)


def test_sites_with_means_of_their_own_are_centred_together() -> None:
    """Differences between sites are variation of the pooled rows, and explained as such by the default preset."""
    sites = [rows + 0.5 * k for k, rows in enumerate(small_sites())]
    W = dagora.learn(sites).weights
    np.testing.assert_allclose(W, dagora.learn([np.vstack(sites)]).weights, rtol=0, atol=0.02)
    each_alone = dagora.learn([rows - rows.mean(axis=0) for rows in sites]).weights
    assert np.abs(W - each_alone).max() > 0.05


def test_intercepts_are_those_of_the_regressions() -> None:
    """Without a penalty on them, b = mean (I - W) at consensus: residuals have mean zero."""
    sites = [rows + np.array([3.0, -1.0, 0.0, 2.0, 1.0]) for rows in small_sites()]
    result = dagora.learn(sites, preset="paper", intercept=True)
    mean = np.vstack(sites).mean(axis=0)
    np.testing.assert_allclose(result.extras["intercepts"], mean - mean @ result.weights, atol=0.3)


def federate(schedule: PathSchedule, aggregation: Plain) -> Run:
    sites = small_sites()
    consensus = Consensus(global_mean=True, by_rows=True, memory=5)
    part: AdmmSite[Any] = AdmmSite(LinearModel(), consensus)
    parts = [Site(f"s{k}", part, Moments.of_rows(rows), aggregation) for k, rows in enumerate(sites)]
    read = partial(read_weights, d=5, threshold=0.3)
    server: AdmmServer[Any] = AdmmServer(5, np.zeros((5, 5)), consensus, schedule, read)
    return run(server, aggregation, InProcess(parts))


def test_a_run_that_stops_early_says_so() -> None:
    assert federate(PathSchedule(), Plain()).estimate.warnings == ()
    (text,) = federate(PathSchedule(final_rounds=1, final_tolerance=1e-13), Plain()).estimate.warnings
    assert text.startswith("no consensus to 1e-13 within ")
    assert "\n" not in text


def test_learn_warns_of_a_run_that_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    presets = importlib.import_module("dagora.algorithms.presets")
    hasty = partial(PathSchedule, final_rounds=1, final_tolerance=1e-13)
    monkeypatch.setattr(presets, "PathSchedule", hasty)
    with pytest.warns(dagora.ConvergenceWarning, match="no consensus"):
        result = dagora.learn(small_sites())
    assert sum("no consensus" in text for text in result.warnings) == 1


class Spoilt(Plain):
    """Adds up as it should, then loses one number of one field."""

    def __init__(self, field: str = "", value: float = np.nan) -> None:
        self.field, self.value = field, value

    def total(self, transport: Transport, message: Message) -> Total:
        total = dict(super().total(transport, message))
        if self.field in total:
            total[self.field] = total[self.field].copy()
            total[self.field].flat[-1] = self.value
        return total


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["rows", "sum", "squares", "position", "products"])
def test_a_total_that_is_not_finite_gives_no_graph(field: str, value: float) -> None:
    with pytest.raises(dagora.NumericalError, match=field):
        federate(PathSchedule(), Spoilt(field, value))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_learn_gives_no_graph_from_totals_that_are_not_finite(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ALGORITHMS[algorithm]
    field = {"admm": "position", "covariance": "squares", "pooled": "squares"}.get(case.method, "weights")
    field = "weights" if (case.networks, case.method, case.preset) == (True, "pooled", "paper") else field
    monkeypatch.setitem(AGGREGATIONS, "spoilt", lambda cohort, privacy: Spoilt(field))
    with pytest.raises(dagora.NumericalError, match="not finite"):
        dagora.learn(small_sites(), aggregation="spoilt", **case.arguments)
