"""Phases that a site answers so many times and no more.

Totals are exact, and so is what rounding has left in them.  A server that asks for sums about a thousand centres of its
choice could read each site's mean and number of rows off that remainder, which repeats as the centre moves.  Honest
servers ask for sums about a centre twice at most.  (Those of the covariance method are about zero, always.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagora.errors import MessageError
from dagora.federated.message import Message
from dagora.federated.protocol import Algorithm, SitePart, Summand, asks_jointly

# In a run, or in a replicate of a bootstrap; of all phases in which the server chooses where rows are measured from.
ASKED_AT_MOST = {"count": 1, "spread": 2, "moments": 2, "parameters": 2}


@dataclass(frozen=True)
class SiteState:
    """The algorithm's own state, and how often each phase was answered."""

    inner: Any
    answered: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LimitedSite:
    """Answers as the algorithm does, and counts."""

    part: SitePart[Any, Any]

    def init(self, data: Any) -> SiteState:
        """Nothing is answered yet."""
        return SiteState(self.part.init(data))

    def local_update(self, state: SiteState, message: Message) -> tuple[SiteState, Summand]:
        """The algorithm's answer, unless it was given too often."""
        phase = str(message.get("phase", ""))
        if phase not in ASKED_AT_MOST:
            inner, summand = self.part.local_update(state.inner, message)
            return SiteState(inner, state.answered), summand
        count = state.answered.get(phase, 0) + 1
        if count > ASKED_AT_MOST[phase]:
            raise MessageError(f"message refused: {phase!r} is answered {ASKED_AT_MOST[phase]} times in a run")
        inner, summand = self.part.local_update(state.inner, message)
        return SiteState(inner, {**state.answered, phase: count}), summand

    def joint(self, message: Message) -> bool:
        """As the algorithm does, in phases that are not counted."""
        return str(message.get("phase", "")) not in ASKED_AT_MOST and asks_jointly(self.part, message)

    def local_updates(self, states: Sequence[SiteState], message: Message) -> list[tuple[SiteState, Summand]]:
        """The algorithm's steps of several sites."""
        assert asks_jointly(self.part, message)
        steps = self.part.local_updates([state.inner for state in states], message)
        return [(SiteState(inner, state.answered), own) for state, (inner, own) in zip(states, steps, strict=True)]


def limited(algorithm: Algorithm[Any, Any, Any]) -> Algorithm[Any, Any, Any]:
    """The algorithm, at sites that count."""
    return Algorithm(LimitedSite(algorithm.site), algorithm.server)
