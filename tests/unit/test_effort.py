"""What is larger in `make soak` also runs there."""

import time
from pathlib import Path

import pytest

from tests import effort as efforts
from tests.effort import effort, time_limit

TESTS = Path(__file__).parents[1]
MAKEFILE = TESTS.parent / "Makefile"


@pytest.mark.parametrize(("soak", "expected"), [(False, 3), (True, 50)])
def test_effort_is_larger_in_the_soak(soak: bool, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efforts, "SOAK", soak)
    assert effort(3, 50) == expected


def test_every_file_that_uses_effort_has_tests_for_the_soak() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py") if path != Path(__file__)}
    using = {path for path, text in texts.items() if "from tests.effort import" in text}
    assert using
    assert [path.name for path in using if "pytest.mark.soak" not in texts[path]] == []


def test_make_soak_sets_what_effort_reads() -> None:
    text = MAKEFILE.read_text(encoding="utf-8")
    assert "soak: export DAGORA_SOAK := 1" in text
    assert "-m soak" in text


def test_what_hangs_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"a nap took more than 0\.05 s"), time_limit(0.05, "a nap"):
        time.sleep(10.0)
    with time_limit(0.05, "nothing"):
        pass
    time.sleep(0.1)  # the limit is over with its block
