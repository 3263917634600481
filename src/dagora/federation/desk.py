"""Where requests are taken in at a site: one at a time, never twice, and with a word within seconds.

The network asks in threads of its own and waits for seconds only; a local step may take minutes.  So work is done in
one thread, in order; whoever asks meanwhile hears "working", and asks again for the answer by its hash.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from threading import Lock

from dagora.transport.nvflare import COLLECT, DONE, UNKNOWN, WORKING

_AT_HAND = 4  # futures kept for those who ask again


class Desk:
    """Hands requests to a worker."""

    def __init__(self, work: Callable[[str, bytes], bytes], patience: float = 5.0) -> None:
        self._work, self._patience = work, patience
        self._worker = ThreadPoolExecutor(1, "work")
        self._lock = Lock()
        self._futures: dict[bytes, Future[bytes]] = {}

    def take(self, topic: str, request: bytes) -> tuple[str, bytes]:
        """The answer, or that it is being worked on."""
        digest = request if topic == COLLECT else sha256(topic.encode() + request).digest()
        with self._lock:
            future = self._futures.get(digest)
            if future is None and topic == COLLECT:
                return UNKNOWN, b""
            if future is None or (_failed(future) and topic != COLLECT):
                future = self._futures[digest] = self._worker.submit(self._work, topic, request)
            for old in list(self._futures)[:-_AT_HAND]:
                del self._futures[old]
        try:
            return DONE, future.result(self._patience)
        except TimeoutError:
            return WORKING, b""

    def close(self) -> None:
        """Take in nothing more."""
        self._worker.shutdown(wait=False, cancel_futures=True)


def _failed(future: Future[bytes]) -> bool:
    """An error is not kept: its cause may have been mended since."""
    return future.done() and future.exception() is not None
