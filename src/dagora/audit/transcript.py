"""What crossed the wire in a run, and an aggregation that keeps a record of it.

    the server sees     messages, replies, totals
    a site sees         messages, and its own summands
    K - 1 sites see     messages, and all summands but one's

With plain aggregation a reply is the site's summand.  With any other it is whatever that aggregation made of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dagora.aggregation.agreement import SETTING_UP
from dagora.federated.message import Message
from dagora.federated.protocol import Aggregation, Summand, Total, Transport
from dagora.federated.vault import Vault

Summands = Mapping[str, tuple[Summand, ...]]  # by site, one a round


@dataclass(frozen=True)
class Round:
    """A broadcast, what the server received from each site, and the total that the server learned."""

    message: Message
    replies: Mapping[str, Message]
    total: Total

    @property
    def phase(self) -> str:
        """Of the algorithm."""
        return str(self.message.get("phase", ""))


@dataclass(frozen=True)
class Transcript:
    """All rounds of a run, in order."""

    rounds: tuple[Round, ...]

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of those who replied."""
        return tuple(self.rounds[0].replies)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The broadcasts."""
        return tuple(each.message for each in self.rounds)

    @property
    def totals(self) -> tuple[Total, ...]:
        """What even a perfect aggregation must give to the server."""
        return tuple(each.total for each in self.rounds)

    @property
    def phases(self) -> frozenset[str]:
        """They tell which method ran."""
        return frozenset(each.phase for each in self.rounds)


class Recorder:
    """An aggregation that works as another one does and remembers all that passes: for simulations only."""

    def __init__(self, inner: Aggregation) -> None:
        self._inner = inner
        self._rounds: list[Round] = []
        self._summands: dict[str, list[Summand]] = {}

    @property
    def transcript(self) -> Transcript:
        """What the server saw."""
        return Transcript(tuple(self._rounds))

    @property
    def summands(self) -> Summands:
        """What each site knows of its own answers."""
        return {site: tuple(own) for site, own in self._summands.items()}

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Note the summand before it is protected."""
        own = self._summands.setdefault(site, [])

        def noted(message: Message) -> Summand:
            summand = answer(message)
            own.append({name: values.copy() for name, values in summand.items()})
            return summand

        return self._inner.at_site(site, noted, vault)

    def total(self, transport: Transport, message: Message) -> Total:
        """Note the replies and the total."""
        tap = _Tap(transport)
        total = self._inner.total(tap, message)
        self._rounds.append(Round(message, tap.replies, total))
        return total


class _Tap:
    """A transport that keeps each site's first reply that is not about keys: the one that carries its summand."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.replies: dict[str, Message] = {}

    @property
    def sent(self) -> int:
        return self._inner.sent

    @property
    def received(self) -> int:
        return self._inner.received

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> Mapping[str, Message]:
        replies = self._inner.exchange(message, own, enough)
        if message.get("secure.step") not in (*SETTING_UP, "contexts"):
            self.replies = {**replies, **self.replies}
        return replies

    def close(self) -> None:
        self._inner.close()
