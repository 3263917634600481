"""Votes of learners that leave directions open: for both of them, and counted like all others."""

from functools import partial

import numpy as np
import pytest

import dagora
from dagora.algorithms.local import LocalServer, LocalSite
from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.federated.protocol import Estimate, Summand
from dagora.graphs import UNDIRECTED, is_dag, skeleton
from dagora.learners.base import Learned, LearnerOptions, fit, learned_class
from dagora.learners.ges import ges
from dagora.learners.pc import pc

VOTERS = pytest.mark.parametrize("learner", ["pc", "ges"])


def chain(n: int, seed: int) -> FloatArray:
    """x1 -> x2 -> x3: no direction can be told."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    X[:, 1] += 1.2 * X[:, 0]
    X[:, 2] += 1.2 * X[:, 1]
    return X


def collider(n: int, seed: int) -> FloatArray:
    """x1 -> x2 <- x3: both can."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    X[:, 1] += 1.2 * X[:, 0] + 1.2 * X[:, 2]
    return X


def marks(d: int, *entries: tuple[int, int, int]) -> IntArray:
    cpdag = np.zeros((d, d), dtype=np.int64)
    for i, j, mark in entries:
        cpdag[i, j] = mark
    return cpdag


CHAIN = marks(3, (0, 1, UNDIRECTED), (1, 2, UNDIRECTED))
COLLIDER = marks(3, (0, 1, 1), (2, 1, 1))


def slope(rows: FloatArray, child: int, parents: list[int]) -> float:
    """Coefficient of the first parent."""
    X = rows - rows.mean(axis=0)
    return float(np.linalg.lstsq(X[:, parents], X[:, child], rcond=None)[0][0])


def answer(rows: FloatArray, cpdag: IntArray) -> Summand:
    """Of a site whose learner finds this class."""

    def learn(moments: Moments) -> Learned:
        return learned_class(moments, cpdag)

    return LocalSite(learn, voting=True).local_update(Moments.of_rows(rows), {"phase": "learn"})[1]


def election(*classes: IntArray) -> tuple[FloatArray, Estimate]:
    """Votes, and what the server makes of them."""
    answers = [answer(chain(200, seed), cpdag) for seed, cpdag in enumerate(classes)]
    total = {name: np.sum([one[name] for one in answers], axis=0) for name in answers[0]}
    server = LocalServer(voting=True, classes=True, threshold=0.0)
    return total["votes"], server.estimate(server.global_update(server.init(), total))


