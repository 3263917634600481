"""A site's side of a federation: what it answers, and what it keeps so that it can go on after a crash.

    introduce   an order (order.py)                      -> columns' names, its signing certificate, its version
    join        the order, the cohort and the schema     -> the schema's hash, once policy and columns allow it, and the
                                                            head of its ledger, signed
    witness     the heads of all sites' ledgers          -> nothing; they are noted in its own
    round       a message of the run                     -> what its Site answers, protected
    end         the run is over                          -> nothing; secrets of the run are deleted

Nothing is answered about a run that no administrator has signed.

A state is a function of data and messages.  So what is written down for a restart are the messages that were answered
(`requests`), with a hash of each summand, and random draws (the vault).  A restart replays them: the site is then where
it was, to the bit, or says that it is not.  A reply is in the ledger first, then in the requests, and only then leaves.
Every run has a folder of its own (`state/runs`), which goes when the server ends the run.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

from dagora.aggregation.cohort import Cohort
from dagora.aggregation.ledger import ADMITTED, INTRODUCED, WITNESSED, Ledger, Noted, spent
from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.inspection import inspected
from dagora.assembly import build_under, prepare, with_resamples
from dagora.data.summary import Prepared
from dagora.data.tables import Streamed
from dagora.errors import DagoraError, InputError, MessageError, NumericalError
from dagora.federated.guard import Guard, introduce
from dagora.federated.message import Message, Value, decode, encode
from dagora.federated.policy import Job, Policy, PolicyError, RowsPolicyError
from dagora.federated.site import Site, naming
from dagora.federation.joining import Joining, check_head, signed_head
from dagora.federation.kits import SERVER, Kit
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from dagora.federation.process import Refusals
from dagora.federation.schema import check_columns, names_from, schema_hash
from dagora.federation.store import FolderVault, Records, UsedNames, finish_removing, remove_folder, write_whole
from dagora.federation.texts import boxed, text_in
from dagora.files import make_folder
from dagora.learn import open_sites, torch_threads
from dagora.version import __version__

_LOG = logging.getLogger("dagora.site")
_MOST_RUNS = 8  # kept at a site, those included that were stopped and may be resumed
_KEY = 32  # bytes of the secret by which rows are drawn
_RESENT = 4  # replies at hand for requests that come again: those of one round


@dataclass
class _Joined:
    """The run that the site is in."""

    run: str
    request: bytes  # that it was joined with
    networks: bool
    cohort: Cohort
    site: Site[Any, Any]
    place: Path  # of the requests
    repeats: bool = True  # a reply that is computed again is the same, to the byte
    witnessed: bool = False  # the heads of the other sites' ledgers are noted
    replies: dict[str, bytes] = field(default_factory=dict)  # to the newest requests, by hash
    threads: ThreadpoolController = field(default_factory=ThreadpoolController)  # to find libraries takes a while

    @cached_property
    def requests(self) -> Records:
        """Those that were answered, on the disk; opened when the run's folder is there."""
        return Records(self.place)

    def remember(self, request: bytes, reply: bytes) -> None:
        self.replies[_digest(request)] = reply
        while len(self.replies) > _RESENT:
            del self.replies[next(iter(self.replies))]


