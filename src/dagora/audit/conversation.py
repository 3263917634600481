"""Runs in one process under a lying coordinator: it keeps all that it hears, and goes on whatever happens.

The coordinator's half of an aggregation is the honest one (`Aggregation.total`), so that a change of the protocol needs
no change here.  It runs once for every cohort that some site is told, all of them in step; a lie changes the questions
between this half and the sites.

    halves      one for each view of the cohort, in threads of their own that take turns
      | questions of one step, one for each site, from the half that has the site's view
    lies        forge, withhold or repeat them                                      (lies.py)
      |
    sites       bytes in, bytes out; each has its own aggregation over the cohort that it is told
      | replies and errors, all of them kept
    harvest     what can be made of them                                            (harvest.py)
"""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dagora.aggregation.cohort import Cohort
from dagora.aggregation.gaussian import Gaussian
from dagora.arrays import FloatArray
from dagora.audit.lies import SECURE, Credulous, Desk, Heard, Script, View, forged
from dagora.audit.readings import opened
from dagora.errors import DagoraError, MessageError, MissingSiteError
from dagora.federated.guard import Guard
from dagora.federated.message import Message, decode, encode
from dagora.federated.protocol import Aggregation, Summand, Total, Transport
from dagora.federated.site import Site
from dagora.federated.vault import Memory, Vault
from dagora.wide import without_low

Protect = Callable[[Cohort, View], Aggregation]
Guarded = Callable[[str, str, View], Guard]  # of a site, a run and what the site is told of it


