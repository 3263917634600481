"""What the server's and the sites' processes have in common: lines of log, and an end that systemd understands."""

import logging
import os
import signal
import sys
import threading
import time
from typing import NoReturn

_LINE = "%(asctime)s %(name)s %(levelname)s %(message)s"


def say_in_lines(name: str) -> None:
    """One line an event on stderr, with the time in UTC: systemd's journal and `docker logs` keep them."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(_LINE.replace("%(name)s", name), "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    log = logging.getLogger("dagora")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


def stop_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def leave(code: int = 0) -> NoReturn:
    """End now: FLARE's threads would hold the process for seconds, and all that counts is on the disk."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
