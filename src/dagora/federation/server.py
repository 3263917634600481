"""The process at the server: administrators submit plans, and it coordinates one run at a time."""

import json
import logging
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dagora.aggregation.ledger import Ledger
from dagora.errors import DagoraError, InputError, MissingSiteError, ResultWarning, SlowSiteError
from dagora.federated.message import Message, decode, encode
from dagora.federated.run import Kept
from dagora.federation import results
from dagora.federation.coordinator import coordinate, say_goodbye
from dagora.federation.kits import SERVER, Kit
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from dagora.federation.probe import answers, free_port
from dagora.federation.process import Refusals, alone_in, leave, say_in_lines, stop_signals
from dagora.federation.store import write_whole
from dagora.federation.texts import boxed, text_in
from dagora.files import make_folder
from dagora.transport.nvflare import DONE, Cell, NvflareTransport

RUNNING, FINISHED, STOPPED, ABORTED = "running", "done", "stopped", "aborted"

_RUN = re.compile(r"[0-9]{8}-[0-9]{9}-[0-9a-f]{8}")  # it becomes a folder's name
_LOG = logging.getLogger("dagora.server")
_FAREWELL = 5.0  # seconds for sites to hear that a run is over
_SHOWN = 10  # runs in a status


class AbortedError(DagoraError):
    """An administrator has ended the run."""


