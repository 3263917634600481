"""How ADMM's penalties move: to the paper's letter, or along a path that keeps the consensus."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dagora.acyclicity import log_determinant, trace_exponential
from dagora.algorithms.implied import implied_covariance, implied_loss
from dagora.arrays import BoolArray, FloatArray
from dagora.federated.protocol import Estimate
from dagora.graphs import order_of
from dagora.solvers.global_step import ordered_step, paper_step, path_step
from dagora.solvers.path import STAGES, path_ended, path_penalty
from dagora.solvers.polish import polish
from dagora.solvers.proximal import l1, soft_threshold
from dagora.solvers.selection import choose, first_lam

_CANCELS = 1e9  # rho with which W - Z, the gradient over rho, is not much more than rounding


@dataclass(frozen=True)
class PaperPlan:
    """Multiplier alpha and penalties rho1, rho2 of the paper; rho = K rho2 because weights are 1 / K."""

    sites: float
    alpha: float
    rho1: float
    rho2: float
    round: int = 0
    h: float = np.inf
    objective: float = np.nan  # the sites' loss, and the l1 penalty
    done: bool = False
    trusted: int = 0

    @property
    def rho(self) -> float:
        """Consensus penalty over all sites."""
        return self.sites * self.rho2


@dataclass(frozen=True)
class PaperSchedule:
    """Eqs. 6, 8 and 9 with the hyperparameters of Appendix B (linear case).

    Ends after 200 rounds, or when both penalties have reached their maximum, from where on nothing moves.
    Below the first d rows W may hold an intercept, which is free, or weights of the past, whose price is `lag_lam` and
    whose step is in closed form, for h does not concern them.
    """

    lam: float = 0.01
    lag_lam: float | None = None  # None: no past
    rho1: float = 1e-3
    rho2: float = 1e-3
    gamma1: float = 1.75
    gamma2: float = 1.25
    most: float = 1e16
    rounds: int = 200

    def start(self, d: int, sites: float, rows: float) -> PaperPlan:
        """alpha = 0; the penalties start small."""
        return PaperPlan(sites, 0.0, self.rho1, self.rho2)

    def with_inputs(self, plan: PaperPlan, covariance: FloatArray) -> PaperPlan:
        """The paper has no use for it."""
        return plan

    def judge(
        self,
        plan: PaperPlan,
        W: FloatArray,
        B: FloatArray,
        Z: FloatArray,
        metric: FloatArray,
        residual: float,
    ) -> PaperPlan:
        """The paper does not wait for consensus."""
        d = W.shape[1]
        if plan.rho > _CANCELS:
            return replace(plan, objective=np.nan)
        # Its sites do not bar self-loops, so that the whole gradient S (B - E) is known.
        loss = 0.5 * float(((B - np.eye(*W.shape)) * plan.rho * (W - Z)).sum())
        return replace(plan, objective=loss + l1(B[:d], self.lam) + l1(B[d:], self.lag_lam or 0.0))

    def w_step(self, plan: PaperPlan, W: FloatArray, Z: FloatArray, metric: FloatArray) -> tuple[FloatArray, PaperPlan]:
        """Eq. 5, then alpha <- alpha + rho1 h(W), rho1 <- gamma1 rho1, rho2 <- gamma2 rho2."""
        W, h = self.minimum(plan, W, Z)
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

    def minimum(self, plan: PaperPlan, W: FloatArray, Z: FloatArray) -> tuple[FloatArray, float]:
        """Eq. 5 and h there."""
        d = W.shape[1]
        if self.lag_lam is None:
            W = paper_step(W, Z, plan.rho, self.lam, plan.alpha, plan.rho1)
        else:
            within = paper_step(W[:d], Z[:d], plan.rho, self.lam, plan.alpha, plan.rho1)
            W = np.concatenate([within, soft_threshold(Z[d:], self.lag_lam / plan.rho)])
        return W, trace_exponential(W[:d])[0]

    def progress(self, plan: PaperPlan) -> Mapping[str, float]:
        """h and the two penalties."""
        done = plan.round / self.rounds
        penalties = {"rho1": plan.rho1, "rho2": plan.rho2, "alpha": plan.alpha}
        return {**_known(plan.objective), "h": plan.h, **penalties, "done": done}

    def concluded(self, plan: PaperPlan, estimate: Estimate) -> Estimate:
        """h should be small by the end."""
        told = () if plan.h < 1e-6 else (f"h(W) is still {plan.h:.1e}: W is not close to a DAG",)
        return replace(estimate, warnings=told)


@dataclass(frozen=True)
class PathPlan:
    """Stage of the path; `allowed` holds the entries that the settled order permits, once it is settled."""

    rho: float
    stage: int = 0
    rounds: int = 0  # in this stage
    all_rounds: int = 0
    h: float = np.inf
    distance: float = 1e-2  # of the sites from W, relative to W, in the last round
    lowest: float = np.inf  # the same, the least of the stage
    trusted: int = 0  # rounds of this stage, since the last stumble
    allowed: BoolArray | None = None
    polishes: int = 0
    answer: FloatArray | None = None  # of the last polish
    covariance: FloatArray | None = None  # of all rows, as the last polish knew it
    rows: float = 0.0
    lam: float | None = None  # once it is chosen, where the choice is ours
    threshold: float | None = None  # likewise
    objective: float = np.nan  # the sites' loss, and the l1 penalty
    inputs: FloatArray | None = None  # covariance of the past, where W has rows for it
    done: bool = False
    converged: bool = False


@dataclass(frozen=True)
class PathSchedule:
    """Follow the minimum of  loss + lam |W|_1 + mu h(W)  as mu grows by stages (solvers/path.py), then polish.

    1. In a stage, consensus rounds go on until the sites' distance from W is below `tolerance`, relative to W,
       or `stage_rounds` have passed.
    2. After the last stage the order of the variables is settled; what is left is a lasso with a unique answer.
    3. At its consensus the total of the sites' gradients is known, and with it the pooled covariance
       (`implied_covariance`).  The server reverses the edges that it finds reversed (solvers/polish.py), and rounds
       go on in the new order, until nothing is left to reverse.

    4. A lam or threshold left open is chosen when nothing is left to reverse (solvers/selection.py), from the same
       covariance; rounds then go on to the minimum for that lam.

    rho is in units of the variables' variances, and the penalties' strength does not depend on the number of sites.
    Rows of W below the first d are weights of the past, at a price of their own: h and the order do not concern them.
    """

    lam: float | None = 0.1  # None: chosen on the way
    lag_lam: float = 0.1
    threshold: float | None = 0.3  # what choices are judged by; None: chosen, too
    first_rounds: int = 12
    stage_rounds: int = 8
    final_rounds: int = 80
    tolerance: float = 1e-2
    final_tolerance: float = 1e-3
    most_polishes: int = 4
    polish: bool = True  # step 3

    def start(self, d: int, sites: float, rows: float) -> PathPlan:
        """First stage.  Sites with fewer rows than variables leave most directions open and need a firmer hold."""
        return PathPlan(max(1.0, (d * sites / rows) ** 0.3), rows=rows)

    def with_inputs(self, plan: PathPlan, covariance: FloatArray) -> PathPlan:
        """Keep the covariance of the past for the polish."""
        return replace(plan, inputs=covariance)

    def judge(
        self, plan: PathPlan, W: FloatArray, B: FloatArray, Z: FloatArray, metric: FloatArray, residual: float
    ) -> PathPlan:
        """Go on with this stage, or to the next, or polish, or end."""
        stumbled = residual > 2.0 * plan.lowest
        plan = replace(
            plan,
            rounds=plan.rounds + 1,
            all_rounds=plan.all_rounds + 1,
            distance=residual,
            lowest=min(residual, plan.lowest),
            trusted=1 if stumbled else plan.trusted + 1,
            objective=self._objective(plan, W, B, Z, metric),
        )
        # A first look at reversals needs no more than the stages' tolerance.
        first_look = self.polish and plan.polishes == 0
        bound = self.tolerance if plan.allowed is None or first_look else self.final_tolerance
        if residual > bound and plan.rounds < self.most_rounds(plan):
            return plan
        if plan.allowed is not None and not self.polish:
            return replace(plan, done=True, converged=plan.distance <= self.final_tolerance)
        if plan.allowed is not None:
            return self._polish(plan, plan.allowed, W, B, Z, metric)
        plan = replace(plan, stage=plan.stage + 1, rounds=0, lowest=np.inf, trusted=0)
        d = W.shape[1]
        return replace(plan, allowed=order_of(W[:d])) if path_ended(plan.stage, W[:d], metric[:d]) else plan

    def _polish(
        self,
        plan: PathPlan,
        allowed: BoolArray,
        W: FloatArray,
        B: FloatArray,
        Z: FloatArray,
        metric: FloatArray,
    ) -> PathPlan:
        S = implied_covariance(B, plan.rho * metric[:, None] * (W - Z), metric, plan.inputs)
        d = W.shape[1]
        lam = self._lam(plan, metric)
        found = polish(S, W, allowed, np.repeat([lam, self.lag_lam], [d, len(W) - d]))
        plan = replace(plan, polishes=plan.polishes + 1)
        if found.reversals > 0 and plan.polishes <= self.most_polishes:
            return replace(plan, allowed=found.allowed, rounds=0, lowest=np.inf, trusted=0)
        close = plan.distance <= self.final_tolerance
        done = close or plan.rounds >= self.final_rounds
        if not done or None not in (self.lam, self.threshold):
            return replace(plan, done=done, converged=close, answer=found.W, covariance=S)
        choosing = self.lam is None and plan.lam is None
        best = choose(S, plan.rows, found.W, lam, partial(_in_best_order, S) if choosing else None, self.threshold)
        plan = replace(plan, lam=best.lam, threshold=best.threshold, answer=best.W, covariance=S)
        if best.lam == lam:
            return replace(plan, done=True, converged=close)
        # Another lam is another problem: the sites have yet to agree on its answer.
        return replace(plan, allowed=order_of(best.W), rounds=0, lowest=np.inf, trusted=0)

    def _lam(self, plan: PathPlan, metric: FloatArray) -> float:
        if self.lam is not None:
            return self.lam
        return first_lam(metric) if plan.lam is None else plan.lam

    def _objective(self, plan: PathPlan, W: FloatArray, B: FloatArray, Z: FloatArray, metric: FloatArray) -> float:
        d = W.shape[1]
        loss = implied_loss(B, plan.rho * metric[:, None] * (W - Z), metric, plan.inputs)
        return loss + l1(B[:d], self._lam(plan, metric)) + l1(B[d:], self.lag_lam)

    def w_step(self, plan: PathPlan, W: FloatArray, Z: FloatArray, metric: FloatArray) -> tuple[FloatArray, PathPlan]:
        """Solve the stage's problem, as exactly as the consensus so far deserves."""
        if plan.done and plan.answer is not None:
            return plan.answer, plan
        c = plan.rho * np.broadcast_to(metric[:, None], W.shape)
        d, lam = W.shape[1], self._lam(plan, metric)
        before = soft_threshold(Z[d:], self.lag_lam / c[d:])
        W, Z, c, variances = W[:d], Z[:d], c[:d], metric[:d]
        if plan.allowed is not None:
            within = ordered_step(Z, c, lam, plan.allowed)
            return np.concatenate([within, before]), replace(plan, h=0.0)
        effort = 0.3 * min(plan.distance, 1e-2) * float(variances.mean()) * np.sqrt(d)
        within = path_step(W, Z, c, lam, path_penalty(plan.stage, variances), effort).W
        return np.concatenate([within, before]), replace(plan, h=log_determinant(within)[0])

    def most_rounds(self, plan: PathPlan) -> int:
        """Rounds after which a stage ends, consensus or not."""
        if plan.allowed is not None:
            return self.final_rounds
        return self.stage_rounds if plan.stage > 0 else self.first_rounds

    def progress(self, plan: PathPlan) -> Mapping[str, float]:
        """h and the stage; a share of the work done that can only be guessed."""
        share = min(plan.stage + plan.polishes + plan.rounds / self.most_rounds(plan), STAGES + 2) / (STAGES + 3)
        return {**_known(plan.objective), "h": plan.h, "stage": plan.stage, "done": 1.0 if plan.done else share}

    def concluded(self, plan: PathPlan, estimate: Estimate) -> Estimate:
        """Consensus should have been reached; what was chosen holds; and the covariance is known after a polish."""
        told = () if plan.converged else (no_consensus(self.final_tolerance, plan.all_rounds, plan.distance),)
        chosen = {}
        if self.lam is None and plan.lam is not None:
            chosen["lam"] = plan.lam
        if self.threshold is None and plan.threshold is not None:
            chosen["threshold"] = plan.threshold
            estimate = replace(estimate, edges=np.abs(estimate.weights) > plan.threshold)
        return replace(estimate, warnings=told, covariance=plan.covariance, chosen=chosen)


def _known(objective: float) -> dict[str, float]:
    return {} if np.isnan(objective) else {"objective": objective}


def no_consensus(tolerance: float, rounds: int, distance: float) -> str:
    """A warning."""
    return (
        f"no consensus to {tolerance:.0e} within {rounds} rounds (residual {distance:.1e}): sites may differ "
        "strongly, or columns be nearly collinear"
    )


def _in_best_order(S: FloatArray, W: FloatArray, lam: float) -> FloatArray:
    """The answer for another lam, from that for one near it."""
    return polish(S, W, order_of(W), lam).W
