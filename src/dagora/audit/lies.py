"""What a coordinator that deviates from the protocol does to single questions, and what it tells single sites.

A lie takes one question on its way to one site and gives the questions that the site gets instead: none, one or more.
It is data, so that a search can generate it and a report can print it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dagora.aggregation.cohort import Cohort
from dagora.audit.readings import opened
from dagora.federated.message import Message, Value, encode

Kind = Literal[
    "change", "add", "drop", "repeat", "withhold", "early", "swap", "impostor", "relay", "stale", "single", "flip"
]

SECURE = "secure."
IN_ROUNDS = "round"  # as the step of a lie: any step that belongs to a round, and hence not the exchange of keys


@dataclass(frozen=True)
class View:
    """What a site is told of the run: the cohort in order, and for secret sharing the threshold (None: the default)."""

    sites: tuple[str, ...]
    threshold: int | None = None


@dataclass(frozen=True)
class Lie:
    """One deviation.

    kind: `change` a field that is there, `add` one or overwrite it, `drop` it; `flip` one entry of every array that
        the protection added; `repeat` the question, with the field changed if one is named; `withhold` it; ask for the
        step `value` too `early`; `swap` what the site and its peer sent; put in an `impostor`'s key for the peer's;
        `relay` what is meant for the peer; add the protection's fields of a `stale` question; have the key holder open
        the peer's `single` ciphertexts.
    field: its name, or "#3" for the fourth field of the question, whatever its name.
    value: the new number or text; arrays are multiplied by it.
    sites: who gets the lie (none named: all).
    step: at which step ("" at any, "round" at all steps of rounds).
    attempt: at which attempt at a round, from 0 (None: at any).
    """

    kind: Kind
    field: str = ""
    value: float | int | str = 0
    sites: tuple[str, ...] = ()
    step: str = ""
    attempt: int | None = None
    peer: str = ""

    def applies(self, site: str, question: Message, attempt: int) -> bool:
        """Whether this question to this site is forged."""
        turn = question.get("round")
        in_round = isinstance(turn, int) and turn >= 1
        here = in_round if self.step == IN_ROUNDS else self.step in ("", question.get("secure.step"))
        return here and self.attempt in (None, attempt) and (not self.sites or site in self.sites)


@dataclass(frozen=True)
class Script:
    """All that the coordinator does in one run besides what the protocol asks for.

    views: what single sites are told; those that are not named are told the whole cohort.
    tries: attempts at every round.
    present: the sites that the run is about (none named: all).
    again: questions that are asked once more after all rounds: the index of the question among all that were asked,
        the site that gets it, and the lie on the way.
    """

    lies: tuple[Lie, ...] = ()
    views: tuple[tuple[str, View], ...] = ()
    tries: int = 1
    present: tuple[str, ...] = ()
    again: tuple[tuple[int, str, Lie], ...] = ()


@dataclass(frozen=True)
class Heard:
    """A question as a site got it, and its reply or its error."""

    site: str
    question: Message
    reply: Message | None
    error: str = ""

    @property
    def content(self) -> Mapping[str, Value]:
        """The reply without its envelope."""
        return {} if self.reply is None else opened(self.reply)


@dataclass(frozen=True)
class Desk:
    """What the coordinator has before it when it forges: the questions of this step, and all that it has heard."""

    questions: Mapping[str, Message]
    heard: Sequence[Heard]
    views: Mapping[str, View]


class Credulous(Cohort):
    """The coordinator's own cohort: it takes any reply for good, since it has changed the questions."""

    def open(self, site: str, *asked: Any, **named: Any) -> dict[str, Value]:
        """The content, without a look at the signature."""
        return dict(opened([*asked, *named.values()][-1]))


