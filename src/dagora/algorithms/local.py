"""Baselines in which every site learns alone: voting (Na and Yang 2010) and averaging, as the paper compares them.

    1. server sends "learn"
    2. site: W_k from its own rows by the learner; its edges are the entries above the threshold
    3. the total of what the rule needs reaches the server: edges (0/1) and their weights, or all weights
    4. voting: the edges that more than half of the sites found;  averaging: the mean weights above the threshold

What leaves a site: its graph (voting) or its weights (averaging), as summands of a total, and whether its
solver finished.  The pooled oracle is averaging over one site that holds all rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.federated.message import Message
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.learners.notears import Learner


@dataclass(frozen=True)
class LocalSite:
    """Learns from its own moments, centred by its own mean."""

    learner: Learner
    lam: float
    threshold: float
    voting: bool

    def init(self, data: Moments) -> Moments:
        """The moments are all it needs."""
        return data

    def local_update(self, state: Moments, message: Message) -> tuple[Moments, Summand]:
        """Learn alone; answer with what the rule adds up."""
        learned = self.learner(state.covariance, self.lam)
        counts = {"sites": np.array(1.0), "unfinished": np.array(float(len(learned.warnings) > 0))}
        if not self.voting:
            return state, {"weights": learned.weights, **counts}
        edges = np.abs(learned.weights) > self.threshold
        return state, {
            "votes": edges.astype(np.float64), "weights": np.where(edges, learned.weights, 0.0), **counts
        }  # fmt: skip


@dataclass(frozen=True)
class LocalState:
    """The one total, once it is there."""

    total: Total | None = None


@dataclass(frozen=True)
class LocalServer:
    """Combines graphs by `voting` or by averaging their weights."""

    voting: bool
    threshold: float

    def init(self) -> LocalState:
        """Nothing asked yet."""
        return LocalState()

    def broadcast(self, state: LocalState) -> Message | None:
        """One question."""
        return {"phase": "learn"} if state.total is None else None

    def global_update(self, state: LocalState, total: Total) -> LocalState:
        """Keep the total."""
        return replace(state, total=total)

    def progress(self, state: LocalState) -> Mapping[str, float]:
        """One round is all."""
        return {"done": 1.0}

    def estimate(self, state: LocalState) -> Estimate:
        """More than half of the votes, or mean weights above the threshold."""
        assert state.total is not None
        weights, sites = state.total["weights"], float(state.total["sites"])
        warnings = _unfinished(float(state.total["unfinished"]), sites)
        if not self.voting:
            mean: FloatArray = weights / sites
            return Estimate(mean, np.abs(mean) > self.threshold, mean, warnings)
        votes = state.total["votes"]
        # An edge's weight is its mean over the sites that voted for it.
        return Estimate(weights / np.maximum(votes, 1.0), votes > sites / 2.0, votes, warnings)


def _unfinished(count: float, sites: float) -> tuple[str, ...]:
    return (f"at {count:.0f} of {sites:.0f} sites the solver stopped before its tolerance",) if count else ()
