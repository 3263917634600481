"""Consensus ADMM for structure learning (paper, Section 5 and Algorithm 1), for every model.

Problem (paper, Eq. 3), with local parameters B_k at site k and the consensus W at the server:

    min  sum_k l(B_k; x_k) + lam |W|_1    subject to    h(W) = 0,   B_k = W for all k

With scaled duals u_k = beta_k / rho_k and rho_k = w_k rho (weights w_k that sum to 1), the server's problem (Eq. 5)
is, up to a constant, rho/2 |W - sum_k w_k (B_k + u_k)|^2 + lam |W|_1 + (penalties on h): it needs one total a round.

    setup   the sites' row counts are added up (`count`); where data is centred by the global mean, so are the sums
            of x and then the squares about the mean (`spread`), which give each variable's scale, the metric; and the
            products of those variables that are only inputs (the past of a time series), if an order is sought.
            Where columns are to be standardised, the roots of these squares are sent back as the columns' units
    rounds  1. server sends W                                                              Algorithm 1, line 5
            2. site: u_k <- B_k + u_k - W, rescaled if rho changed         (Eqs. 7, 9)                  line 7
            3. site: B_k <- prox of its loss at W - u_k                    (Eq. 4, closed form: Eq. 10) line 2
            4. the total of w_k (B_k + u_k) reaches the server                                          line 3
            5. server: W <- W-step at that total                           (Eq. 5)                      line 4
            6. server: multiplier and penalties by the schedule            (Eqs. 6, 8, 9)               line 6

Where knowledge forbids an edge, B_k and W are zero, and u_k is the multiplier of that: the site's loss tells it
(`multipliers`) as it is, whatever the rounds before were.

What leaves a site: its summands in `count`, `spread` and step 4, and inner products of its residuals B_k - W.
What does not: rows, covariances, B_k and u_k apart from the sum.

The default schedule accelerates this by Anderson mixing of the last few positions s_k = B_k + u_k.  The server
computes the mixing coefficients from the total of the inner products and sends them; every site applies them to the
positions that it remembers.  By linearity the server can apply them to the totals that it remembers, so mixing costs
no extra exchange.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dagora.algorithms.bench import Bench, Scratch
from dagora.algorithms.covariance import folded, unfolded
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import MessageError, NumericalError
from dagora.federated.message import Message, Value, array, number
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.models.base import Model, Problem, by_entry
from dagora.solvers.anderson import mixing


class Plan(Protocol):
    """Where a schedule stands."""

    @property
    def rho(self) -> float:
        """The consensus penalty."""

    @property
    def trusted(self) -> int:
        """How many of the last rounds' residuals mixing may rely on."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to ask."""


AnyPlan = TypeVar("AnyPlan", bound=Plan)


class Schedule(Protocol[AnyPlan]):
    """How penalties move from round to round: all in which the presets differ at the server."""

    def start(self, d: int, sites: float, rows: float) -> AnyPlan:
        """Penalties of the first round."""

    def with_inputs(self, plan: AnyPlan, covariance: FloatArray) -> AnyPlan:
        """Take note of the covariance of the inputs, once it is known."""

    def judge(
        self, plan: AnyPlan, W: FloatArray, B: FloatArray, Z: FloatArray, metric: FloatArray, residual: float
    ) -> AnyPlan:
        """Before a W-step: has the current problem been solved well enough, and which one is next?"""

    def w_step(self, plan: AnyPlan, W: FloatArray, Z: FloatArray, metric: FloatArray) -> tuple[FloatArray, AnyPlan]:
        """Solve the server's problem at Z and move multiplier and penalties."""

    def progress(self, plan: AnyPlan) -> Mapping[str, float]:
        """Figures for the history."""

    def concluded(self, plan: AnyPlan, estimate: Estimate) -> Estimate:
        """What was read off the last W, with all that the schedule knows besides, such as how the run ended."""


