"""Stages, generated scripts and verdicts for the tests with a lying server."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from hypothesis import strategies as st

import dagora
from dagora.aggregation.bounded import Bounded
from dagora.aggregation.registry import Privacy
from dagora.algorithms.options import Options
from dagora.arrays import FloatArray
from dagora.assembly import assemble
from dagora.audit.conversation import Conversation, Stage, converse
from dagora.audit.harvest import Recovery, harvest
from dagora.audit.lies import IN_ROUNDS, Kind, Lie, Script, View
from dagora.audit.lying_server import QUESTIONS, guards, protection
from dagora.audit.run import recorded
from dagora.data.tables import open_tables
from dagora.federated.message import Message
from dagora.federated.protocol import Summand

LIES = int(os.environ.get("DAGORA_LIES", "200"))  # generated conversations; `make soak` asks for 10,000
SEED = int(os.environ.get("DAGORA_LIES_SEED", "0"))

NAMES = ("ann", "bob", "cleo", "dan", "eve", "fred", "gil")
PRIVACY = Privacy(3.0, 1e-5)
ROWS = 1000
SLOW_KEYS: dict[str, bytes] = {}  # for all conversations: making homomorphic keys takes a second


class Echo:
    """A site part whose summand is its data times what the message says, plus what it says."""

    def init(self, data: FloatArray) -> FloatArray:
        return data

    def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
        value = state * _number(message, "scale", 1.0) + _number(message, "shift", 0.0)
        return state, {"value": value, "sites": np.array(1.0)}


class BoundedEcho(Echo):
    """The same with a sensitivity, as `gaussian` needs it.  The noise is small beside the data, so that it is data."""

    def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
        _, summand = super().local_update(state, message)
        return state, Bounded({"value": summand["value"]}, sensitivity=1.0, share=0.2)


def echo_stage(
    aggregation: str,
    data: Mapping[str, FloatArray],
    questions: Sequence[Message] = ({"shift": 0.0},),
    guard: bool = True,
) -> Stage:
    """Sites that echo their data, each with a default policy and a ledger."""
    private = PRIVACY if aggregation == "gaussian" else None
    rows = dict.fromkeys(data, ROWS)
    guarded = guards(aggregation, private, rows) if guard else None
    part = BoundedEcho() if private else Echo()
    return Stage(part, data, rows, protection(aggregation, private), tuple(questions), guarded, slow_keys=SLOW_KEYS)


@lru_cache(maxsize=None)
def _real(aggregation: str, method: str) -> Stage:
    n, private = (8000, PRIVACY) if aggregation == "gaussian" else (300, None)
    _, rows = dagora.simulate(d=3, edges=3, n=n, sites=4, seed=0)
    data = dict(zip(NAMES, [np.asarray(own) * 20.0 for own in rows], strict=False))
    options = Options(method=method, learner="notears" if private else None)
    messages = recorded(options, aggregation, private)(data).transcript.messages
    tables = open_tables(data)
    parts = assemble(options, aggregation, private, tables, tables[0].names)
    counts = {site: len(own) for site, own in data.items()}
    asked = tuple({name: v for name, v in m.items() if name not in ("run", "round")} for m in messages[:QUESTIONS])
    protect = protection(aggregation, private)
    return Stage(parts.algorithm.site, parts.data, counts, protect, asked, slow_keys=SLOW_KEYS)


def real_stage(aggregation: str, method: str) -> Stage:
    """Sites of a real algorithm, asked what they were asked in an honest run; with new policies and ledgers."""
    stage = _real(aggregation, method)
    private = PRIVACY if aggregation == "gaussian" else None
    return replace(stage, guarded=guards(aggregation, private, stage.rows, method))


def numbers(sites: int, seed: int, scale: float = 30.0, size: int = 6) -> dict[str, FloatArray]:
    """Different numbers at every site."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0.0, scale, size) for name in NAMES[:sites]}


# Generated conversations.


@dataclass(frozen=True)
class Case:
    """One generated conversation, or several runs on the same data."""

    aggregation: str
    sites: int
    seed: int
    questions: tuple[Message, ...]
    scripts: tuple[Script, ...]
    scale: float = 30.0
    method: str = ""  # of a real algorithm; "" for an echo

    def play(self) -> "Played":
        """Hold it, and search what was heard."""
        if self.method:
            stage = real_stage(self.aggregation, self.method)
        else:
            stage = echo_stage(self.aggregation, numbers(self.sites, self.seed, self.scale), self.questions)
        heard = [converse(stage, script, f"run {i}") for i, script in enumerate(self.scripts)]
        return Played(tuple(heard), harvest(heard, stage.rows))


