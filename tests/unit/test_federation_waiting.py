"""Sites that are there and do not answer: who is waited for, for how long, and what is said then."""

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dagora.errors import DagoraError, SlowSiteError
from dagora.federated.message import decode, encode
from dagora.federation import server as serving
from dagora.federation.client import new_run
from dagora.federation.kits import SERVER
from dagora.federation.order import Order
from dagora.federation.server import Server
from dagora.federation.texts import text_in
from dagora.transport import nvflare
from dagora.transport.nvflare import COLLECT, DONE, UNKNOWN, WORKING, NvflareTransport
from tests.federations import ADMINISTRATOR, SITES, administrator, fresh_kit, plan_for

AWAY = "away"
SAYS = (
    "site 'north' has worked on one answer for more than 3600 s (working); read its log, start it again if it hangs, "
    "then resume the run, or submit the job with a larger working"
)


class Clock:
    """Time that passes when somebody answers, or sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(nvflare, "time", clock)
    return clock


class Script:
    """A cell with one site, which says one thing after the other, each after so many seconds."""

    def __init__(self, clock: Clock, *lines: tuple[float, str]) -> None:
        self._clock, self._lines = clock, list(lines)
        self.asked: list[str] = []

    def ask(self, target: str, topic: str, request: bytes, patience: float, check: Callable[[], None]) -> Any:
        check()
        self.asked.append(topic)
        seconds, state = self._lines.pop(0)
        self._clock.now += seconds
        return None if state == AWAY else (state, b"answer" if state == DONE else b"")


def asked(clock: Clock, *lines: tuple[float, str], working: float = 3600.0, deadline: float = 600.0) -> Script:
    cell: Any = Script(clock, *lines)
    link = NvflareTransport(cell, ("north",), deadline, working=working)
    try:
        assert link.ask("round", {"north": b"?"}) == {"north": b"answer"}
    finally:
        link.close()
    return cell  # type: ignore[no-any-return]


def test_a_site_that_works_for_too_long_is_named(clock: Clock) -> None:
    with pytest.raises(SlowSiteError) as caught:
        asked(clock, *[(5.0, WORKING)] * 1000)
    assert str(caught.value) == SAYS
    assert 3600.0 < clock.now <= 3605.0


def test_a_site_may_work_for_as_long_as_it_may(clock: Clock) -> None:
    asked(clock, *[(5.0, WORKING)] * 719, (5.0, DONE))
    asked(clock, *[(5.0, WORKING)] * 720, (500.0, DONE))  # the answer itself may be long on its way


def test_time_away_is_the_deadlines(clock: Clock) -> None:
    absence = [(590.0, AWAY), (5.0, WORKING)]
    cell = asked(clock, (5.0, WORKING), *absence * 20, (5.0, DONE), working=100.0)
    assert cell.asked.count("round") == 21  # the very question again, after each absence
    with pytest.raises(DagoraError, match="no answer from site 'north'"):
        asked(clock, (5.0, WORKING), (601.0, AWAY), working=100.0)


def test_absences_do_not_start_the_time_anew(clock: Clock) -> None:
    with pytest.raises(SlowSiteError):
        asked(clock, *[(5.0, WORKING), (5.0, WORKING), (1.0, AWAY)] * 100, working=100.0)


def test_a_site_that_was_started_again_has_all_its_time(clock: Clock) -> None:
    work = [(5.0, WORKING)] * 15
    cell = asked(clock, *work, (1.0, UNKNOWN), *work, (5.0, DONE), working=100.0)
    assert cell.asked.count(COLLECT) == 2 * 15


class Hall:
    """A cell whose sites answer at once, but for one that works for as long as it is told to."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def connected(self, name: str) -> bool:
        return True

    def ask(self, target: str, topic: str, request: bytes, patience: float, check: Callable[[], None]) -> Any:
        check()
        if target != "north" or self.free.wait(0.02):
            return DONE, encode({})
        return WORKING, b""


@contextmanager
def serving_in(folder: Path, hall: Hall) -> Iterator[Callable[..., Any]]:
    cell: Any = hall
    server = Server(fresh_kit(SERVER, folder), lambda: cell)

    def ask(topic: str, **fields: Any) -> Any:
        state, answer = server.handle(ADMINISTRATOR, topic, encode(fields))
        assert state == DONE
        return decode(answer)

    ask.server = server  # type: ignore[attr-defined]
    yield ask
    server.ledger.close()


def submitted(ask: Callable[..., Any], **keys: Any) -> str:
    return text_in(ask("submit", **Order.signed(administrator(), new_run(), plan_for(**keys)).fields()), "run")


def about(ask: Callable[..., Any], run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_in(ask("status"), "status"))["runs"][run]
    return found


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_status_names_the_sites_that_are_waited_for_and_the_run_stops(tmp_path: Path) -> None:
    with serving_in(tmp_path, Hall()) as ask:
        run = submitted(ask, working=0.5)
        until(lambda: about(ask, run).get("waiting for") == ["north"])
        assert about(ask, run)["state"] == "running"
        until(lambda: about(ask, run)["state"] == "stopped")
        assert about(ask, run)["detail"] == SAYS.replace("3600", "0.5")
        assert "waiting for" not in about(ask, run)


def test_an_abort_does_not_wait_for_a_site_that_works_and_tells_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_FAREWELL", 0.1)
    hall = Hall()
    with serving_in(tmp_path, hall) as ask:
        run = submitted(ask)
        until(lambda: about(ask, run).get("waiting for") == ["north"])
        ask("abort", run=run)
        until(lambda: about(ask, run)["state"] == "aborted")
        until(lambda: about(ask, run)["owed"] == ["north"])
        ask.server.settle()  # type: ignore[attr-defined]
        assert about(ask, run)["owed"] == ["north"]
        hall.free.set()
        ask.server.settle()  # type: ignore[attr-defined]
        assert about(ask, run)["owed"] == []


def test_the_command_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from dagora.cli_federation import status_command

    run = {"by": "ana@example.org", "state": "running", "round": 3, "detail": "", "waiting for": list(SITES[:2])}
    status = {"federation": "trial", "server": "here:1", "sites": dict.fromkeys(SITES, True), "runs": {"run-1": run}}

    @contextmanager
    def client(kit: Path) -> Iterator[Any]:
        yield SimpleNamespace(status=lambda: status)

    monkeypatch.setattr("dagora.federation.client.Client", client)
    with redirect_stdout(io.StringIO()) as out:
        status_command(Path("kit"))
    assert "run-1: waiting for north, south\n" in out.getvalue()