class Server:
    """Answers administrators, and keeps runs under `state/runs`, each in a folder of its own."""

    def __init__(self, kit: Kit, cell: Callable[[], Cell]) -> None:
        self._kit, self._cell = kit, cell
        self._runs = make_folder(kit.state / "runs")
        self.ledger = Ledger(SERVER, kit.state / "ledger.jsonl", mend=True)
        self._refused = Refusals(self.ledger, _LOG)
        self._lock = threading.RLock()
        self._owed = {folder.name: list(_about(folder).get("owed", ())) for folder in self._folders()}
        self._current = ""
        self._figures: Mapping[str, float] = {}
        self._link: NvflareTransport | None = None  # of the current run
        self._abort = threading.Event()
        self._answers: dict[str, Callable[[str, Message], dict[str, Any]]] = {
            "submit": self._submit, "resume": self._resume, "status": self._status, "abort": self._cancel,
            "result": self._result,
        }  # fmt: skip

    def handle(self, who: str, topic: str, request: bytes) -> tuple[str, bytes]:
        """Administrators only, by their certificates: sites answer, and never ask."""
        try:
            if "@" not in who:  # FLARE's administrators are named by e-mail addresses, sites cannot be
                raise DagoraError(f"{who!r} may not ask the server: it is no administrator")
            if topic not in self._answers:
                raise DagoraError("the server does not know what is asked; is its Dagora older?")
            with self._lock:
                return DONE, encode(self._answers[topic](who, decode(request)))
        except DagoraError as error:
            self._refused.note(who, str(error))
            raise

    def foreign(self, who: str) -> None:
        """A message that was not for the server, and was refused unread."""
        self._refused.note(who, "a message that is not for the server")

    def settle(self) -> None:
        """Tell sites that are back of a run that ended while they were away; of one a call, for a site may hang."""
        for run, owed in list(self._owed.items()):
            if any(map(self._cell().connected, owed)):
                folder = self._runs / run
                still = self._say_goodbye(run, _about(folder)["state"], owed)
                with self._lock:
                    del self._owed[run]
                    self._owed[run] = still  # the last in turn now
                    _tell(folder, {**_about(folder), "owed": still})
                return

    def go_on(self) -> None:
        """Take up the run that was under way when the server's last process ended."""
        for folder in self._folders():
            about = _about(folder)
            if about["state"] == RUNNING:
                _LOG.info("going on with run %s", folder.name)
                self._start(folder.name)
                return

    def _submit(self, who: str, message: Message) -> dict[str, Any]:
        order = Order.read(message)
        signed_by, plan, run = order.check(self._kit), Plan.from_json(order.plan), order.run
        if signed_by != who:
            raise InputError(f"run {run!r} was signed by {signed_by}, not by {who}, who submits it")
        if not _RUN.fullmatch(run):
            raise InputError(f"run {run!r}: is no name of a run; is this administrator's Dagora older?")
        if not plan.sites:
            raise InputError("sites: the job names none; list them")
        for site in plan.sites:
            if site not in self._kit.sites and not self._cell().connected(site):
                raise InputError(f"sites: there is no site {site!r}; there are {', '.join(self._kit.sites)}")
        if (self._runs / run / "run.json").exists():  # an answer that was lost on its way is asked for again
            if decode((self._runs / run / "order").read_bytes())["signature"].tobytes() != order.signature:  # type: ignore[union-attr]
                raise InputError(f"run {run!r} was ordered before, with another plan")
            return {"run": run}
        self._refuse_if_busy()
        folder = make_folder(self._runs / run)
        what = f"{plan.settings.model} {plan.settings.method}, {plan.aggregation}, {len(plan.sites)} sites"
        self.ledger.note("submitted", who, run, what)
        _LOG.info("run %s submitted by %s: %s", run, who, what)
        write_whole(folder / "order", encode(order.fields()))
        begun = datetime.now(UTC).isoformat(timespec="milliseconds")
        _tell(folder, {"plan": order.plan, "by": who, "begun": begun, "state": RUNNING, "detail": "", "round": 0})
        self._start(run)
        return {"run": run}

    def _resume(self, who: str, message: Message) -> dict[str, Any]:
        folder = self._folder(text_in(message, "run"))
        about = _about(folder)
        if about["state"] == STOPPED:
            self._refuse_if_busy()
            self.ledger.note("resumed", who, folder.name)
            _tell(folder, {**about, "state": RUNNING, "detail": ""})
            self._start(folder.name)
        return {"run": folder.name}

    def _status(self, who: str, message: Message) -> dict[str, Any]:
        asked = message.get("run")  # a client that follows one wants it, however old it is
        shown = [f for k, f in enumerate(self._folders()) if k < _SHOWN or f.name == asked]
        runs = {folder.name: _about(folder) for folder in shown}
        if self._current in runs and runs[self._current]["state"] == RUNNING:
            runs[self._current] |= {"figures": dict(self._figures), "round": int(self._figures.get("round", 0))}
            runs[self._current]["waiting for"] = [] if self._link is None else self._link.waiting
        known = {site for about in runs.values() for site in Plan.from_json(about["plan"]).sites}
        sites = {site: self._cell().connected(site) for site in sorted({*self._kit.sites, *known})}
        status = {"federation": self._kit.federation, "server": self._kit.address, "sites": sites, "runs": runs}
        return {"status": boxed(json.dumps(status))}

    def _cancel(self, who: str, message: Message) -> dict[str, Any]:
        folder = self._folder(text_in(message, "run"))
        about = _about(folder)
        if about["state"] not in (RUNNING, STOPPED):
            raise InputError(f"run {folder.name} is {about['state']}; there is nothing to abort")
        self.ledger.note("aborted", who, folder.name)
        _LOG.info("run %s aborted by %s", folder.name, who)
        if about["state"] == RUNNING:
            _tell(folder, {**about, "aborting": True})
            self._abort.set()
        else:
            owed = self._owed[folder.name] = json.loads(about["plan"])["sites"]  # `settle` tells them
            _tell(folder, {**about, "state": ABORTED, "detail": f"by {who}", "owed": owed})
            (folder / "rounds").unlink(missing_ok=True)
        return {"run": folder.name}

    def _result(self, who: str, message: Message) -> dict[str, Any]:
        folder = self._folder(text_in(message, "run"))
        if not (folder / "result").exists():
            raise InputError(f"run {folder.name} is {_about(folder)['state']}; it has no result")
        self.ledger.note("result read", who, folder.name)
        return dict(decode((folder / "result").read_bytes()))

    def _start(self, run: str) -> None:
        self._current, self._figures, self._link = run, {}, None
        self._abort = threading.Event()  # of this run: the thread of another may still be about to end
        folder = self._runs / run
        threading.Thread(target=self._work, args=(folder, self._abort), name="run", daemon=True).start()

    def _work(self, folder: Path, abort: threading.Event) -> None:
        try:
            state, detail = self._outcome(folder, abort)
            if abort.is_set() and state == STOPPED:  # whatever has stopped it meanwhile
                state, detail = ABORTED, "by an administrator"
            self._end(folder, state, detail, int(self._figures.get("round", 0)))
        except Exception:  # a full disk, say: the next start goes on with the run
            _LOG.exception("run %s could not be ended; start the server again", folder.name)

    def _outcome(self, folder: Path, abort: threading.Event) -> tuple[str, str]:
        """Work on a run until it ends; how it ended, and why."""

        def stop() -> None:
            if abort.is_set():
                raise AbortedError("aborted")

        def watch(figures: Mapping[str, float]) -> None:
            self._figures = figures

        def kept(round: int, kept: Kept) -> None:
            told = f"round {round}: {kept.received} bytes to the sites, {kept.sent} back"
            self.ledger.note("round", SERVER, folder.name, told)

        try:
            about = _about(folder)
            order = Order.read(decode((folder / "order").read_bytes()))
            plan = Plan.from_json(order.plan)
            if about.get("aborting"):
                abort.set()
            if (folder / "result").exists():  # the last process ended just then
                return FINISHED, ""
            with closing(NvflareTransport(self._cell(), plan.sites, plan.deadline, stop, plan.working)) as link:
                self._link = link
                stop()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResultWarning)  # they are in the result
                    result = coordinate(self._kit, order, folder, link, watch, kept)
            write_whole(folder / "result", results.to_bytes(result))
        except AbortedError:
            return ABORTED, "by an administrator"
        except MissingSiteError as error:
            return STOPPED, f"{error}, then resume the run"
        except DagoraError as error:
            return STOPPED, str(error)
        except Exception as error:
            _LOG.exception("run %s failed", folder.name)
            return STOPPED, f"an error at the server, in its log ({type(error).__name__})"
        return FINISHED, ""

    def _end(self, folder: Path, state: str, detail: str, rounds: int) -> None:
        """In an order that survives an end of the server in between: then all of it is done again."""
        owed: list[str] = []
        if state != STOPPED:  # the sites of a run that may go on keep what they need for it
            owed = self._say_goodbye(folder.name, state, json.loads(_about(folder)["plan"])["sites"])
        with self._lock:
            about = _about(folder)
            rounds = max(rounds, int(about["round"]))
            _tell(folder, {**about, "state": state, "detail": detail, "round": rounds, "owed": owed})
            self._owed[folder.name] = owed
            if self._current == folder.name:
                self._current = ""
        if state != STOPPED:
            (folder / "rounds").unlink(missing_ok=True)  # totals that nobody needs any more
        self.ledger.note(state, SERVER, folder.name, detail)
        _LOG.info("run %s is %s after %d rounds%s", folder.name, state, rounds, f": {detail}" if detail else "")

    def _say_goodbye(self, run: str, state: str, sites: list[str]) -> list[str]:
        """Those who could not be told; they are told when they are back (`settle`)."""

        def heard(site: str) -> bool:
            if not self._cell().connected(site):
                return False
            with closing(NvflareTransport(self._cell(), (site,), _FAREWELL, working=_FAREWELL)) as link:
                try:
                    return not say_goodbye(run, state, (site,), link)
                except SlowSiteError:  # `settle` asks again
                    return False
                except DagoraError as error:  # it will not hear of it; asking again would not help
                    _LOG.warning("run %s is over, but %s", run, error)
                    return True

        with ThreadPoolExecutor(
            len(sites), "goodbye"
        ) as pool:  # side by side: what one answers is no one else's matter
            return [site for site, told in zip(sites, pool.map(heard, sites), strict=True) if not told]

    def _refuse_if_busy(self) -> None:
        if self._current and self._abort.is_set():
            raise InputError(f"the server is ending run {self._current}; try again in some seconds")
        if self._current:
            raise InputError(f"the server is at run {self._current}; wait for it, or abort it")

    def _folders(self) -> list[Path]:
        """The newest first, by the clocks of those who ordered them."""
        return sorted((one for one in self._runs.iterdir() if (one / "run.json").exists()), reverse=True)

    def _folder(self, run: str) -> Path:
        for folder in self._folders():
            if folder.name == run:
                return folder
        raise InputError(f"there is no run {run!r}; `dagora federation status` lists them")


