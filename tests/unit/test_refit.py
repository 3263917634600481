"""What follows and surrounds ADMM for networks: metrics that change, fits from totals, and edges turned around."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from dagora.algorithms.admm import Consensus, ServerState, SiteState
from dagora.algorithms.measured import MeasuredServer, MeasuredSite
from dagora.algorithms.network_schedule import NetworkPlan, NetworkSchedule, PaperNetworkSchedule
from dagora.algorithms.refit import ROUNDS, RefitServer, RefitSite, RefitState
from dagora.algorithms.reversals import Fitted, Reversals, Turn, in_order
from dagora.arrays import BoolArray, FloatArray
from dagora.data.moments import Moments
from dagora.data.sample import Sample
from dagora.errors import MessageError
from dagora.federated.message import Message, array
from dagora.federated.protocol import Estimate, Summand
from dagora.graphs import is_dag
from dagora.models.mlp import Fit, MlpModel
from dagora.models.network import Architecture
from dagora.solvers.levenberg import Descent, Quadratic, Seen
from tests.networks import generic_minimum, jacobian_of, outputs_of

RNG = np.random.default_rng(0)
D, N, ROWS, SITES = 3, 30, 120.0, 3.0
LAM, RIDGE = 0.01, 0.01
ALIKE = Consensus(global_mean=True, by_rows=True, memory=1)


def sample(rows: FloatArray) -> Sample:
    moments = Moments.of_rows(rows)
    return Sample(moments.n, moments.mean, moments.scatter, rows)


def added(summands: Sequence[Summand]) -> dict[str, FloatArray]:
    return {name: np.sum([own[name] for own in summands], axis=0) for name in summands[0]}


def unread(W: FloatArray) -> Estimate:
    raise AssertionError("no graph is read off the consensus here")


# A metric that changes on the way


@dataclass(frozen=True)
class Parabolas:
    """l_k / w_k = sum of a (theta - t)^2 / 2."""

    a: FloatArray
    t: FloatArray
    metric: FloatArray


class QuadraticModel:
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

    def warnings(self, plan: ChangingPlan) -> tuple[str, ...]:
        return ()


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


# Questions to a site


def refit_site(architecture: Architecture) -> RefitSite:
    model = MlpModel(architecture, architecture.start(0))
    return RefitSite(MeasuredSite(model, ALIKE), model)


def prepared(site: RefitSite, own: Sample, rows: float, mean: FloatArray) -> SiteState[Fit]:
    setup: Message = {"phase": "curvature", "mean": mean, "metric": np.ones(1), "rows": rows, "sites": 1.0}
    return site.local_update(site.init(own), setup)[0]


def question(architecture: Architecture) -> dict[str, Any]:
    theta = np.random.default_rng(3).standard_normal((2, architecture.size))
    used, products = np.ones((2, D)), np.ones(2)
    return {"phase": "fit", "variables": np.array([2.0, 0.0]), "theta": theta, "used": used, "products": products}


@pytest.mark.parametrize(
    "wrong",
    [
        {"variables": np.array([2.0, float(D)])},
        {"variables": np.array([2.0, -1.0])},
        {"variables": np.array([2.0, 0.5])},
        {"variables": np.array([2.0, np.nan])},
        {"variables": np.array([2.0])},
        {"variables": np.zeros(0), "theta": np.zeros((0, 11)), "used": np.zeros((0, D)), "products": np.zeros(0)},
        {"theta": np.zeros((2, 10))},
        {"theta": np.zeros((3, 11))},
        {"theta": np.zeros(11)},
        {"theta": np.full((2, 11), np.nan)},
        {"used": np.ones((2, D + 1))},
        {"used": np.ones(D)},
        {"theta": "text"},
        {"variables": np.array([2, 0])},
        {"products": "yes"},
        {"products": 1.0},
        {"products": np.ones(3)},
        {"products": np.ones((2, 1))},
        {"products": np.array([True, False])},
        {"phase": "other"},
    ],
    ids=[
        "unknown variable", "negative variable", "half a variable", "no variable", "too few variables", "no networks",
        "short networks", "too many networks", "one row", "no numbers", "too many inputs", "inputs of one", "text",
        "whole numbers", "text for products", "one for all products", "too many products", "products in a column",
        "truth values", "phase",
    ],
)  # fmt: skip
def test_a_fit_that_makes_no_sense_is_refused(wrong: Message) -> None:
    architecture = Architecture(D, (2,))
    assert architecture.size == 11
    site, own = refit_site(architecture), sample(RNG.standard_normal((N, D)))
    state = prepared(site, own, float(N), own.mean)
    site.local_update(state, question(architecture))  # without the mistake it is answered
    with pytest.raises(MessageError):
        site.local_update(state, {**question(architecture), **wrong})


@pytest.mark.parametrize("variables", [np.array(2.0), np.array([[2.0], [0.0]])], ids=["a number", "a column"])
def test_a_fit_whose_variables_are_no_list_is_refused(variables: FloatArray) -> None:
    architecture = Architecture(D, (2,))
    site, own = refit_site(architecture), sample(RNG.standard_normal((N, D)))
    with pytest.raises(MessageError):
        site.local_update(prepared(site, own, float(N), own.mean), {**question(architecture), "variables": variables})


@pytest.mark.parametrize("missing", ["variables", "theta", "used", "products"])
def test_a_fit_with_a_part_missing_is_refused(missing: str) -> None:
    architecture = Architecture(D, (2,))
    site, own = refit_site(architecture), sample(RNG.standard_normal((N, D)))
    message = {name: value for name, value in question(architecture).items() if name != missing}
    with pytest.raises(MessageError):
        site.local_update(prepared(site, own, float(N), own.mean), message)


def test_a_fit_before_the_setup_is_refused() -> None:
    architecture = Architecture(D, (2,))
    site = refit_site(architecture)
    with pytest.raises(MessageError):
        site.local_update(site.init(sample(RNG.standard_normal((N, D)))), question(architecture))


def test_a_fit_is_answered_with_the_sums_that_were_asked_for_and_changes_nothing_at_the_site() -> None:
    architecture = Architecture(D, (2,))
    site, own = refit_site(architecture), sample(RNG.standard_normal((N, D)))
    state, asked = prepared(site, own, float(N), own.mean), question(architecture)
    asked["used"] = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    after, sums = site.local_update(state, asked)
    assert after is state
    X = own.rows - own.mean
    residual = outputs_of((2,), asked["theta"], X) - X.T[[2, 0]]
    np.testing.assert_allclose(sums["squares"], (residual**2).sum(axis=1))
    J = jacobian_of((2,), asked["theta"], X)
    np.testing.assert_allclose(sums["gradient"], np.einsum("knp,kn->kp", J, residual), atol=1e-10)
    p, q = 11 - 2, 11 - 4  # parameters in use
    assert sums["products"].shape == (p * (p + 1) // 2 + q * (q + 1) // 2,)
    asked["products"] = np.array([0.0, 1.0])
    _, fewer = site.local_update(state, asked)
    using = architecture.using(asked["used"][1] != 0.0)
    JJ = J[1][:, using].T @ J[1][:, using]
    np.testing.assert_allclose(fewer["products"], JJ[np.triu_indices(q)], atol=1e-10)
    asked["products"] = np.zeros(2)
    assert sorted(site.local_update(state, asked)[1]) == ["gradient", "squares"]


# Fits from totals


class Refit:
    """A server after ADMM, and sites that have been set up: as if ADMM had found the order that `allowed` gives."""

    def __init__(
        self, parts: Sequence[FloatArray], allowed: BoolArray, searches: int = 0, tolerance: float = 3e-5
    ) -> None:
        rows = np.concatenate(parts)
        self.architecture = Architecture(rows.shape[1], (4,))
        self.X = rows - rows.mean(axis=0)
        self.site = refit_site(self.architecture)
        self.states = [prepared(self.site, sample(own), float(len(rows)), rows.mean(axis=0)) for own in parts]
        start = self.architecture.start(0)
        schedule = NetworkSchedule(self.architecture, LAM, RIDGE)
        admm = MeasuredServer(self.architecture.d, start, ALIKE, schedule, unread)
        names = tuple(f"x{j + 1}" for j in range(self.architecture.d))
        self.server = RefitServer(admm, self.architecture, names, LAM, RIDGE, 0.5, searches, tolerance)
        found: ServerState[NetworkPlan] = replace(
            admm.init(), rows=float(len(rows)), mean=rows.mean(axis=0), variances=rows.var(axis=0)
        )
        self.first = RefitState(found, "order", in_order(self.architecture, start, allowed))

    def passes(self) -> list[RefitState[NetworkPlan]]:
        """The state after every round."""
        state, seen = self.first, []
        while (message := self.server.broadcast(state)) is not None:
            total = added([self.site.local_update(own, message)[1] for own in self.states])
            state = self.server.global_update(state, total)
            seen.append(state)
            assert len(seen) < 1000
        return seen

    def objective(self, j: int, theta: FloatArray) -> tuple[float, FloatArray]:
        """Of one network, less the l1 penalty: half the mean square and the ridge, by autograd."""
        residual = outputs_of((4,), theta[None], self.X)[0] - self.X[:, j]
        shrunk = RIDGE * self.architecture.weights() * theta
        gradient = jacobian_of((4,), theta[None], self.X)[0].T @ residual / len(self.X)
        return 0.5 * float((residual**2).mean()) + 0.5 * float(shrunk @ theta), gradient + shrunk


def chain(n: int = 240) -> FloatArray:
    """x1 -> x2 -> x3 by curves, with noise that is small beside them."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, 3))
    X[:, 0] *= 1.5
    X[:, 1] = 2.0 * np.tanh(2.0 * X[:, 0]) + 0.4 * X[:, 1]
    X[:, 2] = 1.5 * np.sin(1.5 * X[:, 1]) + 0.4 * X[:, 2]
    shifted: FloatArray = X + np.array([1.0, -2.0, 0.5])
    return shifted


