"""A federation in one process: kits made once, members on folders of their own, and a link that can be disturbed."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dagora
from dagora.aggregation.ledger import Noted
from dagora.data.simulation_files import write_series_simulation, write_simulation
from dagora.errors import MissingSiteError
from dagora.federated.message import Message, decode, encode
from dagora.federated.policy import Policy
from dagora.federation import member
from dagora.federation.coordinator import coordinate
from dagora.federation.kits import ADMIN, SERVER, SITE, Kit
from dagora.federation.local import LEDGERS
from dagora.federation.member import Member
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from dagora.federation.provision import Federation, provision
from dagora.federation.site import ledger_of

SITES = ("north", "south", "east")
SPARE = "west"  # a site with a kit that most federations here do without
ADMINISTRATOR = "ada@example.org"
RUN = "run-1"


class KilledError(BaseException):
    """SIGKILL: nothing in the package may catch it."""


def kill(*_: object) -> None:
    raise KilledError


@cache
def made_kits() -> Path:
    """A folder with everyone's kit, made once a process and only ever copied from."""
    folder = Path(tempfile.mkdtemp(prefix="dagora-kits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    provision(Federation("trial", "localhost", 8002, (*SITES, SPARE), (ADMINISTRATOR,), "127.0.0.1"), folder)
    return folder


@cache
def _read_kit(name: str) -> Kit:
    role = {SERVER: SERVER, ADMINISTRATOR: ADMIN}.get(name, SITE)
    return Kit.read(made_kits() / name, role)


def administrator() -> Kit:
    """The kit of the one who orders runs."""
    return _read_kit(ADMINISTRATOR)


def fresh_kit(name: str, folder: Path) -> Kit:
    """A kit that nobody has started yet."""
    shutil.copytree(made_kits() / name, folder / name)
    return replace(_read_kit(name), folder=folder / name)


def without_waiting(patch: pytest.MonkeyPatch) -> None:
    """Disks are not waited for, nor BLAS's threads looked up, in runs by the hundred; the server limits threads."""
    patch.setattr(os, "fsync", lambda file: None)
    patch.setattr(member, "threadpool_limits", nullcontext)


@cache
def ordered(run: str, plan: str) -> Order:
    """What the administrator has signed, once: a server that goes on with a run has kept the order."""
    return Order.signed(administrator(), run, Plan.from_json(plan))


@dataclass(frozen=True)
class Step:
    """One request to one site."""

    number: int  # of all requests over this wire, from 1
    site: str
    topic: str
    request: bytes

    @property
    def message(self) -> Message:
        return decode(self.request)

    @property
    def round(self) -> int:
        """0 before the first one; keys are agreed upon in round 0, too."""
        found = self.message.get("round", 0)
        assert isinstance(found, int)
        return found


Hook = Callable[[Step], None]


def nothing(step: Step) -> None: ...


class Hall:
    """A server and sites, each with a kit and a state of its own under a folder."""

    def __init__(self, folder: Path, data: Mapping[str, Path], policy: Policy | None = None) -> None:
        self.folder, self.data, self.policy = folder, dict(data), policy
        self.kits = {name: fresh_kit(name, folder) for name in (SERVER, *data)}
        self.members = {site: self._member(site) for site in data}

    def __enter__(self) -> "Hall":
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.members.values():
            one.ledger.close()

    def crash(self, site: str) -> None:
        """What the site had in memory is gone; another process starts from its folder."""
        self.members[site].ledger.close()
        self.members[site] = self._member(site)

    def kept(self, run: str = RUN) -> Path:
        """Where the server keeps a run."""
        folder = self.folder / "runs" / run
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def run(self, plan: Plan, wire: "Wire | None" = None, run: str = RUN) -> dagora.Result:
        """Start the server on a run; again, after it has crashed."""
        return coordinate(
            self.kits[SERVER], ordered(run, plan.to_json()), self.kept(run), Wire(self) if wire is None else wire
        )

    def ledger(self, site: str) -> Path:
        """The file of the record of a site's data set."""
        return self.folder / LEDGERS / f"{site}.jsonl"

    def notes(self, site: str, event: str = "refused") -> list[str]:
        """Details of such events in the site's ledger."""
        found = [entry.what for entry in self.members[site].ledger.entries]
        return [what.detail for what in found if isinstance(what, Noted) and what.event == event]

    def _member(self, site: str) -> Member:
        ledger = ledger_of(site, self.folder / LEDGERS)
        return Member(self.kits[site], self.data[site], self.policy, ledger)


class Wire:
    """The server's link: asks members one after the other, in their fixed order.

    Hooks are called when a request is about to reach its site (`before`), and when the site has answered (`after`):
    they may crash a site, or the server.  A site that is killed while it answers starts again and, as over a network,
    is asked again with the very bytes; so is one whose reply is lost.
    """

    def __init__(self, hall: Hall, before: Hook = nothing, after: Hook = nothing) -> None:
        self._hall, self._before, self._after = hall, before, after
        self.loses: Callable[[Step], bool] = lambda step: False
        self.away: tuple[str, ...] = ()
        self.steps: list[Step] = []
        self.sent = 0
        self.received = 0

    def ask(self, topic: str, requests: Mapping[str, bytes], enough: int | None = None) -> dict[str, bytes]:
        there = {site: request for site, request in requests.items() if site not in self.away}
        replies = {site: self._reply(site, topic, request) for site, request in there.items()}
        if len(replies) < (len(requests) if enough is None else enough):
            raise MissingSiteError([site for site in requests if site not in replies])
        return replies

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> dict[str, Message]:
        sites, common = self._hall.members, encode(message)
        requests = {site: common for site in sites if own is None}
        requests |= {site: encode({**message, **own[site]}) for site in sites if own and site in own}
        return {site: decode(reply) for site, reply in self.ask("round", requests, enough).items()}

    def close(self) -> None: ...

    def _reply(self, site: str, topic: str, request: bytes) -> bytes:
        step = Step(len(self.steps) + 1, site, topic, request)
        self.steps.append(step)
        self._before(step)
        reply = self._insist(step)
        self._after(step)
        if self.loses(step):
            reply = self._insist(step)
        self.received += len(request)
        self.sent += len(reply)
        return reply

    def _insist(self, step: Step) -> bytes:
        try:
            return self._hall.members[step.site].answer(step.topic, step.request)
        except KilledError:
            self._hall.crash(step.site)
        return self._hall.members[step.site].answer(step.topic, step.request)


def plan_for(sites: Iterable[str] = SITES, **keys: Any) -> Plan:
    return Plan.of({"sites": list(sites), **keys})


def written_sites(folder: Path, d: int = 4, rows: int = 240, sites: tuple[str, ...] = SITES) -> dict[str, Path]:
    """A file of simulated rows for each site."""
    truth, arrays = dagora.simulate(d, d, rows, len(sites), seed=1, weight_range=(0.8, 1.6))
    return dict(zip(sites, write_simulation(folder, truth, arrays), strict=False))


def learned(data: Mapping[str, Path], **options: Any) -> dagora.Result:
    """The oracle: the same in one process."""
    return dagora.learn({site: str(path) for site, path in data.items()}, **options)


def written_series(folder: Path, sites: tuple[str, ...] = SITES) -> dict[str, Path]:
    """The same with two time series each, as long tables."""
    truth, arrays = dagora.simulate_series(3, 3, 6, 50, 3, lags=1, lag_edges=3, seed=3, weight_range=(0.8, 1.4))
    return dict(zip(sites, write_series_simulation(folder, truth, arrays), strict=False))
