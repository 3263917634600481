"""Confidence in edges by a federated bootstrap (Friedman, Goldszmidt and Wyner 1999): any algorithm, R times more.

    0. the algorithm, as it is, on the rows as they are: its estimate is the answer
    1. to R. every message carries "replicate": r.  At a new r each site draws n_k of its n_k rows with replacement, by
       a key that only it knows (data/resample.py), and starts anew from them; the server starts anew, too
    at the end: in how many replicates two variables were joined, and which way

All of it is one run under one aggregation: what leaves a site in a replicate is what the algorithm sends, and whether
the site could not compute it ("failed": its solver refused the rows drawn, of which a tiny site has few different
ones).  A replicate that fails, at a site or at the server, is counted, left out of the frequencies, and told of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dagora.arrays import FloatArray
from dagora.confidence import Confidence
from dagora.data.resample import Resamples, RowsError
from dagora.errors import InputError, MessageError, NumericalError
from dagora.federated.message import Message
from dagora.federated.protocol import Algorithm, Estimate, ServerPart, SitePart, Summand, Total, asks_jointly
from dagora.graphs import ARROW, UNDIRECTED, break_cycles

FAILED = "failed"
_FAILURES = (NumericalError, InputError, np.linalg.LinAlgError, FloatingPointError, ZeroDivisionError)

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class SiteState:
    """The rows to draw from, and where the algorithm is in the current replicate (None: it has failed there)."""

    data: Resamples
    inner: Any
    replicate: int = 0
    shapes: Mapping[str, Shapes] = field(default_factory=dict)  # of the last summand in each phase


@dataclass(frozen=True)
class BootstrapSite:
    """The algorithm's site, again and again.  `whole` is for the rows as they are, `part` for those drawn."""

    whole: SitePart[Any, Any]
    part: SitePart[Any, Any]
    replicates: int

    def init(self, data: Resamples) -> SiteState:
        """The rows as they are come first."""
        return SiteState(data, self.whole.init(data.data))

    def local_update(self, state: SiteState, message: Message) -> tuple[SiteState, Summand]:
        """The algorithm's answer; in a replicate, with whether there is one."""
        asked = message.get("replicate")
        if type(asked) is not int or asked not in (state.replicate, state.replicate + 1) or asked > self.replicates:
            raise MessageError("message refused: it is of no replicate that is due")
        phase = str(message.get("phase", ""))
        if asked == 0:
            return self._answered(state, *self.whole.local_update(state.inner, message), phase)
        if asked > state.replicate:
            drawn = state.data.drawn(asked)  # what cannot be read again is no failure of a replicate
            state = replace(state, replicate=asked, inner=self.part.init(drawn))
        try:
            if state.inner is None:
                raise NumericalError("this replicate has failed here")
            return self._answered(state, *self.part.local_update(state.inner, message), phase)
        except RowsError:
            raise
        except _FAILURES:
            if phase not in state.shapes:  # nothing to stand in for
                raise
            nothing = {name: np.zeros(shape) for name, shape in state.shapes[phase].items()}
            return replace(state, inner=None), {**nothing, FAILED: np.array(1.0)}

    def joint(self, message: Message) -> bool:
        """As the algorithm does."""
        return asks_jointly(self._asked(message), message)

    def local_updates(self, states: Sequence[SiteState], message: Message) -> list[tuple[SiteState, Summand]]:
        """The algorithm's steps of several sites, if the replicate stands at all of them."""
        part, replicate, phase = self._asked(message), message.get("replicate"), str(message.get("phase", ""))
        assert asks_jointly(part, message)
        if any(state.replicate != replicate or state.inner is None for state in states):
            return [self.local_update(state, message) for state in states]
        steps = part.local_updates([state.inner for state in states], message)
        return [self._answered(state, *step, phase) for state, step in zip(states, steps, strict=True)]

    def _asked(self, message: Message) -> SitePart[Any, Any]:
        return self.whole if message.get("replicate") == 0 else self.part

    def _answered(self, state: SiteState, inner: Any, summand: Summand, phase: str) -> tuple[SiteState, Summand]:
        shapes = {name: np.shape(values) for name, values in summand.items()}
        state = replace(state, inner=inner, shapes={**state.shapes, phase: shapes})
        return state, {**summand, FAILED: np.array(0.0)} if state.replicate > 0 else summand