class Member:
    """Answers a server's requests, one after the other."""

    def __init__(self, kit: Kit, data: Path, policy: Policy | None, ledger: Ledger, threads: int = 1) -> None:
        """Ledger: that of the data set, which may have a longer life than the kit."""
        self._kit, self._data, self._policy, self._threads = kit, data, policy, threads
        self._runs = make_folder(kit.state / "runs")
        finish_removing(self._runs)
        self.ledger = ledger
        self._refused = Refusals(ledger, _LOG)
        self._used = UsedNames(kit.state / "joined")
        self._joined: _Joined | None = None
        self._read: tuple[object, Prepared] | None = None
        self._answers: dict[str, Callable[[Message, bytes], bytes]] = {
            "introduce": self._introduce, "join": self._join, "witness": self._witness, "round": self._round,
            "end": self._end,
        }  # fmt: skip

    def answer(self, topic: str, request: bytes) -> bytes:
        """Bytes in, bytes out.  What is refused is written down, with the reason."""
        try:
            if topic not in self._answers:
                raise MessageError("message refused: it asks for nothing that a site answers")
            message = decode(request)
            with naming(self._kit.name):
                return self._answers[topic](message, request)
        except DagoraError as error:
            _LOG.info("in full: %.500s", error)
            told = self._outwards(str(error))
            self._refused.note(SERVER, told)
            raise type(error)(told) from error
        except Exception as error:  # whatever a message has set off, the site goes on
            _LOG.exception("a message could not be answered")
            self._refused.note(SERVER, type(error).__name__)
            raise MessageError(f"site {self._kit.name!r}: message refused: it led to an error, in its log") from error

    def _outwards(self, text: str) -> str:
        """An error without the site's own paths, and with its name."""
        for path, words in ((self._data, "its data file"), (self._kit.folder, "its kit")):
            text = text.replace(repr(str(path)), words).replace(str(path), words)
        return text if text.startswith("site ") else f"site {self._kit.name!r}: {text}"

    def _introduce(self, message: Message, request: bytes) -> bytes:
        """Before anyone has joined: whether this site could, with these data and this policy."""
        order = Order.read(message)
        who, plan = order.check(self._kit), Plan.from_json(order.plan)
        job = plan.job(order.run, who)
        introduce(job, self._policy, self.ledger)  # before the data is opened: what is wrong with it is told, too
        self.ledger.note(INTRODUCED, SERVER, order.run, f"column names and a certificate, as {who} ordered")
        table = self._open(plan)
        rows = self._prepared(plan, table, tuple(table.names)).summary.moments.n
        Guard(job, rows, self._policy, self.ledger).check()
        self.ledger.note(ADMITTED, SERVER, order.run)
        columns = json.dumps(list(table.names))
        return encode(
            {"columns": boxed(columns), "certificate": boxed(self._kit.signing_certificate), "version": __version__}
        )

    def _join(self, message: Message, request: bytes) -> bytes:
        joining = Joining.read(message)
        run = joining.order.run
        if self._joined is None or self._joined.request != request:
            kept = self._folder(run) / "join"
            if kept.exists() and kept.read_bytes() == request:
                self._restore(run)
            else:
                joined = self._enter(joining, request)
                self._used.add(run)
                remove_folder(self._folder(run))
                self._make_room()
                make_folder(self._folder(run))
                write_whole(kept, request)
                self._joined = joined
                _LOG.info("joined run %s", run)
        assert self._joined is not None
        head = self.ledger.head
        signature = signed_head(self._joined.cohort, self._kit.name, run, head)
        schema = schema_hash(joining.columns)
        return encode({"schema": schema, "head": head, "signature": np.frombuffer(signature, np.uint8)})

    def _witness(self, message: Message, request: bytes) -> bytes:
        """Note where the other sites' ledgers end, so that none of them can be rewritten unseen."""
        joined = self._in_run(message)
        cohort = joined.cohort
        heads, signatures = names_from(text_in(message, "heads")), message.get("signatures")
        if (
            not isinstance(signatures, np.ndarray)
            or len(heads) != len(cohort.sites)
            or signatures.size != 64 * len(heads)
        ):
            raise MessageError("message refused: it does not hold one signed head of every site's ledger")
        for site, head, signature in zip(cohort.sites, heads, signatures.reshape(len(heads), -1), strict=True):
            check_head(cohort, site, text_in(message, "run"), head, signature.tobytes())
            if site != self._kit.name:
                self.ledger.note(WITNESSED, site, text_in(message, "run"), head)
        write_whole(self._folder(joined.run) / "witnessed", b"")
        joined.witnessed = True
        return encode({})

    def _in_run(self, message: Message) -> _Joined:
        """The run that the message is of, from the disk if need be."""
        run = str(message.get("run"))
        if self._joined is None or self._joined.run != run:
            self._restore(run)
        if self._joined is None or self._joined.run != run:
            raise MessageError("message refused: it is of a run that this site has not joined")
        return self._joined

    def _round(self, message: Message, request: bytes) -> bytes:
        joined = self._in_run(message)
        if (earlier := joined.replies.get(_digest(request))) is not None:
            return earlier
        if not joined.witnessed:
            raise MessageError("message refused: this site was not shown the heads of the other sites' ledgers")
        before = joined.site.last
        try:
            with joined.threads.limit(limits=self._threads), torch_threads(self._threads if joined.networks else None):
                reply = joined.site.reply(message)
            record: dict[str, Value] = {"summand": joined.site.fingerprint, "request": np.frombuffer(request, np.uint8)}
            if not joined.repeats:
                record["reply"] = np.frombuffer(reply, np.uint8)
            joined.requests.append(encode(record))
        except Exception as error:
            if joined.site.failed or isinstance(error, NumericalError | InputError | RowsPolicyError):
                # What depends on the data may tell of it: such an error is the last answer of the run.
                self._give_up(joined.run, str(error))
            elif not isinstance(error, MessageError) or joined.site.last is not before:
                self._joined = None  # what is in memory may be ahead of what is on the disk, which counts
            raise
        joined.remember(request, reply)
        return reply

    def _end(self, message: Message, request: bytes) -> bytes:
        run = text_in(message, "run")
        if self._folder(run).exists():
            self._forget(run)
            _LOG.info("run %s is over", run)
            self.ledger.note("ended", SERVER, run, text_in(message, "how"))
        return encode({})

    def _give_up(self, run: str, why: str) -> None:
        self._forget(run)
        _LOG.warning("run %s cannot go on here: %s", run, why)
        self.ledger.note("given up", self._kit.name, run, why)

    def _forget(self, run: str) -> None:
        if self._joined is not None and self._joined.run == run:
            self._joined = None
        remove_folder(self._folder(run))

    def _folder(self, run: str) -> Path:
        """Where the run is kept.  Names come from messages: a folder's name is the hash of one."""
        return self._runs / _digest(run.encode())

    def _make_room(self) -> None:
        """Stopped runs are kept until the server ends them, but not without end."""
        kept = sorted(self._runs.iterdir(), key=lambda folder: folder.stat().st_mtime)
        for old in kept[: max(len(kept) - _MOST_RUNS + 1, 0)]:
            remove_folder(old)

    def _enter(self, joining: Joining, request: bytes, resumed: bool = False) -> _Joined:
        """Check all that the site was told, ask its policy, and start from its data."""
        order, names, run = joining.order, joining.columns, joining.order.run
        who, plan = order.check(self._kit), Plan.from_json(order.plan)
        if joining.version != __version__:
            raise InputError(f"has Dagora {__version__}, the server {joining.version}; install the same")
        if self._kit.name not in plan.sites:
            raise MessageError("message refused: the run is of other sites")
        if not resumed:
            self._check_introduced(plan.job(run, who))
        table = self._open(plan)
        check_columns(self._kit.name, tuple(table.names), names, "the run")
        cohort = joining.cohort(self._kit, {self._kit.name: self._kit.signing_key})
        protection = AGGREGATIONS[plan.aggregation](cohort, plan.privacy)
        algorithm = build_under(plan.settings, names, protection)
        prepared, self._read = self._prepared(plan, table, names), None
        if plan.privacy is None:
            algorithm = inspected(algorithm, names)
        rows, vault = prepared.summary.moments.n, FolderVault(self._folder(run))
        guard = Guard(plan.job(run, who), rows, self._policy, self.ledger, resumed)
        if plan.settings.replicates:
            # Random, and told to nobody: from totals of rows drawn by known counts, rows could be computed.
            key = partial(vault.once, f"bootstrap {run}", partial(token_bytes, _KEY))
            drawn = with_resamples(plan.settings, prepared.data, [table], names, rows, key)
            prepared = replace(prepared, data=drawn)
        start = prepared if plan.privacy is None else prepared.data
        site = Site(self._kit.name, algorithm.site, start, protection, guard, vault)
        joined = _Joined(run, request, plan.settings.networks, cohort, site, self._folder(run) / "requests")
        joined.repeats = plan.aggregation != "encrypted"  # the library's ciphertexts differ every time
        return joined

    def _check_introduced(self, job: Job) -> None:
        """Before the data is opened: what is wrong with it is told, too, and that is limited."""
        admitted = any(
            isinstance(what := entry.what, Noted) and (what.event, what.run) == (ADMITTED, job.run)
            for entry in self.ledger.entries
        )
        if not admitted:
            raise MessageError("message refused: this site was not introduced to the run")
        if self._policy is not None:
            before = (entry for entry in self.ledger.entries if entry.what != job)
            self._policy.admit(job, None, spent(before))
        if not any(entry.what == job for entry in self.ledger.entries) and self._used.known(job.run):
            raise PolicyError("policy: this run was joined here before, with other data; start a new one")

    def _restore(self, run: str) -> None:
        """Go through what was answered before a restart, or before another run."""
        place = self._folder(run) / "join"
        if not place.exists():
            return
        request = place.read_bytes()
        joined = self._enter(Joining.read(decode(request)), request, resumed=True)
        joined.witnessed = (self._folder(run) / "witnessed").exists()
        with joined.threads.limit(limits=self._threads), torch_threads(self._threads if joined.networks else None):
            for record in joined.requests:
                message = decode(record)
                earlier = np.asarray(message["request"]).tobytes()
                again, kept = joined.site.replay(earlier), message.get("reply")
                joined.remember(earlier, kept.tobytes() if isinstance(kept, np.ndarray) else again)
                if joined.site.fingerprint != message["summand"]:
                    raise InputError(
                        "its data, software or machine is not what it was when the run began, so the run cannot go on "
                        "here; put it back, or abort the run and start a new one"
                    )
        self._joined = joined
        _LOG.info("resumed run %s", run)

    def _prepared(self, plan: Plan, table: Streamed, names: tuple[str, ...]) -> Prepared:
        """Read the rows; once, if nothing has changed between introduction and joining."""
        about = self._data.stat()
        key = (plan.to_json(), names, about.st_mtime_ns, about.st_size)
        if self._read is None or self._read[0] != key:
            with threadpool_limits(self._threads):
                self._read = key, prepare(plan.settings, plan.privacy, table, names)
        return self._read[1]

    def _open(self, plan: Plan) -> Streamed:
        return open_sites({self._kit.name: str(self._data)}, plan.settings, plan.series, plan.time)[0]


def _digest(request: bytes) -> str:
    return sha256(request).hexdigest()
