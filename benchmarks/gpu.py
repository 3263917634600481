"""Model "mlp" on a GPU and on the CPU beside it: the same steps to how many digits, and the time of each.

Needs a machine with CUDA; elsewhere the CPU is compared with itself.
"""

from time import perf_counter
from typing import Any

import numpy as np
import torch

import dagora
from benchmarks.tables import publish
from dagora.data.moments import Moments
from dagora.data.sample import Sample
from dagora.models.mlp import MlpModel
from dagora.models.network import Architecture

N = 512
CELLS = ((20, 16), (50, 16), (50, 2), (100, 4))
FULL = ((20, 16), (50, 16))
THREADS = 1


def step(d: int, K: int, device: str) -> tuple[np.ndarray, float]:
    """A site's local step from a random start, and its seconds, the median of five after one to warm up."""
    _, sites = dagora.simulate(d=d, edges=d, n=N, sites=K, seed=0, model="mlp")
    rows = sites[0] - sites[0].mean(axis=0)
    moments = Moments.of_rows(rows)
    sample = Sample(moments.n, moments.mean, moments.scatter, rows)
    architecture = Architecture(d, (10,))
    start = architecture.start(0)
    model = MlpModel(architecture, start, device)
    problem = model.prepare(sample, float(N), None, len(rows) / N, np.ones(d))
    problem = model.measured(problem, np.maximum(model.curvature(problem) / N, 1e-3))
    seconds = []
    for _ in range(6):
        before = perf_counter()
        theta, _ = model.prox(problem, start, 2.0)
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(perf_counter() - before)
    return theta, float(np.median(seconds[1:]))


def whole(d: int, K: int, device: str) -> tuple[dagora.Result, float]:
    """A run of `learn`."""
    _, sites = dagora.simulate(d=d, edges=d, n=N, sites=K, seed=0, model="mlp")
    before = perf_counter()
    result = dagora.learn(sites, model="mlp", device=device, threads=THREADS)
    return result, perf_counter() - before


def main(runs: int, jobs: int) -> None:
    torch.set_num_threads(THREADS)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    table: list[list[Any]] = []
    for d, K in CELLS:
        (ours, cpu), (theirs, gpu) = step(d, K, "cpu"), step(d, K, device)
        table.append(["local step", d, K, f"{np.abs(ours - theirs).max():.1e}", f"{cpu:.4f}", f"{gpu:.4f}"])
    for d, K in FULL:
        (here, cpu), (there, gpu) = whole(d, K, "cpu"), whole(d, K, device)
        gap = abs(float(here.extras["objective"]) / float(there.extras["objective"]) - 1.0)
        same = "same graph" if (here.adjacency == there.adjacency).all() else "other graph"
        table.append(["run, objective", d, K, f"{gap:.1e} ({same})", f"{cpu:.1f}", f"{gpu:.1f}"])
    publish(
        "gpu",
        f"Model 'mlp' on CPU and GPU ({name}, torch {torch.__version__}): MLP data, n = {N}, {THREADS} CPU thread",
        ["what", "d", "K", "largest difference", "seconds, CPU", "seconds, GPU"],
        table,
        "Local step: two Gauss-Newton steps of one site, all variables at once; the difference is that of parameters.  "
        "Run: all of `learn`, all sites on one machine, the server's steps on the CPU; the difference is that of "
        "objectives.",
    )
