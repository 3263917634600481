"""Participants whose clocks are a day off."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import dagora
from dagora.federation.client import Client
from dagora.federation.kits import SERVER
from dagora.federation.local import LocalFederation
from dagora.federation.plan import Plan
from tests.effort import effort
from tests.federation.conftest import site_files, wait_until_connected

pytestmark = pytest.mark.xdist_group("federation")

# Only what tells the date is shifted; clocks that measure time go on as they are.
EARLY, LATE = (["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", shift] for shift in ("-1d", "+1d"))


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed (Debian package faketime)")
def test_clocks_a_day_apart_change_nothing(tmp_path: Path) -> None:
    method = effort("covariance", "admm")  # the first has few rounds, each of which is slow under faketime
    files = site_files(tmp_path / "data")
    before = {"site-01": EARLY, "site-02": LATE, SERVER: LATE}
    with LocalFederation(tmp_path / "kits", files, before=before) as local:
        local.wait_for_server()
        with Client(local.admin) as client:
            wait_until_connected(client)
            result = client.follow(client.submit(Plan.of({"method": method})))
        days = {name: (local.folder / f"{name}.log").read_text()[:10] for name in (SERVER, *files)}
    assert days["site-01"] < days["site-03"] < days["site-02"] == days[SERVER]
    assert np.array_equal(result.weights, dagora.learn(files, method=method, aggregation="masked").weights)
