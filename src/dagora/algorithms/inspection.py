"""Whether anything can be learned from data that nobody sees together: rounds before those of an algorithm.

In one process `check_together` compares values of rows.  On a network only totals may say it:

    "inspect"  rows; for each column, whether it is constant at a site; for each two, whether they agree there
    "compare"  only if a column is constant at every site: the totals of its values and of their squares, which say
               whether it is constant in all rows

Each is answered once in a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dagora.arrays import IntArray
from dagora.data.summary import Facts, Prepared
from dagora.data.wording import listing
from dagora.errors import InputError, MessageError
from dagora.federated.message import Message
from dagora.federated.protocol import Algorithm, Estimate, ServerPart, SitePart, Summand, Total
from dagora.wide import Wide

_UNIT = 2.0**-62  # what rounding in private sums may leave of a square
_EQUAL = 1e-14  # distance of values from their mean, relative to it, that rounding may leave


@dataclass(frozen=True)
class SiteState:
    """What the site was given, and the algorithm's own state once it has begun."""

    prepared: Prepared
    asked: frozenset[str] = frozenset()  # of the phases above
    begun: bool = False
    inner: Any = None


@dataclass(frozen=True)
class ServerState:
    """Where the inspection is, and the algorithm's own state once it is over."""

    suspects: IntArray | None = None  # columns that are constant at every site; None: not known yet
    passed: bool = False
    begun: bool = False  # the algorithm has its first total
    inner: Any = None


@dataclass(frozen=True)
class InspectedSite:
    """Answers the rounds before, then the algorithm's."""

    part: SitePart[Any, Any]

    def init(self, data: Prepared) -> SiteState:
        """The algorithm starts when its first question comes."""
        return SiteState(data)

    def local_update(self, state: SiteState, message: Message) -> tuple[SiteState, Summand]:
        """Flags, values of constant columns, or the algorithm's summand."""
        facts, phase = state.prepared.summary.facts, str(message.get("phase"))
        if phase in state.asked:
            raise MessageError(f"message refused: {phase!r} is answered once in a run")
        asked = replace(state, asked=state.asked | {phase})
        if phase == "inspect":
            constant = facts.low == facts.high
            i, j = np.triu_indices(len(constant), 1)
            same = facts.twin[i] == facts.twin[j]
            rows = np.array([float(state.prepared.summary.moments.n)])
            flags = {"constant": constant.astype(np.float64), "same": same.astype(np.float64)}
            return asked, {"sites": np.ones(1), "rows": rows, **flags}
        if phase == "compare":
            value = facts.low[_constant_columns(message, facts)]
            square = Wide.product(value, value)
            exact = Wide(value, np.zeros(len(value)))
            return asked, {"sites": np.ones(1), **exact.fields("value"), **square.fields("square")}
        inner = state.inner if state.begun else self.part.init(state.prepared.data)
        inner, summand = self.part.local_update(inner, message)
        return replace(state, begun=True, inner=inner), summand


def _constant_columns(message: Message, facts: Facts) -> IntArray:
    """The columns asked for.  Only of one that is constant here is the lowest value no single row's."""
    columns = message.get("columns")
    if not isinstance(columns, np.ndarray) or columns.dtype != np.int64 or columns.ndim != 1:
        raise MessageError("message refused: it names no columns to compare")
    if (np.diff(columns) <= 0).any():
        raise MessageError("message refused: it names a column twice, or out of order")
    if not np.isin(columns, facts.constant_columns()).all():
        # Which columns are constant is the site's own.  An InputError ends the run here: it is told once at most.
        raise InputError("message refused: it asks for values of columns that are not constant here")
    return columns


@dataclass(frozen=True)
class InspectedServer:
    """Asks first, refuses data from which nothing can be learned, then hands over."""

    part: ServerPart[Any]
    names: tuple[str, ...]

    def init(self) -> ServerState:
        """Nothing is known."""
        return ServerState()

    def broadcast(self, state: ServerState) -> Message | None:
        """One question, a second where needed, then the algorithm's."""
        if state.passed:
            return self.part.broadcast(state.inner)
        if state.suspects is None:
            return {"phase": "inspect"}
        return {"phase": "compare", "columns": state.suspects}

    def global_update(self, state: ServerState, total: Total) -> ServerState:
        """Refuse by name, or go on."""
        if state.passed:
            return replace(state, begun=True, inner=self.part.global_update(state.inner, total))
        if state.suspects is None:
            suspects = self._suspects(total)
            state = ServerState(suspects)
            return state if suspects.size else self._handed_over(state)
        self._refuse_constant(state.suspects, total)
        return self._handed_over(state)

    def progress(self, state: ServerState) -> Mapping[str, float]:
        """Nothing is done until the algorithm has its first total."""
        return self.part.progress(state.inner) if state.begun else {"done": 0.0}

    def estimate(self, state: ServerState) -> Estimate:
        """The algorithm's."""
        return self.part.estimate(state.inner)

    def _suspects(self, total: Total) -> IntArray:
        sites = total["sites"][0]
        if total["rows"][0] < 2:
            raise InputError("all sites: a single row in all; add rows")
        if (agreed := np.flatnonzero(total["same"] == sites)).size:
            first, later = (self.names[index[agreed[0]]] for index in np.triu_indices(len(self.names), 1))
            raise InputError(f"all sites: columns {first!r} and {later!r} agree in every row; remove one")
        return np.flatnonzero(total["constant"] == sites)

    def _handed_over(self, state: ServerState) -> ServerState:
        return replace(state, passed=True, inner=self.part.init())

    def _refuse_constant(self, suspects: IntArray, total: Total) -> None:
        """By the spread of the values at the sites: none, as far as a private sum can tell."""
        value, sites = Wide.of(total, "value"), float(total["sites"][0])
        spread = (Wide.of(total, "square") - value.times(value).over(sites)).high
        least = sites * (_EQUAL * value.high / sites) ** 2 + sites * _UNIT
        if (constant := np.flatnonzero(spread <= least)).size:
            columns = listing([self.names[suspects[j]] for j in constant])
            raise InputError(f"all sites: the same value in every row of column {columns}; remove it")


def inspected(algorithm: Algorithm[Any, Any, Any], names: tuple[str, ...]) -> Algorithm[Any, Any, Any]:
    """The algorithm with an inspection before it."""
    return Algorithm(InspectedSite(algorithm.site), InspectedServer(algorithm.server, names))
