"""Networks fitted from totals, in an order of the variables that ADMM has found (measured.py); it is improved, too.

Problem, for each variable j by itself, with the weights of the first layer zero for inputs that may not come before j:

    min over theta_j of  |f_j - x_j|^2 / (2 n) + lam |W_1|_1 + ridge/2 (|W_1|^2 + |W_2|^2 + ...)

    1. server sends networks: of which variable each is, its theta, and which inputs it uses
    2. site: for each network the sum of squares that it leaves and its gradient; if the server asks, also J'J of the
       parameters in use.  It asks once for a network that is like none before it
    3. server: from their totals a step of Levenberg and Marquardt for each network (solvers/levenberg.py).  An input
       out of use joins in when its gradient exceeds lam.  Networks that gain nothing any more rest

Rounds of these come in passes (reversals.py has the second):

    order      a network for each variable, in ADMM's order
    reversals  networks for every strong edge turned around; turns that lower the objective are made
    settle     a network for each variable in the new order; then reversals once more
    graph      norms above the threshold are the edges; once more with these inputs alone, for the functions

What leaves a site: those sums, as summands of their totals.  The totals are those of all rows together, so what is
minimised is the objective of pooled rows for any number of sites: consensus among sites, which takes ADMM hundreds of
rounds along the flat valleys of a network's loss, is no part of it.  (The objective is not convex, and order and start
depend on the sites a little; so may the minimum.)  The products J'J say more of the rows than a gradient does: with p
parameters of a network in use, p (p + 1) / 2 sums.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from dagora.algorithms.admm import AnyPlan, ServerState, SiteState
from dagora.algorithms.covariance import unfolded
from dagora.algorithms.measured import MeasuredServer, MeasuredSite
from dagora.algorithms.reversals import Fitted, Reversals, Turn, in_order, parameters
from dagora.arrays import BoolArray, FloatArray
from dagora.errors import MessageError
from dagora.federated.message import Message, array
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.graphs import break_cycles, order_of
from dagora.models.mlp import Fit, MlpModel
from dagora.models.network import Architecture, Networks
from dagora.models.network_data import check_rows, check_scale
from dagora.solvers.levenberg import Seen

ROUNDS = {"order": 40, "reversals": 20, "settle": 10, "graph": 15}  # at most, in a pass
SEARCHES = 4  # for reversals, at most
FIRST_LOOK = 8  # rounds of reversals after which those that are far off rest


@dataclass(frozen=True)
class RefitSite:
    """A site of ADMM that also answers to "fit"."""

    admm: MeasuredSite[Fit]
    model: MlpModel

    def init(self, data: Any) -> SiteState[Fit]:
        """As for ADMM."""
        return self.admm.init(data)

    def local_update(self, state: SiteState[Fit], message: Message) -> tuple[SiteState[Fit], Summand]:
        """The phases of ADMM, and "fit"."""
        if message.get("phase") != "fit":
            return self.admm.local_update(state, message)
        variables, theta = array(message, "variables"), array(message, "theta")
        used, products = array(message, "used"), array(message, "products")
        d, size, T = self.model.architecture.d, self.model.architecture.size, variables.size
        shapes = variables.shape, products.shape, theta.shape, used.shape
        fit = shapes == ((T,), (T,), (T, size), (T, d)) and bool(np.isfinite(theta).all())
        if state.bench is None or not 1 <= T <= d * d or not fit:  # turns of all edges at once: d (d - 1) networks
            raise MessageError("message refused: it asks for a fit of networks that this site does not have")
        if not np.isin(variables, np.arange(d)).all():
            raise MessageError("message refused: it asks for a fit of variables that this site does not have")
        own = self.model.apart(state.bench.problem, [state.place])
        sums = self.model.normal_equations(own, variables.astype(np.int64), theta, used != 0.0, products != 0.0)
        return state, sums

    def joint(self, message: Message) -> bool:
        """As ADMM does."""
        return self.admm.joint(message)

    def local_updates(self, states: Sequence[SiteState[Fit]], message: Message) -> list[tuple[SiteState[Fit], Summand]]:
        """ADMM's steps of several sites."""
        return self.admm.local_updates(states, message)


