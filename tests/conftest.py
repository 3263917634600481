import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.effort import SOAK

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


# The same examples every time; in the soak, laws without settings of their own are tried with ten times as many.
settings.register_profile("test", derandomize=True, deadline=None)
settings.register_profile("soak", derandomize=True, deadline=None, max_examples=1000)
settings.load_profile("soak" if SOAK else "test")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium of this machine."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium on this machine (Debian package chromium)")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield chromium
        chromium.close()
