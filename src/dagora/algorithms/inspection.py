"""Whether anything can be learned from data that nobody sees together: rounds before those of an algorithm.

In one process `check_together` compares values of rows.  On a network only totals may say it:

    "inspect"  rows; for each column, whether it is constant at a site; for each two, whether they agree there
    "compare"  only if a column is constant at every site: the total of its values
    "deviate"  the total of their squared distances from the mean: none if the column is constant in all rows
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.data.summary import Facts, Prepared
from dagora.data.wording import listing
from dagora.errors import InputError, MessageError
from dagora.federated.message import Message, array
from dagora.federated.protocol import Algorithm, Estimate, ServerPart, SitePart, Summand, Total

_EQUAL = 1e-14  # distance of values from their mean, relative to it, that rounding may leave


@dataclass(frozen=True)
class SiteState:
    """What the site was given, and the algorithm's own state once it has begun."""

    prepared: Prepared
    begun: bool = False
    inner: Any = None


@dataclass(frozen=True)
class ServerState:
    """Where the inspection is, and the algorithm's own state once it is over."""

    suspects: IntArray | None = None  # columns that are constant at every site; None: not known yet
    mean: FloatArray | None = None  # of their values at the sites
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
        facts = state.prepared.summary.facts
        match message.get("phase"):
            case "inspect":
                constant = facts.low == facts.high
                i, j = np.triu_indices(len(constant), 1)
                same = facts.twin[i] == facts.twin[j]
                rows = np.array([float(state.prepared.summary.moments.n)])
                flags = {"constant": constant.astype(np.float64), "same": same.astype(np.float64)}
                return state, {"sites": np.ones(1), "rows": rows, **flags}
            case "compare":
                return state, {"sites": np.ones(1), "value": facts.low[_constant_columns(message, facts)]}
            case "deviate":
                value, mean = facts.low[_constant_columns(message, facts)], array(message, "mean")
                if value.shape != mean.shape:
                    raise MessageError("message refused: it does not hold one mean a column")
                return state, {"square": (value - mean) ** 2}
        inner = state.inner if state.begun else self.part.init(state.prepared.data)
        inner, summand = self.part.local_update(inner, message)
        return SiteState(state.prepared, True, inner), summand


def _constant_columns(message: Message, facts: Facts) -> IntArray:
    """The columns asked for.  Only of one that is constant here is the lowest value no single row's."""
    columns = message.get("columns")
    if not isinstance(columns, np.ndarray) or columns.dtype != np.int64 or columns.ndim != 1:
        raise MessageError("message refused: it names no columns to compare")
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
        if state.mean is None:
            return {"phase": "compare", "columns": state.suspects}
        return {"phase": "deviate", "columns": state.suspects, "mean": state.mean}

    def global_update(self, state: ServerState, total: Total) -> ServerState:
        """Refuse by name, or go on."""
        if state.passed:
            return replace(state, begun=True, inner=self.part.global_update(state.inner, total))
        if state.suspects is None:
            suspects = self._suspects(total)
            state = ServerState(suspects)
            return state if suspects.size else self._handed_over(state)
        if state.mean is None:
            return replace(state, mean=total["value"] / total["sites"])
        self._refuse_constant(state.suspects, state.mean, total["square"])
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

    def _refuse_constant(self, suspects: IntArray, mean: FloatArray, square: FloatArray) -> None:
        if (constant := np.flatnonzero(np.sqrt(square) <= _EQUAL * np.abs(mean))).size:
            columns = listing([self.names[suspects[j]] for j in constant])
            raise InputError(f"all sites: the same value in every row of column {columns}; remove it")


def inspected(algorithm: Algorithm[Any, Any, Any], names: tuple[str, ...]) -> Algorithm[Any, Any, Any]:
    """The algorithm with an inspection before it."""
    return Algorithm(InspectedSite(algorithm.site), InspectedServer(algorithm.server, names))
