"""Learning with knowledge against generic optimisers, brute force and pooled data."""

from itertools import product

import numpy as np
import pytest
import scipy.optimize

import dagora
from dagora import Knowledge
from dagora.algorithms.implied import implied_covariance
from dagora.arrays import BoolArray, FloatArray
from dagora.data.moments import Moments
from dagora.graphs import dag_to_cpdag, is_dag, topological_order
from dagora.knowledge import Constraints
from dagora.learners.base import LearnerOptions, fit
from dagora.learners.bic import Bic
from dagora.learners.boss import boss
from dagora.learners.exact import exact
from dagora.learners.notears import notears
from dagora.models.restricted import RestrictedModel
from tests.helpers import covariance, penalised_loss, random_covariance, regression

LAM = 0.1


def random_constraints(d: int, rng: np.random.Generator, required: float = 0.2, forbidden: float = 0.3) -> Constraints:
    """Required edges follow some order; forbidden ones are any others."""
    order = rng.permutation(d)
    needed = (order[:, None] < order) & (rng.random((d, d)) < required)
    names = [f"x{j}" for j in range(d)]
    barred = ~needed & (rng.random((d, d)) < forbidden) & ~np.eye(d, dtype=bool)
    both = ([(names[i], names[j]) for i, j in np.argwhere(kind)] for kind in (needed, barred))
    return Knowledge(next(both), next(both)).constraints(names)


def masks(d: int, past: int) -> list[BoolArray]:
    """One for each way in which the step is taken: tiers, single entries, few parents, an order, all at once."""
    rng = np.random.default_rng(d)
    tier, place = np.arange(d) * 3 // d, rng.permutation(d)
    tiers = tier[:, None] <= tier
    within = [
        tiers,
        rng.random((d, d)) < 0.8,
        rng.random((d, d)) < 0.12,
        place[:, None] < place,
        tiers & (rng.random((d, d)) < 0.9),
    ]
    return [np.concatenate([one & ~np.eye(d, dtype=bool), np.ones((past, d), dtype=bool)]) for one in within]


@pytest.mark.parametrize("past", [0, 9])
def test_the_local_step_is_the_minimum_over_the_free_entries(past: int) -> None:
    rng, d = np.random.default_rng(past), 9
    p = d + past
    rows = rng.standard_normal((40, p)) @ rng.standard_normal((p, p))
    metric, rho, weight = rng.uniform(0.5, 2.0, p), 0.7, 0.3
    G, E = rows.T @ rows / (100.0 * weight), np.eye(p, d)
    for free in masks(d, past):
        model, C = RestrictedModel(free), rng.standard_normal((p, d))
        problem = model.prepare(Moments.of_rows(rows), 100.0, np.zeros(p), weight, metric)
        B, problem = model.prox(problem, C, rho)
        assert (B[~free] == 0.0).all()

        def objective(entries: FloatArray, free: BoolArray = free, C: FloatArray = C) -> tuple[float, FloatArray]:
            B = np.zeros((p, d))
            B[free] = entries
            loss, pull = G @ (B - E), rho * metric[:, None] * (B - C)
            value = 0.5 * float(((B - E) * loss).sum() + (pull * (B - C)).sum())
            return value, (loss + pull)[free]

        found = scipy.optimize.minimize(
            objective, np.zeros(int(free.sum())), jac=True, method="L-BFGS-B",
            options={"maxiter": 20000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9},
        )  # fmt: skip
        np.testing.assert_allclose(B[free], found.x, atol=1e-5)
        assert np.abs(objective(B[free])[1]).max() < 1e-10
        # The multipliers of what is held are the slopes there, over -rho D; of all else u stays.
        u = model.multipliers(problem, np.full((p, d), 7.0))
        held = ~free & (np.arange(p)[:, None] != np.arange(d))
        np.testing.assert_allclose((-rho * metric[:, None] * u)[held], (G @ (B - E))[held], atol=1e-10)
        assert (u[~held] == 7.0).all()


def test_multipliers_tell_the_server_the_covariance_whatever_is_held() -> None:
    rng, d = np.random.default_rng(3), 6
    S = random_covariance(d, 1)
    B = np.where(rng.random((d, d)) < 0.4, rng.standard_normal((d, d)) * 0.3, 0.0)
    np.fill_diagonal(B, 0.0)
    np.testing.assert_allclose(implied_covariance(B, S @ (B - np.eye(d)), np.diag(S)), S, atol=1e-9)


def dags(d: int) -> list[BoolArray]:
    off = [(i, j) for i in range(d) for j in range(d) if i != j]
    found = []
    for chosen in product((False, True), repeat=len(off)):
        dag = np.zeros((d, d), dtype=bool)
        dag[tuple(zip(*off, strict=True))] = chosen
        if not (dag & dag.T).any() and is_dag(dag):
            found.append(dag)
    return found


