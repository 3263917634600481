"""A whole federation on one machine: real processes on loopback with mutual TLS, for a first try and for tests."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from dagora.data.tables import named_sites
from dagora.errors import DagoraError, InputError
from dagora.federation.kits import SERVER
from dagora.federation.process import uninterrupted
from dagora.federation.provision import Federation, provision

ADMINISTRATOR = "you@localhost.local"

LEDGERS = "ledgers"  # the folder of the data sets' records, as each site's owner would have one

_STARTING = 30.0  # seconds for a process to start, and some more for each


class LocalFederation:
    """Kits, a server and a site a file, under a folder; processes end with the block.

    data: files by site.  The sites have no policy unless one is given: all is on one machine already.
    spare: names of further sites that get kits only.  start: whether the block begins with all processes.
    host, listen: the server's address and what it listens on.  before: words that a participant's command begins with,
    such as those that put it into a network namespace.
    """

    def __init__(
        self,
        folder: Path,
        data: Mapping[str, Path],
        policy: Path | None = None,
        spare: tuple[str, ...] = (),
        start: bool = True,
        host: str = "localhost",
        listen: str = "127.0.0.1",
        before: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.folder, self.data, self._policy, self._start = folder, dict(data), policy, start
        self._before = dict(before or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        if (folder / SERVER).exists():
            raise InputError(f"{str(folder)!r} holds the kits of another federation; name a new folder")
        sites = (*data, *spare)
        provision(Federation("local", host, _free_port(), sites, (ADMINISTRATOR,), listen), folder)

    @property
    def admin(self) -> Path:
        """The kit that jobs are submitted with."""
        return self.folder / ADMINISTRATOR

    def ledger(self, name: str) -> Path:
        """The audit log of the server, or of a site's data."""
        return (
            self.folder / SERVER / "state" / "ledger.jsonl"
            if name == SERVER
            else self.folder / LEDGERS / f"{name}.jsonl"
        )

    def __enter__(self) -> "LocalFederation":
        try:
            for name in (SERVER, *self.data) if self._start else ():
                self.start(name)
        except BaseException:  # a signal, say: `__exit__` is for those who have entered
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for name in self._processes:
            self._signal(name, signal.SIGTERM)
        for name, process in self._processes.items():
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                self._signal(name, signal.SIGKILL)

    def start(self, name: str) -> None:
        """Start the server or a site, as its administrator would."""
        command = [*self._before.get(name, ()), sys.executable, "-m", "dagora", "federation"]
        if name == SERVER:
            command += ["server", str(self.folder / SERVER)]
        else:
            policy = ["--no-policy"] if self._policy is None else ["--policy", str(self._policy)]
            command += ["site", str(self.folder / name), "--data", str(self.data[name].absolute()), *policy]
            command += ["--ledgers", str(self.folder / LEDGERS)]
        with uninterrupted(), (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def process(self, name: str) -> "subprocess.Popen[bytes]":
        """The server's or a site's."""
        return self._processes[name]

    def kill(self, name: str) -> None:
        """SIGKILL, as a crash would."""
        self._signal(name, signal.SIGKILL)
        self._processes[name].wait()

    def _signal(self, name: str, number: int) -> None:
        """To the whole session: what a command begins with may have a process of its own."""
        with suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, number)

    def check(self) -> None:
        """Whether all processes are there; else the last line that one of them wrote."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise DagoraError(self.last_line(name))

    def wait_for_server(self) -> None:
        """Return when the server listens."""
        end = time.monotonic() + _STARTING + len(self.data)
        while not self._says(SERVER, "listening"):
            self.check()
            if time.monotonic() > end:
                raise DagoraError(f"the server did not start: {self.last_line(SERVER)}")
            time.sleep(0.05)

    def last_line(self, name: str) -> str:
        """What a process said last."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("dagora: ") if lines else "it said nothing"

    def _says(self, name: str, word: str) -> bool:
        return word in (self.folder / f"{name}.log").read_text(errors="replace")


def site_names(files: Sequence[Path]) -> dict[str, Path]:
    """Names that certificates can carry, made of the files'."""
    names = [
        re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "site" for name in named_sites([str(f) for f in files])
    ]
    counts = Counter(names)
    names = [
        f"{name}-{k}" if counts[name] > 1 or name in (SERVER, "localhost") else name for k, name in enumerate(names, 1)
    ]
    if len(set(names)) < len(files):
        raise InputError("the files' names are too alike to name sites by; rename them")
    return dict(zip(names, files, strict=True))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
