"""Learners of weights by continuous optimisation, side by side on the same rows: ours, DAGMA and gcastle.

The peers run in processes of their own (peer_worker.py), by the Python that DAGORA_PEERS_PYTHON names (an environment
with dagma and gcastle), else by this one.  A peer that is not installed there is left out.  One run may take LIMIT
seconds; a peer that takes longer is asked neither for more data sets nor for larger d.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import dagora
from benchmarks import tables
from benchmarks.peer_worker import PEERS
from benchmarks.tables import publish
from dagora.arrays import FloatArray
from dagora.errors import ResultWarning

SEEDS = {20: 2, 50: 2, 100: 1, 200: 1}  # by d: how many
N, K, LIMIT = 1000, 10, 60.0
DEGREES = {"ER1": 1, "ER2": 2}  # edges a variable
LINEAR = ("DAGMA", "gcastle NOTEARS", "gcastle GOLEM")
CURVED, CURVED_D = "gcastle NOTEARS-MLP", (10,)
OURS: dict[str, dict[str, Any]] = {
    "ADMM": {},
    "covariance, notears": {"method": "covariance", "learner": "notears"},
    "pooled": {"method": "pooled"},
}
_INSTALLED = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


def python() -> str:
    """The Python that has the peers."""
    return os.environ.get("DAGORA_PEERS_PYTHON", sys.executable)


def version(peer: str) -> str | None:
    """The version of a peer's package; None where it is not installed."""
    done = subprocess.run([python(), "-c", _INSTALLED, PEERS[peer][0]], capture_output=True, text=True)
    return None if done.returncode else done.stdout.strip()


def ask(peer: str, rows: FloatArray) -> tuple[float, FloatArray] | None:
    """Seconds and weights of a peer; None where it took too long or failed."""
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    worker = Path(__file__).with_name("peer_worker.py")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rows.npy", Path(folder) / "weights.npy"
        np.save(source, rows, allow_pickle=False)
        call = [python(), str(worker), peer, str(source), str(target)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | one
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT, check=True, env=environment)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
            return None
        return json.loads(done.stdout)["seconds"], np.load(target, allow_pickle=False)


def trial(seed: int, d: int, degree: int, model: str, ours: dict[str, dict[str, Any]], peers: tuple[str, ...]) -> Any:
    """Seconds and SHD of every method on one data set; None for a peer that took too long."""
    truth, sites = dagora.simulate(d=d, edges=degree * d, n=N, sites=K, seed=seed, model=model)
    found: dict[str, tuple[float, float] | None] = {}
    with threadpool_limits(1):
        for name, options in ours.items():
            start = time.perf_counter()
            result = dagora.learn(sites, **options)
            found[name] = (time.perf_counter() - start, dagora.evaluate(truth, result)["shd"])
    for peer in peers:
        answer = ask(peer, np.concatenate(sites))
        found[peer] = answer and (answer[0], dagora.evaluate(truth, (answer[1] != 0).astype(np.int64))["shd"])
    return found


def in_turn(
    count: int, d: int, degree: int, model: str, ours: dict[str, dict[str, Any]], peers: tuple[str, ...]
) -> list[Any]:
    """One trial a seed, one after the other; a peer that took too long is not asked again."""
    trials: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        for seed in range(tables.first_seed, tables.first_seed + count):
            trials.append(trial(seed, d, degree, model, ours, peers))
            peers = tuple(peer for peer in peers if trials[-1][peer] is not None)
    return trials


def rows_of(label: str, d: int, trials: list[Any]) -> list[list[object]]:
    """A row a method; the ratio is of its time to that of the first, our ADMM."""
    first = next(iter(trials[0]))
    reference = float(np.median([trial[first][0] for trial in trials]))
    table: list[list[object]] = []
    for name in trials[0]:
        done = [trial[name] for trial in trials if trial.get(name) is not None]
        if len(done) < len(trials):
            table.append([label, d, name, len(trials), f"over {LIMIT:.0f} s, or failed", "", ""])
            continue
        seconds, shd = float(np.median([one[0] for one in done])), float(np.mean([one[1] for one in done]))
        table.append([label, d, name, len(done), f"{seconds:.3f}", f"{seconds / reference:.1f}", f"{shd:.1f}"])
    return table


def main(runs: int, jobs: int) -> None:
    versions = {peer: version(peer) for peer in (*LINEAR, CURVED)}
    notes = "; ".join(f"{peer}: " + (f"{v}" if v else "not installed, left out") for peer, v in versions.items())
    notes += f".  Defaults of each, one thread, imports not timed; n = {N}, K = {K}.  A peer's run is stopped after "
    notes += f"{LIMIT:.0f} s, its start included, and the peer is not asked for larger d."
    header = ["graph", "d", "method", "data sets", "median s", "times ours (first row)", "mean SHD"]
    table: list[list[object]] = []
    for label, degree in DEGREES.items():
        peers = tuple(peer for peer in LINEAR if versions[peer])
        for d, seeds in SEEDS.items():
            trials = in_turn(min(runs, seeds), d, degree, "linear", OURS, peers)
            table += rows_of(label, d, trials)
            peers = tuple(peer for peer in peers if trials[-1].get(peer) is not None)
    publish("peers_continuous", "Continuous optimisation: ours and other packages", header, table, notes)
    table, peers = [], (CURVED,) if versions[CURVED] else ()
    for d in CURVED_D:
        trials = in_turn(min(runs, 1), d, 1, "mlp", {"ADMM, mlp": {"model": "mlp"}}, peers)
        table += rows_of("ER1", d, trials)
    publish(
        "peers_continuous-mlp",
        "Neural networks: ours and gcastle's",
        header,
        table,
        notes + "  One data set a row: an illustration, not a comparison of accuracy.",
        "peers_continuous",
    )
