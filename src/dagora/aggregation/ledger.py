"""A site's ledger: what left it, when, and under which protection; never a value of the data.

Entries are chained by hashes.  A ledger is a file of JSON Lines, in which a line is

    {"bytes":..,"fields":{..},"kind":"sent",..,"previous":"<hash of the line before>",..,"hash":"<own hash>"}

and the own hash is the SHA-256 of the line without `,"hash":"..."`.  So a line that is edited, removed, inserted or
moved breaks the chain there, and `verify` names it.  Two things no chain can show by itself: lines cut off at the end,
and a ledger rewritten from some line on with all its hashes.  Both change the head, the hash of the last line: note the
head elsewhere from time to time, and `verify(path, noted)` shows both.

A site records a reply before it sends it: what left is always in the ledger.  An open ledger is locked: two processes
that shared one would each count only what they know of.
"""

import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from dagora.errors import DagoraError
from dagora.federated.policy import MAX_NAME, Job, Spent

REFUSED_BY_ROWS = "refused by rows"  # an event: a refusal that depends on the data, which counts as a run
INTRODUCED = "introduced"  # an event
ADMITTED = "admitted"  # an event: an introduction after which the site may join
WITNESSED = "witnessed"  # an event: the head of another site's ledger, as that site has signed it

_DAY = timedelta(days=1)
_UNSAID = {"replicates": 0, "colluders": None, "by": "", "subset": ()}  # most entries have none of these
START = "0" * 64  # the `previous` of a first entry, and the head of an empty ledger

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)  # Windows would write \\r\\n
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


class LedgerError(DagoraError):
    """A ledger that is not as it was written, or that cannot be written."""


@dataclass(frozen=True)
class Sent:
    """One reply of a site, as it left: after protection, in bytes."""

    run: str
    round: int
    phase: str
    fields: Mapping[str, tuple[int, ...]]  # name and shape of what the site added to the total
    bytes: int
    sha256: str  # of the bytes that left
    protection: str  # the aggregation
    subset: tuple[str, ...] = ()  # the sites that the total is over, if not all


@dataclass(frozen=True)
class Noted:
    """Anything else that a reader of the ledger should know of: who asked for what, and what was refused."""

    event: str
    who: str  # by certificate
    run: str = ""
    detail: str = ""


Happening = Job | Sent | Noted


@dataclass(frozen=True)
class Entry:
    """One line, chained to the one before: a run that was joined (a Job), a reply that left (Sent) or a note."""

    site: str
    time: str  # UTC
    what: Happening
    previous: str
    hash: str

    def line(self) -> bytes:
        """The entry as it stands in a file."""
        return _line(_body(self.site, self.time, self.what, self.previous), self.hash)