@dataclass(frozen=True)
class Stage:
    """What is attacked: sites with their data and keys, a protection, and the questions of an honest run.

    rows: by site; what the coordinator is assumed to know for its honest guess.
    guarded: makes each site's guard for a run; None for sites without policy and ledger.
    slow_keys: homomorphic keys of earlier conversations, which take long to make and are not what is attacked.
    """

    part: Any
    data: Mapping[str, Any]
    rows: Mapping[str, int]
    protect: Protect
    questions: tuple[Message, ...]
    guarded: Guarded | None = None
    cohort: Cohort = field(default_factory=lambda: Cohort({}))
    slow_keys: dict[str, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.cohort.sites:
            object.__setattr__(self, "cohort", Cohort.simulated(tuple(self.data)))

    @property
    def sites(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self.data)

    @property
    def victim(self) -> str:
        """The site with fewest rows, which has most to fear; of equals the first."""
        return min(self.sites, key=lambda site: self.rows[site])


@dataclass(frozen=True)
class Truth:
    """What a site added to a sum, as it was before it was protected (under `gaussian`: with its noise)."""

    site: str
    asked: bytes  # the algorithm's part of the question
    summand: Summand

    @property
    def vector(self) -> FloatArray:
        """All fields as one vector, in the order in which they are sent."""
        return np.concatenate([np.ravel(values) for values in without_low(self.summand).values()]).astype(np.float64)


@dataclass(frozen=True)
class Conversation:
    """A run as the coordinator saw it, and for the auditor what the sites had to hide."""

    script: Script
    heard: tuple[Heard, ...] = field(repr=False)
    truths: tuple[Truth, ...] = field(repr=False)
    views: Mapping[str, View] = field(repr=False)
    totals: tuple[Total, ...] = field(repr=False)  # those that the coordinator's honest half arrived at
    failures: tuple[str, ...]  # why it did not arrive at others
    crashes: tuple[str, ...]  # errors of sites that are not Dagora's own: faults, though not leaks


class Answering(Protocol):
    """A site, as far as the coordinator sees it."""

    def handle(self, request: bytes) -> bytes:
        """Bytes in, bytes out; a refusal is a DagoraError."""


def converse(
    stage: Stage, script: Script, run: str = "run", elsewhere: Mapping[str, Answering] | None = None
) -> Conversation:
    """Ask all questions of the stage under the script's lies, then some of them again.

    elsewhere: sites that are not in this process; the caller adds the truths.
    """
    liar = _Liar(stage, script, run, elsewhere)
    for number, question in enumerate(stage.questions, start=1):
        for attempt in range(script.tries):
            liar.take_round({**question, "run": run, "round": number}, attempt)
    liar.ask_again()
    return Conversation(
        script,
        tuple(liar.heard),
        tuple(liar.truths),
        liar.views,
        tuple(liar.totals),
        tuple(liar.failures),
        tuple(liar.crashes),
    )


class _Liar:
    """The state of a conversation."""

    def __init__(self, stage: Stage, script: Script, run: str, elsewhere: Mapping[str, Answering] | None) -> None:
        told = dict(script.views)
        self.script = script
        self.views = {site: told.get(site, View(stage.sites)) for site in stage.sites}
        self.heard: list[Heard] = []
        self.truths: list[Truth] = []
        self.totals: list[Total] = []
        self.failures: list[str] = []
        self.crashes: list[str] = []
        self._sites: dict[str, Answering] = {}
        for site in script.present or stage.sites:
            view = self.views[site]
            try:
                self._sites[site] = self._built(stage, site, view, run) if elsewhere is None else elsewhere[site]
            except DagoraError as error:  # such as a policy that refuses this cohort
                self.failures.append(str(error))
        distinct = dict.fromkeys(self.views[site] for site in self._sites)
        self._halves: dict[View, Aggregation] = {}
        for view in distinct:
            try:
                self._halves[view] = stage.protect(Credulous({s: stage.cohort.public[s] for s in view.sites}), view)
            except DagoraError as error:
                self.failures.append(str(error))

    def _built(self, stage: Stage, site: str, view: View, run: str) -> Site[Any, Any]:
        cohort = Cohort({each: stage.cohort.public[each] for each in view.sites}, {site: stage.cohort.private[site]})
        protection = stage.protect(cohort, view)
        noted: Aggregation
        if isinstance(protection, Gaussian):  # what counts is the summand with its noise
            protection.inner, noted = _Noting(protection.inner, self.truths), protection
        else:
            noted = _Noting(protection, self.truths)
        guard = None if stage.guarded is None else stage.guarded(site, run, view)
        return Site(site, stage.part, stage.data[site], noted, guard, _KeptKeys(stage.slow_keys))

    def take_round(self, message: Message, attempt: int) -> None:
        """Have all halves ask for the total of one question, step by step."""
        live = {view: _Half(half, message) for view, half in self._halves.items()}
        try:
            while live:
                posts = {view: half.next() for view, half in live.items()}
                for post in posts.values():
                    if isinstance(post, str):
                        self.failures.append(post)
                    elif not isinstance(post, _Asked):
                        self.totals.append(post)
                asked = {view: post for view, post in posts.items() if isinstance(post, _Asked)}
                live = {view: live[view] for view in asked}
                for view, answer in self._step(asked, attempt).items():
                    live[view].answer(answer)
        finally:
            for half in live.values():
                half.answer(MessageError("the conversation is over"))

    def ask_again(self) -> None:
        """Questions of earlier, to the same or other sites, with lies in them."""
        for index, site, lie in self.script.again:
            if self.heard:
                question = self.heard[index % len(self.heard)].question
                for each in forged(lie, site, question, Desk({site: question}, self.heard, self.views)):
                    self._ask(site, each)

    def _step(self, asked: Mapping[View, "_Asked"], attempt: int) -> dict[View, "Mapping[str, Message] | DagoraError"]:
        questions: dict[str, Message] = {}
        for site in self._sites:
            view = self.views[site]
            if view in asked and (asked[view].own is None or site in asked[view].own):  # type: ignore[operator]
                questions[site] = {**asked[view].message, **(asked[view].own or {}).get(site, {})}
        replies: dict[str, Message] = {}
        desk = Desk(questions, self.heard, self.views)
        for site, question in questions.items():
            lies = [lie for lie in self.script.lies if lie.applies(site, question, attempt)]
            sent = [question]
            for lie in lies:
                sent = [new for each in sent for new in forged(lie, site, each, desk)]
            for each in sent:
                reply = self._ask(site, each)
                if reply is not None:
                    replies[site] = reply
        return {view: self._for_half(view, post, replies) for view, post in asked.items()}

    def _for_half(
        self, view: View, asked: "_Asked", replies: Mapping[str, Message]
    ) -> "Mapping[str, Message] | DagoraError":
        wanted = view.sites if asked.own is None else tuple(asked.own)
        here = {site: _fitted(replies[site], self.views[site], view) for site in wanted if site in replies}
        if len(here) < (len(wanted) if asked.enough is None else asked.enough):
            return MissingSiteError([site for site in wanted if site not in here])
        return here

    def _ask(self, site: str, question: Message) -> Message | None:
        reply, error = None, ""
        try:
            request = encode(question)
            if site not in self._sites:
                raise MessageError(f"site {site!r} has not joined")
            reply = decode(self._sites[site].handle(request))
        except DagoraError as refused:
            error = str(refused)
        except Exception as fault:  # the coordinator goes on, and the auditor is told
            error = f"{type(fault).__name__}: {fault}"
            self.crashes.append(f"site {site!r}: {error}")
        self.heard.append(Heard(site, question, reply, error))
        return reply


class _Noting:
    """An aggregation that notes what each site adds, before it is protected."""

    def __init__(self, inner: Aggregation, truths: list[Truth]) -> None:
        self._inner, self._truths = inner, truths

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        def noted(message: Message) -> Summand:
            summand = answer(message)
            kept = {name: np.array(values, dtype=np.float64) for name, values in summand.items()}
            self._truths.append(Truth(site, _algorithms(message), kept))
            return summand

        return self._inner.at_site(site, noted, vault)

    def total(self, transport: Transport, message: Message) -> Total:
        return self._inner.total(transport, message)


class _KeptKeys(Memory):
    """A site's vault in which homomorphic keys ("bfv <prime> <run>") serve all runs."""

    def __init__(self, known: dict[str, bytes]) -> None:
        super().__init__()
        self._known = known

    def once(self, name: str, make: Callable[[], bytes]) -> bytes:
        kind, _, rest = name.partition(" ")
        if kind != "bfv":
            return super().once(name, make)
        prime = rest.split(" ")[0]
        if prime not in self._known:
            self._known[prime] = make()
        return self._known[prime]


@dataclass(frozen=True)
class _Asked:
    """What a half wants to exchange."""

    message: Message
    own: Mapping[str, Message] | None
    enough: int | None


class _Half:
    """The honest server half at work in a thread, which waits whenever it has asked something."""

    sent = 0
    received = 0

    def __init__(self, aggregation: Aggregation, message: Message) -> None:
        self._asks: queue.SimpleQueue[_Asked | Total | str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Mapping[str, Message] | DagoraError] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(aggregation, message), daemon=True).start()

    def next(self) -> "_Asked | Total | str":
        """A question, or the total at last, or why there is none."""
        return self._asks.get()

    def answer(self, replies: "Mapping[str, Message] | DagoraError") -> None:
        """Let it go on."""
        self._answers.put(replies)

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> Mapping[str, Message]:
        self._asks.put(_Asked(message, own, enough))
        replies = self._answers.get()
        if isinstance(replies, DagoraError):
            raise replies
        return replies

    def close(self) -> None:
        """Nothing is held."""

    def _work(self, aggregation: Aggregation, message: Message) -> None:
        try:
            self._asks.put(aggregation.total(self, message))
        except Exception as error:  # after so many lies anything may go wrong in it
            self._asks.put(f"{type(error).__name__}: {error}")


def _fitted(reply: Message, own: View, other: View) -> Message:
    """A site's shares in the order of another view, so that the half of that view can relay them."""
    if own.sites == other.sites:
        return reply
    content = dict(opened(reply))
    shares = content.get("shares")
    if not isinstance(shares, np.ndarray) or len(shares) != len(own.sites):
        return reply
    row = dict(zip(own.sites, shares, strict=True))
    content["shares"] = np.stack([row.get(site, np.zeros_like(shares[0])) for site in other.sites])
    return {**reply, "body": np.frombuffer(encode(content), np.uint8)}


def _algorithms(message: Message) -> bytes:
    """The part of a question on which summands depend."""
    return encode({name: value for name, value in message.items() if not name.startswith(SECURE)})
