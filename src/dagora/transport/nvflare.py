"""Messages over NVIDIA FLARE's cell network: gRPC, mutual TLS, one connection a site, which the site opens.

Of FLARE's interfaces this is the lowest that is its own: `collab` and its job engine are built on it.  They start two
processes a site for every job, end a job when a site is lost, and would ship code to sites.  A cell is one object in
the site's own process; connections come back by themselves, and what happens to a run is ours to say.

FLARE binds a cell's name to the common name in its certificate, so that nobody answers for another.  On top of that a
cell here takes in raw bytes only (FLARE's own encoding is never decoded), only what comes straight from its sender, and
forwards nothing.
"""

import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from hashlib import sha256

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is loaded: its lines about TLS tell users nothing

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, Encoding, MessageHeaderKey, MessagePropKey, ReturnCode
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.fuel.f3.sfm import conn_manager
from nvflare.fuel.utils.admin_name_utils import new_admin_client_name
from nvflare.fuel.utils.config_service import ConfigService

from dagora.errors import DagoraError, MissingSiteError, SlowSiteError
from dagora.federated.message import Message, decode, encode
from dagora.federation.kits import ADMIN, SERVER, Kit

CHANNEL = "dagora"
COLLECT = "collect"  # asks for the answer to a request that was taken in before, by its hash

STATE = "dagora.state"  # a header of answers: one of the following
DONE, WORKING, UNKNOWN, REFUSED = "done", "working", "unknown", "refused"

Handler = Callable[[str, str, bytes], tuple[str, bytes]]  # who asks, topic, request -> state, answer

_PATIENCE = 120.0  # seconds for one answer on a slow line; a site at work says so within a few (federation/desk.py)
_GLANCE = 0.1  # seconds between looks whether the connection that a question went over is still there
_ASKERS = 4096  # threads at most; there are as many as questions that wait for an answer
_PAUSE = 0.2  # seconds before a site that is away is asked again
_LOG = logging.getLogger("dagora.network")

conn_manager.MAX_WAIT = 2  # seconds between attempts to connect; FLARE's 10 would be most of a short run


