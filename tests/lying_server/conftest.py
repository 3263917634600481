from collections.abc import Iterator

import pytest

from tests.lying_server.kit import known_contexts


@pytest.fixture(autouse=True, scope="session")
def _known_contexts() -> Iterator[None]:
    with known_contexts():
        yield
