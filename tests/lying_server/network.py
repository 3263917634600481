"""A lying server over the real network: the sites are processes, and this process holds the server's kit.

A conversation is one run or several that an administrator has signed.  The server lies about them when sites introduce
themselves, join and note each other's ledgers (`Entry`), and in rounds (`Script`).  Its honest half and the search
through all that was heard are those of conversations in one process (src/dagora/audit).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from random import Random
from secrets import token_hex
from types import TracebackType
from typing import Any

import numpy as np

import dagora
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.ledger import read, spent
from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.inspection import inspected
from dagora.arrays import FloatArray
from dagora.assembly import build_under, prepare
from dagora.audit.conversation import Conversation, Stage, Truth, converse
from dagora.audit.harvest import harvest
from dagora.audit.lies import SECURE, Heard, Lie, Script
from dagora.audit.lying_server import protection
from dagora.errors import DagoraError
from dagora.federated.message import Message, Value, decode, encode
from dagora.federation.client import new_run
from dagora.federation.coordinator import coordinate, say_goodbye
from dagora.federation.joining import Joining
from dagora.federation.kits import ADMIN, SERVER, SITE, Kit
from dagora.federation.local import LEDGERS, LocalFederation
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from dagora.federation.schema import schema_hash
from dagora.federation.texts import boxed
from dagora.learn import open_sites
from dagora.transport.nvflare import Cell, NvflareTransport
from tests.federations import written_sites
from tests.lying_server.kit import a_script

NAMES = ("ann", "bob", "cleo", "dan")
SPARE = "eve"  # has a kit, and answers to the server
VARIABLES = 4
ROWS = 400  # of all sites
POLICY = """
runs = 100000
introductions = 100000
parameters_per_row = 1000.0
attempts = 1000
same_cohort = true
aggregations = ["masked", "shared", "encrypted", "gaussian"]
"""
OPTIONS: Mapping[str, dict[str, Any]] = {"gaussian": {"epsilon": 3.0, "learner": "notears"}}
PAYLOADS = ("sum", "deal", "encrypt")  # the steps in which numbers leave a site

_HONEST = Script()
_PATIENCE = 30.0  # seconds that a killed site may take to come back
_PAST = 300  # questions of earlier runs that are kept to be asked again


@dataclass(frozen=True)
class Entry:
    """One lie before the rounds of a run: about what, which, to whom, and whether the truth is told afterwards."""

    topic: str
    kind: str
    sites: tuple[str, ...]
    corrected: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """A run that an administrator has signed, and what is done with it.

    told: sites that are told another run of the case in its place, by its index.
    """

    cohort: tuple[str, ...] = NAMES
    script: Script = field(default_factory=Script)
    entries: tuple[Entry, ...] = ()
    told: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Case:
    """A conversation.

    first: whether all runs are joined before the rounds of the first one.  kill: a site, and before which question of a
    round it is killed.  replays: how many questions of earlier runs are asked again.  over: whether sites are told that
    the runs have ended.
    """

    aggregation: str
    runs: tuple[Run, ...]
    seed: int = 0
    first: bool = False
    kill: tuple[str, int] = ("", 0)
    replays: int = 0
    over: bool = True


class LyingServer:
    """Sites that run for as long as the block does, and the server that lies to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        policy = folder / "policy.toml"
        policy.write_text(POLICY)
        self.files = written_sites(folder / "data", VARIABLES, ROWS, NAMES)
        self.federation = LocalFederation(folder / "kits", self.files, policy, (SPARE,), start=False)
        self._kill: tuple[str, int] = "", 0
        self._asked = 0  # questions of this conversation's rounds to the site that is to be killed
        self._columns: dict[tuple[str, str], tuple[str, ...]] = {}  # by site and run: those that it has agreed to
        self._parts: dict[tuple[str, tuple[str, ...]], tuple[Any, Any, dict[str, Any]]] = {}
        self._past: list[tuple[str, Message]] = []
        self.heard: list[Heard] = []  # outside of rounds
        self.faults: list[str] = []
        self.held = self.answered = 0  # conversations, and those in which numbers have left sites

    def __enter__(self) -> "LyingServer":
        self.federation.__enter__()
        self._start()
        self.cell = Cell(Kit.read(self.federation.folder / SERVER, SERVER))
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cell.close()
        self.federation.__exit__(kind, error, trace)

    def with_unused_data(self) -> None:
        """Start the sites again without the records of their data, if something has left them.

        As if they had new data, that is: what was heard before must not be combined with what comes now.
        """
        if any(self.cohort_at(site) for site in NAMES):
            for site in NAMES:
                self.federation.kill(site)
                (self.federation.folder / LEDGERS / f"{site}.jsonl").unlink()
            self._start()
            self._wait()

    def cohort_at(self, site: str) -> frozenset[str]:
        """The sites of the last run in which a number has left this one."""
        return spent(read(self.federation.ledger(site))).cohort

    def _start(self) -> None:
        for site in NAMES:
            self.federation.start(site)

    def _wait(self) -> None:
        for site in NAMES:
            if not self.cell.wait_for(site, _PATIENCE):
                raise DagoraError(self.federation.last_line(site))

    # What the federation has.

    @cached_property
    def admin(self) -> Kit:
        return Kit.read(self.federation.admin, ADMIN)

    @cached_property
    def certificates(self) -> dict[str, str]:
        """The sites', which they show to any server."""
        return {site: self.site_kit(site).signing_certificate for site in (*NAMES, SPARE)}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(open_sites({"ann": str(self.files["ann"])}, Plan.of({}).settings, None, None)[0].names)

    @cached_property
    def spare(self) -> Kit:
        """Of a site that is the server's."""
        return self.site_kit(SPARE)

    def site_kit(self, site: str) -> Kit:
        return Kit.read(self.federation.folder / site, SITE)

    def plan(self, aggregation: str, cohort: Sequence[str] = NAMES) -> Plan:
        own = OPTIONS.get(aggregation, {})
        return Plan.of({"method": "covariance", "aggregation": aggregation, "sites": list(cohort), **own})

    def signed(self, aggregation: str, cohort: Sequence[str] = NAMES) -> Order:
        return Order.signed(self.admin, new_run(), self.plan(aggregation, cohort))

    def joining(self, order: Order) -> Joining:
        """What an honest server would tell sites of this run."""
        sites = Plan.from_json(order.plan).sites
        return Joining(order, self.columns, tuple(self.certificates[site] for site in sites))

    def parts(self, aggregation: str, columns: tuple[str, ...]) -> tuple[Any, Any, dict[str, Any]]:
        """Site part, server part and data of all sites, as the sites have them."""
        if (aggregation, columns) not in self._parts:
            self._parts[aggregation, columns] = self._read(aggregation, columns)
        return self._parts[aggregation, columns]

    def _read(self, aggregation: str, columns: tuple[str, ...]) -> tuple[Any, Any, dict[str, Any]]:
        plan = self.plan(aggregation)
        own = AGGREGATIONS[aggregation](Cohort.simulated(NAMES), plan.privacy)
        algorithm = build_under(plan.settings, columns, own)
        if plan.privacy is None:
            algorithm = inspected(algorithm, columns)
        tables = open_sites({site: str(path) for site, path in self.files.items()}, plan.settings, None, None)
        prepared = {table.site: prepare(plan.settings, plan.privacy, table, columns) for table in tables}
        data = {site: one if plan.privacy is None else one.data for site, one in prepared.items()}
        return algorithm.site, algorithm.server, data

    def stage(self, aggregation: str) -> Stage:
        """For `converse`: the questions of an honest run, as far as they do not depend on totals."""
        part, server, data = self.parts(aggregation, self.columns)
        private = self.plan(aggregation).privacy
        first = dict(server.broadcast(server.init()))
        more: list[Message] = [] if private else [{"phase": "moments", "centre": np.zeros(VARIABLES)}]
        rows = dict.fromkeys(NAMES, ROWS // len(NAMES))
        return Stage(part, data, rows, protection(aggregation, private), (first, *more))

    # Asking.

    def ask(self, site: str, topic: str, request: bytes) -> bytes:
        """Over the network, until the site answers or refuses."""
        if topic == "round" and site == self._kill[0]:
            self._asked += 1
            if self._asked == self._kill[1]:
                self.federation.kill(site)
                self.federation.start(site)
        with closing(NvflareTransport(self.cell, (site,), _PATIENCE, working=_PATIENCE)) as link:
            return link.ask(topic, {site: request})[site]

    def tell(self, site: str, topic: str, message: Message | bytes) -> Message | None:
        """Ask something outside of the rounds that `converse` plays; what is heard is kept."""
        raw = not isinstance(message, Mapping)
        reply, error = None, ""
        try:
            reply = decode(self.ask(site, topic, message if isinstance(message, bytes) else encode(message)))
        except DagoraError as refused:
            error = str(refused)
        question: Message = {} if raw or not isinstance(message, Mapping) else message
        self.heard.append(Heard(site, question, reply, error))
        return reply

    def enter(self, order: Order, entries: Iterable[Entry] = (), told: Mapping[str, Order] | None = None) -> list[str]:
        """Introductions, joining and witnesses, with lies among them; the sites that have joined."""
        sites = Plan.from_json(order.plan).sites
        own = {site: (told or {}).get(site, order) for site in sites}
        lies = list(entries)
        for site in sites:
            self._lie_and_tell(site, "introduce", {**own[site].fields(), "start": 0}, lies, own[site])
        heads, signatures, joined = [], [], []
        for site in sites:
            reply = self._lie_and_tell(site, "join", self.joining(own[site]).fields(), lies, own[site])
            signature = None if reply is None else reply.get("signature")
            heads.append("0" * 64 if reply is None else str(reply.get("head")))
            signatures.append(np.asarray(signature) if isinstance(signature, np.ndarray) else np.zeros(64, np.uint8))
            joined += [] if reply is None else [site]
        witness: Message = {"heads": boxed(json.dumps(heads)), "signatures": np.concatenate(signatures)}
        for site in sites:
            self._lie_and_tell(site, "witness", {"run": own[site].run, **witness}, lies, own[site])
        return joined

    def _lie_and_tell(
        self, site: str, topic: str, message: Message, entries: Iterable[Entry], order: Order
    ) -> Message | None:
        found = None
        here = [entry for entry in entries if entry.topic == topic and site in entry.sites]
        for entry in here:
            random = Random(entry.seed)
            false = ENTRIES[entry.kind](self, random, site, message)
            other = random.choice(TOPICS) if entry.kind == "other topic" else topic
            reply = self.tell(site, other, false)
            if topic == "join" and reply is not None and isinstance(false, Mapping):
                self._joined(site, false)
            found = reply if other == topic else found
        if all(entry.corrected for entry in here):
            reply = self.tell(site, topic, message)
            if topic == "join" and reply is not None:
                self._joined(site, message)
            found = found if reply is None else reply
        return found

    def _joined(self, site: str, message: Message) -> None:
        try:
            joining = Joining.read(message)
        except DagoraError:
            return
        self._columns[site, joining.order.run] = joining.columns

    # Conversations.

    def play(self, case: Case) -> tuple[Conversation, ...]:
        """Hold it; what the sites had to hide is added from their files."""
        random = Random(case.seed)
        self.heard, self._kill, self._asked = [], case.kill, 0
        orders = [self.signed(case.aggregation, run.cohort) for run in case.runs]
        told = [{site: orders[other] for site, other in run.told} for run in case.runs]
        if case.first:
            for order, run, instead in zip(orders, case.runs, told, strict=True):
                self.enter(order, run.entries, instead)
        found = []
        for order, run, instead in zip(orders, case.runs, told, strict=True):
            if not case.first:
                self.enter(order, run.entries, instead)
            found.append(self.rounds(case.aggregation, order, run.script, instead))
        for site, question in random.choices(self._past, k=case.replays) if self._past else ():
            self.tell(random.choice([site, site, random.choice(NAMES)]), "round", question)
        aside = tuple(self.heard)
        found.append(replace(found[-1], heard=aside, truths=self._truths(case.aggregation, aside), totals=()))
        if case.over:
            for order in orders:
                self.end(order)
        self.held += 1
        self.answered += any(each.truths for each in found)
        self.faults += [each.error for one in found for each in one.heard if "led to an error" in each.error]
        return tuple(found)

    def rounds(
        self, aggregation: str, order: Order, script: Script = _HONEST, instead: Mapping[str, Order] | None = None
    ) -> Conversation:
        """The rounds of a run that sites have joined; sites that were told another one are asked in its name."""
        random, cohort = Random(len(self._past)), Plan.from_json(order.plan).sites
        stage = self.stage(aggregation)
        stage = replace(stage, data={site: stage.data[site] for site in cohort}, cohort=Cohort.simulated(NAMES))
        lies = [Lie("change", "run", other.run, (site,)) for site, other in (instead or {}).items()]
        lies += [self._with_real_name(lie, random) for lie in script.lies]
        again = [(n, site, self._with_real_name(lie, random)) for n, site, lie in script.again if site in cohort]
        sites = {site: _Remote(self, site) for site in NAMES}
        heard = converse(stage, replace(script, lies=tuple(lies), again=tuple(again)), order.run, sites)
        self._past = [*self._past, *((each.site, each.question) for each in heard.heard)][-_PAST:]
        return replace(heard, truths=self._truths(aggregation, heard.heard))

    def end(self, order: Order) -> None:
        """Tell all sites that the run is over."""
        for site in NAMES:
            self.tell(site, "end", {"run": order.run, "how": "done"})

    def _with_real_name(self, lie: Lie, random: Random) -> Lie:
        runs = sorted({run for _, run in self._columns}) if lie.field == "run" and isinstance(lie.value, str) else []
        return replace(lie, value=random.choice(runs)) if runs else lie

    def _truths(self, aggregation: str, heard: Iterable[Heard]) -> tuple[Truth, ...]:
        """The summands that were asked for and answered, from the sites' files (noise: from what they have kept)."""
        found = []
        for each in heard:
            question, run = each.question, str(each.question.get("run"))
            if each.reply is None or question.get("secure.step") not in PAYLOADS:
                continue
            part, _, data = self.parts(aggregation, self._columns.get((each.site, run), self.columns))
            summand: Mapping[str, Any] | None
            try:
                _, summand = part.local_update(part.init(data[each.site]), question)
            except DagoraError:  # a run of another aggregation, asked again
                continue
            if self.plan(aggregation).privacy is not None:
                summand = self._noisy(each.site, run, question.get("round"))
            if summand is None:
                continue
            asked = encode({name: value for name, value in question.items() if not name.startswith(SECURE)})
            kept = {n: np.array(v, dtype=np.float64) for n, v in summand.items() if isinstance(v, np.ndarray)}
            found.append(Truth(each.site, asked, kept))
        return tuple(found)

    def _noisy(self, site: str, run: str, turn: object) -> Message | None:
        """A summand with its noise, as the site keeps it for a restart."""
        secret = sha256(f"noisy {run} {turn}".encode()).hexdigest()
        path = self.federation.folder / site / "state" / "runs" / sha256(run.encode()).hexdigest() / f"{secret}.secret"
        return decode(path.read_bytes()) if path.exists() else None

    def recovered(self, played: Sequence[Conversation], more: Sequence[FloatArray] = ()) -> dict[str, float]:
        """Who is recovered from these conversations, with the relative error; `more` are candidates of an attack."""
        found = harvest(played, dict.fromkeys(NAMES, ROWS // len(NAMES)), more)
        return {site: one.error for site, one in found.items() if one.recovered}

    def check_honest_run(self) -> None:
        """Whether all sites are up, and answer an honest run as one process would, to the bit."""
        self.federation.check()
        self._kill = "", 0
        order = self.signed("masked")
        kept = self.folder / "runs" / order.run
        kept.mkdir(parents=True)
        with closing(NvflareTransport(self.cell, NAMES, _PATIENCE, working=_PATIENCE)) as link:
            result = coordinate(Kit.read(self.federation.folder / SERVER, SERVER), order, kept, link)
            say_goodbye(order.run, "done", NAMES, link)
        files = {site: str(path) for site, path in self.files.items()}
        alone = dagora.learn(files, method="covariance", aggregation="masked")
        assert np.array_equal(result.weights, alone.weights)
        assert result.names == alone.names


@dataclass(frozen=True)
class _Remote:
    """A site in another process."""

    server: LyingServer
    name: str

    def handle(self, request: bytes) -> bytes:
        return self.server.ask(self.name, "round", request)


# Lies before the rounds: what is told in place of the honest message.

TOPICS = ("introduce", "join", "witness", "round", "end", "submit", "result", "")

_False = Callable[[LyingServer, Random, str, Message], Message | bytes]


def _other_plan(server: LyingServer, random: Random, site: str, message: Message) -> Message:
    """The plan changed, the signature left as it is."""
    plan = json.loads(np.asarray(message["plan"]).tobytes()) if "plan" in message else {}
    left_out = random.choice(NAMES)
    change: dict[str, Any] = random.choice(
        [
            {"aggregation": "plain"}, {"sites": NAMES[::-1]}, {"colluders": 0},
            {"sites": [each for each in NAMES if each != left_out]}, {"method": "admm"}, {"epsilon": 90.0},
            {"sites": [site]}, {"deadline": 1.0},
        ]
    )  # fmt: skip
    return {**message, "plan": boxed(json.dumps({**plan, **change}, sort_keys=True))}


def _order_of(server: LyingServer, random: Random, site: str, message: Message) -> Order:
    try:
        return Order.read(message)
    except DagoraError:
        return server.signed("masked")


def _signed_by_a_site(server: LyingServer, random: Random, site: str, message: Message) -> Message:
    order = _order_of(server, random, site, message)
    return {**message, **Order.signed(server.spare, order.run, Plan.from_json(order.plan)).fields()}


def _signed_in_the_administrators_name(server: LyingServer, random: Random, site: str, message: Message) -> Message:
    order = _order_of(server, random, site, message)
    own = Order.signed(server.spare, order.run, Plan.from_json(order.plan))
    return {**message, **replace(own, certificate=order.certificate).fields()}


def _another_order(server: LyingServer, random: Random, site: str, message: Message) -> Message:
    """Truly signed, for a run over fewer sites or of another aggregation."""
    left_out = random.choice(NAMES)
    cohort = random.choice([NAMES, NAMES[::-1], tuple(each for each in NAMES if each != left_out)])
    order = server.signed(random.choice(["masked", "shared"]), cohort)
    return {**message, **order.fields()}


def _other_run(server: LyingServer, random: Random, site: str, message: Message) -> Message:
    return {**message, "run": random.choice([f"run-{token_hex(4)}", "", *(run for _, run in server._columns)])}


def _with_certificates(change: Callable[[list[str], Random, LyingServer], list[str]]) -> _False:
    def changed(server: LyingServer, random: Random, site: str, message: Message) -> Message:
        known = [server.certificates[each] for each in NAMES]
        return {**message, "certificates": boxed(json.dumps(change(known, random, server)))}

    return changed


def _shuffled(values: list[str], random: Random, server: LyingServer) -> list[str]:
    return random.sample(values, len(values))


def _strangers(values: list[str], random: Random, server: LyingServer) -> list[str]:
    """The spare site's, in the place of one or of all others."""
    place = random.randrange(len(values))
    return [server.certificates[SPARE] if i == place else value for i, value in enumerate(values)]


def _with_columns(change: Callable[[list[str], Random, LyingServer], list[str]]) -> _False:
    def changed(server: LyingServer, random: Random, site: str, message: Message) -> Message:
        columns = change(list(server.columns), random, server)
        return {**message, "columns": boxed(json.dumps(columns)), "schema": schema_hash(tuple(columns))}

    return changed


def _field(server: LyingServer, random: Random, site: str, message: Message) -> Message:
    """Any field dropped, or with any other value; or one that nobody knows."""
    name = random.choice([*message, "more"])
    if random.random() < 0.3:
        return {each: value for each, value in message.items() if each != name}
    values: list[Value] = [0, -1, 1e300, True, "", "x" * 300, np.zeros(3), np.frombuffer(b"[[[[", np.uint8)]
    return {**message, name: random.choice(values)}


def _bytes(server: LyingServer, random: Random, site: str, message: Message) -> bytes:
    data = bytearray(encode(message))
    for _ in range(random.randint(1, 8)):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(random.choice([data, data[: random.randrange(len(data))], data + b"more"]))


def _honest(server: LyingServer, random: Random, site: str, message: Message) -> Message:
    return message


ENTRIES: Mapping[str, _False] = {
    "other plan": _other_plan,
    "signed by a site": _signed_by_a_site,
    "signed in the administrator's name": _signed_in_the_administrators_name,
    "another order": _another_order,
    "other run": _other_run,
    "other version": lambda server, random, site, message: {**message, "version": random.choice(["0.0.1", "99.0"])},
    "certificates in another order": _with_certificates(_shuffled),
    "a stranger's certificate": _with_certificates(_strangers),
    "too few certificates": _with_certificates(lambda values, random, server: values[:-1]),
    "columns in another order": _with_columns(_shuffled),
    "columns twice": _with_columns(lambda values, random, server: [*values, random.choice(values)]),
    "too few columns": _with_columns(lambda values, random, server: values[1:]),
    "field": _field,
    "bytes": _bytes,
    "other topic": _honest,
    "repeated": _honest,
}


def an_entry(random: Random) -> Entry:
    sites = tuple(random.sample(NAMES, random.choice([1, 1, 2, len(NAMES)])))
    topic = random.choice(["introduce", "join", "join", "join", "witness"])
    return Entry(topic, random.choice(list(ENTRIES)), sites, random.random() < 0.8, random.randrange(1 << 30))


SHARES = {"encrypted": 4, "gaussian": 16, "shared": 38, "masked": 42}


def a_case(random: Random, kills: bool = True) -> Case:
    """Any aggregation, lies of any kind."""
    aggregation = random.choices(list(SHARES), list(SHARES.values()))[0]
    count = 1 if aggregation == "encrypted" else random.choice([1, 1, 1, 2, 3])
    runs = []
    for _ in range(count):
        cohort = NAMES if random.random() < 0.7 else tuple(random.sample(NAMES, random.choice([3, 4])))
        entries = tuple(an_entry(random) for _ in range(random.choice([0, 0, 1, 1, 2])))
        told = {random.choice(NAMES): random.randrange(count)} if random.random() < 0.15 else {}
        script = replace(a_script(random, NAMES), views=(), present=cohort)
        runs.append(Run(cohort, script, entries, tuple(told.items())))
    kill = (random.choice(NAMES), random.randint(2, 6)) if kills and random.random() < 0.15 else ("", 0)
    return Case(
        aggregation, tuple(runs), random.randrange(1 << 30), random.random() < 0.4, kill, random.randint(0, 3),
        random.random() < 0.7,
    )  # fmt: skip
