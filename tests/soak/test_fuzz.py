"""The inputs of `python -m benchmarks fuzz` (the table in docs/federation.md), with the same seeds."""

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import fuzz
from tests.effort import effort, time_limit

with tempfile.TemporaryDirectory() as folder:
    NAMES = tuple(fuzz.readers(Path(folder)))
BLOCK = 1000  # seeds that share a time limit; they take less than a second


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_no_input_crashes_a_reader_or_keeps_it_busy(name: str, tmp_path: Path) -> None:
    reader = fuzz.readers(tmp_path)[name]
    inputs, tally = effort(50, fuzz.INPUTS.get(name, fuzz.OTHERS)), fuzz.Tally()
    for first in range(0, inputs, BLOCK):
        seeds = range(first, min(first + BLOCK, inputs))
        with time_limit(60.0, f"reading inputs of {seeds} by {name}"):
            found = fuzz.fuzz(name, reader, seeds)
        assert found.failures == []
        tally.accepted += found.accepted
        tally.refused += found.refused
    assert tally.accepted + tally.refused == inputs
    assert tally.accepted > 0
    assert tally.refused > 0


@pytest.mark.soak
def test_the_soak_has_all_inputs_that_the_documentation_counts() -> None:
    inputs = sum(fuzz.INPUTS.get(name, fuzz.OTHERS) for name in NAMES)
    page = Path(__file__).parents[2] / "docs" / "federation.md"
    assert f"{inputs:,} mutated and random inputs" in page.read_text(encoding="utf-8")
