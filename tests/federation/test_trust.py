"""Who is let in: every protection with the attack that it stops."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.message import Message as CellMessage

from dagora.errors import DagoraError, InputError
from dagora.federated.message import encode
from dagora.federation.client import Client
from dagora.federation.kits import ADMIN, SERVER, SITE, Kit
from dagora.federation.local import ADMINISTRATOR, LocalFederation
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from dagora.federation.probe import Refusal, why_not
from dagora.federation.provision import Federation, provision
from dagora.transport.nvflare import CHANNEL, Cell
from tests.federation.conftest import site_files
from tests.federation.test_runs import command, notes

pytestmark = pytest.mark.xdist_group("federation")


@pytest.fixture(scope="module")
def intruder(local: LocalFederation) -> Iterator[CoreCell]:
    """A spare site's certificate in hands that keep to no protocol."""
    cell = raw_cell(Kit.read(local.folder / "spare", SITE), "spare")
    assert connects(cell)
    yield cell
    cell.stop()


def raw_cell(kit: Kit, name: str) -> CoreCell:
    cell = CoreCell(name, f"grpc://{kit.address}", True, kit.credentials)
    cell.start()
    return cell


def connects(cell: CoreCell, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not cell.is_cell_connected(SERVER) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(cell.is_cell_connected(SERVER))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("trust")
    with LocalFederation(folder / "kits", site_files(folder / "data"), spare=("spare",)) as federation:
        federation.wait_for_server()
        yield federation


def test_a_kit_of_another_federation_is_refused_in_one_line(local: LocalFederation, tmp_path: Path) -> None:
    kit = Kit.read(local.admin, ADMIN)
    other = Federation("other", kit.host, kit.port, ("site-01",), (ADMINISTRATOR,))
    provision(other, tmp_path)
    reason = why_not(Kit.read(tmp_path / ADMINISTRATOR, ADMIN))
    assert isinstance(reason, Refusal)
    assert "certificate that is not of this kit" in reason
    done = command("status", "--kit", tmp_path / ADMINISTRATOR)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_stranger_who_trusts_the_server_is_refused_by_it(local: LocalFederation, tmp_path: Path) -> None:
    """The attacker has the federation's root certificate, which is public, and certificates of its own making."""
    kit = Kit.read(local.admin, ADMIN)
    provision(Federation("other", kit.host, kit.port, ("site-01",), (ADMINISTRATOR,)), tmp_path)
    shutil.copy(local.admin / "startup" / "rootCA.pem", tmp_path / ADMINISTRATOR / "startup" / "rootCA.pem")
    stranger = replace(kit, folder=tmp_path / ADMINISTRATOR)
    reason = why_not(stranger)
    assert isinstance(reason, Refusal)
    assert "refuses this kit's certificate" in reason
    assert why_not(kit) is None


def test_a_site_may_not_ask_the_server(local: LocalFederation, intruder: CoreCell) -> None:
    order = Order.signed(Kit.read(local.admin, ADMIN), "20260101-000000000-00000000", Plan.of({"sites": ["site-01"]}))
    request = encode(order.fields())
    for topic in ("submit", "status", "abort", "result"):
        reply = intruder.send_request(CHANNEL, topic, SERVER, CellMessage({}, request), timeout=10)
        assert b"no administrator" in reply.payload
    assert any(note.event == "refused" and note.who == "spare" for note in notes(local, SERVER))


def test_a_site_with_an_administrators_cell_name_is_still_a_site(local: LocalFederation) -> None:
    kit = replace(Kit.read(local.folder / "spare", SITE), role=ADMIN)
    cell = Cell(kit)
    assert cell.wait_for(SERVER, 10)
    answer = cell.ask(SERVER, "status", encode({}), 10)
    cell.close()
    assert answer is not None
    assert b"no administrator" in answer[1]


def test_a_site_cannot_take_anothers_name(local: LocalFederation) -> None:
    kit = Kit.read(local.folder / "spare", SITE)
    cell = raw_cell(kit, "site-09")
    with Client(local.admin) as client:
        reply = cell.send_request(CHANNEL, "status", SERVER, CellMessage({}, b""), timeout=3)
        assert reply.get_header("cn__return_code") != "ok"
        assert client.status()["sites"].get("site-09", False) is False
    cell.stop()


def test_a_site_cannot_reach_another(local: LocalFederation, intruder: CoreCell) -> None:
    """FLARE would forward it; the server's cell does not."""
    with Client(local.admin) as client:
        assert client.status()["sites"]["site-01"] in (True, False)
    reply = intruder.send_request(CHANNEL, "introduce", "site-01", CellMessage({}, encode({})), timeout=3)
    assert reply.get_header("cn__return_code") != "ok"
    assert not any(note.who == "spare" for note in notes(local, "site-01"))


def test_what_is_not_raw_bytes_is_dropped_unread(local: LocalFederation, intruder: CoreCell) -> None:
    reply = intruder.send_request(CHANNEL, "status", SERVER, CellMessage({}, {"a": "dictionary"}), timeout=3)
    assert reply.get_header("cn__return_code") != "ok"
    reply = intruder.send_request("other", "status", SERVER, CellMessage({}, b"bytes"), timeout=3)
    assert reply.get_header("cn__return_code") != "ok"


def test_garbage_from_an_administrator_is_refused(local: LocalFederation) -> None:
    cell = Cell(Kit.read(local.admin, ADMIN))
    assert cell.wait_for(SERVER, 10)
    for topic, request in (("submit", b"garbage"), ("submit", encode({})), ("nonsense", encode({}))):
        answer = cell.ask(SERVER, topic, request, 10)
        assert answer is not None
        assert answer[0] == "refused"
    cell.close()


def test_an_expired_kit_says_so(local: LocalFederation, tmp_path: Path) -> None:
    shutil.copytree(local.folder / "site-01", tmp_path / "site-01")
    shift = datetime.now(UTC) + timedelta(days=400)
    done = at_time(shift, "site", tmp_path / "site-01", "--data", local.data["site-01"])
    assert done.returncode == 2
    assert "expired on" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def at_time(when: datetime, *arguments: object) -> "subprocess.CompletedProcess[str]":
    if shutil.which("faketime") is None:
        pytest.skip("faketime is not installed (Debian package faketime)")
    line = ["faketime", f"{when:%Y-%m-%d %H:%M:%S}", sys.executable, "-m", "dagora", "federation", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def peak(process: int) -> int:
    """Most bytes that a process ever had in memory."""
    (line,) = (one for one in Path(f"/proc/{process}/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def test_an_oversized_message_is_cut_off_before_it_is_held(tmp_path: Path) -> None:
    """With a limit of 1 MB in both kits' comm_config.json, and 200 MB from an administrator without one."""
    folder = tmp_path / "kits"
    with LocalFederation(folder, site_files(tmp_path / "data"), start=False) as local:
        config = folder / SERVER / "local" / "comm_config.json"
        limits = json.loads(config.read_text())
        limits["grpc"]["options"][1][1] = 1 << 20
        config.write_text(json.dumps(limits))
        local.start(SERVER)
        local.wait_for_server()
        server = local.process(SERVER).pid
        with Client(local.admin) as client:
            client.status()
            before = peak(server)
            big = CellMessage({}, b"x" * (200 << 20))
            reply = client._cell._cell.send_request(CHANNEL, "status", SERVER, big, timeout=5)
            assert reply.get_header("cn__return_code") != "ok"
            assert peak(server) - before < 60 << 20
        with Client(local.admin) as client:
            assert client.status()["federation"] == "local"


def test_the_same_message_below_the_limit_is_answered(local: LocalFederation) -> None:
    with Client(local.admin) as client:
        client.status()
        big = CellMessage({}, b"x" * (20 << 20))
        reply = client._cell._cell.send_request(CHANNEL, "status", SERVER, big, timeout=20)
        assert b"does not start as a Dagora message" in reply.payload


def test_kits_are_wanted_by_all_commands(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no startup kit"):
        Client(tmp_path)
    with pytest.raises(DagoraError):
        Kit.read(tmp_path / "none", SERVER)
