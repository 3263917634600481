"""How much a test does: a little in `make test`, more in `make soak` (which sets DAGORA_SOAK=1)."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

T = TypeVar("T")

SOAK = os.environ.get("DAGORA_SOAK") == "1"
soak_only = pytest.mark.skipif(not SOAK, reason="takes minutes: make soak runs it")


def effort(test: T, soak: T) -> T:
    """The first in `make test`, the second in `make soak`: numbers of seeds, kills and inputs.

    A test that uses it has the marker `soak`; without the marker, `make soak` leaves the test out.
    """
    return soak if SOAK else test


@contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Fail if the block takes longer, so that a hang ends and is named."""

    def hangs(number: int, frame: object) -> None:
        pytest.fail(f"{what} took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
