"""SIGKILL of the server and of sites that are real processes; in `make test`, `test_benchmark_in_small[faults]`."""

import pytest

from benchmarks import faults
from tests.effort import soak_only, time_limit

pytestmark = [pytest.mark.soak, soak_only, pytest.mark.xdist_group("federation")]

# Those of docs/federation.md, with their seeds, and as many more; the last two runs are over after few rounds.
RUNS = (
    *faults.RUNS,
    ("admm", "shared"),
    ("admm", "plain"),
    ("admm", "shared"),
    ("covariance", "masked"),
    ("voting", "shared"),
)


@pytest.mark.parametrize(("seed", "method", "aggregation"), [(seed, *run) for seed, run in enumerate(RUNS)])
def test_a_run_with_kills_ends_with_the_weights_of_an_undisturbed_one(seed: int, method: str, aggregation: str) -> None:
    with time_limit(180.0, f"the run of seed {seed}"):
        row = dict(zip(HEADER, faults.cell(seed, method, aggregation), strict=True))
    assert row["same W"] == "yes"
    assert row["kills"] == faults.KILLS, row["killed"]


HEADER = ("seed", "method", "aggregation", "rounds", "kills", "killed", "same W", "seconds")