FORWARDS = np.triu(np.ones((3, 3), dtype=bool), 1)


@pytest.mark.parametrize(
    "backwards",
    [
        True,
        False,
    ],
)
def test_from_where_a_fit_ends_a_generic_optimiser_gains_nothing(
    backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROUNDS, "order", 500)
    allowed = FORWARDS[::-1, ::-1] if backwards else FORWARDS
    at = Refit([chain()], allowed, tolerance=1e-10)
    ended = next(state for state in at.passes() if state.stage == "graph")
    start = sum(at.objective(j, at.first.trying[j].descent.x)[0] for j in range(3))
    values = []
    for j, fitted in enumerate(ended.networks):
        theta, lam = fitted.descent.x, at.architecture.penalties(LAM, RIDGE).lam
        value = at.objective(j, theta)[0] + float(lam @ np.abs(theta))
        assert fitted.descent.value == pytest.approx(value, rel=1e-9)
        free = at.architecture.using(allowed[:, j])
        _, least = generic_minimum(partial(at.objective, j), theta, lam, free)
        assert value <= least * (1.0 + 1e-5)
        assert (theta[~free] == 0.0).all()
        values.append(value)
    assert sum(values) < 0.7 * start
    assert ended.objective == pytest.approx(sum(values), rel=1e-9)


