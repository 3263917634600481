"""A site: its data's state, and the bytes it answers with."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Generic

import numpy as np

from dagora.errors import DagoraError, MessageError
from dagora.federated.guard import Guard, Shapes
from dagora.federated.message import Message, Value, decode, encode
from dagora.federated.protocol import Aggregation, Data, SitePart, SiteState, Summand, asks_jointly
from dagora.federated.vault import Vault
from dagora.wide import without_low


class Site(Generic[Data, SiteState]):
    """Answers broadcasts.  The state (moments, duals, last reply) stays here; only protected summands leave.

    A round moves the state once, however often it is asked for: a retry gets the summand that was computed already,
    and a repeated round with another question is refused.  Where there is a guard, nothing leaves without it.
    """

    def __init__(
        self,
        name: str,
        part: SitePart[Data, SiteState],
        data: Data,
        aggregation: Aggregation,
        guard: Guard | None = None,
        vault: Vault | None = None,
    ) -> None:
        self.name = name
        self._part = part
        self._guard = guard
        if guard is not None:
            with naming(self.name):
                guard.enter()
        self._state = part.init(data)
        self._protected = aggregation.at_site(name, self._answer, vault)
        self._last: tuple[Message, Summand] | None = None
        self._ahead: tuple[Message, SiteState, Summand] | None = None  # a step taken with other sites (`step_together`)
        self._leaving: Shapes = {}
        self._before = 0  # the last round of the replicate before
        self.failed = False  # whether the last question has led to an error in the algorithm's own part
        self._asked = 0  # how often the last round was asked
        self._subset: tuple[str, ...] = ()  # that the total is over; none for all sites

    def handle(self, request: bytes) -> bytes:
        """Bytes in, bytes out: all that a network sees of a site."""
        return self.reply(decode(request))

    def reply(self, message: Message) -> bytes:
        """The same for a message that has been decoded already."""
        with naming(self.name):
            self._leaving, self._subset = {}, ()
            reply = encode(self._protected(message))
            if self._guard is not None:
                self._guard.record(self._leaving, message, reply, self._subset)
            return reply

    def replay(self, request: bytes) -> bytes:
        """Take in a message that was answered before a restart; nothing leaves, so that nobody has to be asked."""
        guard, self._guard = self._guard, None
        try:
            return self.handle(request)
        finally:
            self._guard = guard

    @property
    def last(self) -> object:
        """What was computed last: another object whenever the state has moved."""
        return self._last

    @property
    def fingerprint(self) -> str:
        """A hash of the last summand: whether a replay has come to where the site was."""
        return "" if self._last is None else sha256(encode(self._last[1])).hexdigest()

    def _answer(self, message: Message) -> Summand:
        self._asked = self._asked + 1 if self._was_asked(message) else 1
        summand, subset = self._summand(message), self._subset_of(message)
        if self._guard is not None:
            self._leaving = {name: np.shape(values) for name, values in without_low(summand).items()}
            self._subset = subset
            self._guard.release(self._leaving, message, self._before, self._asked, subset)
        if subset and self.name not in subset:  # it answers like all others, so that masks cancel, and adds nothing
            return {name: np.zeros_like(values) for name, values in summand.items()}
        return summand

    def _subset_of(self, message: Message) -> tuple[str, ...]:
        """The sites that the total is over; none for all of them, which most statistics never leave."""
        if "subset" not in message:
            return ()
        if not getattr(self._part, "adds_over_subsets", False):
            raise MessageError("message refused: its total is over all sites or none")
        return subset_in(message)

    def _summand(self, message: Message) -> Summand:
        if self._last is not None and self._was_asked(message):
            earlier, summand = self._last
            if message is not earlier and encode(_question(message)) != encode(_question(earlier)):
                raise MessageError(f"round {message.get('round')} was asked before with another question; refused")
            return summand
        if self._last is not None and _is_over(message, self._last[0]):
            raise MessageError(f"round {message.get('round')} of this run is over; refused")
        before = self._before if self._last is None else _before(message, self._last[0], self._before)
        if self._ahead is not None and self._ahead[0] is message:
            _, self._state, summand = self._ahead
        else:
            self.failed = True  # unless it comes to an answer
            self._state, summand = self._part.local_update(self._state, message)
            self.failed = False
        self._last, self._before, self._ahead = (message, summand), before, None
        return summand

    def _is_due(self, message: Message) -> bool:
        """Whether an answer would move the state."""
        return not (self._was_asked(message) or (self._last is not None and _is_over(message, self._last[0])))

    def _was_asked(self, message: Message) -> bool:
        return self._last is not None and _turn(message) == _turn(self._last[0]) != (None, None)


def step_together(sites: Sequence[Site[Any, Any]], message: Message) -> None:
    """Let sites of one process that are about to be asked take their steps at once, where their part can.

    Nothing leaves a site by this, and no state moves: each still answers for itself, under its own policy and
    protection, and finds its summand ready.  If there is trouble with one of them, it will tell when it is asked.
    """
    due = [site for site in sites if site._is_due(message)]
    if len(due) < 2 or len({id(site._part) for site in due}) > 1:
        return
    part = due[0]._part
    if not asks_jointly(part, message):
        return
    try:
        steps = part.local_updates([site._state for site in due], message)
    except Exception:  # whatever it is, it comes again, at the site that it is about
        return
    for site, (state, summand) in zip(due, steps, strict=True):
        site._ahead = message, state, summand


@contextmanager
def naming(site: str) -> Iterator[None]:
    """Errors name the site where they arose, once."""
    try:
        yield
    except DagoraError as error:
        if str(error).startswith(f"site {site!r}"):
            raise
        raise type(error)(f"site {site!r}: {error}") from error


def with_subset(message: Message, sites: Iterable[str]) -> dict[str, Value]:
    """The message, asking for a total over these sites only."""
    text = json.dumps(sorted(sites))
    return {**message, "subset": np.frombuffer(text.encode(), np.uint8)}


def subset_in(message: Message) -> tuple[str, ...]:
    """The sites that it asks for, by name and in order."""
    value = message.get("subset")
    try:
        names = json.loads(value.tobytes()) if isinstance(value, np.ndarray) else None
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise MessageError("message refused: the list of sites in it is malformed")
    return tuple(sorted(set(names)))


def _turn(message: Message) -> tuple[object, object]:
    return message.get("run"), message.get("round")


def _is_over(message: Message, last: Message) -> bool:
    asked, done = message.get("round"), last.get("round")
    same = message.get("run") == last.get("run")
    return same and isinstance(asked, int) and isinstance(done, int) and asked < done


def _before(message: Message, last: Message, known: int) -> int:
    """The round that the message's replicate counts from.  Replicates come one after the other, and none comes back."""
    now, then = message.get("replicate", 0), last.get("replicate", 0)
    if not isinstance(now, int) or not isinstance(then, int) or now not in (then, then + 1):
        raise MessageError("message refused: it is of no replicate that is due")
    if now == then:
        return known
    done = last.get("round")
    return done if isinstance(done, int) else known


def _question(message: Message) -> Message:
    """The algorithm's part of a message: what aggregations add differs between attempts."""
    return {name: value for name, value in message.items() if not name.startswith("secure.")}
