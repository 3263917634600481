"""What the server's and the sites' processes have in common: lines of log, and an end that systemd understands."""

import fcntl
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from dagora.aggregation.ledger import Ledger
from dagora.errors import InputError
from dagora.visible import Lines

_AN_HOUR, _HOUR = 100, 3600.0  # refusals of one participant that are written down, and in how many seconds
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_LINE = "%(asctime)s %(name)s %(levelname)s %(message)s"


def say_in_lines(name: str) -> None:
    """One line an event on stderr, with the time in UTC: systemd's journal and `docker logs` keep them."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = Lines(_LINE.replace("%(name)s", name), "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    log = logging.getLogger("dagora")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


def alone_in(state: Path) -> None:
    """Refuse to start beside another process of the same kit: the lock goes with this process."""
    held = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(
            f"kit {str(state.parent)!r}: another process is running with it; stop that one first"
        ) from None


class Refusals:
    """Notes what was refused, in the log and in the ledger; of one participant's only so many an hour."""

    def __init__(self, ledger: Ledger, log: logging.Logger) -> None:
        self._ledger, self._log = ledger, log
        self._times: dict[str, list[float]] = {}

    def note(self, who: str, reason: str) -> None:
        """A flood of bad requests must not fill the disk."""
        now = time.monotonic()
        recent = [at for at in self._times.get(who, []) if now - at < _HOUR]
        self._times[who] = [*recent, now][-_AN_HOUR - 1 :]
        if len(recent) < _AN_HOUR:
            self._ledger.note("refused", who, detail=reason)
            self._log.warning("refused: %.500s", reason)
        elif len(recent) == _AN_HOUR:
            self._log.warning("refused: more of %s; no more of it is noted for an hour", who)


def stop_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def unwind_on_signals() -> None:
    """SIGTERM and SIGHUP (a terminal that is closed) end this process as Ctrl-C does: through its `finally`s."""

    def unwind(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, unwind)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals wait until the block is over: what it begins, it also writes down."""
    if threading.current_thread() is not threading.main_thread():  # where signals do not arrive
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, frame: came.append(n)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        os.kill(os.getpid(), came[0])


def leave(code: int = 0) -> NoReturn:
    """End now: FLARE's threads would hold the process for seconds, and all that counts is on the disk."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
