"""Additive effects: functions, refusals, columns of few values, rounds, and what is asked of sites."""

import re
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.algorithms.additive import AdditiveServer, AdditiveSite, function_moments
from dagora.algorithms.covariance import unfolded
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.rows import Rows
from dagora.errors import InputError, MessageError, NumericalError
from dagora.learners.additive import Design, common_variance
from dagora.learners.base import Learned
from dagora.models.additive import FUNCTIONS, Basis
from tests.helpers import finite_differences, small_sites


def learn(sites: Any, **options: Any) -> dagora.Result:
    return dagora.learn(sites, **({"model": "additive", "method": "covariance"} | options))


def rows_of(*chunks: FloatArray) -> Rows:
    return Rows(lambda: iter(chunks), chunks[0].shape[1])


def with_values(*values: FloatArray) -> FloatArray:
    """Each column holds the given values over and over; the rows' order is shuffled, so that columns are unrelated."""
    rng = np.random.default_rng(0)
    return np.column_stack([rng.permutation(np.resize(own, 400)) for own in values])


def test_functions_of_a_normal_variable_are_nearly_uncorrelated_beyond_z() -> None:
    z = np.random.default_rng(0).standard_normal((200_000, 1))
    F = Basis(np.zeros(1), np.ones(1)).expand(z)
    assert F.shape == (200_000, FUNCTIONS)
    np.testing.assert_array_equal(F[:, 0], z[:, 0])
    assert np.abs(F[:, 1:]).max() <= 1.0  # no outlier weighs more
    # 2 Phi(z) - 1 is uniform on (-1, 1), where P_k and P_l are orthogonal and P_k has variance 1 / (2 k + 1).
    expected = np.diag([1 / 5, 1 / 7, 1 / 9, 1 / 11])
    np.testing.assert_allclose(np.cov(F[:, 1:].T), expected, atol=0.003)


def test_functions_follow_centre_and_scale_variable_by_variable() -> None:
    rows = np.random.default_rng(1).standard_normal((50, 3))
    centre, scale = np.array([1e3, -2.0, 0.0]), np.array([10.0, 1e-3, 1.0])
    moved = Basis(centre, scale).expand(rows * scale + centre)
    straight = [Basis(np.zeros(1), np.ones(1)).expand(rows[:, [j]]) for j in range(3)]
    np.testing.assert_allclose(moved, np.hstack(straight), atol=1e-9)


@pytest.mark.parametrize("distinct", [2, 3, 4, 5, 9])
def test_columns_of_few_values_keep_as_many_functions_as_they_can_have(distinct: int) -> None:
    rows = with_values(np.arange(float(distinct)), np.linspace(0.0, 1.0, 400))
    moments = function_moments(rows_of(rows), Basis(rows.mean(axis=0), rows.std(axis=0)))
    design = Design.of(moments)
    # k values span k - 1 functions besides the constant.
    assert design.functions.tolist() == [min(distinct - 1, FUNCTIONS), FUNCTIONS]
    group = design.C[:FUNCTIONS, :FUNCTIONS]
    np.testing.assert_allclose(group, np.eye(FUNCTIONS), atol=1e-9)


@pytest.mark.parametrize("score", ["similar", "least-squares", "likelihood"])
def test_binary_columns_are_learned_as_linear_ones(score: str) -> None:
    rng = np.random.default_rng(0)
    coin = rng.choice([-1.0, 1.0], 300)
    y = 1.5 * coin + rng.standard_normal(300)
    noise = rng.standard_normal(300)
    result = learn([np.column_stack([coin, y, noise])], score=score)
    # The deviation of b x is |b| sd(x), b the slope of y on x.
    slope = np.polyfit(coin, y, 1)[0]
    assert [sorted(edge[:2]) for edge in result.edges()] == [["x1", "x2"]]
    if result.adjacency[0, 1]:
        assert result.weights[0, 1] == pytest.approx(slope * coin.std(), rel=1e-6)
    assert score == "likelihood" or result.adjacency[0, 1] == 1  # equal variances tell the direction


