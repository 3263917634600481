"""NOTEARS-MLP on rows in one place (learners/notears_mlp.py) in the form of an algorithm: one site, which has them all.

1. server sends "learn"
2. the site solves, and answers with the networks, what they leave of each variable, and how close to a DAG they are
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.algorithms.local import LocalState
from dagora.arrays import FloatArray
from dagora.data.sample import Sample
from dagora.federated.message import Message
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.learners.notears_mlp import solve
from dagora.models.network import Architecture, Networks


@dataclass(frozen=True)
class PooledSite:
    """Has all rows."""

    architecture: Architecture
    start: FloatArray
    lam: float
    ridge: float

    def init(self, data: Sample) -> Sample:
        """The rows are all it needs."""
        return data

    def local_update(self, state: Sample, message: Message) -> tuple[Sample, Summand]:
        """Solve."""
        theta, h = solve(state.rows - state.mean, self.architecture, self.start, self.lam, self.ridge)
        scale = np.sqrt(np.diag(state.covariance))
        left = state.rows - Networks(self.architecture, theta, state.mean, scale).predict(state.rows)
        return state, {
            "theta": theta,
            "mean": state.mean,
            "scale": scale,
            "noise": (left * left).mean(axis=0),
            "h": np.array(h),
        }


@dataclass(frozen=True)
class PooledServer:
    """Norms above the threshold are edges."""

    architecture: Architecture
    lam: float
    ridge: float
    threshold: float

    def init(self) -> LocalState:
        """Nothing asked yet."""
        return LocalState()

    def broadcast(self, state: LocalState) -> Message | None:
        """One question."""
        return {"phase": "learn"} if state.total is None else None

    def global_update(self, state: LocalState, total: Total) -> LocalState:
        """Keep the answer."""
        return replace(state, total=total)

    def progress(self, state: LocalState) -> Mapping[str, float]:
        """One round is all."""
        return {"done": 1.0}

    def estimate(self, state: LocalState) -> Estimate:
        """The graph, and the functions behind it."""
        assert state.total is not None
        theta, noise, h = state.total["theta"], state.total["noise"], float(state.total["h"])
        norms = self.architecture.norms(theta)
        functions = Networks(self.architecture, theta, state.total["mean"], state.total["scale"])
        penalty = self.architecture.penalties(self.lam, self.ridge)
        objective = 0.5 * float(noise.sum()) + sum(map(penalty.at, theta))
        warnings = () if h <= 1e-8 else (f"h is still {h:.1e}: the networks are not close to a DAG",)
        extras = {"objective": np.array(objective), "noise_variances": noise}
        return Estimate(norms, norms > self.threshold, norms, warnings, extras, functions=functions)