@dataclass(frozen=True)
class Consensus:
    """How sites take part: which mean centres the data, what a site weighs, and what it remembers."""

    global_mean: bool  # centre by the mean over all sites, and measure by the variances about it
    by_rows: bool  # w_k = n_k / n; otherwise 1 / K
    memory: int  # positions that sites remember for mixing; 1 for none
    inputs: int = 0  # the last so many variables are inputs whose covariance the schedule needs
    standardize: bool = False  # in units of the standard deviations over all sites (with `global_mean`)


@dataclass(frozen=True)
class SiteState(Generic[Problem]):
    """Never leaves the site: its moments, and its place at a bench once it knows its problem."""

    data: Moments
    bench: Bench[Problem] | None = None
    place: int = 0


@dataclass(frozen=True)
class AdmmSite(Generic[Problem]):
    """Algorithm 1, lines 2 and 7."""

    model: Model[Any, Problem]
    consensus: Consensus
    multipliers: Callable[[Problem, FloatArray], FloatArray] | None = None  # u_k, of entries that the model holds at 0

    def init(self, data: Moments) -> SiteState[Problem]:
        """Keep the moments; the rest waits for what the sites have in common."""
        return SiteState(data)

    def local_update(self, state: SiteState[Problem], message: Message) -> tuple[SiteState[Problem], Summand]:
        """Answer the phase that the message is in."""
        match message.get("phase"):
            case "count":
                return state, self._count(state.data)
            case "spread":
                return state, self._spread(state.data.about(array(message, "mean")))
        if not self.joint(message):
            raise MessageError("message refused: it names no phase of this algorithm")
        return self.local_updates([state], message)[0]

    def joint(self, message: Message) -> bool:
        """Sites of one process take the steps of rounds together."""
        return message.get("phase") == "consensus"

    def local_updates(
        self, states: Sequence[SiteState[Problem]], message: Message
    ) -> list[tuple[SiteState[Problem], Summand]]:
        """A round of several sites."""
        return self.at_benches(states, message, self._round)

    def at_benches(
        self,
        states: Sequence[SiteState[Problem]],
        message: Message,
        step: Callable[[Bench[Problem], Message], tuple[Bench[Problem], list[Summand]]],
    ) -> list[tuple[SiteState[Problem], Summand]]:
        """Take a step at every bench; whoever has no place yet is given one."""
        states = self._seated(states, message)
        benches: dict[int, list[int]] = {}
        for k, state in enumerate(states):
            benches.setdefault(id(state.bench), []).append(k)
        found: dict[int, tuple[SiteState[Problem], Summand]] = {}
        for own in benches.values():
            bench, places = states[own[0]].bench, [states[k].place for k in own]
            assert bench is not None
            if len(places) < len(bench.weight):  # the others have their turn another time
                bench = bench.some(places, self.model.apart(bench.problem, places))
                places = list(range(len(places)))
            after, summands = step(bench, message)
            found |= {
                k: (replace(states[k], bench=after, place=place), summands[place])
                for k, place in zip(own, places, strict=True)
            }
        return [found[k] for k in range(len(states))]

    def _count(self, data: Moments) -> Summand:
        counts = {"rows": np.array(float(data.n)), "sites": np.array(1.0)}
        return counts | {"sum": data.total} if self.consensus.global_mean else counts

    def _spread(self, scatter: FloatArray) -> Summand:
        squares, inputs = {"squares": np.diag(scatter).copy()}, self.consensus.inputs
        return squares | {"inputs": folded(scatter[-inputs:, -inputs:])} if inputs else squares

    def _seated(self, states: Sequence[SiteState[Problem]], message: Message) -> list[SiteState[Problem]]:
        """Whoever has no place yet at one of the benches for those whose problems go together."""
        found, standing = list(states), [k for k, state in enumerate(states) if state.bench is None]
        if not standing:
            return found
        metric, scratch = array(message, "metric"), Scratch()
        prepared = [self._prepared(states[k].data, message) for k in standing]
        for places, problem in self.model.together([problem for problem, _ in prepared]):
            weight = np.array([prepared[place][1] for place in places])
            bench = Bench(problem, weight, metric, scratch)
            for seat, place in enumerate(places):
                k = standing[place]
                found[k] = replace(states[k], bench=bench, place=seat)
        return found

    def _prepared(self, data: Moments, message: Message) -> tuple[Problem, float]:
        """A site's problem and weight."""
        rows, sites = number(message, "rows"), number(message, "sites")
        centre = array(message, "mean") if self.consensus.global_mean else None
        metric = array(message, "metric")
        fits = centre is None or centre.shape == data.mean.shape
        if not (fits and rows >= data.n and sites >= 1.0 and bool((metric > 0.0).all())):
            raise MessageError("message refused: no run that this site is part of has such rows, sites, mean or metric")
        if self.consensus.standardize:
            scale = array(message, "scale")
            if centre is None or scale.shape != centre.shape or not bool((scale > 0.0).all()):
                raise MessageError("message refused: its scale is not one of these variables")
            data, centre = data.scaled(centre, scale), np.zeros_like(scale)
        weight = data.n / rows if self.consensus.by_rows else 1.0 / sites
        return self.model.prepare(data, rows, centre, weight, metric), weight

    def _round(self, bench: Bench[Problem], message: Message) -> tuple[Bench[Problem], list[Summand]]:
        W, rho, mix = array(message, "W"), number(message, "rho"), array(message, "mix")
        m, keep = bench.remembered, int(number(message, "keep"))
        if not 0 <= keep <= len(mix) <= m or keep >= self.consensus.memory:
            raise MessageError("message refused: it mixes more rounds than this site has taken part in")
        if bench.shape == ():
            bench = bench.roomy(W.shape, self.consensus.memory)
        if not (W.shape == bench.shape and bool(np.isfinite(W).all()) and 0.0 < rho < np.inf):
            raise MessageError("message refused: its parameters or penalty are none of this algorithm")
        u, centre = bench.duals_and_centres(W, mix, number(message, "rescale"))  # line 7, Eq. 7
        B, problem = self.model.prox(bench.problem, centre, rho)  # line 2, Eq. 4
        if self.multipliers is not None:
            u = self.multipliers(problem, u)
        bench, positions, products = bench.moved(problem, W, B, u, keep)
        return bench, [
            {"position": position, "products": own} for position, own in zip(positions, products, strict=True)
        ]