def test_heavy_ties_are_learned() -> None:
    rng = np.random.default_rng(0)
    counts = np.where(rng.random(400) < 0.95, 0.0, rng.poisson(3.0, 400) + 1.0)  # 95% zeros
    result = learn([np.column_stack([counts, 2.0 * counts + rng.standard_normal(400), rng.standard_normal(400)])])
    assert [edge[:2] for edge in result.edges()] == [("x1", "x2")]
    assert np.isfinite(result.weights).all()


def test_two_rounds_and_their_fields() -> None:
    result = learn(small_sites(4), aggregation="masked")
    assert result.rounds == 2
    assert [(entry.phase, dict(entry.fields)) for entry in result.ledger] == [
        ("spread", {"rows": (), "sum": (4,), "squares": (4,)}),
        ("moments", {"rows": (), "sum": (20,), "squares": (210,)}),
    ]
    assert result.names == ("x1", "x2", "x3", "x4")


def test_a_mean_far_from_zero_costs_a_round_and_no_accuracy() -> None:
    sites = small_sites()
    near, far = learn(sites), learn([rows + 1e7 for rows in sites])
    assert (near.rounds, far.rounds) == (2, 3)
    np.testing.assert_array_equal(near.adjacency, far.adjacency)
    np.testing.assert_allclose(near.weights, far.weights, atol=1e-6)


def test_settings_tell_the_options_that_counted() -> None:
    settings = learn(small_sites()).settings
    assert (settings["model"], settings["score"], settings["penalty"]) == ("additive", "similar", 1.0)
    assert not {"learner", "lam", "threshold", "alpha", "polish"} & set(settings)


def test_a_larger_penalty_leaves_fewer_edges() -> None:
    edges = [int(learn(small_sites(), penalty=penalty).adjacency.sum()) for penalty in (0.1, 1.0, 100.0)]
    assert edges[0] > edges[1] > edges[2] == 0


def test_a_site_answers_with_the_sums_of_its_rows_only() -> None:
    rows = np.vstack(small_sites(3))
    state = AdditiveSite().init(rows_of(rows[:100], rows[100:]))
    centre, scale = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0])
    _, spread = AdditiveSite().local_update(state, {"phase": "spread", "centre": centre})
    np.testing.assert_allclose(spread["sum"], (rows - centre).sum(axis=0))
    np.testing.assert_allclose(spread["squares"], ((rows - centre) ** 2).sum(axis=0))
    _, moments = AdditiveSite().local_update(state, {"phase": "moments", "centre": centre, "scale": scale})
    F = Basis(centre, scale).expand(rows)
    np.testing.assert_allclose(moments["sum"], F.sum(axis=0))
    np.testing.assert_allclose(unfolded(moments["squares"], 3 * FUNCTIONS), F.T @ F)
    assert float(spread["rows"]) == float(moments["rows"]) == len(rows)


def test_a_site_refuses_what_it_does_not_know() -> None:
    site = AdditiveSite()
    with pytest.raises(MessageError, match="no phase"):
        site.local_update(rows_of(np.ones((2, 2))), {"phase": "rows", "centre": np.zeros(2)})
    with pytest.raises(MessageError, match="'scale'"):
        site.local_update(rows_of(np.ones((2, 2))), {"phase": "moments", "centre": np.zeros(2)})


def test_totals_without_variance_are_refused() -> None:
    def never(moments: Moments, scale: FloatArray) -> Learned:
        raise AssertionError

    server = AdditiveServer(2, never)
    total = {"rows": np.array(5.0), "sum": np.zeros(2), "squares": np.array([1.0, 0.0])}
    with pytest.raises(NumericalError, match="without variance"):
        server.global_update(server.init(), total)