@pytest.mark.parametrize("d", [3, 4])
def test_exact_and_boss_find_the_best_of_all_dags_that_keep_to_knowledge(d: int) -> None:
    every = dags(d)
    for seed in range(6):
        known = random_constraints(d, np.random.default_rng(seed))
        _, (rows,) = dagora.simulate(d, d, 60, 1, seed=seed)
        moments = Moments.of_rows(rows)
        bic = Bic(moments, 1.0)

        def score(dag: BoolArray, bic: Bic = bic) -> float:
            return sum(bic.local(j, frozenset(np.flatnonzero(dag[:, j]).tolist())) for j in range(d))

        best = max(score(dag) for dag in every if known.satisfied(dag))
        for learner in (exact, boss):
            found = learner(moments, LearnerOptions(penalty=1.0, constraints=known))
            assert known.satisfied(found.edges)
            assert score(found.edges) == pytest.approx(best, abs=1e-6)
            # The class that is told holds just the members that keep to knowledge: an arrow is in all of them.
            same = dag_to_cpdag(found.edges)
            members = [dag for dag in every if known.satisfied(dag) and (dag_to_cpdag(dag) == same).all()]
            assert found.cpdag is not None
            np.testing.assert_array_equal(found.cpdag == 1, np.logical_and.reduce(members))


@pytest.mark.parametrize("method", ["pooled", "admm"])
def test_a_known_order_leaves_regressions(method: str) -> None:
    truth, sites = dagora.simulate(8, 12, 300, 3, seed=2)
    order = topological_order(truth.adjacency)
    tiers = [[truth.names[v]] for v in order]
    required = [(truth.names[order[0]], truth.names[order[-1]])]
    result = dagora.learn(sites, method=method, knowledge=Knowledge(required, tiers=tiers))
    S = covariance(np.concatenate(sites))
    for place, child in enumerate(order[:-1]):
        parents = order[:place]
        wanted = np.zeros(8)
        if parents:
            wanted[parents] = regression(S, child, parents, LAM, 3.0 * LAM / np.diag(S).min())[0]
        np.testing.assert_allclose(result.weights[:, child], wanted, atol=1e-6 if method == "pooled" else 2e-3)
    # Of the last one, the required parent has no price: its slope is zero.
    slope = S @ (result.weights[:, order[-1]] - np.eye(8)[order[-1]])
    assert abs(slope[order[0]]) < (1e-8 if method == "pooled" else 2e-2)


def test_blocks_of_tiers_are_one_problem() -> None:
    # By dynamic programming over which variables come first, with permitted parents only.
    d, tier = 6, np.array([0, 1, 0, 1, 2, 2])
    names = [f"x{j}" for j in range(d)]
    known = Knowledge(tiers=[[names[j] for j in np.flatnonzero(tier == t)] for t in range(3)]).constraints(names)
    for seed in range(4):
        S = random_covariance(d, seed)
        best, bound = {0: 0.0}, 3.0 * LAM / float(np.diag(S).min())
        for first in range(1, 1 << d):
            members = [j for j in range(d) if first >> j & 1]
            best[first] = min(
                best[first ^ (1 << j)] + regression(S, j, [i for i in members if known.permitted[i, j]], LAM, bound)[1]
                for j in members
            )
        moments = Moments(10**6, np.zeros(d), S * 10**6)
        found = notears(moments, LearnerOptions(lam=LAM, constraints=known))
        assert penalised_loss(S, found.weights, LAM, bound) == pytest.approx(best[(1 << d) - 1], rel=1e-9)


@pytest.mark.parametrize("kind", ["tiers", "edges"])
def test_federated_is_pooled(kind: str) -> None:
    for seed in range(3):
        truth, (rows,) = dagora.simulate(10, 15, 400, 1, seed=seed)
        rng, order = np.random.default_rng(seed), topological_order(truth.adjacency)
        if kind == "tiers":
            known = Knowledge(tiers=[[truth.names[v] for v in order[k : k + 4]] for k in (0, 4, 8)])
        else:
            true, false = (rng.permutation(np.argwhere(truth.adjacency == mark)) for mark in (1, 0))
            both = ([(truth.names[i], truth.names[j]) for i, j in some if i != j] for some in (true[:4], false[:25]))
            known = Knowledge(next(both), next(both))
        pooled = dagora.learn([rows], method="pooled", knowledge=known)
        for k in (1, 4):
            result = dagora.learn(np.array_split(rows, k), knowledge=known)
            np.testing.assert_array_equal(result.adjacency, pooled.adjacency)
            # Effects too weak to try the other way round (polish.py) may lie either way.
            np.testing.assert_allclose(result.weights, pooled.weights, atol=0.05)
        one, several = (dagora.learn(np.array_split(rows, k), method="covariance", knowledge=known) for k in (1, 4))
        np.testing.assert_allclose(one.weights, several.weights, atol=1e-9)


def test_required_edges_have_fitted_weights_without_a_price() -> None:
    _, (rows,) = dagora.simulate(4, 3, 200, 1, seed=5)
    S, known = covariance(rows), Knowledge([("x4", "x1")])
    for learner in ("notears", "boss"):
        result = dagora.learn([rows], method="covariance", learner=learner, knowledge=known)
        if learner == "boss":
            np.testing.assert_allclose(result.weights, fit(S, result.adjacency == 1), atol=1e-9)
        slope = S @ (result.weights[:, 0] - np.eye(4)[0])
        assert abs(slope[3]) < 1e-8
        assert result.adjacency[3, 0] == 1