@dataclass(frozen=True)
class ServerState(Generic[AnyPlan]):
    """What the server knows: totals, the consensus W, and where the schedule stands."""

    phase: str
    plan: AnyPlan
    W: FloatArray
    Z: FloatArray  # the mixed total of positions at which W was taken
    mix: FloatArray
    totals: FloatArray  # of positions, those that were mixed, newest last
    gram: FloatArray  # inner products of the residuals of the `keep` newest of them
    keep: int = 0
    rescale: float = 1.0
    rows: float = 0.0
    sites: float = 0.0
    mean: FloatArray | None = None
    variances: FloatArray | None = None  # of the variables; 1 where the sites have no mean in common
    metric: FloatArray | None = None
    scale: FloatArray | None = None  # the units in which the sites' columns are, where they are standardised
    residual: float = np.inf
    renewed: bool = False  # whether the sites have yet to be told the metric (measured.py)


@dataclass(frozen=True)
class AdmmServer(Generic[AnyPlan]):
    """Algorithm 1, lines 3 to 6.  d: variables, those included that are only inputs."""

    d: int
    start: FloatArray  # the first W
    consensus: Consensus
    schedule: Schedule[AnyPlan]
    read: Callable[[FloatArray], Estimate]  # the graph off the last W

    def init(self) -> ServerState[AnyPlan]:
        """Nothing is known before the first total but the number of variables."""
        plan, none = self.schedule.start(self.d, 1.0, 1.0), np.zeros((0, *self.start.shape))
        return ServerState("count", plan, self.start, self.start, np.zeros(0), none, np.zeros((0, 0)))

    def broadcast(self, state: ServerState[AnyPlan]) -> Message | None:
        """The next phase's question; the first consensus message carries what the setup phases found."""
        if state.plan.done:
            return None
        if state.phase == "count":
            return {"phase": "count"}
        mean: dict[str, Value] = {} if state.mean is None else {"mean": state.mean}
        if state.metric is None:
            return {"phase": "spread", **mean}
        message: dict[str, Value] = {
            "phase": "consensus",
            "W": state.W,
            "rho": state.plan.rho,
            "rescale": state.rescale,
            "mix": state.mix,
            "keep": state.keep,
        }
        if len(state.totals) > 0:
            return message
        units: dict[str, Value] = {} if state.scale is None else {"scale": state.scale}
        return {**message, **mean, **units, "metric": state.metric, "rows": state.rows, "sites": state.sites}

    def global_update(self, state: ServerState[AnyPlan], total: Total) -> ServerState[AnyPlan]:
        """Take in the total of the current phase."""
        match state.phase:
            case "count":
                rows, sites = float(total["rows"]), float(total["sites"])
                state = replace(state, rows=rows, sites=sites, plan=self.schedule.start(self.d, sites, rows))
                if self.consensus.global_mean:
                    return replace(state, phase="spread", mean=total["sum"] / rows)
                ones = np.ones(len(self.start))
                return replace(state, phase="consensus", variances=ones, metric=ones)
            case "spread":
                variances = total["squares"] / state.rows
                if not (variances > 0.0).all():
                    raise NumericalError("a variable does not vary over the sites; remove it")
                scale = np.sqrt(variances) if self.consensus.standardize else np.ones_like(variances)
                if inputs := self.consensus.inputs:
                    units = np.outer(scale[-inputs:], scale[-inputs:])
                    products = unfolded(total["inputs"], inputs) / state.rows / units
                    state = replace(state, plan=self.schedule.with_inputs(state.plan, products))
                if self.consensus.standardize:
                    state, variances = replace(state, scale=scale), np.ones_like(variances)
                return replace(state, phase="consensus", variances=variances, metric=variances)
        return self._round(state, total)

    def _round(self, state: ServerState[AnyPlan], total: Total) -> ServerState[AnyPlan]:
        assert state.metric is not None
        assert state.variances is not None
        totals = np.concatenate([state.totals[len(state.totals) - state.keep :], total["position"][None]])
        gram = _bordered(state.gram, total["products"][-len(totals) :])
        size = float((by_entry(state.metric) * state.W**2).sum())
        residual = float(np.sqrt(gram[-1, -1] / max(size, float(state.variances.sum()))))
        # The sites' mean B: what the positions' total gained over the duals that went into it.
        B = total["position"] - state.rescale * (state.Z - state.W)
        plan = self.schedule.judge(state.plan, state.W, B, total["position"], state.metric, residual)
        # Residuals of another stage's problem, or from before a stumble, would mislead the mixing.
        usable = max(min(plan.trusted, len(totals)), 1)
        totals, gram = totals[-usable:], gram[-usable:, -usable:]
        mix, keep = mixing(gram), min(plan.trusted, usable, self.consensus.memory - 1)
        Z = np.tensordot(mix, totals, axes=1)
        W, plan = self.schedule.w_step(plan, state.W, Z, state.metric)
        return replace(
            state,
            plan=plan,
            W=W,
            Z=Z,
            mix=mix,
            keep=keep,
            totals=totals,
            gram=gram[usable - keep :, usable - keep :],
            residual=residual,
            rescale=state.plan.rho / plan.rho,
        )

    def progress(self, state: ServerState[AnyPlan]) -> Mapping[str, float]:
        """The schedule's figures, and the primal residual: the sites' distance from W relative to W's size."""
        return {**self.schedule.progress(state.plan), "residual": state.residual}

    def estimate(self, state: ServerState[AnyPlan]) -> Estimate:
        """What the consensus W says."""
        found = self.schedule.concluded(state.plan, self.read(state.W))
        if state.scale is None:
            return found
        if found.covariance is not None:
            found = replace(found, covariance=found.covariance * np.outer(state.scale, state.scale))
        if found.cpdag is None:
            return found  # its weights have a threshold, which is in standard deviations, too
        return replace(found, weights=found.weights * state.scale / state.scale[:, None])


def _bordered(gram: FloatArray, products: FloatArray) -> FloatArray:
    """The Gram matrix with the inner products of one more residual."""
    m = len(products)
    larger = np.empty((m, m))
    larger[:-1, :-1] = gram
    larger[-1] = larger[:, -1] = products
    return larger
