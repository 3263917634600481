"""The process at the server: administrators submit plans, and it coordinates one run at a time."""

import json
import logging
import threading
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from dagora.aggregation.ledger import Ledger
from dagora.errors import ConvergenceWarning, DagoraError, InputError, MissingSiteError
from dagora.federated.message import Message, decode, encode
from dagora.federation import results
from dagora.federation.coordinator import coordinate, say_goodbye
from dagora.federation.kits import SERVER, Kit
from dagora.federation.plan import Plan
from dagora.federation.probe import free_port
from dagora.federation.process import leave, say_in_lines, stop_signals
from dagora.federation.store import write_whole
from dagora.federation.texts import boxed, text_in
from dagora.files import make_folder
from dagora.transport.nvflare import DONE, Cell, NvflareTransport

RUNNING, FINISHED, STOPPED, ABORTED = "running", "done", "stopped", "aborted"

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
        self.ledger = Ledger(SERVER, kit.state / "ledger.jsonl")
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._current = ""
        self._figures: Mapping[str, float] = {}
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
            self.ledger.note("refused", who, detail=str(error))
            _LOG.warning("refused: %s", error)
            raise

    def go_on(self) -> None:
        """Take up the run that was under way when the server's last process ended."""
        for folder in self._folders():
            about = _about(folder)
            if about["state"] == RUNNING:
                _LOG.info("going on with run %s", folder.name)
                self._start(folder.name)
                return

    def _submit(self, who: str, message: Message) -> dict[str, Any]:
        plan = Plan.from_json(text_in(message, "plan"))
        if not plan.sites:
            raise InputError("sites: the job names none; list them")
        for site in plan.sites:
            if site not in self._kit.sites and not self._cell().connected(site):
                raise InputError(f"sites: there is no site {site!r}; there are {', '.join(self._kit.sites)}")
        token = text_in(message, "token")
        for folder in self._folders():  # an answer that was lost on its way is asked for again
            if _about(folder)["token"] == token:
                return {"run": folder.name}
        self._refuse_if_busy()
        run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{token_hex(4)}"
        folder = make_folder(self._runs / run)
        what = f"{plan.settings.model} {plan.settings.method}, {plan.aggregation}, {len(plan.sites)} sites"
        self.ledger.note("submitted", who, run, what)
        _LOG.info("run %s submitted by %s: %s", run, who, what)
        about = {"plan": plan.to_json(), "by": who, "token": token}
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        _tell(folder, {**about, "begun": begun, "state": RUNNING, "detail": "", "round": 0})
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
        runs = {folder.name: _about(folder) for folder in self._folders()[:_SHOWN]}
        if self._current in runs and runs[self._current]["state"] == RUNNING:
            runs[self._current] |= {"figures": dict(self._figures), "round": int(self._figures.get("round", 0))}
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
            _tell(folder, {**about, "state": ABORTED, "detail": f"by {who}"})
        return {"run": folder.name}

    def _result(self, who: str, message: Message) -> dict[str, Any]:
        folder = self._folder(text_in(message, "run"))
        if not (folder / "result").exists():
            raise InputError(f"run {folder.name} is {_about(folder)['state']}; it has no result")
        self.ledger.note("result read", who, folder.name)
        return dict(decode((folder / "result").read_bytes()))

    def _start(self, run: str) -> None:
        if self._thread is not None:
            self._thread.join()  # it has told how its run ended, and is about to end itself
        self._current, self._figures = run, {}
        self._abort.clear()
        self._thread = threading.Thread(target=self._work, args=(self._runs / run,), name="run", daemon=True)
        self._thread.start()

    def _work(self, folder: Path) -> None:
        about = _about(folder)
        plan = Plan.from_json(about["plan"])
        link = NvflareTransport(self._cell(), plan.sites, plan.deadline, self._stop_if_aborted)
        if about.get("aborting"):
            self._abort.set()

        def watch(figures: Mapping[str, float]) -> None:
            self._figures = figures
            told = f"round {int(figures['round'])}: {link.received} bytes to {len(plan.sites)} sites so far, "
            self.ledger.note("round", SERVER, folder.name, f"{told}{link.sent} back")

        try:
            if not (folder / "result").exists():  # it does if the last process ended just then
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # they are in the result
                    result = coordinate(self._kit, folder.name, plan, folder, link, watch)
                write_whole(folder / "result", results.to_bytes(result))
            self._end(folder, plan, FINISHED, "")
        except AbortedError:
            self._end(folder, plan, ABORTED, "by an administrator")
        except MissingSiteError as error:
            self._end(folder, plan, STOPPED, f"{error}, then resume the run")
        except DagoraError as error:
            self._end(folder, plan, STOPPED, str(error))
        except Exception as error:
            _LOG.exception("run %s failed", folder.name)
            self._end(folder, plan, STOPPED, f"an error at the server, in its log ({type(error).__name__})")
        finally:
            link.close()

    def _end(self, folder: Path, plan: Plan, state: str, detail: str) -> None:
        rounds = int(self._figures.get("round", 0))
        if state != STOPPED:  # the sites of a run that may go on keep what they need for it
            link = NvflareTransport(self._cell(), plan.sites, _FAREWELL)
            try:
                say_goodbye(folder.name, state, plan.sites, link)
            except DagoraError as error:
                _LOG.warning("run %s is over, but %s", folder.name, error)
            finally:
                link.close()
        with self._lock:
            _tell(folder, {**_about(folder), "state": state, "detail": detail, "round": rounds})
        if state != STOPPED:
            (folder / "rounds").unlink(missing_ok=True)  # totals that nobody needs any more
        self.ledger.note(state, SERVER, folder.name, detail)
        _LOG.info("run %s is %s after %d rounds%s", folder.name, state, rounds, f": {detail}" if detail else "")

    def _stop_if_aborted(self) -> None:
        if self._abort.is_set():
            raise AbortedError("aborted")

    def _refuse_if_busy(self) -> None:
        if self._current and _about(self._runs / self._current)["state"] == RUNNING:
            raise InputError(f"the server is at run {self._current}; wait for it, or abort it")

    def _folders(self) -> list[Path]:
        """The newest first."""
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
    say_in_lines(SERVER)
    stop = stop_signals()
    cells: list[Cell] = []
    server = Server(kit, lambda: cells[0])
    cells.append(Cell(kit, server.handle))
    _LOG.info("server of federation %s, listening on %s:%d", kit.federation, kit.listen, kit.port)
    server.go_on()
    there: set[str] = set()
    while not stop.wait(0.5):
        now = {site for site in kit.sites if cells[0].connected(site)}
        for site in sorted(now - there):
            _LOG.info("site %s is connected", site)
        for site in sorted(there - now):
            _LOG.warning("site %s is gone", site)
        there = now
    _LOG.info("stopped")
    cells[0].close()
    leave()
