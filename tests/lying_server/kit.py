"""Stages, generated scripts and verdicts for the tests with a lying server."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from random import Random

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
from dagora.audit.lying_server import ATTACKS, QUESTIONS, guards, protection
from dagora.audit.run import recorded
from dagora.data.tables import open_tables
from dagora.federated.message import Message
from dagora.federated.protocol import Summand
from tests.effort import effort

LIES = int(os.environ.get("DAGORA_LIES", effort(200, 10_000)))  # generated conversations
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


@cache
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


def numbers(
    sites: int, seed: int, scale: float = 30.0, size: int = 6, outlier: float = 1.0, large: str = ""
) -> dict[str, FloatArray]:
    """Different numbers at every site; the first ones `outlier` times as large, and those of one site eight times."""
    rng = np.random.default_rng(seed)
    data = {name: rng.normal(0.0, scale, size) for name in NAMES[:sites]}
    for name, values in data.items():
        values[0] *= outlier
        values *= 8.0 if name == large else 1.0
    return data


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
    outlier: float = 1.0
    large: str = ""
    method: str = ""  # of a real algorithm; "" for an echo
    base: str = ""  # the attack of the catalogue from which the scripts come

    def play(self) -> "Played":
        """Hold it, and search what was heard."""
        if self.method:
            stage = real_stage(self.aggregation, self.method)
        else:
            data = numbers(self.sites, self.seed, self.scale, outlier=self.outlier, large=self.large)
            stage = echo_stage(self.aggregation, data, self.questions)
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
NUMBERS = (0, 1, 2, 3, 5, 8, 16, -1, 0.5, -2.0, 1e3, 2**31, 2**63, -(2**63))
TEXTS = ("", "run 0", "run 1", *STEPS)
SHARES = {"encrypted": 2, "plain": 5, "gaussian": 18, "shared": 35, "masked": 40}  # of a hundred conversations


def a_lie(random: Random, names: tuple[str, ...], tries: int) -> Lie:
    """Any field, any number, any sites, any step; words' widths more often than chance would have them."""
    some = random.choice([(), (random.choice(names),), tuple(random.sample(names, random.randint(1, len(names))))])
    attempt = random.choice([None, *range(tries)])
    if random.random() < 0.25:
        return Lie("add", "secure.high", random.randint(1, 8), some, IN_ROUNDS, attempt)
    name = random.choice([*FIELDS, *(f"#{i}" for i in range(12))])
    value = random.choice([random.choice(NUMBERS), random.choice(TEXTS), random.uniform(-100.0, 100.0)])
    return Lie(random.choice(KINDS), name, value, some, random.choice(STEPS), attempt, random.choice(names))


def a_script(random: Random, names: tuple[str, ...]) -> Script:
    """Lies, views, attempts, and questions that are asked again."""
    tries = random.choice([1, 2, 2, 3])
    lies = tuple(a_lie(random, names, tries) for _ in range(random.choice([0, 1, 1, 1, 2, 3])))
    views: list[tuple[str, View]] = []
    if random.random() < 0.3:
        for site in random.sample(names, random.randint(1, len(names))):
            others = random.sample([name for name in names if name != site], random.randint(1, len(names) - 1))
            order = random.sample([site, *others], len(others) + 1) if random.random() < 0.5 else None
            told = tuple(order or (name for name in names if name in (site, *others)))
            views.append((site, View(told, random.choice([None, random.randint(1, len(told))]))))
    again = [
        (random.randrange(200), random.choice(names), a_lie(random, names, tries)) for _ in range(random.randint(0, 2))
    ]
    return Script(lies, tuple(views), tries, again=tuple(again))


def without_a_site(random: Random, names: tuple[str, ...]) -> Script:
    """A run over all sites but one, with or without a question to that one."""
    left_out = random.choice(names)
    others = tuple(name for name in names if name != left_out)
    told = tuple((site, View(others)) for site in others)
    return Script(views=told, present=random.choice([others, names]))


def a_case(random: Random) -> Case:
    """Conversations over all five aggregations; homomorphic encryption takes long, so that few are encrypted."""
    aggregation = random.choices(list(SHARES), list(SHARES.values()))[0]
    real = {"gaussian": ("covariance",), "masked": ("covariance", "admm"), "shared": ("covariance", "admm")}
    method = random.choice(real[aggregation]) if aggregation in real and random.random() < 0.15 else ""
    sites = 4 if method else random.randint(3, 5)
    names = NAMES[:sites]
    rounds = 1 if aggregation == "encrypted" else random.randint(1, 2)
    questions = tuple({"shift": float(i), "scale": random.choice([0.01, 1.0, 1.0])} for i in range(rounds))
    case_seed, scale = random.randrange(1000), random.choice([1.0, 5.0, 30.0])
    outlier = random.choice([1.0, 1e8 if aggregation == "gaussian" else 1e14])
    large = random.choice(["", *names])
    attacks = [
        name for name, attack in ATTACKS.items() if aggregation in attack.against and sites >= attack.least_sites
    ]
    if random.random() < 0.1 and aggregation not in ("plain", "encrypted"):  # a known attack, with something added
        base = random.choice(attacks)
        stage = real_stage(aggregation, method) if method else echo_stage(aggregation, numbers(sites, 0))
        own = [
            replace(one, lies=(*one.lies, *(a_lie(random, names, one.tries) for _ in range(random.randint(0, 1)))))
            for one in ATTACKS[base].scripts(stage).values()
        ]
        return Case(aggregation, sites, case_seed, questions, tuple(own), scale, outlier, large, method, base)
    scripts = [a_script(random, names)]
    if aggregation != "encrypted" and random.random() < 0.1:
        scripts.append(random.choice([a_script, without_a_site])(random, names))
    return Case(aggregation, sites, case_seed, questions, tuple(scripts), scale, outlier, large, method)


def cases() -> st.SearchStrategy[Case]:
    """Cases as chance has them: hypothesis gives the seeds, and a plain generator everything else."""
    return st.randoms(use_true_random=True).map(a_case)


@contextmanager
def known_contexts() -> Iterator[None]:
    """Read every homomorphic context once: each takes 40 ms, and a conversation reads twenty."""
    try:
        import tenseal
    except ImportError:
        yield
        return
    reading = tenseal.context_from
    tenseal.context_from = lru_cache(maxsize=64)(reading)
    try:
        yield
    finally:
        tenseal.context_from = reading


def _number(message: Message, name: str, default: float) -> float:
    value = message.get(name, default)
    return float(value) if isinstance(value, int | float) and abs(value) < 1e100 else default
