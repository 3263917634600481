"""How ADMM's penalties move: to the paper's letter, or along a path that keeps the consensus."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.acyclicity import log_determinant, trace_exponential
from dagora.arrays import BoolArray, FloatArray
from dagora.graphs import order_of
from dagora.knowledge import Constraints
from dagora.solvers.global_step import block_step, ordered_step, paper_step, path_step
from dagora.solvers.path import STAGES, path_ended, path_penalty
from dagora.solvers.polish import polish
from dagora.solvers.proximal import soft_threshold


@dataclass(frozen=True)
class PaperPlan:
    """Multiplier alpha and penalties rho1, rho2 of the paper; rho = K rho2 because weights are 1 / K."""

    sites: float
    alpha: float
    rho1: float
    rho2: float
    round: int = 0
    h: float = np.inf
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
        return plan

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
        return {"h": plan.h, "rho1": plan.rho1, "rho2": plan.rho2, "alpha": plan.alpha, "done": done}

    def warnings(self, plan: PaperPlan) -> tuple[str, ...]:
        """h should be small by the end."""
        return () if plan.h < 1e-6 else (f"h(W) is still {plan.h:.1e}: W is not close to a DAG",)


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

    rho is in units of the variables' variances, and the penalties' strength does not depend on the number of sites.
    Rows of W below the first d are weights of the past, at a price of their own: h and the order do not concern them.
    With knowledge, forbidden entries are zero and required ones have no price; where it leaves no direction open, the
    first step is 2.
    """

    lam: float = 0.1
    lag_lam: float = 0.1
    first_rounds: int = 12
    stage_rounds: int = 8
    final_rounds: int = 80
    tolerance: float = 1e-2
    final_tolerance: float = 1e-3
    most_polishes: int = 4
    polish: bool = True  # step 3
    known: Constraints | None = None

    def start(self, d: int, sites: float, rows: float) -> PathPlan:
        """First stage.  Sites with fewer rows than variables leave most directions open and need a firmer hold."""
        settled = self.known is not None and self.known.ordered
        allowed = order_of(self.known.permitted) if self.known is not None and settled else None
        return PathPlan(max(1.0, (d * sites / rows) ** 0.3), STAGES if settled else 0, allowed=allowed)

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
        required = None if self.known is None else self.known.required
        if not path_ended(plan.stage, W[:d], metric[:d], required):
            return plan
        return replace(plan, allowed=order_of(W[:d], required))

    def _polish(
        self,
        plan: PathPlan,
        allowed: BoolArray,
        W: FloatArray,
        B: FloatArray,
        Z: FloatArray,
        metric: FloatArray,
    ) -> PathPlan:
        d = W.shape[1]
        known = Constraints.none(d) if self.known is None else self.known
        before = np.ones((len(W) - d, d), dtype=bool)
        permitted = np.concatenate([known.permitted, before])
        # Where sites hold B_k at zero, Z has their multipliers, and B nothing.
        S = implied_covariance(B * permitted, plan.rho * metric[:, None] * (W - Z), metric, plan.inputs)
        prices = np.concatenate([np.broadcast_to(known.prices(self.lam), (d, d)), self.lag_lam * before])
        found = polish(S, W, allowed, prices, permitted=permitted, required=known.required)
        plan = replace(plan, polishes=plan.polishes + 1)
        if found.reversals > 0 and plan.polishes <= self.most_polishes:
            return replace(plan, allowed=found.allowed, rounds=0, lowest=np.inf, trusted=0)
        close = plan.distance <= self.final_tolerance
        return replace(plan, done=close or plan.rounds >= self.final_rounds, converged=close, answer=found.W)

    def w_step(self, plan: PathPlan, W: FloatArray, Z: FloatArray, metric: FloatArray) -> tuple[FloatArray, PathPlan]:
        """Solve the stage's problem, as exactly as the consensus so far deserves."""
        if plan.done and plan.answer is not None:
            return plan.answer, plan
        c = plan.rho * np.broadcast_to(metric[:, None], W.shape)
        d = W.shape[1]
        before = soft_threshold(Z[d:], self.lag_lam / c[d:])
        W, Z, c, variances = W[:d], Z[:d], c[:d], metric[:d]
        if plan.allowed is not None:
            lam, allowed = self.lam, plan.allowed
            if self.known is None:
                within = ordered_step(Z, c, lam, allowed)
            else:
                within = ordered_step(Z, c, self.known.prices(lam), allowed & self.known.permitted)
            return np.concatenate([within, before]), replace(plan, h=0.0)
        effort = 0.3 * min(plan.distance, 1e-2) * float(variances.mean()) * np.sqrt(d)
        mu = path_penalty(plan.stage, variances)
        if self.known is None:
            within = path_step(W, Z, c, self.lam, mu, effort).W
        else:
            within = block_step(W, Z, c, self.lam, mu, effort, self.known)
        return np.concatenate([within, before]), replace(plan, h=log_determinant(within)[0])

    def most_rounds(self, plan: PathPlan) -> int:
        """Rounds after which a stage ends, consensus or not."""
        if plan.allowed is not None:
            return self.final_rounds
        return self.stage_rounds if plan.stage > 0 else self.first_rounds

    def progress(self, plan: PathPlan) -> Mapping[str, float]:
        """h and the stage; a share of the work done that can only be guessed."""
        share = min(plan.stage + plan.polishes + plan.rounds / self.most_rounds(plan), STAGES + 2) / (STAGES + 3)
        return {"h": plan.h, "stage": plan.stage, "done": 1.0 if plan.done else share}

    def warnings(self, plan: PathPlan) -> tuple[str, ...]:
        """Consensus should have been reached."""
        if plan.converged:
            return ()
        return (
            f"no consensus to {self.final_tolerance:.0e} within {plan.all_rounds} rounds (residual "
            f"{plan.distance:.1e}): sites may differ strongly, or columns be nearly collinear",
        )


def implied_covariance(
    B: FloatArray, gradient: FloatArray, variances: FloatArray, inputs: FloatArray | None = None
) -> FloatArray:
    """The covariance S whose least squares has this gradient S (B - I) off the diagonal, and these variances.

    The gradient's diagonal is unknown, for the sites keep diag(B_k) = 0 whatever the loss says; the variances,
    a total of the setup, stand in for it.  Where B has rows A of the past below its first d, W, their covariance
    (`inputs`) has to be known, too.  Then the lower rows of the gradient, C (W - I) + inputs A, give the cross
    covariance C, and the upper ones less C' A are those of the problem without a past.
    """
    d = B.shape[1]
    M = np.linalg.inv(B[:d] - np.eye(d))
    past = np.zeros((0, 0)) if inputs is None else inputs
    cross = (gradient[d:] - past @ B[d:]) @ M
    upper = gradient[:d] - cross.T @ B[d:]
    known = upper - np.diag(np.diag(upper))
    missing = (variances[:d] - (known * M.T).sum(axis=1)) / np.diag(M)
    S = np.block([[(known + np.diag(missing)) @ M, cross.T], [cross, past]])
    eigenvalues, Q = np.linalg.eigh((S + S.T) / 2.0)
    positive: FloatArray = (Q * np.maximum(eigenvalues, 1e-6 * eigenvalues[-1])) @ Q.T
    return positive
