"""Participants with addresses of their own, in network namespaces, and a line that is cut and mended."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import dagora
from dagora.federation.client import Client
from dagora.federation.kits import SERVER
from dagora.federation.local import LocalFederation
from dagora.federation.plan import Plan
from dagora.federation.store import read_records
from tests.effort import effort
from tests.federation.conftest import site_files, wait_until_connected

pytestmark = pytest.mark.xdist_group("federation")

BRIDGE, NETWORK = "dagora-br", "10.213.77"
HERE = f"{NETWORK}.1"
CUTS = effort((5,), (3, 8, 13, 18))  # the line is cut when so many rounds are over
SECONDS = 3.0  # how long it stays cut


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def line_of(name: str) -> str:
    return f"dag-{name[-2:]}"


@pytest.fixture
def lines() -> Iterator[dict[str, str]]:
    """A namespace for the server and for each of three sites, on one bridge; addresses by name."""
    names = (SERVER, "site-01", "site-02", "site-03")
    try:
        clear(names)
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{HERE}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for k, name in enumerate(names, start=2):
            ip("netns", "add", f"dagora-{name}")
            ip("link", "add", line_of(name), "type", "veth", "peer", "name", "eth0", "netns", f"dagora-{name}")
            ip("link", "set", line_of(name), "master", BRIDGE, "up")
            for words in (["link", "set", "lo", "up"], ["link", "set", "eth0", "up"]):
                ip("-n", f"dagora-{name}", *words)
            ip("-n", f"dagora-{name}", "addr", "add", f"{NETWORK}.{k}/24", "dev", "eth0")
    except (OSError, subprocess.CalledProcessError) as error:
        clear(names)
        pytest.skip(f"this machine lets no network namespaces be made (root and iproute2 are needed): {error}")
    yield {name: f"{NETWORK}.{k}" for k, name in enumerate(names, start=2)}
    clear(names)


def clear(names: tuple[str, ...]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", f"dagora-{name}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", line_of(name)], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


@pytest.mark.soak
def test_a_site_that_is_cut_off_and_comes_back_changes_nothing(lines: dict[str, str], tmp_path: Path) -> None:
    files = site_files(tmp_path / "data", d=12, n=600)
    inside = {name: ["ip", "netns", "exec", f"dagora-{name}"] for name in lines}
    cut_at: list[int] = []

    def cut_and_mend(rounds: Path) -> None:
        for cut in CUTS:
            while (done := sum(1 for _ in read_records(rounds))) < cut:
                time.sleep(0.002)
            ip("link", "set", line_of("site-02"), "down")
            cut_at.append(done)
            time.sleep(SECONDS)
            ip("link", "set", line_of("site-02"), "up")

    with LocalFederation(tmp_path / "kits", files, host=lines[SERVER], listen="0.0.0.0", before=inside) as local:
        local.wait_for_server()
        with Client(local.admin) as client:
            wait_until_connected(client)
            start = time.monotonic()
            run = client.submit(Plan.of({}))
            cutter = Thread(target=cut_and_mend, args=(local.folder / SERVER / "state" / "runs" / run / "rounds",))
            cutter.start()
            result = client.follow(run)
            seconds = time.monotonic() - start
            cutter.join()
    assert len(cut_at) == len(CUTS)
    assert cut_at[-1] < result.rounds - 1
    assert seconds > SECONDS * len(CUTS)  # the run has waited for the site
    assert np.array_equal(result.weights, dagora.learn(files, aggregation="masked").weights)