@dataclass(frozen=True)
class RefitState(Generic[AnyPlan]):
    """ADMM's state; then the pass, the networks that it fits, and those of all variables that passes before it left."""

    admm: ServerState[AnyPlan]
    stage: str = "admm"
    trying: tuple[Fitted, ...] = ()
    networks: tuple[Fitted, ...] = ()
    rounds: int = 0  # in this pass
    searches: int = 0
    turns: frozenset[Turn] = frozenset()  # tried already
    norms: FloatArray | None = None  # before the last pass, which is in the graph that they give
    objective: float = np.inf  # the same
    gain: float = 0.0  # of the networks in the last round, relative to their objective


@dataclass(frozen=True)
class RefitServer(Generic[AnyPlan]):
    """ADMM's server; then the passes, with at most so many searches for reversals."""

    admm: MeasuredServer[AnyPlan]
    architecture: Architecture
    names: tuple[str, ...]
    lam: float
    ridge: float
    threshold: float
    searches: int = SEARCHES
    tolerance: float = 3e-5  # a network rests when it gains less in a round, relative to its objective

    def init(self) -> RefitState[AnyPlan]:
        """ADMM comes first."""
        return RefitState(self.admm.init())

    def broadcast(self, state: RefitState[AnyPlan]) -> Message | None:
        """What ADMM asks; then the networks to be tried."""
        if state.stage == "admm":
            return self.admm.broadcast(state.admm)
        if state.stage == "done":
            return None
        moving = [fitted for fitted in state.trying if not fitted.descent.ended]
        return {
            "phase": "fit",
            "variables": np.array([float(fitted.variable) for fitted in moving]),
            "theta": np.stack([fitted.descent.trial for fitted in moving]),
            "used": np.stack([fitted.used for fitted in moving]).astype(np.float64),
            "products": np.array([float(fitted.descent.lacks_model) for fitted in moving]),
        }

    def global_update(self, state: RefitState[AnyPlan], total: Total) -> RefitState[AnyPlan]:
        """Go on with ADMM, or with the networks of the pass."""
        if state.stage == "admm":
            admm = self.admm.global_update(state.admm, total)
            if state.admm.variances is None and admm.variances is not None:
                check_rows(admm.rows)
                check_scale(self.names, admm.variances)
            state = replace(state, admm=admm)
            if not admm.plan.done:
                return state
            return self._first(state)
        trying = self._step(state, total)
        state = replace(state, trying=trying, rounds=state.rounds + 1, gain=_gain(state.trying, trying))
        if state.stage == "reversals" and state.rounds == FIRST_LOOK:
            state = replace(state, trying=self._search.promising(state.networks, state.trying))
        if state.rounds < ROUNDS[state.stage] and not all(fitted.descent.ended for fitted in state.trying):
            return state
        return self._next(state)

    def _first(self, state: RefitState[AnyPlan]) -> RefitState[AnyPlan]:
        """ADMM is over."""
        theta = state.admm.W
        order = order_of(self.architecture.norms(theta))
        return self._begin(state, "order", in_order(self.architecture, theta, order))

    def _begin(self, state: RefitState[AnyPlan], stage: str, trying: tuple[Fitted, ...]) -> RefitState[AnyPlan]:
        return replace(state, stage=stage, trying=trying, rounds=0)

    def _step(self, state: RefitState[AnyPlan], total: Total) -> tuple[Fitted, ...]:
        """Every network that does not rest, one step on."""
        n, penalties = state.admm.rows, self.architecture.penalties(self.lam, self.ridge)
        moved, k, at = [], 0, 0
        for fitted in state.trying:
            if fitted.descent.ended:
                moved.append(fitted)
                continue
            moving = self.architecture.using(fitted.used)
            JJ = None
            if fitted.descent.lacks_model:
                p = int(moving.sum())
                JJ, at = unfolded(total["products"][at : at + p * (p + 1) // 2], p) / n, at + p * (p + 1) // 2
            seen = Seen(float(total["squares"][k]) / (2.0 * n), total["gradient"][k] / n, moving, JJ)
            descent = fitted.descent.observe(seen, penalties, self.tolerance)
            moved.append(fitted.moved(descent, self.architecture, self.lam))
            k += 1
        return tuple(moved)

    def _next(self, state: RefitState[AnyPlan]) -> RefitState[AnyPlan]:
        """The pass is over."""
        if state.stage == "graph":
            return replace(state, stage="done", networks=state.trying)
        if state.stage == "reversals":
            networks, turned = self._search.made(state.networks, state.trying)
            if turned:
                order = order_of(self.architecture.norms(parameters(networks)))
                return self._begin(state, "settle", self._allowing(networks, order))
            return self._in_graph(state)
        state = replace(state, networks=state.trying)
        turns = [turn for turn in self._search.turns(state.networks) if turn not in state.turns]
        if not turns or state.searches == self.searches:
            return self._in_graph(state)
        state = replace(state, searches=state.searches + 1, turns=state.turns.union(turns))
        return self._begin(state, "reversals", self._search.tried(state.networks, turns))

    @property
    def _search(self) -> Reversals:
        return Reversals(self.architecture, self.admm.start)

    def _in_graph(self, state: RefitState[AnyPlan]) -> RefitState[AnyPlan]:
        norms = self.architecture.norms(parameters(state.networks))
        objective = sum(fitted.descent.value for fitted in state.networks)
        state = replace(state, norms=norms, objective=objective)
        return self._begin(state, "graph", self._allowing(state.networks, norms > self.threshold))

    def _allowing(self, networks: tuple[Fitted, ...], allowed: BoolArray) -> tuple[Fitted, ...]:
        return tuple(fitted.allowing(self.architecture, allowed[:, fitted.variable]) for fitted in networks)

    def progress(self, state: RefitState[AnyPlan]) -> Mapping[str, float]:
        """Figures of ADMM; then the penalised objective of the networks at hand, and the pass."""
        if state.stage == "admm":
            before = self.admm.progress(state.admm)
            return {**before, "done": 0.6 * before["done"]}
        search = 1.0 - 0.5**state.searches  # how many there will be is not known
        done = {"order": 0.6, "graph": 0.95, "done": 1.0}.get(state.stage, 0.6 + 0.35 * search)
        known = {"done": done}
        networks = state.trying if state.stage == "order" and state.rounds > 0 else state.networks
        return known | ({"objective": sum(fitted.descent.value for fitted in networks)} if networks else {})

    def estimate(self, state: RefitState[AnyPlan]) -> Estimate:
        """The norms, and the functions in the graph that they give."""
        assert state.norms is not None
        assert state.admm.mean is not None
        assert state.admm.variances is not None
        theta = parameters(state.networks)
        noise = np.array([2.0 * fitted.descent.loss for fitted in state.networks])
        extras = {"noise_variances": noise}
        if np.isfinite(state.objective):
            extras["objective"] = np.array(state.objective)
        functions = Networks(self.architecture, theta, state.admm.mean, np.sqrt(state.admm.variances))
        return Estimate(
            state.norms, state.norms > self.threshold, state.norms, self._warnings(state), extras, functions=functions
        )

    def _warnings(self, state: RefitState[AnyPlan]) -> tuple[str, ...]:
        assert state.admm.variances is not None
        known = check_scale(self.names, state.admm.variances)
        if state.gain > _UNFINISHED:
            known += (f"the networks still gained {100 * state.gain:.1g}% in their last round and are unfinished",)
        return known


@dataclass(frozen=True)
class MaskedRefitServer(RefitServer[AnyPlan]):
    """Networks behind a mask: the graph is the mask's, so the last pass is the only one.  Its lam is zero."""

    def _first(self, state: RefitState[AnyPlan]) -> RefitState[AnyPlan]:
        estimate = self.admm.estimate(state.admm)
        graph = break_cycles(estimate.edges, estimate.strength)[0] == 1
        theta = state.admm.W[:, : self.architecture.size]
        state = replace(state, norms=estimate.weights)
        return self._begin(state, "graph", in_order(self.architecture, theta, graph))

    def estimate(self, state: RefitState[AnyPlan]) -> Estimate:
        """The mask, less edges that the fitted networks make nothing of: a mask may be open before a dead unit."""
        found = super().estimate(state)
        alive = self.architecture.norms(parameters(state.networks)) > _DEAD
        return replace(found, edges=found.edges & alive)


_UNFINISHED = 1e-2  # of the objective, in one round
_DEAD = 1e-2  # norm of weights


def _gain(before: tuple[Fitted, ...], after: tuple[Fitted, ...]) -> float:
    earlier, value = (sum(fitted.descent.value for fitted in networks) for networks in (before, after))
    return (earlier - value) / value if np.isfinite(earlier) else 0.0
