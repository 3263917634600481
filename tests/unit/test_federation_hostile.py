"""Servers, administrators and accidents that a site, or the server, must not suffer from."""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dagora.aggregation.ledger import Ledger, Noted, read, verify
from dagora.errors import DagoraError, InputError, NumericalError
from dagora.federated.policy import Policy, PolicyError
from dagora.federated.site import Site
from dagora.federation import provision as provisioning
from dagora.federation.kits import SITE, Kit
from dagora.federation.process import Refusals, alone_in
from dagora.federation.provision import Federation, provision
from dagora.transport.nvflare import DONE, REFUSED, NvflareTransport
from tests.federations import RUN, SITES, Hall, KilledError, Step, Wire, kill, made_kits, plan_for, without_waiting
from tests.federations import written_sites as written


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written(tmp_path_factory.mktemp("tables"))


def killed_in_round(number: int) -> Callable[[Step], None]:
    return lambda step: kill() if step.topic == "round" and step.round == number else None


def test_an_error_that_depends_on_the_data_is_the_runs_last_answer(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that may go on asking after it would learn more each time."""
    reply = Site.reply

    def balks(self: Site[Any, Any], message: Any) -> bytes:
        if self.name == "south" and message.get("round") == 3:
            raise NumericalError("a number is too large")
        return reply(self, message)

    with Hall(tmp_path, data) as hall:
        with monkeypatch.context() as patch:
            patch.setattr(Site, "reply", balks)
            wire = Wire(hall)
            with pytest.raises(NumericalError, match="site 'south': a number is too large"):
                hall.run(plan_for(), wire)
        asked = next(step for step in reversed(wire.steps) if step.site == "south" and step.topic == "round")
        with pytest.raises(DagoraError, match="of a run that this site has not joined"):
            hall.members["south"].answer("round", asked.request)
        assert hall.notes("south", "given up") == ["a number is too large"]
        with pytest.raises(PolicyError, match="this run was joined here before"):
            hall.run(plan_for())  # nor may the run be joined again


def test_a_policy_that_became_stricter_holds_for_a_run_under_way(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        with pytest.raises(KilledError):
            hall.run(plan_for(), Wire(hall, before=killed_in_round(5)))
        hall.policy = Policy(methods=("covariance",), parameters_per_row=1.0)
        hall.crash("south")
        with pytest.raises(PolicyError, match=r"site 'south'.*method 'admm' is not allowed here"):
            hall.run(plan_for())


def test_a_stopped_run_goes_on_after_another_one(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path / "one", data) as hall:
        undisturbed = hall.run(plan_for())
    with Hall(tmp_path / "two", data) as hall:
        with pytest.raises(KilledError):
            hall.run(plan_for(), Wire(hall, before=killed_in_round(9)))
        hall.run(plan_for(method="covariance"), run="run-2")
        assert hall.run(plan_for()).weights.tobytes() == undisturbed.weights.tobytes()


def test_stopped_runs_are_kept_but_not_without_end(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        for number in range(11):
            hall.run(plan_for(method="covariance"), run=f"run-{number}")
        assert len(list((hall.folder / "south" / "state" / "runs").iterdir())) == 8


def test_every_start_asks_for_introductions_anew(data: dict[str, Path], tmp_path: Path) -> None:
    """An answer that is at hand for a resend must not outlive the file that it was about."""
    seen = set()
    with Hall(tmp_path, data) as hall:
        for run in (RUN, RUN, "run-2"):
            wire = Wire(hall)
            hall.run(plan_for(method="covariance"), wire, run)
            seen |= {step.request for step in wire.steps if step.topic == "introduce"}
    assert len(seen) == 3


def test_bad_rows_are_told_before_anyone_has_joined(data: dict[str, Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(data["east"].read_text() + "1,2,3,high\n")
    with Hall(tmp_path / "hall", {**data, "east": bad}) as hall:
        wire = Wire(hall)
        with pytest.raises(InputError, match="site 'east'") as caught:
            hall.run(plan_for(), wire)
        assert {step.topic for step in wire.steps} == {"introduce"}
        assert str(bad) not in str(caught.value)


def test_paths_stay_at_the_site(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path / "hall", data) as hall:
        hall.data["east"] = tmp_path / "private" / "east.csv"
        hall.crash("east")
        with pytest.raises(InputError, match="site 'east': there is no file its data file"):
            hall.run(plan_for())


# The ledger.


def test_threads_share_a_ledger(tmp_path: Path) -> None:
    with Ledger("north", tmp_path / "ledger.jsonl") as ledger, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: ledger.note("refused", f"eve {k}"), range(200)))
    verify(tmp_path / "ledger.jsonl")
    assert len(read(tmp_path / "ledger.jsonl")) == 200


def test_a_line_that_a_crash_cut_short_is_dropped_and_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger("north", path) as ledger:
        ledger.note("submitted", "ana")
        ledger.note("submitted", "bob")
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(DagoraError, match="half-written"):
        Ledger("north", path)
    with Ledger("north", path, mend=True) as mended:
        events = [entry.what.event for entry in mended.entries if isinstance(entry.what, Noted)]
    assert events == ["submitted", "mended"]
    verify(path)


def test_a_flood_of_refusals_does_not_fill_the_ledger() -> None:
    ledger = Ledger("server")
    refused = Refusals(ledger, logging.getLogger("test"))
    for _ in range(500):
        refused.note("eve", "no")
    refused.note("ana", "no")
    assert len(ledger.entries) == 101


# Processes, kits, waiting.


def test_a_kit_is_one_process(tmp_path: Path) -> None:
    alone_in(tmp_path)
    with pytest.raises(InputError, match="another process is running with it"):
        alone_in(tmp_path)


def test_a_kit_without_limits_is_refused(tmp_path: Path) -> None:
    shutil.copytree(made_kits() / "north", tmp_path / "north")
    shutil.rmtree(tmp_path / "north" / "local")
    with pytest.raises(InputError, match=r"local/comm_config.json is missing or not valid; ask for a new kit"):
        _ = Kit.read(tmp_path / "north", SITE).local


def test_the_authority_keeps_no_key_but_its_own(tmp_path: Path) -> None:
    trial = Federation("trial", "localhost", 8002, ("north",), ("ana@example.org",))
    provision(trial, tmp_path)
    texts = [path.read_text() for path in (tmp_path / "authority").rglob("*") if path.is_file()]
    assert sum(text.count("PRIVATE KEY-----\\n") + text.count("PRIVATE KEY-----\n") for text in texts) == 2  # one
    made = provision(replace(trial, sites=("north", "south")), tmp_path)
    assert [kit.name for kit in made] == ["south"]
    Kit.read(tmp_path / "south", SITE)
    with pytest.raises(InputError, match="localhost:8002; name a new folder"):
        provision(replace(trial, port=8003), tmp_path)


def test_an_authority_that_has_expired_makes_no_kits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Federation("trial", "localhost", 8002, ("north",), ("ana@example.org",))
    provision(trial, tmp_path)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) + timedelta(days=400)

    monkeypatch.setattr(provisioning, "datetime", Later)
    with pytest.raises(InputError, match=r"the authority in .* expired on .*; make kits for all in a new folder"):
        provision(replace(trial, sites=("north", "south")), tmp_path)


class Lines:
    """A cell whose sites answer, refuse, or hang."""

    def __init__(self, **sites: str) -> None:
        self._sites = sites

    def ask(self, target: str, topic: str, request: bytes, patience: float, check: Callable[[], None]) -> Any:
        if self._sites[target] == "hangs":
            end = time.monotonic() + patience
            while time.monotonic() < end:
                check()
                time.sleep(0.01)
            return None
        return (DONE, b"yes") if self._sites[target] == "answers" else (REFUSED, b"site 'south': no")


def test_a_refusal_is_told_at_once_whoever_hangs() -> None:
    cell: Any = Lines(north="hangs", south="refuses", east="answers")
    link = NvflareTransport(cell, SITES, deadline=60.0)
    start = time.monotonic()
    with pytest.raises(DagoraError, match="site 'south': no"):
        link.ask("round", dict.fromkeys(SITES, b"?"))
    link.close()  # and nobody waits for the site that hangs
    assert time.monotonic() - start < 5.0


def test_an_abort_does_not_wait_for_a_site_that_hangs() -> None:
    class EnoughError(DagoraError):
        pass

    abort = threading.Event()

    def stop() -> None:
        if abort.is_set():
            raise EnoughError

    cell: Any = Lines(north="hangs", south="answers", east="answers")
    link = NvflareTransport(cell, SITES, deadline=60.0, stop=stop)
    threading.Timer(0.2, abort.set).start()
    start = time.monotonic()
    with pytest.raises(EnoughError):
        link.ask("round", dict.fromkeys(SITES, b"?"))
    link.close()
    assert time.monotonic() - start < 5.0
