"""How ADMM's penalties move when every variable has a network: along the path, as for linear models (schedules.py).

The consensus here need only find an order of the variables: the networks are then fitted in it from totals (refit.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.acyclicity import log_determinant
from dagora.algorithms.schedules import PaperPlan, PaperSchedule
from dagora.arrays import FloatArray
from dagora.federated.protocol import Estimate
from dagora.models.network import Architecture
from dagora.solvers.network_step import network_step, paper_network_step
from dagora.solvers.path import STAGES, path_ended, path_penalty

_FLOOR = 0.1  # of a layer's curvature, relative to its mean over the variables: units that do nothing yet have none


@dataclass(frozen=True)
class NetworkPlan:
    """Stage of the path."""

    rho: float
    variances: FloatArray
    stage: int = 0
    rounds: int = 0  # in this stage
    all_rounds: int = 0
    h: float = np.inf
    distance: float = 1e-2  # of the sites from W, relative to W, in the last round
    moved: float = np.inf  # W's last move, relative to W
    measuring: bool = True
    trusted: int = 0  # mixing is for problems that are nearly linear
    done: bool = False


@dataclass(frozen=True)
class NetworkSchedule:
    """Follow the minimum of  loss + lam |W_1|_1 + ridge/2 (|W_1|^2 + |W_2|^2 + ...) + mu h  as mu grows by stages.

    A stage ends when the sites are within `tolerance` of W and W rests, or after its most rounds.  The curvature is
    measured anew when a stage begins, and in the first, from random networks to fitted ones, now and then.
    """

    architecture: Architecture
    lam: float
    ridge: float
    rho: float = 2.0
    growth: float = 1.2  # of rho, from stage to stage
    first_rounds: int = 25
    stage_rounds: int = 12
    late_rounds: int = 5  # of stages beyond the usual number, which only cut what is left of cycles
    tolerance: float = 1e-3
    measured_at: tuple[int, ...] = (3, 8, 16)  # rounds of the first stage

    def start(self, d: int, sites: float, rows: float) -> NetworkPlan:
        """First stage.  Sites with fewer rows than parameters leave most directions open and need a firmer hold."""
        return NetworkPlan(self.rho * max(1.0, self.architecture.size * sites / rows) ** 0.5, np.ones(d))

    def with_inputs(self, plan: NetworkPlan, covariance: FloatArray) -> NetworkPlan:
        """There are none."""
        return plan

    def measuring(self, plan: NetworkPlan) -> bool:
        """At the start of a stage, and now and then in the first."""
        return plan.measuring

    def measure(
        self, plan: NetworkPlan, curvature: FloatArray, variances: FloatArray
    ) -> tuple[FloatArray, NetworkPlan]:
        """Curvatures, none far below its layer's mean over the variables."""
        metric = curvature.copy()
        at = 0
        for depth, (inputs, outputs) in enumerate(self.architecture.layers):
            middle, end = at + inputs * outputs, at + (inputs + 1) * outputs
            biases = metric[:, middle:end]
            floor = _FLOOR * biases.mean()
            np.maximum(biases, floor, out=biases)
            weights = metric[:, at:middle].reshape(len(metric), outputs, inputs)
            lowest = floor * variances if depth == 0 else _FLOOR * weights.mean()
            metric[:, at:middle] = np.maximum(weights, lowest).reshape(len(metric), -1)
            at = end
        return metric, replace(plan, measuring=False, variances=variances)

    def judge(
        self, plan: NetworkPlan, W: FloatArray, B: FloatArray, Z: FloatArray, metric: FloatArray, residual: float
    ) -> NetworkPlan:
        """Go on with this stage, or to the next, or end."""
        plan = replace(plan, rounds=plan.rounds + 1, all_rounds=plan.all_rounds + 1, distance=residual)
        if max(residual, plan.moved) > self.tolerance and plan.rounds < self.most_rounds(plan):
            return replace(plan, measuring=plan.stage == 0 and plan.rounds in self.measured_at)
        plan = replace(plan, stage=plan.stage + 1, rounds=0, moved=np.inf, measuring=True)
        return replace(plan, done=self.ended(plan, W))

    def ended(self, plan: NetworkPlan, W: FloatArray) -> bool:
        """Whether the order is settled."""
        return path_ended(plan.stage, self.architecture.norms(W), plan.variances)

    def w_step(
        self, plan: NetworkPlan, W: FloatArray, Z: FloatArray, metric: FloatArray
    ) -> tuple[FloatArray, NetworkPlan]:
        """The stage's problem, as exactly as the consensus so far deserves."""
        if plan.done:
            return W, plan
        mu = path_penalty(plan.stage, plan.variances)
        effort = 0.03 * min(plan.distance, 1e-2) * np.sqrt(len(W))
        theta = network_step(self.architecture, W, Z, plan.rho * metric, self.lam, self.ridge, mu, effort)
        return theta, self.after(plan, W, theta, metric, self.architecture.norms(theta))

    def after(
        self, plan: NetworkPlan, W: FloatArray, theta: FloatArray, metric: FloatArray, edges: FloatArray
    ) -> NetworkPlan:
        """Take note of a W-step from W to theta, whose edges these are.

        rho grows after the first of a stage: positions that came in before it have duals in units of the old one.
        """
        moved = np.sqrt((metric * (theta - W) ** 2).sum() / (metric * theta**2).sum())
        rho = plan.rho * (self.growth if plan.rounds == 0 else 1.0)
        return replace(plan, h=log_determinant(edges)[0], moved=float(moved), rho=rho)

    def most_rounds(self, plan: NetworkPlan) -> int:
        """Rounds after which a stage ends, consensus or not."""
        if plan.stage >= STAGES:
            return self.late_rounds
        return self.stage_rounds if plan.stage > 0 else self.first_rounds

    def progress(self, plan: NetworkPlan) -> Mapping[str, float]:
        """h and the stage; a share of the work done that can only be guessed."""
        most = self.first_rounds + STAGES * self.stage_rounds
        share = min(plan.all_rounds / most, 0.99)
        return {"h": plan.h, "stage": plan.stage, "moved": plan.moved, "done": 1.0 if plan.done else share}

    def concluded(self, plan: NetworkPlan, estimate: Estimate) -> Estimate:
        """The sites need not agree yet."""
        return estimate


@dataclass(frozen=True, kw_only=True)
class PaperNetworkSchedule(PaperSchedule):
    """Eqs. 6, 8 and 9 with the hyperparameters of Appendix B for networks."""

    architecture: Architecture
    lam: float = 1e-3
    rho1: float = 0.1
    rho2: float = 0.1

    def judge(
        self, plan: PaperPlan, W: FloatArray, B: FloatArray, Z: FloatArray, metric: FloatArray, residual: float
    ) -> PaperPlan:
        """The loss of networks is not quadratic, so that its value does not follow from its gradient."""
        return plan

    def minimum(self, plan: PaperPlan, W: FloatArray, Z: FloatArray) -> tuple[FloatArray, float]:
        """Eq. 5 for networks."""
        return paper_network_step(self.architecture, W, Z, plan.rho, self.lam, plan.alpha, plan.rho1)
