"""From options to ADMM with a network for each variable, federated or at one place.  Needs torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dagora import devices
from dagora.algorithms.admm import AdmmServer, AdmmSite, Consensus
from dagora.algorithms.local import LocalServer, LocalSite
from dagora.algorithms.masked_schedule import MaskedSchedule
from dagora.algorithms.measured import MeasuredServer, MeasuredSite
from dagora.algorithms.network_schedule import NetworkSchedule, PaperNetworkSchedule
from dagora.algorithms.pooled_networks import PooledServer, PooledSite
from dagora.algorithms.refit import SEARCHES, MaskedRefitServer, RefitServer, RefitSite
from dagora.arrays import FloatArray
from dagora.data.sample import Sample
from dagora.federated.protocol import Algorithm
from dagora.learners import mcsl, notears_mlp
from dagora.learners.base import Learned
from dagora.learners.notears_mlp import Solved
from dagora.models.masked import MaskedModel, Masking, read_masks, start_masked
from dagora.models.mlp import MlpModel, PaperMlpModel
from dagora.models.network import Architecture, read_norms
from dagora.models.network_data import FEWEST_ROWS


@dataclass(frozen=True)
class Shape:
    """What networks are made of, and where they are fitted."""

    names: tuple[str, ...]
    hidden: tuple[int, ...]
    seed: int
    device: str

    @property
    def architecture(self) -> Architecture:
        """A network for each variable."""
        return Architecture(len(self.names), self.hidden)


def build(
    model: str,
    method: str,
    preset: str,
    names: tuple[str, ...],
    *,
    hidden: Sequence[int],
    seed: int,
    device: str = "cpu",
    threshold: float,
    **chosen: Any,
) -> Algorithm[Sample, Any, Any]:
    """ADMM; or, with every site for itself, what it finds alone.  Pooled rows are those of one site."""
    devices.device(device)
    shape = Shape(names, tuple(hidden), seed, device)
    if method == "pooled" and preset == "paper":
        solve = _published(model, shape, **chosen)
        return Algorithm(PooledSite(solve), PooledServer(threshold))
    if method == "admm" and preset == "paper":
        return _paper(shape, threshold, **chosen)
    algorithm = (_masked if model == "masked" else _default)(shape, threshold, **chosen)
    if method in ("admm", "pooled"):
        return algorithm
    voting = method == "voting"
    return Algorithm(LocalSite(partial(alone, algorithm), voting), LocalServer(voting, False, threshold))


def _default(shape: Shape, threshold: float, *, lam: float, ridge: float, polish: bool) -> Algorithm[Sample, Any, Any]:
    architecture = shape.architecture
    start = architecture.start(shape.seed)
    model = MlpModel(architecture, start, shape.device)
    read = partial(read_norms, architecture=architecture, threshold=threshold)
    schedule = NetworkSchedule(architecture, lam, ridge)
    server = MeasuredServer(architecture.d, start, _TOGETHER, schedule, read)
    searches = SEARCHES if polish else 0
    refit = RefitServer(server, architecture, shape.names, lam, ridge, threshold, searches)
    return Algorithm(RefitSite(MeasuredSite(model, _TOGETHER), model), refit)


def _masked(shape: Shape, threshold: float, *, lam: float, ridge: float) -> Algorithm[Sample, Any, Any]:
    architecture = shape.architecture
    start = start_masked(architecture, shape.seed)
    model = MaskedModel(architecture, start, shape.device, masking=Masking(shape.seed))
    schedule = MaskedSchedule(architecture, lam, ridge)
    read = partial(read_masks, architecture=architecture, threshold=threshold)
    server = MeasuredServer(architecture.d, start, _TOGETHER, schedule, read)
    refit = MaskedRefitServer(server, architecture, shape.names, 0.0, ridge, threshold)
    return Algorithm(RefitSite(MeasuredSite(model, _TOGETHER), model), refit)


def _paper(shape: Shape, threshold: float, *, lam: float) -> Algorithm[Sample, Any, Any]:
    architecture = shape.architecture
    start = architecture.start(shape.seed)
    model = PaperMlpModel(architecture, start, shape.device)
    consensus = Consensus(global_mean=False, by_rows=False, memory=1)
    schedule = PaperNetworkSchedule(architecture=architecture, lam=lam)
    read = partial(read_norms, architecture=architecture, threshold=threshold)
    return Algorithm(AdmmSite(model, consensus), AdmmServer(architecture.d, start, consensus, schedule, read))


def _published(model: str, shape: Shape, *, lam: float, ridge: float) -> Callable[[FloatArray], Solved]:
    architecture = shape.architecture
    if model == "mlp":
        start = architecture.start(shape.seed)
        return partial(notears_mlp.solve, architecture=architecture, theta=start, lam=lam, ridge=ridge)
    start = start_masked(architecture, shape.seed)
    return partial(mcsl.solve, architecture=architecture, start=start, lam=lam, ridge=ridge, seed=shape.seed)


_TOGETHER = Consensus(global_mean=True, by_rows=True, memory=1)


def alone(algorithm: Algorithm[Sample, Any, Any], data: Sample) -> Learned:
    """What the algorithm finds with one site; nothing where rows are too few, or a column does not vary."""
    if data.n < FEWEST_ROWS or not (np.diag(data.scatter) > 0.0).all():
        none = np.zeros_like(data.scatter)
        return Learned(none, none != 0.0)
    site, server = algorithm.site.init(data), algorithm.server.init()
    while (message := algorithm.server.broadcast(server)) is not None:
        site, summand = algorithm.site.local_update(site, message)
        server = algorithm.server.global_update(server, summand)
    found = algorithm.server.estimate(server)
    return Learned(found.weights, found.edges, warnings=found.warnings)