def forged(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    """The questions that the site gets instead of this one."""
    return _FORGERIES[lie.kind](lie, site, question, desk)


def _named(lie: Lie, question: Message) -> str:
    """The field that the lie is about."""
    if not lie.field.startswith("#"):
        return lie.field
    names = list(question)
    return names[int(lie.field[1:]) % len(names)] if names else ""


def _changed(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    name = _named(lie, question)
    return [{**question, name: altered(question[name], lie.value)}] if name in question else [question]


def _added(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    return [{**question, _named(lie, question) or "more": lie.value}]


def _dropped(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    name = _named(lie, question)
    return [{each: value for each, value in question.items() if each != name}]


def _repeated(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    return [question, *_changed(lie, site, question, desk)]


def _withheld(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    return []


def _early(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    return [{**question, "secure.step": str(lie.value)}, question]


def _swapped(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    """Exchange two sites' rows in all that the server relays."""
    sites = desk.views[site].sites
    if site not in sites or lie.peer not in sites:
        return [question]
    order = list(range(len(sites)))
    here, there = sites.index(site), sites.index(lie.peer)
    order[here], order[there] = there, here
    return [{name: _in_order(name, value, order) for name, value in question.items()}]


def _impostor(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    """A key of the coordinator's own, signed with a key of its own, in the peer's place."""
    sites = desk.views[site].sites
    relayed = [question.get(name) for name in ("secure.body", "secure.signature")]
    if lie.peer not in sites or any(not isinstance(each, np.ndarray) or each.size % len(sites) for each in relayed):
        return [question]
    public = X25519PrivateKey.generate().public_key().public_bytes_raw()
    body = encode({"key": np.frombuffer(public, np.uint8)})
    signature = Ed25519PrivateKey.generate().sign(body)
    row, changed = sites.index(lie.peer), dict(question)
    for name, own in (("secure.body", body), ("secure.signature", signature)):
        rows = np.array(question[name]).reshape(len(sites), -1)
        size = min(len(own), rows.shape[1])
        rows[row, :size] = np.frombuffer(own, np.uint8)[:size]
        changed[name] = rows.ravel()
    return [changed]


def _relayed(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    other = desk.questions.get(lie.peer, question)
    return [{**question, **{name: value for name, value in other.items() if name.startswith(SECURE)}}]


def _stale(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    step = question.get("secure.step")
    for each in desk.heard:
        if each.site == site and each.question.get("secure.step") == step:
            old = {name: value for name, value in each.question.items() if name.startswith(SECURE)}
            return [{**question, **old}]
    return [question]


def _single(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    if "secure.sum" not in question:
        return [question]
    for each in reversed(desk.heard):
        content = each.content
        if each.site == lie.peer and "ciphertexts" in content:
            parts = {"secure.sum": content["ciphertexts"], "secure.sum.sizes": content["ciphertexts.sizes"]}
            return [{**question, **parts}]
    return [question]


def _flipped(lie: Lie, site: str, question: Message, desk: Desk) -> list[Message]:
    return [
        {
            name: altered(value, lie.value) if name.startswith(SECURE) and isinstance(value, np.ndarray) else value
            for name, value in question.items()
        }
    ]


_Forgery = Callable[[Lie, str, Message, Desk], list[Message]]
_FORGERIES: Mapping[Kind, _Forgery] = {
    "change": _changed,
    "add": _added,
    "drop": _dropped,
    "repeat": _repeated,
    "withhold": _withheld,
    "early": _early,
    "swap": _swapped,
    "impostor": _impostor,
    "relay": _relayed,
    "stale": _stale,
    "single": _single,
    "flip": _flipped,
}


def altered(value: Value, by: float | int | str) -> Value:
    """Another value of the same type: arrays of floats are multiplied, of other arrays one entry changes."""
    number = by if isinstance(by, int | float) else len(by)
    if isinstance(value, np.ndarray):
        return _altered_array(value, number)
    if isinstance(value, str):
        return str(by)
    return int(number) if isinstance(value, int) else float(number)


def _altered_array(value: npt.NDArray[Any], number: float | int) -> npt.NDArray[Any]:
    with np.errstate(all="ignore"):
        if value.size == 0:
            return np.full(np.maximum(value.shape, 1), number).astype(value.dtype)
        if value.dtype.kind == "f":
            return value * float(number) if value.any() else value + float(number)
    changed = value.copy()
    changed.reshape(-1)[int(abs(number)) % value.size] += np.array(1, value.dtype)
    return changed


def _in_order(name: str, value: Value, order: Sequence[int]) -> Value:
    if not name.startswith(SECURE) or not isinstance(value, np.ndarray) or value.size % len(order):
        return value
    return value.reshape(len(order), -1)[list(order)].reshape(value.shape)
