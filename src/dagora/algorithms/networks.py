"""From options to ADMM with a network for each variable, federated or at one place.  Needs torch."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from dagora.algorithms.admm import AdmmServer, AdmmSite, Consensus
from dagora.algorithms.local import LocalServer, LocalSite
from dagora.algorithms.measured import MeasuredServer, MeasuredSite
from dagora.algorithms.network_schedule import NetworkSchedule, PaperNetworkSchedule
from dagora.algorithms.pooled_networks import PooledServer, PooledSite
from dagora.algorithms.refit import SEARCHES, RefitServer, RefitSite
from dagora.arrays import FloatArray
from dagora.data.sample import Sample
from dagora.errors import InputError
from dagora.federated.protocol import Algorithm, Estimate
from dagora.learners.base import Learned
from dagora.models.mlp import MlpModel, PaperMlpModel
from dagora.models.network import Architecture


def build(
    method: str,
    preset: str,
    names: tuple[str, ...],
    *,
    hidden: Sequence[int],
    seed: int,
    device: str,
    polish: bool = False,
    **chosen: float,
) -> Algorithm[Sample, Any, Any]:
    """ADMM; or, with every site for itself, what it finds alone.  Pooled rows are those of one site."""
    _check_device(device)
    architecture = Architecture(len(names), tuple(hidden))
    start = architecture.start(seed)
    if method == "pooled" and preset == "paper":
        site = PooledSite(architecture, start, chosen["lam"], chosen["ridge"])
        return Algorithm(site, PooledServer(architecture, **chosen))
    if method == "admm" and preset == "paper":
        return _paper(architecture, start, device, **chosen)
    algorithm = _default(architecture, start, device, names, polish, **chosen)
    if method in ("admm", "pooled"):
        return algorithm
    voting = method == "voting"
    return Algorithm(LocalSite(partial(alone, algorithm), voting), LocalServer(voting, False, chosen["threshold"]))


def _default(
    architecture: Architecture,
    start: FloatArray,
    device: str,
    names: tuple[str, ...],
    polish: bool,
    *,
    lam: float,
    ridge: float,
    threshold: float,
) -> Algorithm[Sample, Any, Any]:
    model = MlpModel(architecture, start, device)
    consensus = Consensus(global_mean=True, by_rows=True, memory=1)
    schedule = NetworkSchedule(architecture, lam, ridge)
    read = partial(read_norms, architecture=architecture, threshold=threshold)
    server = MeasuredServer(architecture.d, start, consensus, schedule, read)
    refit = RefitServer(server, architecture, names, lam, ridge, threshold, searches=SEARCHES if polish else 0)
    return Algorithm(RefitSite(MeasuredSite(model, consensus), model), refit)


def _paper(
    architecture: Architecture, start: FloatArray, device: str, *, lam: float, threshold: float
) -> Algorithm[Sample, Any, Any]:
    model = PaperMlpModel(architecture, start, device)
    consensus = Consensus(global_mean=False, by_rows=False, memory=1)
    schedule = PaperNetworkSchedule(architecture=architecture, lam=lam)
    read = partial(read_norms, architecture=architecture, threshold=threshold)
    return Algorithm(AdmmSite(model, consensus), AdmmServer(architecture.d, start, consensus, schedule, read))


def read_norms(theta: FloatArray, architecture: Architecture, threshold: float) -> Estimate:
    """Norms above the threshold are edges."""
    norms = architecture.norms(theta)
    return Estimate(norms, norms > threshold, norms)


def alone(algorithm: Algorithm[Sample, Any, Any], data: Sample) -> Learned:
    """What the algorithm finds with one site."""
    site, server = algorithm.site.init(data), algorithm.server.init()
    while (message := algorithm.server.broadcast(server)) is not None:
        site, summand = algorithm.site.local_update(site, message)
        server = algorithm.server.global_update(server, summand)
    found = algorithm.server.estimate(server)
    return Learned(found.weights, found.edges, warnings=found.warnings)


def _check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch has no error of its own for this
        raise InputError(f"device: torch cannot use {device!r} here ({str(error).splitlines()[0]})") from None
