"""Sites and servers of networks, set up by hand."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dagora.algorithms.admm import Consensus, ServerState, SiteState
from dagora.algorithms.measured import MeasuredServer, MeasuredSite
from dagora.algorithms.network_schedule import NetworkPlan, NetworkSchedule
from dagora.algorithms.refit import RefitServer, RefitSite, RefitState
from dagora.algorithms.reversals import in_order
from dagora.arrays import BoolArray, FloatArray
from dagora.data.moments import Moments
from dagora.data.sample import Sample
from dagora.federated.message import Message
from dagora.federated.protocol import Estimate, Summand
from dagora.models.mlp import Fit, MlpModel
from dagora.models.network import Architecture
from tests.networks import jacobian_of, outputs_of

D, N, ROWS, SITES = 3, 30, 120.0, 3.0
LAM, RIDGE = 0.01, 0.01
ALIKE = Consensus(global_mean=True, by_rows=True, memory=1)


def sample(rows: FloatArray) -> Sample:
    moments = Moments.of_rows(rows)
    return Sample(moments.n, moments.mean, moments.scatter, rows)


def added(summands: Sequence[Summand]) -> dict[str, FloatArray]:
    return {name: np.sum([own[name] for own in summands], axis=0) for name in summands[0]}


def unread(W: FloatArray) -> Estimate:
    raise AssertionError("no graph is read off the consensus here")


def refit_site(architecture: Architecture) -> RefitSite:
    model = MlpModel(architecture, architecture.start(0))
    return RefitSite(MeasuredSite(model, ALIKE), model)


def prepared(site: RefitSite, own: Sample, rows: float, mean: FloatArray) -> SiteState[Fit]:
    setup: Message = {"phase": "curvature", "mean": mean, "metric": np.ones(1), "rows": rows, "sites": 1.0}
    return site.local_update(site.init(own), setup)[0]


class Refit:
    """A server after ADMM, and sites that have been set up: as if ADMM had found the order that `allowed` gives."""

    def __init__(
        self, parts: Sequence[FloatArray], allowed: BoolArray, searches: int = 0, tolerance: float = 3e-5
    ) -> None:
        rows = np.concatenate(parts)
        self.architecture = Architecture(rows.shape[1], (4,))
        self.X = rows - rows.mean(axis=0)
        self.site = refit_site(self.architecture)
        self.states = [prepared(self.site, sample(own), float(len(rows)), rows.mean(axis=0)) for own in parts]
        start = self.architecture.start(0)
        schedule = NetworkSchedule(self.architecture, LAM, RIDGE)
        admm = MeasuredServer(self.architecture.d, start, ALIKE, schedule, unread)
        names = tuple(f"x{j + 1}" for j in range(self.architecture.d))
        self.server = RefitServer(admm, self.architecture, names, LAM, RIDGE, 0.5, searches, tolerance)
        found: ServerState[NetworkPlan] = replace(
            admm.init(), rows=float(len(rows)), mean=rows.mean(axis=0), variances=rows.var(axis=0)
        )
        self.first = RefitState(found, "order", in_order(self.architecture, start, allowed))

    def passes(self) -> list[RefitState[NetworkPlan]]:
        """The state after every round."""
        state, seen = self.first, []
        while (message := self.server.broadcast(state)) is not None:
            total = added([self.site.local_update(own, message)[1] for own in self.states])
            state = self.server.global_update(state, total)
            seen.append(state)
            assert len(seen) < 1000
        return seen

    def objective(self, j: int, theta: FloatArray) -> tuple[float, FloatArray]:
        """Of one network, less the l1 penalty: half the mean square and the ridge, by autograd."""
        residual = outputs_of((4,), theta[None], self.X)[0] - self.X[:, j]
        shrunk = RIDGE * self.architecture.weights() * theta
        gradient = jacobian_of((4,), theta[None], self.X)[0].T @ residual / len(self.X)
        return 0.5 * float((residual**2).mean()) + 0.5 * float(shrunk @ theta), gradient + shrunk


def chain(n: int = 240) -> FloatArray:
    """x1 -> x2 -> x3 by curves, with noise that is small beside them."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, 3))
    X[:, 0] *= 1.5
    X[:, 1] = 2.0 * np.tanh(2.0 * X[:, 0]) + 0.4 * X[:, 1]
    X[:, 2] = 1.5 * np.sin(1.5 * X[:, 1]) + 0.4 * X[:, 2]
    shifted: FloatArray = X + np.array([1.0, -2.0, 0.5])
    return shifted


FORWARDS = np.triu(np.ones((3, 3), dtype=bool), 1)