class Cell:
    """A participant's place in the network."""

    def __init__(
        self, kit: Kit, handler: Handler | None = None, foreign: Callable[[str], None] = lambda who: None
    ) -> None:
        self._foreign = foreign  # told who sent a message that was refused unread
        for noisy in ("nvflare", "grpc"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        ConfigService.initialize(section_files={}, config_path=[str(kit.local)])
        # Administrators come through the same port; who they are is in their certificates.
        place = f"{kit.listen}:{kit.port}?admin_listener=true" if kit.role == SERVER else kit.address
        self.name = new_admin_client_name() if kit.role == ADMIN else kit.name
        self._cell = CoreCell(self.name, f"grpc://{place}", True, kit.credentials)
        self._cell.add_incoming_filter("*", "*", self._refuse_foreign)
        self._losses: Counter[str] = Counter()  # connections that broke off, by name
        self._cell.set_cell_disconnected_cb(lambda agent: self._losses.update([str(agent.get_fqcn())]))
        self._askers = ThreadPoolExecutor(_ASKERS, "asker")
        if handler is not None:
            self._cell.register_request_cb(CHANNEL, "*", self._handle, handler)
        self._cell.start()

    def wait_for(self, name: str, patience: float) -> bool:
        """Whether there is a connection to it before long."""
        end = time.monotonic() + patience
        while not self.connected(name) and time.monotonic() < end:
            time.sleep(0.02)
        return self.connected(name)

    def connected(self, name: str) -> bool:
        """Whether there is a connection to it now."""
        return bool(self._cell.is_cell_connected(name))

    def ask(
        self,
        target: str,
        topic: str,
        request: bytes,
        patience: float = _PATIENCE,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[str, bytes] | None:
        """State and answer, or None if there was none in time.  check: called while waiting; may raise."""
        losses = self._losses[target]
        asked = self._askers.submit(
            self._cell.send_request, CHANNEL, topic, target, CellMessage({}, request), timeout=patience, optional=True
        )
        while not wait([asked], _GLANCE).done:
            check()
            if self._losses[target] > losses:  # FLARE would wait for an answer that cannot come
                return None
        reply = asked.result()
        if reply.get_header(MessageHeaderKey.RETURN_CODE) != ReturnCode.OK:
            return None
        return str(reply.get_header(STATE)), bytes(reply.payload or b"")

    def close(self) -> None:
        """Leave the network."""
        self._askers.shutdown(wait=False, cancel_futures=True)
        self._cell.stop()
        CoreCell.ALL_CELLS.pop(self.name, None)  # else FLARE would go on sending to it in this process

    def _handle(self, message: CellMessage, handler: Handler) -> CellMessage:
        who = str(message.get_prop(MessagePropKey.COMMON_NAME) or message.get_header(MessageHeaderKey.ORIGIN))
        topic = str(message.get_header(MessageHeaderKey.TOPIC))
        try:
            state, answer = handler(who, topic, bytes(message.payload or b""))
        except DagoraError as error:
            state, answer = REFUSED, str(error).encode(errors="replace")
        except Exception:
            _LOG.exception("a request of %s could not be answered", who)
            state, answer = REFUSED, f"{self.name!r} could not answer: an error of its own, in its log".encode()
        return CellMessage({STATE: state}, answer)

    def _refuse_foreign(self, message: CellMessage) -> CellMessage | None:
        """An answer here stops a message before anything of it is decoded."""
        sender = message.get_prop(MessagePropKey.ENDPOINT)
        straight = message.get_header(MessageHeaderKey.ORIGIN) == getattr(sender, "name", None)
        mine = message.get_header(MessageHeaderKey.DESTINATION) == self.name
        raw = message.get_header(MessageHeaderKey.PAYLOAD_ENCODING) in (None, Encoding.NONE, Encoding.BYTES)
        known = message.get_header(MessageHeaderKey.CHANNEL) in (CHANNEL, CellChannel.CELLNET, None)
        if straight and mine and raw and known and not message.get_header(MessageHeaderKey.SECURE):
            return None
        who = str(message.get_prop(MessagePropKey.COMMON_NAME) or getattr(sender, "name", "?"))
        _LOG.warning("a message from %s was refused: it is not for this participant", who)
        self._foreign(who)
        return CellMessage({MessageHeaderKey.RETURN_CODE: ReturnCode.INVALID_REQUEST})


class NvflareTransport:
    """The server's: asks sites side by side, and again while they are away, until a deadline.

    deadline: seconds that a site may be away.  working: seconds that it may be there and work on one answer.
    """

    def __init__(
        self,
        cell: Cell,
        sites: tuple[str, ...],
        deadline: float,
        stop: Callable[[], None] = lambda: None,
        working: float = math.inf,
    ) -> None:
        self._cell, self._sites, self._deadline, self._stop = cell, sites, deadline, stop
        self._working = working
        self._asked: Mapping[str, Future[bytes | None]] = {}
        self._pool = ThreadPoolExecutor(len(sites), "ask")
        self._lock = threading.Lock()
        self._over = threading.Event()  # whether nobody waits for answers any more
        self.sent = 0
        self.received = 0

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> dict[str, Message]:
        """One message out, one reply from every site; sites in their fixed order, whoever answers first."""
        common = encode(message)
        requests = {site: common for site in self._sites if own is None}
        requests |= {site: encode({**message, **own[site]}) for site in self._sites if own and site in own}
        return {site: decode(reply) for site, reply in self.ask("round", requests, enough).items()}

    def ask(self, topic: str, requests: Mapping[str, bytes], enough: int | None = None) -> dict[str, bytes]:
        """Replies by site; a site that stays away is a MissingSiteError, one that refuses an error in its words."""
        asked = self._asked = {
            site: self._pool.submit(self._insist, site, topic, data) for site, data in requests.items()
        }
        try:
            for done in as_completed(asked.values()):
                done.result()  # the first refusal counts, whoever is still away
        except BaseException:
            self._over.set()
            raise
        replies = {site: future.result() for site, future in asked.items()}
        there = {site: reply for site, reply in replies.items() if reply is not None}
        if len(there) < (len(requests) if enough is None else enough):
            raise MissingSiteError([site for site in requests if site not in there])
        return there

    @property
    def waiting(self) -> list[str]:
        """The sites whose answers are awaited."""
        return [site for site, future in self._asked.items() if not future.done()]

    def close(self) -> None:
        """End the threads; the cell is its owner's."""
        self._over.set()
        self._pool.shutdown(cancel_futures=True)

    def _check(self) -> None:
        if self._over.is_set():
            raise DagoraError("the run has stopped")
        self._stop()

    def _insist(self, site: str, topic: str, request: bytes) -> bytes | None:
        """Send the very bytes again whenever the site has been away: it knows requests that it has seen."""
        digest = sha256(topic.encode() + request).digest()
        what, data, seen, away = topic, request, time.monotonic(), False
        worked = 0.0  # seconds in which it was there and said nothing else than that it works
        while True:
            self._check()
            answer = self._cell.ask(site, what, data, min(_PATIENCE, self._deadline), self._check)
            if answer is None:
                if not away:
                    _LOG.warning("site %s does not answer; waiting for it", site)
                away = True
                if time.monotonic() - seen > self._deadline:
                    return None
                time.sleep(_PAUSE)
                what, data = topic, request
                continue
            if away:
                _LOG.info("site %s is back", site)
            state, reply = answer
            now = time.monotonic()
            worked = worked + (0.0 if away else now - seen) if state == WORKING else 0.0
            seen, away = now, False
            with self._lock:
                self.received += len(data)
                self.sent += len(reply)
            if state == DONE:
                return reply
            if state == REFUSED:
                raise DagoraError(reply.decode(errors="replace"))
            if worked > self._working:
                raise SlowSiteError(site, self._working)
            what, data = (topic, request) if state == UNKNOWN else (COLLECT, digest)
