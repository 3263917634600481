"""ADMM in a metric that changes on the way, and the schedules of networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from dagora.algorithms.measured import MeasuredServer, MeasuredSite
from dagora.algorithms.network_schedule import NetworkPlan, NetworkSchedule, PaperNetworkSchedule
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.federated.protocol import Estimate
from dagora.models.base import Alone
from dagora.models.network import Architecture
from tests.refits import ALIKE, LAM, RIDGE, ROWS, SITES, D, N, added, sample, unread

RNG = np.random.default_rng(0)


# A metric that changes on the way


@dataclass(frozen=True)
class Parabolas:
    """l_k / w_k = sum of a (theta - t)^2 / 2."""

    a: FloatArray
    t: FloatArray
    metric: FloatArray


class QuadraticModel(Alone[Parabolas]):
    """A model with an exact step, a and t some functions of the data."""

    def prepare(
        self, data: Moments, rows: float, centre: FloatArray | None, weight: float, metric: FloatArray
    ) -> Parabolas:
        return Parabolas(np.abs(data.covariance) + 0.5, data.covariance + np.outer(data.mean, data.mean), metric)

    def prox(self, problem: Parabolas, centre: FloatArray, rho: float) -> tuple[FloatArray, Parabolas]:
        D = rho * problem.metric
        return (problem.a * problem.t + D * centre) / (problem.a + D), problem

    def curvature(self, problem: Parabolas) -> FloatArray:
        return problem.a

    def measured(self, problem: Parabolas, metric: FloatArray) -> Parabolas:
        return replace(problem, metric=metric)


def test_duals_follow_the_papers_equations_through_changes_of_metric_and_rho() -> None:
    """As in test_admm.py, with unscaled duals beta, which no change of metric or rho touches."""
    part = MeasuredSite(QuadraticModel(), ALIKE)
    own = sample(RNG.standard_normal((N, D)) @ RNG.standard_normal((D, D)) + 1.0)
    weight = N / ROWS
    problem = QuadraticModel().prepare(own, ROWS, None, weight, np.ones(D))
    setup: dict[str, Any] = {"mean": np.zeros(D), "metric": np.ones(1), "rows": ROWS, "sites": SITES}
    state, reply = part.local_update(part.init(own), {"phase": "curvature", **setup})
    np.testing.assert_array_equal(reply["curvature"], problem.a)
    rhos, metrics = [0.5, 0.5, 2.0, 3.0], [RNG.uniform(0.2, 5.0, (D, D)) for _ in range(4)]
    metrics[2] = metrics[1]
    beta: FloatArray = np.zeros((D, D))
    B: FloatArray = np.zeros((D, D))
    for k, (rho, metric) in enumerate(zip(rhos, metrics, strict=True)):
        W = RNG.standard_normal((D, D))
        if k > 0:
            beta = beta + weight * rhos[k - 1] * metrics[k - 1] * (B - W)
        D_k = weight * rho * metric
        B = (weight * problem.a * problem.t + D_k * W - beta) / (weight * problem.a + D_k)
        message: dict[str, Any] = {"phase": "consensus", "W": W, "rho": rho, "keep": 0}
        message |= {"rescale": rhos[k - 1] / rho if k > 0 else 1.0, "mix": np.ones(min(k, 1))}
        message |= {} if k == 2 else {"metric": metric}  # it travels only when it is new
        state, reply = part.local_update(state, message)
        np.testing.assert_allclose(reply["position"], weight * (B + beta / D_k), atol=1e-12)
        gap = B - W
        assert reply["products"][-1] == pytest.approx(weight * float((metric * gap * gap).sum()))


class JointQuadraticModel(QuadraticModel):
    """All sites in one lot."""

    def together(self, problems: Sequence[Parabolas]) -> list[tuple[list[int], Parabolas]]:
        a, t = (np.stack([getattr(own, name) for own in problems]) for name in ("a", "t"))
        return [(list(range(len(problems))), Parabolas(a, t, problems[0].metric))]

    def apart(self, problem: Parabolas, places: Sequence[int]) -> Parabolas:
        return replace(problem, a=problem.a[places], t=problem.t[places])


@pytest.mark.parametrize("memory", [1, 3])
def test_sites_at_one_bench_follow_a_changing_metric_as_each_would_alone(memory: int) -> None:
    consensus = replace(ALIKE, memory=memory)
    joint, single = (MeasuredSite(model, consensus) for model in (JointQuadraticModel(), QuadraticModel()))
    data = [sample(RNG.standard_normal((N, D))) for _ in range(4)]
    together, alone = ([part.init(own) for own in data] for part in (joint, single))
    setup: dict[str, Any] = {"mean": np.zeros(D), "metric": np.ones(1), "rows": ROWS, "sites": SITES}
    messages: list[dict[str, Any]] = [{"phase": "curvature", **setup}]
    metrics = [RNG.uniform(0.2, 5.0, (D, D)) for _ in range(2)]
    for k in range(6):
        mixed = min(k, memory)
        message: dict[str, Any] = {"phase": "consensus", "W": RNG.standard_normal((D, D)), "rho": 0.5, "rescale": 1.0}
        message |= {"mix": np.full(mixed, 1.0 / max(mixed, 1)), "keep": min(mixed, memory - 1)}
        messages.append(message | ({"metric": metrics[k // 3]} if k % 3 == 0 else {}))
    for k, question in enumerate(messages):
        order = [2, 0, 3, 1] if k == 4 else [0, 1, 2, 3]
        steps = dict(zip(order, joint.local_updates([together[j] for j in order], question), strict=True))
        for j in range(4):
            alone[j], wanted = single.local_update(alone[j], question)
            together[j], found = steps[j]
            assert found.keys() == wanted.keys()
            for name, values in wanted.items():
                np.testing.assert_allclose(found[name], values, atol=1e-12)
    assert len({id(state.bench) for state in together}) == 1


@dataclass(frozen=True)
class ChangingPlan:
    rho: float = 1.0
    round: int = 0
    measurements: int = 0
    B: FloatArray | None = None
    trusted: int = 0
    done: bool = False


@dataclass(frozen=True)
class ChangingSchedule:
    """l1 alone; after `settled` rounds a new metric in every round, and a new rho."""

    lam: float
    settled: int
    rounds: int

    def start(self, d: int, sites: float, rows: float) -> ChangingPlan:
        return ChangingPlan()

    def with_inputs(self, plan: ChangingPlan, covariance: FloatArray) -> ChangingPlan:
        return plan

    def measuring(self, plan: ChangingPlan) -> bool:
        return plan.measurements == 0 or plan.round > self.settled

    def measure(
        self, plan: ChangingPlan, curvature: FloatArray, variances: FloatArray
    ) -> tuple[FloatArray, ChangingPlan]:
        other = np.random.default_rng(plan.measurements).uniform(0.2, 5.0, curvature.shape)
        return other, replace(plan, measurements=plan.measurements + 1)

    def judge(
        self, plan: ChangingPlan, W: FloatArray, B: FloatArray, Z: FloatArray, metric: FloatArray, residual: float
    ) -> ChangingPlan:
        return replace(plan, B=B, round=plan.round + 1, done=plan.round + 1 >= self.rounds)

    def w_step(
        self, plan: ChangingPlan, W: FloatArray, Z: FloatArray, metric: FloatArray
    ) -> tuple[FloatArray, ChangingPlan]:
        by = self.lam / (plan.rho * metric)
        rho = plan.rho * 1.5 if plan.round >= self.settled else plan.rho
        return np.sign(Z) * np.maximum(np.abs(Z) - by, 0.0), replace(plan, rho=rho)

    def progress(self, plan: ChangingPlan) -> Mapping[str, float]:
        return {}

    def concluded(self, plan: ChangingPlan, estimate: Estimate) -> Estimate:
        return estimate


def test_a_new_metric_does_not_move_a_consensus_that_has_been_reached() -> None:
    data = [sample(RNG.standard_normal((n, D)) @ RNG.standard_normal((D, D)) + 1.0) for n in (30, 50, 40)]
    lam, settled = 0.3, 400
    schedule = ChangingSchedule(lam, settled, settled + 6)
    server = MeasuredServer(D, np.zeros((D, D)), ALIKE, schedule, unread)
    site = MeasuredSite(QuadraticModel(), ALIKE)
    states, state, asked = [site.init(own) for own in data], server.init(), []
    weights = np.array([own.n for own in data]) / 120.0
    problems = [QuadraticModel().prepare(own, 120.0, None, w, np.ones(1)) for own, w in zip(data, weights, strict=True)]
    A = np.sum([w * own.a for w, own in zip(weights, problems, strict=True)], axis=0)
    pull = np.sum([w * own.a * own.t for w, own in zip(weights, problems, strict=True)], axis=0)
    minimum = np.sign(pull) * np.maximum(np.abs(pull) - lam, 0.0) / A
    while (message := server.broadcast(state)) is not None:
        asked.append(message)
        answers = [site.local_update(own, message) for own in states]
        states = [own for own, _ in answers]
        state = server.global_update(state, added([summand for _, summand in answers]))
        if state.plan.round >= settled:
            np.testing.assert_allclose(state.W, minimum, atol=1e-9)
            assert state.plan.B is not None
            np.testing.assert_allclose(state.plan.B, minimum, atol=1e-9)  # told by totals alone
    phases = [message["phase"] for message in asked]
    assert phases[:4] == ["count", "spread", "curvature", "consensus"]
    assert phases[-6:] == ["curvature", "consensus"] * 3
    renewed = [before == "curvature" for before in phases[:-1]]
    assert [("metric" in message) for message in asked[1:]] == [
        new or k == 1
        for k, new in enumerate(renewed)  # the first question of curvature brings a metric of ones
    ]
    assert state.plan.measurements == 6


# The schedules of networks


def test_no_metric_is_far_below_its_layers_mean() -> None:
    architecture, variances = Architecture(D, (2,)), np.array([1.0, 4.0, 0.25])
    schedule, plan = NetworkSchedule(architecture, LAM, RIDGE), NetworkPlan(1.0, np.ones(D))
    curvature = RNG.uniform(0.5, 2.0, (D, architecture.size))
    first, middle = slice(0, 2 * D), slice(2 * D, 2 * D + 2)
    curvature[0, [1, 2 * D, 2 * D + 2, 2 * D + 4]] = 1e-9  # a weight of the second input, and one number of each kind
    kept = curvature.copy()
    metric, plan = schedule.measure(plan, curvature, variances)
    np.testing.assert_array_equal(curvature, kept)
    assert not schedule.measuring(plan)
    np.testing.assert_array_equal(plan.variances, variances)
    floor = 0.1 * kept[:, middle].mean()
    expected = np.maximum(kept[:, first].reshape(D, 2, D), floor * variances).reshape(D, -1)
    np.testing.assert_allclose(metric[:, first], expected)
    assert metric[0, 2 * D] == pytest.approx(floor)
    assert metric[0, 2 * D + 2] == pytest.approx(0.1 * kept[:, 2 * D + 2 : 2 * D + 4].mean())
    assert metric[0, 2 * D + 4] == pytest.approx(0.1 * kept[:, 2 * D + 4].mean())
    assert (metric[kept > 1.0] == kept[kept > 1.0]).all()


def test_stages_end_when_the_sites_agree_or_after_their_most_rounds() -> None:
    schedule = NetworkSchedule(Architecture(D, (2,)), LAM, RIDGE, first_rounds=4, stage_rounds=2, measured_at=(3,))
    W = schedule.architecture.start(0)
    plan = replace(schedule.start(D, 1.0, 1e6), moved=1e-6, measuring=False)
    apart = partial(schedule.judge, W=W, B=W, Z=W, metric=np.ones_like(W), residual=1.0)
    agreed = schedule.judge(plan, W, W, W, np.ones_like(W), 1e-6)
    assert (agreed.stage, agreed.rounds, agreed.measuring) == (1, 0, True)
    _, after = schedule.w_step(agreed, W, W, np.ones_like(W))
    assert agreed.rho == plan.rho  # the duals in Z are in units of the old one
    assert after.rho == pytest.approx(1.2 * plan.rho)
    seen = []
    for _ in range(4):
        plan = apart(plan)
        seen.append((plan.stage, plan.rounds, plan.measuring))
    assert seen == [(0, 1, False), (0, 2, False), (0, 3, True), (1, 0, True)]


def test_the_path_of_networks_ends_once_no_strong_edge_is_on_a_cycle() -> None:
    architecture = Architecture(D, (2,))
    schedule = NetworkSchedule(architecture, LAM, RIDGE)
    plan = NetworkPlan(1.0, np.ones(D), stage=3, moved=0.0)
    cyclic, ordered = np.zeros((D, architecture.size)), np.zeros((D, architecture.size))
    for theta, back in ((cyclic, 0.2), (ordered, 0.01)):
        architecture.first_layer(theta)[1, :, 0] = 1.0
        architecture.first_layer(theta)[0, :, 1] = back
    assert not schedule.judge(plan, cyclic, cyclic, cyclic, np.ones_like(cyclic), 0.0).done
    ended = schedule.judge(plan, ordered, ordered, ordered, np.ones_like(ordered), 0.0)
    assert ended.done
    assert schedule.w_step(ended, ordered, cyclic, np.ones_like(ordered))[0] is ordered


def test_the_papers_schedule_has_its_hyperparameters_and_multiplier() -> None:
    """Appendix B: lam 0.001, rho1 and rho2 from 0.1; Eq. 6: alpha <- alpha + rho1 h."""
    architecture = Architecture(D, (2,))
    schedule = PaperNetworkSchedule(architecture=architecture)
    plan = schedule.start(D, 1.0, 1.0)
    assert (schedule.lam, plan.rho1, plan.rho2, plan.alpha) == (0.001, 0.1, 0.1, 0.0)
    Z = 0.5 * RNG.standard_normal((D, architecture.size)) * architecture.free()
    W, after = schedule.w_step(plan, architecture.start(0), Z, np.ones(D))
    norms = architecture.norms(W)
    h = float(np.trace(np.linalg.matrix_power(np.eye(D) + norms**2 / 2**20, 2**20))) - D
    assert after.alpha == pytest.approx(0.1 * h, rel=1e-4)
    assert after.rho1 > 0.1