def now() -> str:
    """The time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Ledger:
    """Grows by one entry for each run and each reply; in memory, and in a file where one is named.

    A file that exists is verified and continued.  Each entry is on the disk before `opened` or `record` returns.
    Threads may share a ledger.  mend: drop a last line that a crash has cut short, and say so in the next: what it was
    to record never left.
    """

    def __init__(
        self,
        site: str,
        path: str | os.PathLike[str] | None = None,
        clock: Callable[[], str] = now,
        mend: bool = False,
    ) -> None:
        self.site = site
        self._clock = clock
        self._lock = Lock()
        self._entries: list[Entry] = []
        self._path = None if path is None else Path(path)
        self._where = "ledger" if path is None else _name(path)
        self._file: int | None = None
        if self._path is not None:
            try:
                new = not self._path.exists()
                self._file = os.open(self._path, _APPEND, 0o644)
                if new:
                    _sync_folder(self._path.parent)
            except OSError as error:
                raise self._unwritable(error) from None
            try:
                self._lock_file(self._file)
                torn = mend and _drop_torn_line(self._path)
                self._entries = read(self._path)
                others = [entry.site for entry in self._entries if entry.site != site]
                if others:
                    raise LedgerError(f"{self._where} is of {others[0]!r}, not of {site!r}; name another file")
            except LedgerError:
                self.close()
                raise
            self._size = sum(len(entry.line()) for entry in self._entries)
            if torn:
                self.note("mended", site, detail="a line that a crash had cut short was dropped")

    @property
    def path(self) -> Path | None:
        """Its file, if it has one."""
        return self._path

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries so far, those of earlier runs first."""
        return tuple(self._entries)

    @property
    def head(self) -> str:
        """The hash of the last entry, to be noted elsewhere."""
        return self._entries[-1].hash if self._entries else START

    def opened(self, job: Job) -> Entry:
        """Write down that the site joins a run; its whole privacy loss counts from here, however the run ends."""
        return self._append(job)

    def record(
        self,
        run: str,
        round: int,
        phase: str,
        fields: Mapping[str, tuple[int, ...]],
        payload: bytes,
        protection: str,
        subset: tuple[str, ...] = (),
    ) -> Entry:
        """Write down a reply that is about to leave: the names and shapes in it, and the hash of its bytes."""
        digest = hashlib.sha256(payload).hexdigest()
        return self._append(Sent(run, round, phase, dict(fields), len(payload), digest, protection, subset))

    def note(self, event: str, who: str, run: str = "", detail: str = "") -> Entry:
        """Write down what is neither of these; names from outside are cut to a length that does no harm."""
        return self._append(Noted(event, who[:MAX_NAME], run[:MAX_NAME], detail[:MAX_NAME]))

    def close(self) -> None:
        """Close the file, if there is one; the entries stay readable."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock_file(self, file: int) -> None:
        if fcntl is None:  # Windows
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LedgerError(
                f"{self._where} is in use by another run or process; wait for it, or name another file"
            ) from None

    def _append(self, what: Happening) -> Entry:
        with self._lock:
            time, previous = self._clock(), self.head
            body = _body(self.site, time, what, previous)
            own = hashlib.sha256(body).hexdigest()
            if self._path is not None:
                self._write(_line(body, own))
            entry = Entry(self.site, time, what, previous, own)
            self._entries.append(entry)
            return entry

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise LedgerError(f"{self._where} is closed; open it again")
        try:
            if os.fstat(self._file).st_size != self._size:
                raise LedgerError(
                    f"{self._where} was changed by another process; give each its own file, and verify it"
                )
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)  # a full disk must not leave half a line
            raise self._unwritable(error) from None
        self._size += len(line)

    def _unwritable(self, error: OSError) -> LedgerError:
        return LedgerError(f"{self._where}: cannot be written: {error.strerror}; nothing leaves before it can")


def read(path: str | os.PathLike[str]) -> list[Entry]:
    """The entries of a file, once the chain has been verified."""
    where = _name(path)
    try:
        with Path(path).open("rb") as file:
            lines = file.readlines()
    except OSError as error:
        raise LedgerError(f"{where}: cannot be read: {error.strerror}; check the path") from None
    if lines and not lines[-1].endswith(b"\n"):
        raise LedgerError(
            f"{where}: line {len(lines)} is half-written, so what it was to record did not leave; "
            "copy the file, then delete that line from it"
        )
    return _chain(lines, where)


def _sync_folder(folder: Path) -> None:
    """A new file is in its folder for good only when the folder is on the disk, too."""
    if os.name == "nt":  # Windows has no such call
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _drop_torn_line(path: Path) -> bool:
    """Whether the file ended in the middle of a line; it then ends with the line before."""
    if not path.exists():
        return False
    with path.open("r+b") as file:
        whole = file.read()
        if whole.endswith(b"\n") or not whole:
            return False
        file.truncate(whole.rfind(b"\n") + 1)
        os.fsync(file.fileno())
    return True


def verify(source: str | os.PathLike[str] | Iterable[Entry], noted: str | None = None) -> str:
    """Check the chain of a file, or of entries; return its head, or raise a LedgerError that names the broken line.

    noted: a head noted earlier, which must be in the chain.  Without it, lines cut off at the end go unseen, and so
        does a ledger that was rewritten together with its hashes.
    """
    if isinstance(source, str | os.PathLike):
        where, entries = _name(source), read(source)
    else:
        where, entries = "ledger", _chain([entry.line() for entry in source], "ledger")
    hashes = [START, *(entry.hash for entry in entries)]
    if noted is not None and noted not in hashes:
        raise LedgerError(
            f"{where}: the noted head {noted!r} is not that of one of its {len(entries)} lines: "
            "some were cut off at the end, or rewritten; restore a copy"
        )
    return hashes[-1]


def spent(entries: Iterable[Entry]) -> Spent:
    """What a ledger says was taken, for `Policy.admit`; a run without differential privacy has no bound."""
    since = (datetime.now(UTC) - _DAY).isoformat(timespec="milliseconds")
    jobs: list[Job] = []
    sites: dict[str, tuple[str, ...]] = {}  # by run
    refused = introductions = 0
    cohort: frozenset[str] = frozenset()
    for entry in entries:
        match entry.what:
            case Job() as job:
                jobs.append(job)
                sites[job.run] = job.sites
            case Sent(run=run, fields=fields) if fields and run in sites:
                cohort = frozenset(sites[run])
            case Noted(event=event):
                refused += event == REFUSED_BY_ROWS
                introductions += event == INTRODUCED and entry.time >= since
    epsilon = math.fsum(math.inf if job.epsilon is None else job.epsilon for job in jobs)
    delta = math.fsum(job.delta or 0.0 for job in jobs)
    return Spent(epsilon, delta, len(jobs) + refused, cohort, introductions)


def _name(path: str | os.PathLike[str]) -> str:
    return f"ledger {os.fspath(path)!r}"


def _body(site: str, time: str, what: Happening, previous: str) -> bytes:
    kind = {Job: "opened", Sent: "sent", Noted: "noted"}[type(what)]
    about = {name: value for name, value in vars(what).items() if _UNSAID.get(name, ...) != value}
    return _ENCODER.encode({"kind": kind, "previous": previous, "site": site, "time": time, **about}).encode()


def _line(body: bytes, own: str) -> bytes:
    return b'%s,"hash":"%s"}\n' % (body[:-1], own.encode())


def _chain(lines: Iterable[bytes], where: str) -> list[Entry]:
    entries: list[Entry] = []
    previous = START
    for number, line in enumerate(lines, start=1):
        entry = _entry(line)
        if entry is None:
            raise LedgerError(f"{where}: line {number} was changed after it was written; restore a copy")
        if entry.previous != previous:
            before = f"line {number - 1}" if number > 1 else "the start"
            raise LedgerError(
                f"{where}: line {number} does not follow {before}: "
                "lines were removed, inserted or moved; restore a copy"
            )
        entries.append(entry)
        previous = entry.hash
    return entries


def _entry(line: bytes) -> Entry | None:
    """The entry of which this is the line, to the byte and with its hash; None if there is no such entry."""
    try:
        values: dict[str, Any] = json.loads(line)
        site, time, kind = values.pop("site"), values.pop("time"), values.pop("kind")
        previous, own = values.pop("previous"), values.pop("hash")
        what: Happening
        if kind == "opened":
            what = Job(**values | {"sites": tuple(values["sites"])})
        elif kind == "noted":
            what = Noted(**values)
        else:
            fields = {name: tuple(shape) for name, shape in values["fields"].items()}
            what = Sent(**values | {"fields": fields, "subset": tuple(values.get("subset", ()))})
        body = _body(site, time, what, previous)
        whole = _line(body, own) == line and hashlib.sha256(body).hexdigest() == own
    except (DagoraError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Entry(site, time, what, previous, own) if whole else None