@dataclass(frozen=True)
class Tally:
    """How often something was found; (d, d) arrays, `arrow` with d rows below for every lag."""

    graphs: int = 0
    failed: int = 0
    arrow: FloatArray | None = None
    undirected: FloatArray | None = None
    warned: int = 0
    warning: str = ""

    def __add__(self, found: Estimate) -> "Tally":
        """One more graph, read as the result's is (conclusion.py)."""
        d = found.edges.shape[1]
        arrow = found.edges.astype(np.float64)
        undirected = np.zeros((d, d))
        if found.cpdag is None:
            arrow[:d] = break_cycles(found.edges[:d], found.strength[:d])[0]
        else:
            arrow[:d] = found.cpdag == ARROW
            open_ = found.cpdag == UNDIRECTED
            undirected = (open_ | open_.T).astype(np.float64)
        if self.arrow is not None and self.undirected is not None:
            arrow, undirected = self.arrow + arrow, self.undirected + undirected
        warning = self.warning or (found.warnings[0] if found.warnings else "")
        warned = self.warned + bool(found.warnings)
        return Tally(self.graphs + 1, self.failed, arrow, undirected, warned, warning)

    def confidence(self, like: Estimate) -> Confidence:
        """Shares of the graphs; `like` says of how many variables."""
        rows, d = like.edges.shape
        arrow, undirected = np.full((rows, d), np.nan), np.full((d, d), np.nan)
        if self.arrow is not None and self.undirected is not None:
            arrow, undirected = self.arrow / self.graphs, self.undirected / self.graphs
        within = arrow[:d]
        lagged = arrow[d:].reshape(-1, d, d) if rows > d else None
        joined = within + within.T + undirected
        return Confidence(self.graphs + self.failed, self.failed, joined, within, undirected, lagged)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know of the replicates."""
        asked = self.graphs + self.failed
        failed = f"{self.failed} of {asked} bootstrap replicates gave no graph; frequencies are of the others"
        if self.graphs == 0:
            failed = f"none of {asked} bootstrap replicates gave a graph: too few different rows; add rows"
        warned = f"in {self.warned} of {asked} bootstrap replicates there was a warning, the first: {self.warning}"
        return ((failed,) if self.failed else ()) + ((warned,) if self.warned else ())


@dataclass(frozen=True)
class ServerState:
    """Where the algorithm is in the current replicate; the answer, once there is one; what replicates have found."""

    inner: Any
    replicate: int = 0
    estimate: Estimate | None = None
    tally: Tally = field(default_factory=Tally)
    figures: Mapping[str, float] = field(default_factory=dict)  # of the last round


@dataclass(frozen=True)
class BootstrapServer:
    """Runs the algorithm to its end, and R times again."""

    whole: ServerPart[Any]
    part: ServerPart[Any]
    replicates: int

    def init(self) -> ServerState:
        """The rows as they are come first."""
        return ServerState(self.whole.init())

    def broadcast(self, state: ServerState) -> Message | None:
        """The algorithm's question, and which replicate it is about."""
        if state.replicate > self.replicates:
            return None
        message = self._now(state).broadcast(state.inner)
        return None if message is None else {**message, "replicate": state.replicate}

    def global_update(self, state: ServerState, total: Total) -> ServerState:
        """The algorithm's update; at its end, the next replicate."""
        part = self._now(state)
        if state.replicate == 0:
            inner = part.global_update(state.inner, total)
            if part.broadcast(inner) is not None:
                return self._moved(state, inner, part)
            return self._next(replace(state, estimate=part.estimate(inner)), part.progress(inner))
        if float(total[FAILED]) > 0.0:
            return self._failed(state)
        try:
            inner = part.global_update(state.inner, {name: sums for name, sums in total.items() if name != FAILED})
            if part.broadcast(inner) is not None:
                return self._moved(state, inner, part)
            tally = state.tally + part.estimate(inner)
        except _FAILURES:
            return self._failed(state)
        return self._next(replace(state, tally=tally), {})

    def progress(self, state: ServerState) -> Mapping[str, float]:
        """The algorithm's figures on the rows as they are; of replicates only which, for there are many."""
        return state.figures

    def estimate(self, state: ServerState) -> Estimate:
        """That of the rows as they are, with frequencies."""
        assert state.estimate is not None
        found = state.estimate
        return replace(found, confidence=state.tally.confidence(found), warnings=found.warnings + state.tally.warnings)

    def _now(self, state: ServerState) -> ServerPart[Any]:
        return self.whole if state.replicate == 0 else self.part

    def _moved(self, state: ServerState, inner: Any, part: ServerPart[Any]) -> ServerState:
        figures = part.progress(inner)
        done = (state.replicate + min(figures["done"], 1.0)) / (self.replicates + 1)
        return replace(state, inner=inner, figures=self._figures(state, figures, done))

    def _next(self, state: ServerState, figures: Mapping[str, float]) -> ServerState:
        done = (state.replicate + 1) / (self.replicates + 1)
        told = self._figures(state, figures, done)
        return replace(state, inner=self.part.init(), replicate=state.replicate + 1, figures=told)

    def _failed(self, state: ServerState) -> ServerState:
        return self._next(replace(state, tally=replace(state.tally, failed=state.tally.failed + 1)), {})

    def _figures(self, state: ServerState, figures: Mapping[str, float], done: float) -> Mapping[str, float]:
        kept = figures if state.replicate == 0 else {}
        return {**kept, "replicate": state.replicate, "done": done}


def bootstrapped(
    whole: Algorithm[Any, Any, Any], part: Algorithm[Any, Any, Any], replicates: int
) -> Algorithm[Any, Any, Any]:
    """An algorithm, and a part of it that finds a graph, so many times more."""
    return Algorithm(
        BootstrapSite(whole.site, part.site, replicates), BootstrapServer(whole.server, part.server, replicates)
    )
