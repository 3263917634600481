"""Runs of a federation of real processes, and how they end when something does not go as it should."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.aggregation.ledger import Entry, Noted, Sent, read, verify
from dagora.errors import DagoraError, InputError
from dagora.federation.client import Client, new_run
from dagora.federation.kits import ADMIN, SERVER, Kit
from dagora.federation.local import LocalFederation
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from tests.federation.conftest import site_files, wait_until_connected

pytestmark = pytest.mark.xdist_group("federation")


def command(*arguments: object) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "dagora", "federation", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120)


def notes(local: LocalFederation, name: str) -> list[Noted]:
    entries = read(local.ledger(name))
    return [entry.what for entry in entries if isinstance(entry.what, Noted)]


def test_all_tests_of_the_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:  # else there is but one
        assert request.node.nodeid.endswith("@federation"), "pytest-xdist does not heed groups with this pytest"


@pytest.mark.parametrize(
    "job",
    [{}, {"aggregation": "plain"}, {"method": "covariance"}, {"method": "voting", "aggregation": "shared"}],
    ids=str,
)
def test_a_network_finds_the_weights_of_one_process(
    local: LocalFederation, client: Client, job: dict[str, str]
) -> None:
    result = client.follow(client.submit(Plan.of(job)))
    asked: dict[str, Any] = {"aggregation": "masked", **job}
    alone = dagora.learn(local.data, **asked)
    assert np.array_equal(result.weights, alone.weights)
    assert result.names == alone.names
    assert result.sites == tuple(local.data)
    assert result.rounds == alone.rounds + 1  # an inspection of the data
    assert result.settings["aggregation"] == job.get("aggregation", "masked")


def test_progress_comes_by_rounds(client: Client) -> None:
    seen: list[float] = []
    result = client.follow(client.submit(Plan.of({})), lambda figures: seen.append(figures["round"]))
    assert seen == sorted(set(seen))
    assert seen[-1] == result.rounds


def test_a_site_that_stays_away_stops_the_run_by_name_and_the_run_resumes(
    local: LocalFederation, client: Client
) -> None:
    local.kill("site-02")
    run = client.submit(Plan.of({"deadline": 1.0}))
    with pytest.raises(DagoraError, match="stopped: no answer from site 'site-02'"):
        client.follow(run)
    assert client.status()["runs"][run]["state"] == "stopped"
    local.start("site-02")
    wait_until_connected(client)
    result = client.follow(client.resume(run))
    assert np.array_equal(result.weights, dagora.learn(local.data, aggregation="masked").weights)


def test_a_site_whose_data_became_a_pipe_stops_the_run_by_name(local: LocalFederation, client: Client) -> None:
    data = local.data["site-02"]
    kept = data.rename(data.with_suffix(".kept"))
    os.mkfifo(data)
    try:
        run = client.submit(Plan.of({}))
        with pytest.raises(DagoraError, match=r"site 'site-02': .* is a pipe or a device"):
            client.follow(run)
    finally:
        kept.rename(data)
    assert client.follow(client.resume(run)).sites == tuple(local.data)


def test_a_busy_server_refuses_and_an_abort_frees_it(local: LocalFederation, client: Client) -> None:
    local.kill("site-03")
    run = client.submit(Plan.of({}))
    with pytest.raises(DagoraError, match=f"at run {run}"):
        client.submit(Plan.of({}))
    client.abort(run)
    local.start("site-03")
    with pytest.raises(DagoraError, match="aborted"):
        client.follow(run)
    with pytest.raises(DagoraError, match="nothing to abort"):
        client.abort(run)
    wait_until_connected(client)
    assert client.follow(client.submit(Plan.of({"method": "covariance"}))).rounds == 2


def runs_kept(local: LocalFederation, site: str) -> list[Path]:
    return list((local.folder / site / "state" / "runs").iterdir())


def wait_until_forgotten(local: LocalFederation, *sites: str) -> None:
    end = time.monotonic() + 30
    while any(runs_kept(local, site) for site in sites):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_whoever_was_away_is_told_of_an_abort(local: LocalFederation, client: Client) -> None:
    local.kill("site-03")
    run = client.submit(Plan.of({"deadline": 1.0, "aggregation": "plain"}))
    with pytest.raises(DagoraError, match="stopped"):
        client.follow(run)
    local.start("site-03")
    wait_until_connected(client)
    again = client.resume(run)
    while not all(runs_kept(local, site) for site in local.data):
        time.sleep(0.001)  # all have joined
    local.kill("site-03")
    with suppress(DagoraError):
        client.follow(again)  # it stops, or was over before
    if client.status()["runs"][run]["state"] == "stopped":
        client.abort(run)
        wait_until_forgotten(local, "site-01", "site-02")
    local.start("site-03")
    wait_until_forgotten(local, *local.data)
    wait_until_connected(client)


def test_runs_older_than_a_status_shows_can_be_fetched(client: Client) -> None:
    first = client.submit(Plan.of({"method": "covariance"}))
    expected = client.follow(first)
    for _ in range(10):
        client.follow(client.submit(Plan.of({"method": "covariance"})))
    assert first not in client.status()["runs"]
    assert np.array_equal(client.follow(client.resume(first)).weights, expected.weights)


def test_a_second_process_of_a_kit_is_refused(local: LocalFederation) -> None:
    done = command("site", local.folder / "site-01", "--data", local.data["site-01"])
    assert done.returncode == 2
    assert "another process is running with it; stop that one first" in done.stderr


def test_a_folder_that_holds_kits_is_not_used_again(local: LocalFederation) -> None:
    done = command("local", *local.data.values(), "--keep", local.folder)
    assert done.returncode == 2
    assert "holds the kits of another federation" in done.stderr


def command_lines() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield process.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_local_federation_that_is_ended_leaves_nothing(number: int, tmp_path: Path) -> None:
    files = site_files(tmp_path / "data")
    line = [sys.executable, "-m", "dagora", "federation", "local", *map(str, files.values())]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("dagora-*/site-01.log")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(30) == 130
    assert not list(tmp_path.glob("dagora-*"))
    assert not any(str(tmp_path).encode() in line for line in command_lines())


def test_one_job_submitted_twice_by_a_lost_answer_is_one_run(local: LocalFederation, client: Client) -> None:
    before = set(client.status()["runs"])
    plan = Plan.of({"method": "covariance", "sites": list(local.data)})
    asked = Order.signed(Kit.read(local.admin, ADMIN), new_run(), plan).fields()
    first, second = (client._ask("submit", asked)["run"] for _ in range(2))
    client.follow(str(first))
    assert first == second
    assert set(client.status()["runs"]) - before == {first}


def test_other_columns_stop_a_run_before_a_number_is_sent(tmp_path: Path) -> None:
    files = site_files(tmp_path / "data")
    files["site-02"].write_text(files["site-02"].read_text().replace("x3", "weight", 1))
    with LocalFederation(tmp_path / "kits", files) as local:
        local.wait_for_server()
        with Client(local.admin) as client, pytest.raises(DagoraError) as caught:
            client.follow(client.submit(Plan.of({})))
        for word in ("site 'site-02'", "lacks column 'x3'", "adds column 'weight'", "give all sites the same columns"):
            assert word in str(caught.value)
        for site in files:
            assert not any(isinstance(entry.what, Sent) for entry in log_of(local, site))


def log_of(local: LocalFederation, name: str) -> list[Entry]:
    return read(local.ledger(name))


def test_logs_are_chained_and_say_who_asked(local: LocalFederation, client: Client) -> None:
    run = client.submit(Plan.of({"method": "covariance"}))
    client.follow(run)
    for name in (SERVER, *local.data):
        verify(local.ledger(name))
    asked = [note for note in notes(local, SERVER) if note.run == run]
    assert [note.event for note in asked] == ["submitted", "round", "round", "done", "result read"]
    assert asked[0].who == "you@localhost.local"
    done = command("verify-log", local.folder / SERVER, local.ledger("site-01"))
    assert done.returncode == 0
    assert done.stdout.count("unbroken") == 2


def test_a_changed_log_is_told(local: LocalFederation, client: Client, tmp_path: Path) -> None:
    client.follow(client.submit(Plan.of({"method": "covariance"})))
    changed = tmp_path / "ledger.jsonl"
    changed.write_text((local.ledger(SERVER)).read_text().replace("you@", "eve@", 1))
    done = command("verify-log", changed)
    assert done.returncode == 2
    assert "line 1 was changed" in done.stderr


def test_local_learns_in_one_command(tmp_path: Path) -> None:
    files = site_files(tmp_path / "data")
    done = command("local", *files.values(), "--out", tmp_path / "result", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    alone = dagora.learn(files, aggregation="masked")
    assert told["edges"] == alone.summary()["edges"]
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == ["edges.csv", "result.json", "weights.csv"]


def test_bad_data_at_a_site_gives_one_line(tmp_path: Path) -> None:
    files = site_files(tmp_path / "data")
    header, first, rest = files["site-02"].read_text().split("\n", 2)
    files["site-02"].write_text("\n".join([header, ",".join(["high", *first.split(",")[1:]]), rest]))
    done = command("local", *files.values(), "--out", tmp_path / "result")
    assert done.returncode == 2, done.stdout
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in ("site 'site-02'", "row 1", "column 'x1'"):
        assert word in done.stderr
    assert not (tmp_path / "result").exists()


def test_a_policy_is_the_sites_own(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('methods = ["covariance"]\nparameters_per_row = 10\n')
    files = site_files(tmp_path / "data")
    done = command("local", *files.values(), "--policy", tmp_path / "policy.toml")
    assert done.returncode == 2
    assert "method 'admm' is not allowed here" in done.stderr
    assert "site 'site-0" in done.stderr


def test_the_server_says_that_its_port_is_taken(local: LocalFederation) -> None:
    done = command("server", local.folder / SERVER)
    assert done.returncode == 2
    assert "cannot listen on 127.0.0.1" in done.stderr


def test_commands_say_what_is_missing(tmp_path: Path, local: LocalFederation) -> None:
    for arguments, said in (
        (("site", local.folder / "site-01", "--data", tmp_path / "none.csv"), "there is no file"),
        (("site", local.folder / SERVER, "--data", "x.csv"), "is the kit of the server"),
        (("server", tmp_path), "is no startup kit"),
        (("run", "--kit", local.admin), "name a job.toml, or a run to --resume"),
        (("run", "--kit", local.admin, "--resume", "nothing"), "there is no run 'nothing'"),
        (("init", tmp_path / "none.toml"), "cannot be read"),
    ):
        done = command(*arguments)
        assert done.returncode == 2, done.stdout
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_process_ends_at_once_when_told_to(local: LocalFederation, client: Client) -> None:
    process = local.process("site-01")
    start = time.monotonic()
    process.terminate()
    assert process.wait(10) == 0
    assert time.monotonic() - start < 5
    local.start("site-01")
    wait_until_connected(client)


def test_a_job_without_sites_is_for_all_in_the_kit(local: LocalFederation, client: Client) -> None:
    run = client.submit(Plan.of({"method": "covariance"}))
    client.follow(run)
    assert json.loads(client.status()["runs"][run]["plan"])["sites"] == list(local.data)
    with pytest.raises(InputError, match="different names"):
        Plan.of({"sites": ["a", "a"]})


def test_python_in_the_documentation_runs(local: LocalFederation, client: Client, tmp_path: Path) -> None:
    document = Path(__file__).parents[2] / "docs" / "federation.md"
    (block,) = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    (tmp_path / "kits").mkdir()
    (tmp_path / "kits" / "ana@example.org").symlink_to(local.admin)
    before = set(client.status()["runs"])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (run,) = set(client.status()["runs"]) - before
    assert client.status()["runs"][run]["state"] == "done"