def _about(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def _tell(folder: Path, about: Mapping[str, Any]) -> None:
    write_whole(folder / "run.json", json.dumps(about).encode())


def serve(folder: Path) -> None:
    """Listen, go on with what was under way, and answer until a signal comes."""
    kit = Kit.read(folder, SERVER)
    if not free_port(kit.listen, kit.port):
        raise InputError(f"cannot listen on {kit.listen}:{kit.port}: it is in use, or not this machine's")
    alone_in(kit.state)
    say_in_lines(SERVER)
    stop = stop_signals()
    cells: list[Cell] = []
    server = Server(kit, lambda: cells[0])
    cells.append(Cell(kit, server.handle, server.foreign))
    if not answers(kit.listen, kit.port, stop.wait) and not stop.is_set():
        cells[0].close()
        raise DagoraError(f"cannot listen on {kit.listen}:{kit.port}: nobody answers there; is it this machine's?")
    _LOG.info("server of federation %s, listening on %s:%d", kit.federation, kit.listen, kit.port)
    server.go_on()
    there: set[str] = set()
    while not stop.wait(0.5):
        now = {site for site in kit.sites if cells[0].connected(site)}
        try:
            server.settle()
        except DagoraError as error:
            _LOG.warning("%s", error)
        for site in sorted(now - there):
            _LOG.info("site %s is connected", site)
        for site in sorted(there - now):
            _LOG.warning("site %s is gone", site)
        there = now
    _LOG.info("stopped")
    cells[0].close()
    leave()
