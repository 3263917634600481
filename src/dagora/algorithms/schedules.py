"""How ADMM's penalties move: to the paper's letter, or along a path that keeps the consensus."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.acyclicity import log_determinant, trace_exponential
from dagora.algorithms.implied import as_covariance, implied_covariance, implied_loss, least_eigenvalue
from dagora.arrays import BoolArray, FloatArray
from dagora.data.moments import Moments
from dagora.devices import CPU, Device
from dagora.federated.protocol import Estimate
from dagora.graphs import order_of
from dagora.knowledge import Constraints
from dagora.learners.base import Learned
from dagora.solvers.global_step import block_step, ordered_step, paper_step, path_step
from dagora.solvers.path import MOST_STAGES, STAGES, path_ended, path_penalty
from dagora.solvers.proximal import l1, soft_threshold
from dagora.solvers.selection import first_lam

_SINGULAR = 0.1  # of the sites' distance from W: an eigenvalue of the covariance below this is not told from nothing
_ENOUGH_STAGES = 6  # where the last word is a learner's: the order that is left is only one to agree in
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
    objective: float = np.nan  # the sites' loss, and the l1 penalty
    distance: float = 1e-2  # of the sites from W, relative to W, in the last round
    lowest: float = np.inf  # the same, the least of the stage
    trusted: int = 0  # rounds of this stage, since the last stumble
    allowed: BoolArray | None = None
    rows: float = 0.0
    inputs: FloatArray | None = None  # covariance of the past, where W has rows for it
    covariance: FloatArray | None = None  # of all rows, as the last consensus implies it
    learned: Learned | None = None  # from it
    done: bool = False
    converged: bool = False


@dataclass(frozen=True)
class PathSchedule:
    """Follow the minimum of  loss + lam |W|_1 + mu h(W)  as mu grows by stages (solvers/path.py), then learn from it.

    1. In a stage, consensus rounds go on until the sites' distance from W is below `tolerance`, relative to W,
       or `stage_rounds` have passed.
    2. After the last stage the order of the variables is settled; what is left is a lasso with a unique answer, and
       rounds go on to `final_tolerance`.
    3. At that consensus the total of the sites' gradients is known, and with it the pooled covariance (implied.py);
       while that is as good as singular, rounds go on.
       `learn` solves the same problem from it, as from pooled rows, with a search over orders that no single site
       could make: its answer is the run's.  Without `learn`, the consensus is.

    rho is in units of the variables' variances, and the penalties' strength does not depend on the number of sites.
    Rows of W below the first d are weights of the past, at a price of their own: h and the order do not concern them.
    With knowledge, forbidden entries are zero and required ones have no price; where it leaves no direction open, the
    first step is 2.
    """

    lam: float | None = 0.1  # None: what a choice starts from (solvers/selection.py), for it is made in step 3
    lag_lam: float = 0.1
    learn: Callable[[Moments], Learned] | None = None
    known: Constraints | None = None
    first_rounds: int = 12
    stage_rounds: int = 8
    final_rounds: int = 160
    tolerance: float = 1e-2
    final_tolerance: float = 1e-3
    device: Device = CPU  # where W-steps are taken, and inverses

    def start(self, d: int, sites: float, rows: float) -> PathPlan:
        """First stage.  Sites with fewer rows than variables leave most directions open and need a firmer hold."""
        settled = self.known is not None and self.known.ordered
        allowed = order_of(self.known.permitted) if self.known is not None and settled else None
        return PathPlan(max(1.0, (d * sites / rows) ** 0.3), STAGES if settled else 0, allowed=allowed, rows=rows)

    def with_inputs(self, plan: PathPlan, covariance: FloatArray) -> PathPlan:
        """Keep the covariance of the past, without which that of all is not implied."""
        return replace(plan, inputs=covariance)

    def judge(
        self, plan: PathPlan, W: FloatArray, B: FloatArray, Z: FloatArray, metric: FloatArray, residual: float
    ) -> PathPlan:
        """Go on with this stage, or to the next, or end."""
        d = W.shape[1]
        if self.known is not None:  # where sites hold B_k at zero, Z has their multipliers, and B nothing
            B = np.concatenate([B[:d] * self.known.permitted, B[d:]])
        gradient = plan.rho * metric[:, None] * (W - Z)
        price = l1(B[:d], self._prices(metric)) + l1(B[d:], self.lag_lam)
        plan = replace(
            plan,
            rounds=plan.rounds + 1,
            all_rounds=plan.all_rounds + 1,
            objective=implied_loss(B, gradient, metric, plan.inputs, self.device) + price,
            distance=residual,
            lowest=min(residual, plan.lowest),
            trusted=1 if residual > 2.0 * plan.lowest else plan.trusted + 1,
        )
        bound = self.tolerance if plan.allowed is None else self.final_tolerance
        if residual > bound and plan.rounds < self.most_rounds(plan):
            return plan
        if plan.allowed is not None:
            return self._end(plan, B, gradient, metric)
        plan = replace(plan, stage=plan.stage + 1, rounds=0, lowest=np.inf, trusted=0)
        required = None if self.known is None else self.known.required
        most = MOST_STAGES if self.learn is None else _ENOUGH_STAGES
        if not path_ended(plan.stage, W[:d], metric[:d], required, most):
            return plan
        return replace(plan, allowed=order_of(W[:d], required))

    def _end(self, plan: PathPlan, B: FloatArray, gradient: FloatArray, metric: FloatArray) -> PathPlan:
        done = replace(plan, done=True, converged=plan.distance <= self.final_tolerance)
        if self.learn is None:
            return done
        S = implied_covariance(B, gradient, metric, plan.inputs, self.device)
        if least_eigenvalue(S) < _SINGULAR * plan.distance and plan.rounds < self.most_rounds(plan):
            return plan  # nearly collinear columns, and what the sites disagree about makes them quite collinear
        S = as_covariance(S)
        found = self.learn(Moments(round(plan.rows), np.zeros(len(S)), plan.rows * S))
        return replace(done, covariance=S, learned=found)

    def _prices(self, metric: FloatArray) -> float | FloatArray:
        lam = first_lam(metric) if self.lam is None else self.lam
        return lam if self.known is None else self.known.prices(lam)

    def w_step(self, plan: PathPlan, W: FloatArray, Z: FloatArray, metric: FloatArray) -> tuple[FloatArray, PathPlan]:
        """Solve the stage's problem, as exactly as the consensus so far deserves."""
        if plan.learned is not None:
            return plan.learned.weights, replace(plan, h=0.0)
        c = plan.rho * np.broadcast_to(metric[:, None], W.shape)
        d, prices = W.shape[1], self._prices(metric)
        before = soft_threshold(Z[d:], self.lag_lam / c[d:])
        W, Z, c, variances = W[:d], Z[:d], c[:d], metric[:d]
        if plan.allowed is not None:
            allowed = plan.allowed if self.known is None else plan.allowed & self.known.permitted
            return np.concatenate([ordered_step(Z, c, prices, allowed), before]), replace(plan, h=0.0)
        effort = 0.3 * min(plan.distance, 1e-2) * float(variances.mean()) * np.sqrt(d)
        mu = path_penalty(plan.stage, variances)
        if self.known is None:
            within = path_step(W, Z, c, prices, mu, effort, device=self.device).W
        else:
            within = block_step(W, Z, c, prices, mu, effort, self.known, self.device)
        return np.concatenate([within, before]), replace(plan, h=log_determinant(within)[0])

    def most_rounds(self, plan: PathPlan) -> int:
        """Rounds after which a stage ends, consensus or not."""
        if plan.allowed is not None:
            return self.final_rounds
        return self.stage_rounds if plan.stage > 0 else self.first_rounds

    def progress(self, plan: PathPlan) -> Mapping[str, float]:
        """h and the stage; a share of the work done that can only be guessed."""
        share = min(plan.stage + plan.rounds / self.most_rounds(plan), STAGES + 1) / (STAGES + 2)
        return {**_known(plan.objective), "h": plan.h, "stage": plan.stage, "done": 1.0 if plan.done else share}

    def concluded(self, plan: PathPlan, estimate: Estimate) -> Estimate:
        """Consensus should have been reached; edges are those that were learned from what it implies."""
        told: tuple[str, ...] = (
            () if plan.converged else (no_consensus(self.final_tolerance, plan.all_rounds, plan.distance),)
        )
        found = plan.learned
        if found is None:
            return replace(estimate, warnings=told)
        told += found.warnings
        return replace(estimate, edges=found.edges, warnings=told, covariance=plan.covariance, chosen=found.chosen)


def _known(objective: float) -> dict[str, float]:
    return {} if np.isnan(objective) else {"objective": objective}


def no_consensus(tolerance: float, rounds: int, distance: float) -> str:
    """A warning."""
    return (
        f"no consensus to {tolerance:.0e} within {rounds} rounds (residual {distance:.1e}): sites may differ "
        "strongly, or columns be nearly collinear"
    )
