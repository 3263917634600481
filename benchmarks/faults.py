"""Whether a run over the network survives SIGKILL: a seeded schedule of kills, with the undisturbed W as the oracle.

Every run is a federation of real processes on loopback.  Whenever the server's file of rounds has grown to the next
point of the schedule, a process (the server, or a site) is killed and started again.
"""

import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import numpy as np

import dagora
from benchmarks.tables import publish
from dagora.data.simulation_files import write_simulation
from dagora.federation.client import Client
from dagora.federation.kits import SERVER
from dagora.federation.local import LocalFederation
from dagora.federation.plan import Plan
from dagora.federation.store import read_records

RUNS = (("admm", "masked"), ("admm", "plain"), ("admm", "shared"), ("admm", "masked"), ("admm", "masked"))
KILLS = 4  # a run
D, N, SITES = 12, 400, 3


@dataclass
class Kill:
    """Who is to be killed once so many rounds are over."""

    victim: str
    rounds: int
    at: int = 0  # rounds that were over when it happened


def schedule(seed: int, sites: tuple[str, ...], kills: int, rounds: int) -> list[Kill]:
    """Each role at least once, at rounds spread over the run."""
    draw = random.Random(seed)
    victims = [SERVER, draw.choice(sites), *(draw.choice((SERVER, *sites)) for _ in range(kills))][:kills]
    draw.shuffle(victims)
    last = max(rounds - 3, 1)
    return [Kill(victim, at) for victim, at in zip(victims, sorted(draw.choices(range(last), k=kills)), strict=True)]


def finished_rounds(local: LocalFederation, run: str) -> int:
    """As the server has written them down."""
    return sum(1 for _ in read_records(local.folder / SERVER / "state" / "runs" / run / "rounds"))


def disturb(local: LocalFederation, run: str, kills: list[Kill]) -> None:
    """Kill and start again, until the schedule is through."""
    for kill in kills:
        while (done := finished_rounds(local, run)) < kill.rounds:
            time.sleep(0.001)
        kill.at = done
        local.kill(kill.victim)
        local.start(kill.victim)


def survive(folder: Path, data: dict[str, Path], plan: Plan, kills: list[Kill]) -> dagora.Result:
    """A run with kills."""
    with LocalFederation(folder, data) as local:
        local.wait_for_server()
        with Client(local.admin) as client:
            run = client.submit(plan)
            killer = Thread(target=disturb, args=(local, run, kills), daemon=True)
            killer.start()
            result = client.follow(run)
            killer.join(5.0)
    return result


def cell(seed: int, method: str, aggregation: str) -> list[object]:
    """One run: kills, and whether W is the undisturbed one."""
    truth, rows = dagora.simulate(d=D, edges=D, n=N, sites=SITES, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        files = [path for path in write_simulation(Path(folder) / "data", truth, rows) if path.stem != "truth"]
        data = {path.stem: path for path in files}
        oracle = dagora.learn(files, method=method, aggregation=aggregation)
        kills = schedule(seed, tuple(data), KILLS, oracle.rounds)
        plan = Plan.of({"method": method, "aggregation": aggregation})
        start = time.perf_counter()
        result = survive(Path(folder) / "kits", data, plan, kills)
        seconds = time.perf_counter() - start
    same = np.array_equal(result.weights, oracle.weights)
    assert same, f"seed {seed}: W differs from the undisturbed one after {kills}"
    told = ", ".join(f"{kill.victim} at {kill.at}" for kill in kills)
    happened = sum(kill.at > 0 or kill.rounds == 0 for kill in kills)
    return [seed, method, aggregation, result.rounds, happened, told, "yes" if same else "no", f"{seconds:.0f}"]


def main(runs: int, jobs: int) -> None:
    rows = [cell(seed, *run) for seed, run in enumerate(RUNS)]
    publish(
        "faults",
        "SIGKILL of the server and of sites",
        ["seed", "method", "aggregation", "rounds", "kills", "killed (rounds over)", "same W", "seconds"],
        rows,
        f"{sum(int(str(row[4])) for row in rows)} kills in all; W is compared bit for bit with `learn` in one process, "
        "undisturbed.",
    )