def test_the_common_variance_is_where_the_fit_has_no_slope() -> None:
    for v in (np.array([1.0, 2.0, 5.0]), np.array([1e-9, 1.0]), np.array([3.0, 3.0])):

        def fit(t: FloatArray, v: FloatArray = v) -> float:
            return 0.5 * len(v) * float(t[0]) - float(np.log(np.exp(t[0]) + v).sum())

        s = common_variance(v, 1.0)
        assert abs(finite_differences(fit, np.log([s]))[0]) < 1e-7
    assert common_variance(np.array([1.0, 3.0]), np.inf) == 2.0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "admm": ({"method": "admm"}, "method: 'admm' does not fit model 'additive'; choose from 'covariance', 'voting'"),
    "average": ({"method": "average"}, "method: 'average' does not fit model 'additive'"),
    "paper": ({"preset": "paper"}, "preset: 'paper' does not know model 'additive'"),
    "learner": ({"learner": "boss"}, "learner: model 'additive' has its own"),
    "lam": ({"lam": 0.1}, "lam: model 'additive' has no use for it"),
    "threshold": ({"threshold": 0.3}, "threshold: model 'additive' has no use for it"),
    "score": ({"score": "x"}, "score: there is no 'x'; choose from similar, least-squares, likelihood"),
    "penalty": ({"penalty": 0.0}, "penalty: must be a finite number above 0"),
    "gaussian": ({"aggregation": "gaussian", "epsilon": 1.0}, "aggregation: 'gaussian' is for model 'linear'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name(case: str) -> None:
    options, message = REFUSED[case]
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        learn(small_sites(), **options)


def test_the_default_method_is_refused_with_the_choices() -> None:
    with pytest.raises(InputError, match=r"^method: 'admm' does not fit .* choose from 'covariance'"):
        dagora.learn(small_sites(), model="additive")


def test_similar_variances_are_for_additive_effects_only() -> None:
    with pytest.raises(InputError, match=r"^score: there is no 'similar'; choose from least-squares, likelihood$"):
        dagora.learn(small_sites(), method="covariance", learner="golem", score="similar")


def test_too_few_rows_are_refused() -> None:
    rows = np.vstack(small_sites())
    message = "too few rows for additive effects: 10, but 11 or more are needed for 5 functions an edge; "
    with pytest.raises(InputError, match=f"^{message}add rows or use model 'linear'$"):
        learn([rows[:4], rows[4:10]])
    assert learn([rows[:5], rows[5:11]]).adjacency.shape == (5, 5)
    with pytest.raises(InputError, match=f"^site 'b': {message}"):
        learn({"a": rows[10:], "b": rows[:10]}, method="voting")


def test_parents_have_at_most_half_of_the_degrees_of_freedom() -> None:
    rng = np.random.default_rng(0)
    for seed in range(5):
        rows = np.random.default_rng(seed).standard_normal((24, 12))
        rows[:, 0] += rows[:, 1:].sum(axis=1) + rng.standard_normal(24)
        result = learn([rows], penalty=0.01)  # hardly any price: only the limit holds
        assert result.adjacency.sum() > 0
        assert 5 * result.adjacency.sum(axis=0).max() <= 11


def test_columns_in_a_linear_relation_are_refused_by_name() -> None:
    rows = np.vstack(small_sites(3))
    rows = np.column_stack([rows, rows[:, 0] - rows[:, 2]])
    with pytest.raises(InputError, match=r"^columns 'x1', 'x3', 'x4' determine each other by a linear relation"):
        learn([rows[:100], rows[100:]])


def test_a_column_in_a_nonlinear_relation_is_learned() -> None:
    x = np.random.default_rng(0).standard_normal((300, 2))
    result = learn([np.column_stack([x, np.tanh(x[:, 0])])])
    assert ("x1", "x3") in {edge[:2] for edge in result.edges()} | {edge[1::-1] for edge in result.edges()}
    assert np.isfinite(result.weights).all()


def test_votes_are_of_graphs_that_sites_learn_alone() -> None:
    _, sites = dagora.simulate(5, 5, 600, 3, seed=1, model="mlp")
    alone = [learn([rows], method="pooled").adjacency for rows in sites]
    result = learn(sites, method="voting")
    np.testing.assert_array_equal(result.adjacency, np.sum(alone, axis=0) > 1.5)
    assert result.adjacency.sum() > 0
    assert result.rounds == 1


@pytest.mark.parametrize("score", ["similar", "likelihood"])
def test_a_column_that_is_constant_at_a_site_gets_no_vote_there(score: str) -> None:
    a, b, c = (rows.copy() for rows in small_sites())
    for rows in (b, c):
        rows[:, 0] = 7.0
    result = learn([a, b, c], method="voting", score=score)
    assert result.adjacency[0].sum() == result.adjacency[:, 0].sum() == 0
    assert result.adjacency.sum() > 0
