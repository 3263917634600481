"""How ADMM's penalties move: to the paper's letter, or along a path that keeps the consensus."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.acyclicity import log_determinant, trace_exponential
from dagora.arrays import BoolArray, FloatArray
from dagora.graphs import order_of
from dagora.solvers.global_step import ordered_step, paper_step, path_step
from dagora.solvers.path import STAGES, path_ended, path_penalty


@dataclass(frozen=True)
class PaperPlan:
    """Multiplier alpha and penalties rho1, rho2 of the paper; rho = K rho2 because weights are 1 / K."""

    sites: int
    alpha: float
    rho1: float
    rho2: float
    round: int = 0
    h: float = np.inf
    done: bool = False
    fresh: bool = True

    @property
    def rho(self) -> float:
        """Consensus penalty over all sites."""
        return self.sites * self.rho2


@dataclass(frozen=True)
class PaperSchedule:
    """Eqs. 7, 9 and 10 with the hyperparameters of Appendix B (linear case).

    Ends after 200 rounds, or when both penalties have reached their maximum, from where on nothing moves.
    """

    lam: float = 0.01
    rho1: float = 1e-3
    rho2: float = 1e-3
    gamma1: float = 1.75
    gamma2: float = 1.25
    most: float = 1e16
    rounds: int = 200

    def start(self, d: int, sites: int) -> PaperPlan:
        """alpha = 0; the penalties start small."""
        return PaperPlan(sites, 0.0, self.rho1, self.rho2)

    def judge(self, plan: PaperPlan, W: FloatArray, metric: FloatArray, residual: float) -> PaperPlan:
        """The paper does not wait for consensus."""
        return plan

    def w_step(
        self, plan: PaperPlan, W: FloatArray, Z: FloatArray, metric: FloatArray
    ) -> tuple[FloatArray, PaperPlan]:
        """Eq. 6, then alpha <- alpha + rho1 h(W), rho1 <- gamma1 rho1, rho2 <- gamma2 rho2."""
        W = paper_step(W, Z, plan.rho, self.lam, plan.alpha, plan.rho1)
        h, _ = trace_exponential(W[: W.shape[1]])
        both_at_most = plan.rho1 >= self.most and plan.rho2 >= self.most
        return W, replace(
            plan,
            alpha=plan.alpha + plan.rho1 * h,
            rho1=min(plan.rho1 * self.gamma1, self.most),
            rho2=min(plan.rho2 * self.gamma2, self.most),
            round=plan.round + 1,
            h=h,
            done=plan.round + 1 >= self.rounds or both_at_most,
        )

    def progress(self, plan: PaperPlan) -> Mapping[str, float]:
        """h and the two penalties."""
        done = plan.round / self.rounds
        return {"h": plan.h, "rho1": plan.rho1, "rho2": plan.rho2, "alpha": plan.alpha, "done": done}

    def warnings(self, plan: PaperPlan) -> tuple[str, ...]:
        """h should be small by the end."""
        return () if plan.h < 1e-8 else (f"h(W) is still {plan.h:.1e}: W is not close to a DAG",)


@dataclass(frozen=True)
class PathPlan:
    """Stage of the path; `allowed` holds the entries that the settled order permits, once it is settled."""

    rho: float
    stage: int = 0
    rounds: int = 0  # in this stage
    all_rounds: int = 0
    h: float = np.inf
    residual: float = np.inf
    allowed: BoolArray | None = None
    fresh: bool = True
    done: bool = False
    converged: bool = False


@dataclass(frozen=True)
class PathSchedule:
    """Follow the minimum of  loss + lam |W|_1 + mu h(W)  as mu grows by stages (see solvers/path.py).

    1. In a stage, consensus rounds go on until the sites' distance from W is below `tolerance`, relative to W,
       or `stage_rounds` have passed.
    2. After the last stage the order of the variables is settled, and what is left is a lasso with a unique answer.
       Its rounds go on to `final_tolerance`.

    rho is in units of the variables' variances, and the penalties' strength does not depend on the number of sites.
    """

    lam: float = 0.1
    rho: float = 1.0
    stage_rounds: int = 20
    final_rounds: int = 40
    tolerance: float = 2e-3
    final_tolerance: float = 2e-4

    def start(self, d: int, sites: int) -> PathPlan:
        """First stage of the path."""
        return PathPlan(self.rho)

    def judge(self, plan: PathPlan, W: FloatArray, metric: FloatArray, residual: float) -> PathPlan:
        """Go on with this stage, or to the next, or end.  A residual that grew twofold makes Anderson start anew."""
        final = plan.allowed is not None
        close = residual <= (self.final_tolerance if final else self.tolerance)
        plan = replace(
            plan, rounds=plan.rounds + 1, all_rounds=plan.all_rounds + 1, residual=residual,
            fresh=residual > 2.0 * plan.residual,
        )  # fmt: skip
        if not close and plan.rounds < (self.final_rounds if final else self.stage_rounds):
            return plan
        if final:
            return replace(plan, done=True, converged=close)
        plan = replace(plan, stage=plan.stage + 1, rounds=0, residual=np.inf, fresh=True)
        return replace(plan, allowed=order_of(W)) if path_ended(plan.stage, W, metric) else plan

    def w_step(
        self, plan: PathPlan, W: FloatArray, Z: FloatArray, metric: FloatArray
    ) -> tuple[FloatArray, PathPlan]:
        """Solve the stage's problem, as exactly as the consensus so far deserves."""
        c = plan.rho * np.broadcast_to(metric[:, None], W.shape)
        if plan.allowed is not None:
            return ordered_step(Z, c, self.lam, plan.allowed), replace(plan, h=0.0)
        effort = 0.1 * float(np.clip(plan.residual, 1e-4, 1.0) * np.linalg.norm(metric))
        step = path_step(W, Z, c, self.lam, path_penalty(plan.stage, metric), effort)
        return step.W, replace(plan, h=log_determinant(step.W)[0])

    def progress(self, plan: PathPlan) -> Mapping[str, float]:
        """h and the stage."""
        final = plan.allowed is not None
        share = plan.rounds / (self.final_rounds if final else self.stage_rounds)
        done = (min(plan.stage, STAGES) + share) / (STAGES + 1)
        return {"h": plan.h, "stage": plan.stage, "done": 1.0 if plan.done else min(done, 0.99)}

    def warnings(self, plan: PathPlan) -> tuple[str, ...]:
        """Consensus should have been reached."""
        if plan.converged:
            return ()
        return (
            f"no consensus to {self.final_tolerance:.0e} within {plan.all_rounds} rounds (residual "
            f"{plan.residual:.1e}): sites may differ strongly, or columns be nearly collinear",
        )