def test_the_fit_of_three_sites_is_that_of_their_rows_together() -> None:
    X = chain()
    one, three = Refit([X], FORWARDS), Refit([X[:30], X[30:130], X[130:]], FORWARDS)
    apart, together = three.server.estimate(three.passes()[-1]), one.server.estimate(one.passes()[-1])
    np.testing.assert_allclose(apart.weights, together.weights, atol=1e-5)
    np.testing.assert_allclose(apart.extras["objective"], together.extras["objective"], rtol=1e-7)
    assert apart.functions is not None
    assert together.functions is not None
    np.testing.assert_allclose(apart.functions.predict(X), together.functions.predict(X), atol=1e-4)


def test_objectives_never_rise_within_a_pass() -> None:
    seen = Refit([chain()], FORWARDS[::-1, ::-1], searches=2).passes()
    assert {state.stage for state in seen} >= {"order", "reversals", "settle", "graph"}
    for before, after in itertools.pairwise(seen):
        if before.stage == after.stage and after.rounds > before.rounds:
            values = [(a.descent.value, b.descent.value) for a, b in zip(before.trying, after.trying, strict=True)]
            assert all(later <= earlier for earlier, later in values)


def test_products_are_asked_for_once_and_only_of_networks_that_are_like_none_before_them() -> None:
    """Those of the order, which come from ADMM; and, in a search, those of a parent that takes in its child."""
    at = Refit([chain()], FORWARDS[::-1, ::-1], searches=2)
    state, asked, networks = at.first, [], []
    while (message := at.server.broadcast(state)) is not None:
        moving = [fitted for fitted in state.trying if not fitted.descent.ended]
        products = array(message, "products")
        assert products.shape == array(message, "variables").shape == (len(moving),)
        np.testing.assert_array_equal(array(message, "variables"), [fitted.variable for fitted in moving])
        expected = [0.0] * len(moving)
        if state.rounds == 0:
            expected = {"order": [1.0] * 3, "reversals": [0.0, 1.0] * (len(moving) // 2)}.get(state.stage, expected)
        assert products.tolist() == expected
        asked.append((state.stage, bool(products.any())))
        networks.append(len(moving))
        total = added([at.site.local_update(own, message)[1] for own in at.states])
        state = at.server.global_update(state, total)
    assert {stage for stage, _ in asked} == {"order", "reversals", "settle", "graph"}
    assert {stage for stage, some in asked if some} == {"order", "reversals"}
    assert 0 < min(networks) < 3  # some were at rest


def test_noise_variances_are_what_the_functions_leave() -> None:
    X = chain()
    at = Refit([X], FORWARDS)
    found = at.server.estimate(at.passes()[-1])
    assert found.functions is not None
    left = X - found.functions.predict(X)
    np.testing.assert_allclose(found.extras["noise_variances"], (left**2).mean(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(found.edges, np.eye(3, k=1, dtype=bool))
    np.testing.assert_array_equal(found.edges, found.weights > 0.5)


# Edges turned around


@pytest.mark.parametrize(
    ("curve", "close"),
    [
        (lambda x: 2.0 * np.tanh(2.0 * x), 0.02),
        # J'J of before the turn is far from that of a parabola: the rounds are over when 4 percent are left to gain.
        (lambda x: x + x**2, 0.05),
    ],
    ids=["tanh", "square"],
)
def test_an_edge_that_was_fitted_backwards_is_turned_round(
    curve: Callable[[FloatArray], FloatArray], close: float
) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(240)
    X = np.column_stack([x, curve(x) + 0.4 * rng.standard_normal(240)])
    backwards, forwards = np.eye(2, k=-1, dtype=bool), np.eye(2, k=1, dtype=bool)
    kept, turned = Refit([X], backwards), Refit([X], backwards, searches=4)
    as_it_was = kept.server.estimate(kept.passes()[-1])
    found = turned.server.estimate(turned.passes()[-1])
    assert (as_it_was.edges <= backwards).all()
    np.testing.assert_array_equal(found.edges, forwards)
    right = Refit([X], forwards)
    best = float(right.server.estimate(right.passes()[-1]).extras["objective"])
    assert float(found.extras["objective"]) == pytest.approx(best, rel=close)
    assert best < 0.9 * float(as_it_was.extras["objective"])


@pytest.mark.parametrize("seed", range(5))
def test_turns_lower_the_objective_whatever_the_order_before(seed: int) -> None:
    place = np.random.default_rng(seed).permutation(3)
    allowed = place[:, None] < place
    values = []
    for searches in (0, 4):
        at = Refit([chain()], allowed, searches)
        found = at.server.estimate(at.passes()[-1])
        assert is_dag(found.edges)
        values.append(float(found.extras["objective"]))
    assert values[1] <= values[0] * (1.0 + 1e-9)


def test_edges_that_are_right_stay() -> None:
    at = Refit([chain()], FORWARDS, searches=4)
    seen = at.passes()
    assert any(state.stage == "reversals" for state in seen)
    assert not any(state.stage == "settle" for state in seen)  # nothing was turned
    np.testing.assert_array_equal(at.server.estimate(seen[-1]).edges, np.eye(3, k=1, dtype=bool))


def test_no_turn_is_tried_twice_among_the_same_parents() -> None:
    at = Refit([chain()], FORWARDS[::-1, ::-1], searches=4)
    state, tried = at.first, []
    while (message := at.server.broadcast(state)) is not None:
        total = added([at.site.local_update(own, message)[1] for own in at.states])
        before, state = state, at.server.global_update(state, total)
        if (state.stage, state.rounds) != ("reversals", 0):
            continue
        new = state.turns - before.turns
        assert [own.variable for own in state.trying[::2]] == [turn.target for turn in sorted(new)]
        assert [own.variable for own in state.trying[1::2]] == [turn.source for turn in sorted(new)]
        tried.append(new)
        # The same once more, with all turns but one tried already; and with all.
        first = min(new)
        one_left = at.server.global_update(replace(before, turns=state.turns - {first}), total)
        assert [own.variable for own in one_left.trying] == [first.target, first.source]
        assert one_left.turns == state.turns
        assert at.server.global_update(replace(before, turns=state.turns), total).stage == "graph"
    assert len(tried) >= 2
    assert all(new for new in tried)
    assert all(not one & other for one, other in itertools.combinations(tried, 2))


def test_a_turn_is_another_among_other_strong_parents() -> None:
    architecture = Architecture(3, (2,))
    theta = 10.0 * architecture.start(1)
    search = Reversals(architecture, architecture.start(0))
    in_a_row, all_ahead = (in_order(architecture, theta, graph) for graph in (np.eye(3, k=1, dtype=bool), FORWARDS))
    assert search.turns(in_a_row) == (Turn(0, 1, ((), (0,))), Turn(1, 2, ((0,), (1,))))
    assert search.turns(all_ahead) == (
        Turn(0, 1, ((), (0,))), Turn(0, 2, ((), (0, 1))), Turn(1, 2, ((0,), (0, 1)))
    )  # fmt: skip
    weak = theta.copy()
    architecture.first_layer(weak)[2, :, 0] *= 1e-3
    assert search.turns(in_order(architecture, weak, FORWARDS)) == search.turns(in_a_row)


def test_a_network_with_other_inputs_goes_on_with_its_model() -> None:
    architecture, rng = Architecture(3, (2,)), np.random.default_rng(0)
    both, one = np.array([True, True, False]), np.array([True, False, False])
    new = Fitted.at(architecture, 2, rng.standard_normal(architecture.size), both)
    assert new.descent.lacks_model
    using = architecture.using(both)
    A = rng.standard_normal((30, int(using.sum())))
    seen = Seen(1.0, rng.standard_normal(architecture.size) * using, using, A.T @ A)
    model = Quadratic.at(seen)
    fewer = replace(new, descent=replace(new.descent, model=model)).allowing(architecture, one)
    assert not fewer.descent.lacks_model
    assert fewer.descent.prior is model
    assert (fewer.variable, fewer.descent.value) == (2, np.inf)
    np.testing.assert_array_equal(fewer.descent.x, new.descent.x * architecture.using(one))
    np.testing.assert_array_equal(fewer.used, one)
    np.testing.assert_array_equal(fewer.allowed, one)


def fitted(architecture: Architecture, variable: int, parents: BoolArray, value: float) -> Fitted:
    """A network with these parents and this objective."""
    theta = np.where(architecture.using(parents), 1.0, 0.0)
    return Fitted(variable, parents, parents, Descent(theta, theta, value))


@pytest.mark.parametrize("seed", range(30))
def test_turns_close_no_cycle_and_touch_no_variable_twice(seed: int) -> None:
    d, rng = 6, np.random.default_rng(seed)
    architecture = Architecture(d, (2,))
    place = rng.permutation(d)
    graph = (place[:, None] < place) & (rng.random((d, d)) < 0.6)
    networks = tuple(fitted(architecture, j, graph[:, j], 1.0) for j in range(d))
    pairs = []
    for i, j in np.argwhere(graph).tolist():
        # What the tried networks took in need not go well with other turns, nor with one another.
        of_j, of_i = (rng.random(d) < 0.4, rng.random(d) < 0.4)
        of_j[[i, j]], of_i[i], of_i[j] = False, False, True
        gains = rng.uniform(-0.3, 0.3, 2)
        pairs.append((fitted(architecture, j, of_j, 1.0 + gains[0]), fitted(architecture, i, of_i, 1.0 + gains[1])))
    found, turned = Reversals(architecture, architecture.start(0)).made(networks, tuple(f for p in pairs for f in p))
    assert [own.variable for own in found] == list(range(d))
    made = [pair for pair in pairs if found[pair[0].variable] is pair[0] or found[pair[1].variable] is pair[1]]
    assert len(made) == turned
    touched = [own.variable for pair in made for own in pair]
    assert len(set(touched)) == len(touched)
    for of_child, of_parent in made:  # both or neither
        assert found[of_child.variable] is of_child
        assert found[of_parent.variable] is of_parent
        assert of_child.descent.value + of_parent.descent.value < 2.0 * (1.0 - 1e-3)
    for j in set(range(d)) - set(touched):
        assert found[j] is networks[j]
    after = np.stack([architecture.inputs(own.descent.x) for own in found], axis=1)
    assert is_dag(after)


def test_some_turns_are_made_some_left_for_a_cycle_some_for_a_variable() -> None:
    """1 -> 2 -> 3 with 1 -> 3: only the best of the two turns at 2 is made, and none that closes a cycle."""
    architecture = Architecture(3, (2,))
    networks = tuple(fitted(architecture, j, FORWARDS[:, j], 1.0) for j in range(3))

    def turn(i: int, j: int, gain: float, of_j: list[int], of_i: list[int]) -> tuple[Fitted, Fitted]:
        inputs = [np.isin(np.arange(3), own) for own in (of_j, of_i)]
        return fitted(architecture, j, inputs[0], 1.0 - gain), fitted(architecture, i, inputs[1], 1.0)

    cycle = turn(0, 2, 0.5, [], [2])  # 3 -> 1 -> 2: no cycle, for 3 loses both inputs
    kept = turn(0, 2, 0.9, [1], [2])  # 1 -> 2 -> 3 -> 1
    search = Reversals(architecture, architecture.start(0))
    assert search.made(networks, kept) == (networks, 0)
    assert search.made(networks, (*kept, *cycle))[1] == 1
    one, other = turn(0, 1, 0.3, [], [1]), turn(1, 2, 0.4, [0], [2])
    found, turned = search.made(networks, (*one, *other))
    assert turned == 1
    assert (found[2], found[1], found[0]) == (other[0], other[1], networks[0])
    assert search.made(networks, turn(0, 1, 1e-4, [], [1])) == (networks, 0)  # too little is gained


def test_what_is_tried_follows_an_order_with_the_edge_turned() -> None:
    """1 -> 2 -> 3 -> 4: to turn 2 -> 3, variable 3 may use what descends from neither, that is 1, and 2 also 3."""
    architecture = Architecture(4, (2,))
    graph = np.eye(4, k=1, dtype=bool)
    theta = architecture.start(1) * np.stack([architecture.using(graph[:, j]) for j in range(4)])
    theta[:, architecture.first()] *= 10.0
    networks = in_order(architecture, theta, graph)
    search = Reversals(architecture, architecture.start(0))
    turns = search.turns(networks)
    assert [(turn.source, turn.target) for turn in turns] == [(0, 1), (1, 2), (2, 3)]
    tried = search.tried(networks, turns)
    assert [own.variable for own in tried] == [1, 0, 2, 1, 3, 2]
    assert [own.variable for own in search.tried(networks, turns[1:2])] == [2, 1]
    of_three, of_two = tried[2:4]
    assert of_three.allowed.tolist() == [True, False, False, False]
    assert of_two.allowed.tolist() == [True, False, True, False]
    assert of_two.used.tolist() == [True, False, True, False]  # it starts with weights for 3 that are not zero
    assert (of_three.descent.x[~architecture.using(of_three.allowed)] == 0.0).all()


def test_a_network_that_took_nothing_in_starts_at_random() -> None:
    # With all weights zero, those of an input that joins would not move.
    architecture = Architecture(2, (2,))
    theta = architecture.start(1)
    theta[:, architecture.first()] *= 10.0
    theta[0, architecture.weights()] = 0.0
    search = Reversals(architecture, architecture.start(0))
    networks = in_order(architecture, theta, np.array([[False, True], [False, False]]))
    _, of_parent = search.tried(networks, search.turns(networks))
    assert of_parent.variable == 0
    later = architecture.weights() & ~architecture.first()
    np.testing.assert_array_equal(of_parent.descent.x[later], architecture.start(0)[0, later])
    assert of_parent.used.tolist() == [False, True]


def test_turns_that_are_far_off_rest() -> None:
    architecture = Architecture(3, (2,))
    networks = tuple(fitted(architecture, j, FORWARDS[:, j], 1.0) for j in range(3))
    none = np.zeros(3, dtype=bool)
    near = [fitted(architecture, 1, none, 1.04), fitted(architecture, 0, none, 1.04)]
    far = [fitted(architecture, 2, none, 1.2), fitted(architecture, 0, none, 1.0)]
    kept = Reversals(architecture, architecture.start(0)).promising(networks, (*near, *far))
    assert [own.descent.ended for own in kept] == [False, False, True, True]
