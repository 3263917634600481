"""ADMM for noise of any variances: the profile likelihood, over orders of the variables, from a consensus.

    min over DAGs of  n/2 sum_j log v_j + penalty log(n)/2 |E|,       v_j what least squares on its parents leaves of j

The sum of logarithms is no sum over sites, but all that it needs is the pooled covariance, and a consensus of least
squares tells that (implied.py).  So:

    1. consensus on the regression of every variable on all others, with a small l1 price: convex, no order yet
    2. the server searches the DAG of best likelihood from the covariance that the consensus implies (learners/boss.py)
    3. consensus on the least squares of that DAG, without a price; at its end, 2 again from the better covariance,
       until the search ends where the sites already agree

Columns are standardised by totals first, and 2 sees correlations only: no unit of a column matters.  What the data
compel is an equivalence class, so that is the answer, with the sites' consensus for its weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.algorithms.implied import as_covariance, implied_covariance, implied_loss
from dagora.algorithms.schedules import no_consensus
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.federated.protocol import Estimate
from dagora.learners.base import Learned
from dagora.solvers.global_step import ordered_step


@dataclass(frozen=True)
class LikelihoodPlan:
    """The network that the sites are asked to agree on, once there is one."""

    rho: float
    rows: float
    network: Learned | None = None
    covariance: FloatArray | None = None
    searches: int = 0
    rounds: int = 0  # since the last search
    all_rounds: int = 0
    objective: float = np.nan
    distance: float = np.inf
    lowest: float = np.inf  # since the last search
    trusted: int = 0
    done: bool = False
    converged: bool = False


@dataclass(frozen=True)
class LikelihoodSchedule:
    """Regressions, then searches until one confirms the last."""

    learn: Callable[[Moments], Learned]
    lam: float = 0.02  # of the regressions, on standardised columns: keeps them apart where rows are few
    first_rounds: int = 30
    final_rounds: int = 80
    tolerance: float = 1e-3
    most_searches: int = 6

    def start(self, d: int, sites: float, rows: float) -> LikelihoodPlan:
        """As on the path (schedules.py): sites with few rows need a firmer hold."""
        return LikelihoodPlan(max(1.0, (d * sites / rows) ** 0.3), rows)

    def with_inputs(self, plan: LikelihoodPlan, covariance: FloatArray) -> LikelihoodPlan:
        """There are none."""
        return plan

    def judge(
        self, plan: LikelihoodPlan, W: FloatArray, B: FloatArray, Z: FloatArray, metric: FloatArray, residual: float
    ) -> LikelihoodPlan:
        """Go on, or search, or end."""
        gradient = plan.rho * metric[:, None] * (W - Z)
        plan = replace(
            plan,
            rounds=plan.rounds + 1,
            all_rounds=plan.all_rounds + 1,
            objective=implied_loss(B, gradient, metric),
            distance=residual,
            lowest=min(residual, plan.lowest),
            trusted=1 if residual > 2.0 * plan.lowest else plan.trusted + 1,
        )
        most = self.first_rounds if plan.network is None else self.final_rounds
        if residual > self.tolerance and plan.rounds < most:
            return plan
        S = as_covariance(implied_covariance(B, gradient, metric))
        found = self.learn(Moments(round(plan.rows), np.zeros(len(S)), plan.rows * S))
        same = plan.network is not None and bool((found.edges == plan.network.edges).all())
        over = same or plan.searches == self.most_searches
        plan = replace(plan, network=found, covariance=S, searches=plan.searches + 1, rounds=0)
        plan = replace(plan, lowest=np.inf, trusted=0)
        return replace(plan, done=over, converged=same and residual <= self.tolerance)

    def w_step(
        self, plan: LikelihoodPlan, W: FloatArray, Z: FloatArray, metric: FloatArray
    ) -> tuple[FloatArray, LikelihoodPlan]:
        """A soft threshold, or the zeros of the network."""
        if plan.network is not None and plan.done:
            return plan.network.weights, plan
        c = plan.rho * np.broadcast_to(metric[:, None], W.shape)
        if plan.network is None:
            return ordered_step(Z, c, self.lam, ~np.eye(len(W), dtype=bool)), plan
        return ordered_step(Z, c, 0.0, plan.network.edges), plan

    def progress(self, plan: LikelihoodPlan) -> Mapping[str, float]:
        """Searches; a share of the work done that can only be guessed."""
        share = min(plan.all_rounds / (2.0 * self.first_rounds), 0.99)
        known = {} if np.isnan(plan.objective) else {"objective": plan.objective}
        return {**known, "searches": plan.searches, "done": 1.0 if plan.done else share}

    def concluded(self, plan: LikelihoodPlan, estimate: Estimate) -> Estimate:
        """The class that the last search found."""
        assert plan.network is not None
        told = () if plan.converged else (no_consensus(self.tolerance, plan.all_rounds, plan.distance),)
        return replace(
            estimate,
            edges=plan.network.edges,
            warnings=told + plan.network.warnings,
            cpdag=plan.network.cpdag,
            covariance=plan.covariance,
        )
