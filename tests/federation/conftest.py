import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dagora
from dagora.data.simulation_files import write_simulation
from dagora.federation.client import Client
from dagora.federation.local import LocalFederation

SITES = 3


def site_files(folder: Path, d: int = 6, n: int = 300, sites: int = SITES, seed: int = 0) -> dict[str, Path]:
    truth, rows = dagora.simulate(d=d, edges=d, n=n, sites=sites, seed=seed)
    return {path.stem: path for path in write_simulation(folder, truth, rows) if path.stem != "truth"}


def wait_until_connected(client: Client, *sites: str) -> None:
    end = time.monotonic() + 60
    while not all(up for site, up in client.status()["sites"].items() if not sites or site in sites):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """A federation of processes that the tests of a module share; each leaves it as it was."""
    folder = tmp_path_factory.mktemp("federation")
    with LocalFederation(folder / "kits", site_files(folder / "data")) as federation:
        federation.wait_for_server()
        yield federation


@pytest.fixture(scope="module")
def client(local: LocalFederation) -> Iterator[Client]:
    with Client(local.admin) as admin:
        wait_until_connected(admin)
        yield admin
