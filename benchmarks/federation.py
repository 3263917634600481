"""Sites as processes on loopback with mutual TLS, beside the same run in one process: W, time a round, wire bytes.

Bytes on the wire are the loopback device's own count (/proc/net/dev) from submission to the result, over the rounds:
payloads, FLARE's headers, HTTP/2, TLS and TCP, both ways, and what goes before and beside rounds.  So nothing else
should use loopback meanwhile.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dagora
from benchmarks.tables import publish
from dagora.data.simulation_files import write_simulation
from dagora.federation.client import Client
from dagora.federation.local import LocalFederation
from dagora.federation.plan import Plan

EQUAL = tuple(
    (sites, method, aggregation)
    for sites in (3, 4, 8)
    for method in ("admm", "covariance", "voting")
    for aggregation in ("plain", "masked")
)
EQUAL_D, EQUAL_N = 10, 800
OVERHEAD = ((4, 50, "plain"), (4, 50, "masked"))
OVERHEAD_N = 4000
MANY = (50, 20)  # sites, d

COMMAND = "federation"
NOTE = "Linear ADMM, masked, a process a site."


def loopback() -> int:
    """Bytes that went over the loopback device so far."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    (own,) = (line.split(":")[1] for line in lines if line.strip().startswith("lo:"))
    return int(own.split()[0])


def files(folder: Path, d: int, n: int, sites: int, seed: int = 0) -> dict[str, Path]:
    """Simulated data, a file a site."""
    truth, rows = dagora.simulate(d=d, edges=d, n=n, sites=sites, seed=seed)
    return {path.stem: path for path in write_simulation(folder, truth, rows) if path.stem != "truth"}


@dataclass(frozen=True)
class Networked:
    """A plan's result, and what it took from its submission until that was back."""

    result: dagora.Result
    seconds: float
    wire: int  # bytes over loopback


def over_network(folder: Path, data: dict[str, Path], plans: list[Plan]) -> list[Networked]:
    """Each plan in turn; all in one federation."""
    found = []
    with LocalFederation(folder, data) as local:
        local.wait_for_server()
        with Client(local.admin) as client:
            while not all(client.status()["sites"].values()):
                local.check()
                time.sleep(0.1)
            for plan in plans:
                start, before = time.perf_counter(), loopback()
                result = client.follow(client.submit(plan))
                found.append(Networked(result, time.perf_counter() - start, loopback() - before))
    return found


def equal() -> None:
    rows = []
    for sites in sorted({case[0] for case in EQUAL}):
        cases = [case for case in EQUAL if case[0] == sites]
        with tempfile.TemporaryDirectory() as folder:
            data = files(Path(folder) / "data", EQUAL_D, EQUAL_N, sites)
            plans = [Plan.of({"method": method, "aggregation": aggregation}) for _, method, aggregation in cases]
            networked = over_network(Path(folder) / "kits", data, plans)
            for (_, method, aggregation), over in zip(cases, networked, strict=True):
                alone = dagora.learn(data, method=method, aggregation=aggregation)
                same = np.array_equal(alone.weights, over.result.weights)
                assert same, f"{sites} sites, {method}, {aggregation}: W differs"
                told = [f"{alone.seconds:.2f}", f"{over.seconds:.2f}"]
                rows.append([sites, method, aggregation, over.result.rounds, "yes" if same else "no", *told])
    header = ["sites", "method", "aggregation", "rounds", "same W", "s in process", "s networked"]
    notes = (
        f"d = {EQUAL_D}, {EQUAL_N} rows.  W is compared bit for bit.  Networked: from submission to the result, with "
        "introductions, joining and an inspection of the data (a round more)."
    )
    publish("federation", "The same W in process and over the network", header, rows, notes, COMMAND)


def overhead() -> None:
    rows = []
    for sites, d, aggregation in OVERHEAD:
        with tempfile.TemporaryDirectory() as folder:
            data = files(Path(folder) / "data", d, OVERHEAD_N, sites)
            alone = dagora.learn(data, aggregation=aggregation)
            (over,) = over_network(Path(folder) / "kits", data, [Plan.of({"aggregation": aggregation})])
        result = over.result
        assert np.array_equal(alone.weights, result.weights)
        in_process, networked = alone.seconds / alone.rounds, result.seconds / result.rounds
        ideal = sites * d * d * 8
        rows.append(
            [
                sites, d, aggregation, result.rounds, f"{in_process * 1e3:.1f}", f"{networked * 1e3:.1f}",
                f"{(networked - in_process) * 1e3:.1f}", f"{result.received / result.rounds / ideal:.2f}",
                f"{result.sent / result.rounds / ideal:.2f}", f"{over.wire / result.rounds / ideal / 2:.2f}",
            ]
        )  # fmt: skip
    header = [
        "sites", "d", "aggregation", "rounds", "ms a round in process", "ms networked", "overhead ms",
        "payload out / K d² 8", "payload back / K d² 8", "wire, both ways / 2 K d² 8",
    ]  # fmt: skip
    notes = (
        "Out: the server's message to all sites; back: their replies; d x d doubles each way are K d² 8 bytes twice.  "
        "The wire's count has all bytes of both directions: payloads, FLARE's headers, HTTP/2, TLS, TCP, IP."
    )
    publish("federation-overhead", "What the network adds to a round", header, rows, notes, COMMAND)


def many() -> None:
    sites, d = MANY
    with tempfile.TemporaryDirectory() as folder:
        data = files(Path(folder) / "data", d, 20 * sites, sites)
        alone = dagora.learn(data, aggregation="masked")
        start = time.perf_counter()
        (over,) = over_network(Path(folder) / "kits", data, [Plan.of({})])
        whole = time.perf_counter() - start
    assert np.array_equal(alone.weights, over.result.weights), f"{sites} sites: W differs"
    same = "yes"
    row = [sites, d, over.result.rounds, same, f"{alone.seconds:.1f}", f"{over.seconds:.1f}", f"{whole:.0f}"]
    header = ["sites", "d", "rounds", "same W", "s in process", "s networked", "s with start and end of all processes"]
    publish("federation-many", "Many sites on one machine", header, [row], NOTE, COMMAND)


def main(runs: int, jobs: int) -> None:
    equal()
    overhead()
    many()
