"""From the authors' code to the default of model "mlp", one change at a time: which brings how much."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize

import dagora
from benchmarks.mlp import mean
from benchmarks.tables import over_seeds, publish
from dagora.acyclicity import trace_exponential_of_norms
from dagora.aggregation.plain import Plain
from dagora.algorithms import networks
from dagora.algorithms.network_schedule import PaperNetworkSchedule
from dagora.algorithms.schedules import PaperPlan
from dagora.arrays import FloatArray
from dagora.data.rows import Rows
from dagora.data.sample import Sample
from dagora.data.tables import open_tables
from dagora.federated.protocol import Algorithm
from dagora.federated.run import run
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess

N, D, K = 512, 20, 16
SHAPE: dict[str, Any] = {"hidden": (10,), "seed": 0, "device": "cpu", "threshold": 0.3}


@dataclass(frozen=True, kw_only=True)
class SignedSchedule(PaperNetworkSchedule):
    """The paper's, with the sum of W in place of the sum of |W|, as in the authors' code."""

    def minimum(self, plan: PaperPlan, W: FloatArray, Z: FloatArray) -> tuple[FloatArray, float]:
        """Eq. 5 with a sign lost."""
        moved = Z.copy()
        first, centre = self.architecture.first_layer(moved), self.architecture.first_layer(Z)

        def objective(flat: FloatArray) -> tuple[float, FloatArray]:
            V = flat.reshape(centre.shape)
            h, slope = trace_exponential_of_norms(V)
            gap = V - centre
            value = 0.5 * plan.rho * float((gap * gap).sum()) + self.lam * float(V.sum())
            value += plan.alpha * h + 0.5 * plan.rho1 * h * h
            return value, (plan.rho * gap + self.lam + (plan.alpha + plan.rho1 * h) * slope).ravel()

        start = self.architecture.first_layer(W).ravel()
        with np.errstate(over="ignore", invalid="ignore"):
            found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B").x
        first[:] = found.reshape(centre.shape)
        return moved, trace_exponential_of_norms(first)[0]


def norms(algorithm: Algorithm[Any, Any, Any], sites: Sequence[FloatArray]) -> FloatArray:
    """What an algorithm finds on these sites."""
    names = tuple(f"x{j + 1}" for j in range(sites[0].shape[1]))
    data = [Sample.read(Rows.of([table], names)) for table in open_tables(list(sites))]
    parts = [Site(f"s{k}", algorithm.site, own, Plain()) for k, own in enumerate(data)]
    return run(algorithm.server, Plain(), InProcess(parts)).estimate.weights


def paper(sites: Sequence[FloatArray], lam: float, signed: bool = False) -> FloatArray:
    """The paper's preset."""
    names = tuple(f"x{j + 1}" for j in range(sites[0].shape[1]))
    algorithm = networks.build("mlp", "admm", "paper", names, lam=lam, **SHAPE)
    if signed:
        server: Any = algorithm.server
        schedule = SignedSchedule(architecture=server.schedule.architecture, lam=lam)
        algorithm = Algorithm(algorithm.site, replace(server, schedule=schedule))
    return norms(algorithm, sites)


def default(sites: Sequence[FloatArray], refit: bool, polish: bool) -> FloatArray:
    """The default preset, or its consensus alone."""
    names = tuple(f"x{j + 1}" for j in range(sites[0].shape[1]))
    algorithm: Any = networks.build("mlp", "admm", "default", names, lam=0.01, ridge=0.01, polish=polish, **SHAPE)
    return norms(algorithm if refit else Algorithm(algorithm.site.admm, algorithm.server.admm), sites)


def one(seed: int) -> dict[str, tuple[float, float]]:
    """SHD at thresholds 0.3 and 0.5 after each change."""
    import torch

    torch.set_num_threads(1)
    truth, sites = dagora.simulate(d=D, edges=D, n=N, sites=K, seed=seed, model="mlp")
    centre = np.vstack(sites).mean(axis=0)
    centred = [rows - centre for rows in sites]
    found = {
        "authors' code: signed sum for the l1, lam 0.001": paper(sites, 0.001, signed=True),
        "l1 with its absolute value: preset `paper`": paper(sites, 0.001),
        "lam 0.01": paper(sites, 0.01),
        "rows centred by the mean of all sites": paper(centred, 0.01),
        "ridge 0.01, our schedule, Gauss-Newton steps": default(sites, refit=False, polish=False),
        "networks fitted from totals in the order found": default(sites, refit=True, polish=False),
        "reversals: preset `default`": default(sites, refit=True, polish=True),
    }
    return {name: (shd(truth, weights, 0.3), shd(truth, weights, 0.5)) for name, weights in found.items()}


def shd(truth: Any, weights: FloatArray, threshold: float) -> float:
    """Wrong edges."""
    return float(dagora.evaluate(truth, (weights > threshold).astype(int))["shd"])


def main(runs: int, jobs: int) -> None:
    found = over_seeds(one, runs, jobs)
    table = [[name, *(mean(np.array([run[name][k] for run in found])) for k in range(2))] for name in found[0]]
    publish(
        "mlp_steps",
        f"From the authors' code to the default of model 'mlp': MLP data, d = {D}, K = {K}, n = {N}, {runs} seeds",
        ["change, on top of those above", "SHD, threshold 0.3", "SHD, threshold 0.5"],
        table,
        "The presets' own thresholds are 0.3 (`paper`) and 0.5 (`default`).",
    )
