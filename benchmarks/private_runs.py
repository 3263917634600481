"""What part of an ADMM run its masks are."""

import time
from typing import Any

import dagora
from benchmarks.private_sums import cost
from benchmarks.tables import publish

RUNS = (("default", 20, 8), ("default", 50, 8), ("default", 50, 64), ("paper", 20, 8), ("paper", 50, 64))
HEADER = (
    "run",
    "rounds",
    "ms for masks, a site and round",
    "s, plain run",
    "a site's masks, of a run with them",
    "s, all sites' masks on one core",
)


def part_of_a_run(preset: str, d: int, sites: int) -> list[Any]:
    """One site's masks over a whole ADMM run beside the run itself, and the run with all sites' masks on one core."""
    _, data = dagora.simulate(d=d, edges=d, n=256, sites=sites, seed=0)
    each = cost("masked", d, sites)[0] - cost("plain", d, sites)[0]
    seconds = {}
    for name in ("plain", "masked"):
        start = time.perf_counter()
        result = dagora.learn(data, preset=preset, aggregation=name)
        seconds[name] = time.perf_counter() - start
    masks = result.rounds * each / 1e3
    part = masks / (seconds["plain"] + masks)
    run = f"{preset}, d = {d}, K = {sites}"
    return [run, result.rounds, f"{each:.2f}", f"{seconds['plain']:.2f}", f"{part:.0%}", f"{seconds['masked']:.2f}"]


def main(runs: int, jobs: int) -> None:
    publish(
        "private_runs",
        "Masks in an ADMM run (n = 256): a site's work for them, and simulated runs on one core",
        HEADER,
        [part_of_a_run(*run) for run in RUNS],
        "In a federation the sites mask at the same time; a simulation does the work of all of them in turn.",
    )
