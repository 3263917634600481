"""Learners of networks on rows in one place, as algorithms: one site, which has them all.

1. server sends "learn"
2. the site solves, and answers with the equivalent adjacency, how close to a DAG it is, and the objective
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dagora.algorithms.local import LocalState, OneQuestion
from dagora.arrays import FloatArray
from dagora.data.sample import Sample
from dagora.federated.message import Message
from dagora.federated.protocol import Estimate, Summand
from dagora.learners.notears_mlp import H_TOLERANCE, Solved


@dataclass(frozen=True)
class PooledSite:
    """Has all rows."""

    solve: Callable[[FloatArray], Solved]  # of centred rows

    def init(self, data: Sample) -> Sample:
        """The rows are all it needs."""
        return data

    def local_update(self, state: Sample, message: Message) -> tuple[Sample, Summand]:
        """Solve."""
        found = self.solve(state.rows - state.mean)
        return state, {
            "weights": found.weights,
            "h": np.array(found.h),
            "objective": np.array(found.objective),
        }


@dataclass(frozen=True)
class PooledServer(OneQuestion):
    """Weights above the threshold are edges."""

    threshold: float

    def estimate(self, state: LocalState) -> Estimate:
        """The graph; no functions, for those of a solver that only tends to a DAG depend on more than the parents."""
        assert state.total is not None
        found, h = state.total, float(state.total["h"])
        warnings = () if h <= H_TOLERANCE else (f"h is still {h:.1e}: the networks are not close to a DAG",)
        weights = found["weights"]
        return Estimate(weights, weights > self.threshold, weights, warnings, {"objective": found["objective"]})
