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
from dagora.models.mlp import Fit, MlpModel
from dagora.models.network import Architecture

CELLS = ((20, 16, 32), (50, 16, 32), (50, 2, 256), (100, 4, 128), (20, 256, 32), (50, 256, 32))  # d, K, rows a site
FULL = ((20, 16, 32), (50, 16, 32), (20, 256, 32))
THREADS = 1


def steps(d: int, K: int, rows: int, device: str) -> tuple[np.ndarray, float]:
    """A local step of all sites from a random start, and its seconds, the median of five after one to warm up."""
    _, sites = dagora.simulate(d=d, edges=d, n=K * rows, sites=K, seed=0, model="mlp")
    architecture = Architecture(d, (10,))
    start = architecture.start(0)
    model = MlpModel(architecture, start, device)
    lots = model.together([prepared(model, own - own.mean(axis=0), K) for own in sites])
    theta, seconds = np.empty((K, *start.shape)), []
    for _ in range(6):
        before = perf_counter()
        for places, problem in lots:
            theta[places], _ = model.prox(problem, np.stack([start] * len(places)), 2.0)
        seconds.append(perf_counter() - before)
    return theta, float(np.median(seconds[1:]))


def prepared(model: MlpModel, rows: np.ndarray, K: int) -> Fit:
    """One of K sites' problem, in the metric of its curvature."""
    moments, total = Moments.of_rows(rows), float(K * len(rows))
    sample = Sample(moments.n, moments.mean, moments.scatter, rows)
    problem = model.prepare(sample, total, None, 1.0 / K, np.ones(rows.shape[1]))
    return model.measured(problem, np.maximum(model.curvature(problem) / total, 1e-3))


def whole(d: int, K: int, rows: int, device: str) -> tuple[dagora.Result, float]:
    """A run of `learn`."""
    _, sites = dagora.simulate(d=d, edges=d, n=K * rows, sites=K, seed=0, model="mlp")
    before = perf_counter()
    result = dagora.learn(sites, model="mlp", device=device, threads=THREADS)
    return result, perf_counter() - before


def main(runs: int, jobs: int) -> None:
    torch.set_num_threads(THREADS)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    table: list[list[Any]] = []

    def told(row: list[Any]) -> None:
        """Published after each row, so that a machine that is taken away leaves what it has measured."""
        table.append(row)
        publish(
            "gpu",
            f"Model 'mlp' on CPU and GPU ({name}, torch {torch.__version__}): MLP data, {THREADS} CPU thread",
            ["what", "d", "K", "rows a site", "largest difference", "seconds, CPU", "seconds, GPU"],
            table,
            "Local steps: two Gauss-Newton steps at every site, sites on one machine; the difference is that of "
            "parameters.  Run: all of `learn`, the server's steps on the CPU; the difference is that of objectives.",
        )

    for d, K, rows in CELLS:
        (ours, cpu), (theirs, gpu) = steps(d, K, rows, "cpu"), steps(d, K, rows, device)
        told(["local steps", d, K, rows, f"{np.abs(ours - theirs).max():.1e}", f"{cpu:.4f}", f"{gpu:.4f}"])
    for d, K, rows in FULL:
        (here, cpu), (there, gpu) = whole(d, K, rows, "cpu"), whole(d, K, rows, device)
        gap = abs(float(here.extras["objective"]) / float(there.extras["objective"]) - 1.0)
        same = "same graph" if (here.adjacency == there.adjacency).all() else "other graph"
        told(["run, objective", d, K, rows, f"{gap:.1e} ({same})", f"{cpu:.1f}", f"{gpu:.1f}"])