@pytest.mark.parametrize("learner", [pc, ges])
def test_a_site_votes_for_both_directions_of_an_undirected_edge(learner: object) -> None:
    assert callable(learner)
    rows = chain(500, 0)
    site = LocalSite(lambda moments: learner(moments, LearnerOptions()), voting=True)
    summand = site.local_update(Moments.of_rows(rows), {"phase": "learn"})[1]
    np.testing.assert_array_equal(summand["votes"], [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    W = summand["weights"]
    np.testing.assert_array_equal(W != 0.0, summand["votes"] != 0.0)
    for i, j in ((0, 1), (1, 0), (1, 2), (2, 1)):
        assert W[i, j] == pytest.approx(slope(rows, j, [i]), rel=1e-9)


def test_a_site_votes_for_one_direction_of_an_arrow() -> None:
    rows = collider(500, 0)
    summand = answer(rows, COLLIDER)
    np.testing.assert_array_equal(summand["votes"], [[0, 1, 0], [0, 0, 0], [0, 1, 0]])
    assert summand["weights"][0, 1] == pytest.approx(slope(rows, 1, [0, 2]), rel=1e-9)
    assert summand["weights"][1, 0] == pytest.approx(slope(rows, 0, [1, 2]), rel=1e-9)  # should the vote turn it
    np.testing.assert_array_equal(summand["joined"], [[0, 1, 0], [1, 0, 1], [0, 1, 0]])


def test_arrows_and_undirected_edges_are_counted_together() -> None:
    nothing = marks(3)
    votes, estimate = election(CHAIN, CHAIN, COLLIDER)
    np.testing.assert_array_equal(votes, [[0, 3, 0], [2, 0, 2], [0, 3, 0]])
    np.testing.assert_array_equal(estimate.cpdag, CHAIN)  # 2 of 3 for either direction: a majority for both
    votes, estimate = election(CHAIN, COLLIDER, COLLIDER)
    np.testing.assert_array_equal(votes, [[0, 3, 0], [1, 0, 1], [0, 3, 0]])
    np.testing.assert_array_equal(estimate.cpdag, COLLIDER)
    np.testing.assert_array_equal(estimate.edges, COLLIDER == 1)
    votes, estimate = election(CHAIN, CHAIN, nothing, nothing)
    assert not estimate.edges.any()  # 2 of 4 is no majority
    assert estimate.cpdag is not None
    assert not estimate.cpdag.any()


def test_a_majority_for_no_direction_is_no_edge() -> None:
    """Three of four sites join x1 and x2, but no direction has more than two votes."""
    first, second = marks(3, (0, 1, 1), (2, 1, 1)), marks(3, (1, 0, 1), (2, 0, 1))
    _, estimate = election(first, first, second, marks(3))
    assert estimate.cpdag is not None
    assert not skeleton(estimate.cpdag).any()


def test_a_weight_is_the_mean_over_the_sites_that_joined_the_pair() -> None:
    classes = (CHAIN, CHAIN, COLLIDER, CHAIN, marks(3))
    _, estimate = election(*classes)
    alone = [answer(chain(200, seed), cpdag)["weights"] for seed, cpdag in enumerate(classes)]
    assert estimate.weights[0, 1] == pytest.approx(np.mean([alone[k][0, 1] for k in (0, 1, 2, 3)]))
    assert estimate.weights[1, 0] == pytest.approx(np.mean([alone[k][1, 0] for k in (0, 1, 2, 3)]))


def test_an_edge_that_is_turned_against_all_votes_has_a_weight_and_is_told() -> None:
    """Votes for x1 -> x2 -> x3 -> x1, two of three each: no DAG has them all."""
    cyclic = [marks(3, (0, 1, 1), (1, 2, 1)), marks(3, (1, 2, 1), (2, 0, 1)), marks(3, (2, 0, 1), (0, 1, 1))]
    answers = []
    for seed, pdag in enumerate(cyclic):
        rows = chain(200, seed)
        S = Moments.of_rows(rows).covariance
        learned = Learned(fit(S, pdag == 1), pdag == 1, pdag)
        site = LocalSite(partial(_returns, learned), voting=True)
        answers.append(site.local_update(Moments.of_rows(rows), {"phase": "learn"})[1])
    total = {name: np.sum([one[name] for one in answers], axis=0) for name in answers[0]}
    server = LocalServer(voting=True, classes=True, threshold=0.0)
    estimate = server.estimate(server.global_update(server.init(), total))
    assert is_dag(estimate.edges)
    assert (estimate.weights[estimate.edges] != 0.0).all()
    assert "no DAG has the edges" in estimate.warnings[0]


def _returns(learned: Learned, moments: Moments) -> Learned:
    return learned


@VOTERS
def test_directions_that_no_site_can_tell_stay_open(learner: str) -> None:
    result = dagora.learn([chain(500, seed) for seed in range(3)], method="voting", learner=learner)
    np.testing.assert_array_equal(result.cpdag, CHAIN)
    assert result.undirected() == [("x1", "x2"), ("x2", "x3")]
    assert len(result.edges()) == 2
    assert all(abs(weight) > 0.3 for _, _, weight in result.edges())
    result = dagora.learn([collider(500, seed) for seed in range(3)], method="voting", learner=learner)
    np.testing.assert_array_equal(result.cpdag, COLLIDER)
    assert result.undirected() == []
    assert {edge[:2] for edge in result.edges()} == {("x1", "x2"), ("x3", "x2")}


@pytest.mark.filterwarnings("ignore::dagora.ConvergenceWarning")  # PC's tests may contradict each other at a site
@VOTERS
def test_all_edges_have_weights_and_the_graph_is_a_dag_with_the_skeleton_of_the_votes(learner: str) -> None:
    found = open_ = 0
    for seed in range(10):
        _, sites = dagora.simulate(10, 20, 600, 5, seed=seed, noise="gaussian-unequal")
        result = dagora.learn(sites, method="voting", learner=learner)
        assert is_dag(result.adjacency)
        np.testing.assert_array_equal(skeleton(result.cpdag), skeleton(result.adjacency))
        assert all(weight != 0.0 for _, _, weight in result.edges())
        found += len(result.edges())
        open_ += len(result.undirected())
    assert 0 < open_ < found