@dataclass(frozen=True)
class Played:
    """Conversations and what came of them."""

    conversations: tuple[Conversation, ...]
    found: Mapping[str, Recovery] = field(default_factory=dict)

    @property
    def recovered(self) -> tuple[str, ...]:
        """The sites whose summand the server has, though the honest total does not give it."""
        return tuple(site for site, one in self.found.items() if one.recovered)


FIELDS = (
    "secure.high", "secure.attempt", "secure.step", "secure.body", "secure.signature", "secure.confirmed",
    "secure.shares", "secure.sum", "secure.dealt", "secure.agreed", "secure.start", "run", "round", "shift", "scale",
    "replicate", "phase", "more",
)  # fmt: skip
STEPS = ("", IN_ROUNDS, "keys", "confirm", "sum", "deal", "agree", "combine", "contexts", "encrypt", "open")
KINDS: tuple[Kind, ...] = (
    "change", "add", "drop", "repeat", "withhold", "early", "swap", "impostor", "relay", "stale", "single", "flip",
)  # fmt: skip
VALUES = st.one_of(
    st.integers(-1, 9),
    st.sampled_from([2**31, 2**63, -(2**63)]),
    st.floats(-1e3, 1e3),
    st.sampled_from(["", "run 0", *STEPS]),
)


@st.composite
def lies(draw: st.DrawFn, names: tuple[str, ...], tries: int) -> Lie:
    """Any field, any number, any site, any step; words' widths more often than chance would have them."""
    some = draw(st.one_of(st.just(()), st.lists(st.sampled_from(names), min_size=1, max_size=len(names), unique=True)))
    attempt = draw(st.one_of(st.none(), st.integers(0, tries - 1)))
    if draw(st.integers(0, 5)) == 0:
        return Lie("add", "secure.high", draw(st.integers(1, 8)), tuple(some), IN_ROUNDS, attempt)
    named = st.one_of(st.sampled_from(FIELDS), st.integers(0, 15).map(lambda i: f"#{i}"))
    step, peer = draw(st.sampled_from(STEPS)), draw(st.sampled_from(names))
    return Lie(draw(st.sampled_from(KINDS)), draw(named), draw(VALUES), tuple(some), step, attempt, peer)


@st.composite
def scripts(draw: st.DrawFn, names: tuple[str, ...]) -> Script:
    """Lies, views, attempts and questions that are asked again."""
    tries = draw(st.integers(1, 3))
    told = draw(st.lists(lies(names, tries), max_size=4))
    views: list[tuple[str, View]] = []
    if draw(st.integers(0, 2)) == 0:
        for site in draw(st.lists(st.sampled_from(names), min_size=1, max_size=len(names), unique=True)):
            others = draw(st.lists(st.sampled_from([name for name in names if name != site]), min_size=1, unique=True))
            order = draw(st.permutations([site, *others]))
            views.append((site, View(tuple(order), draw(st.one_of(st.none(), st.integers(1, len(order)))))))
    again = draw(
        st.lists(st.tuples(st.integers(0, 200), st.sampled_from(names), lies(names, tries)), max_size=3).map(tuple)
    )
    present = names
    if draw(st.integers(0, 7)) == 0:
        present = tuple(draw(st.lists(st.sampled_from(names), min_size=len(names) - 1, unique=True)))
    return Script(tuple(told), tuple(views), tries, present, again)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Conversations over all five aggregations; BFV keys take long, so that few are encrypted."""
    drawn = draw(st.integers(0, 99))
    share = (("encrypted", 3), ("plain", 6), ("gaussian", 26), ("shared", 62), ("masked", 100))
    aggregation = next(name for name, below in share if drawn < below)
    methods = {"encrypted": [""], "gaussian": ["", "", "", "covariance"]}
    method = draw(st.sampled_from(methods.get(aggregation, ["", "", "", "", "", "", "covariance", "admm"])))
    sites = 4 if method else draw(st.integers(3, 5))
    rounds = draw(st.integers(1, 2)) if aggregation != "encrypted" else 1
    questions = tuple({"shift": float(i), "scale": draw(st.sampled_from([0.01, 1.0]))} for i in range(rounds))
    runs = 2 if aggregation != "encrypted" and draw(st.integers(0, 9)) == 0 else 1
    names = NAMES[:sites]
    script = tuple(draw(scripts(names)) for _ in range(runs))
    scale = draw(st.sampled_from([1.0, 30.0, 1e4]))
    return Case(aggregation, sites, draw(st.integers(0, 1000)), questions, script, scale, method)


def _number(message: Message, name: str, default: float) -> float:
    value = message.get(name, default)
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else default
