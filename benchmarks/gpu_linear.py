"""The linear model on a GPU and on the CPU beside it: ER1 graphs, rows at ten sites, n = 10,000.

Needs a machine with CUDA; elsewhere the CPU is compared with itself.
"""

import warnings
from time import perf_counter
from typing import Any

import numpy as np
import torch

import dagora
from benchmarks import tables
from benchmarks.tables import publish
from dagora.errors import ResultWarning

N, SITES, THREADS = 10_000, 10, 2
METHODS: dict[str, dict[str, Any]] = {
    "covariance, notears": {"method": "covariance", "learner": "notears"},
    "ADMM": {},
}
CELLS = (  # d, method, and whether the CPU is measured beside
    (200, "covariance, notears", True),
    (200, "ADMM", True),
    (1000, "covariance, notears", False),
    (1000, "ADMM", False),
    (3000, "covariance, notears", False),
)


def whole(sites: Any, options: dict[str, Any], device: str) -> tuple[dagora.Result, float]:
    """A run of `learn`, and its seconds."""
    before = perf_counter()
    result = dagora.learn(sites, device=device, threads=THREADS, **options)
    return result, perf_counter() - before


def row(d: int, label: str, truth: Any, result: dagora.Result, cpu: str, gpu: float, gap: str) -> list[Any]:
    """Accuracy of the GPU's answer beside the times."""
    scores = dagora.evaluate(truth, result)
    return [label, d, cpu, f"{gpu:.1f}", gap, scores["shd"], f"{scores['tpr']:.3f}", f"{scores['fdr']:.3f}"]


def main(runs: int, jobs: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    table: list[list[Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        _, few = dagora.simulate(d=10, edges=10, n=200, sites=2, seed=0)
        whole(few, {}, device)  # the start of CUDA is not timed
        for d, label, beside in CELLS:
            truth, sites = dagora.simulate(d=d, edges=d, n=N, sites=SITES, seed=tables.first_seed)
            there, gpu = whole(sites, METHODS[label], device)
            cpu = gap = ""
            if beside:
                here, seconds = whole(sites, METHODS[label], "cpu")
                same = "same graph" if (here.adjacency == there.adjacency).all() else "other graph"
                cpu, gap = f"{seconds:.1f}", f"{np.abs(here.weights - there.weights).max():.1e} ({same})"
            table.append(row(d, label, truth, there, cpu, gpu, gap))
            publish(  # after each, so that a machine that is taken away leaves what it has measured
                "gpu_linear",
                f"The linear model on CPU and GPU ({name}, torch {torch.__version__})",
                ["method", "d", "seconds, CPU", "seconds, GPU", "largest difference of weights", "SHD", "TPR", "FDR"],
                table,
                f"ER1, n = {N:,}, K = {SITES}, all sites on one machine; all of `learn`, one data set a row.",
                threads=THREADS,
            )
