"""Baselines in which every site learns alone: voting (Na and Yang 2010) and averaging, as the paper compares them.

    1. server sends "learn"
    2. site: the learner's answer from its own rows
    3. the total of what the rule needs reaches the server: edges (0/1) and their weights, or all weights
    4. voting: the edges that more than half of the sites found;  averaging: the mean weights above the threshold

A learner of equivalence classes (boss, ges, exact, pc) votes for both directions of an edge that it leaves undirected,
and an edge with a majority for both is undirected in the answer.

What leaves a site: its graph (voting) or its weights (averaging), as summands of a total, and whether its
solver finished.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.federated.message import Message
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.graphs import (
    ARROW,
    UNDIRECTED,
    closest_extension,
    consistent_extension,
    skeleton,
    without_known_cycles,
)
from dagora.knowledge import Constraints
from dagora.learners.base import Learned, turned_weights


@dataclass(frozen=True)
class LocalSite:
    """Learns from its own moments, centred by its own mean, or from what else its learner takes (rows)."""

    learn: Callable[[Any], Learned]
    voting: bool

    def init(self, data: Any) -> Any:
        """All that the learner needs."""
        return data

    def local_update(self, state: Any, message: Message) -> tuple[Any, Summand]:
        """Learn alone; answer with what the rule adds up."""
        learned = self.learn(state)
        counts = {"sites": np.array(1.0), "unfinished": np.array(float(len(learned.warnings) > 0))}
        if not self.voting:
            return state, {"weights": learned.weights, **counts}
        edges, weights = learned.edges, learned.weights
        if learned.cpdag is None:
            return state, {"votes": edges.astype(np.float64), "weights": np.where(edges, weights, 0.0), **counts}
        # Weights in both directions, for the majority may turn an edge.
        edges, joined = _both_ways(learned.cpdag), learned.edges | learned.edges.T
        weights = turned_weights(state.covariance, learned.edges, weights)
        return state, {
            "votes": edges.astype(np.float64),
            "joined": joined.astype(np.float64),
            "weights": weights,
            **counts,
        }


@dataclass(frozen=True)
class LocalState:
    """The one total, once it is there."""

    total: Total | None = None


class OneQuestion:
    """The part of a server that asks sites to learn, once."""

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


@dataclass(frozen=True)
class LocalServer(OneQuestion):
    """Combines graphs by `voting` (on classes, if the learner gives such), or by averaging weights."""

    voting: bool
    classes: bool
    threshold: float | FloatArray
    known: Constraints | None = None

    def estimate(self, state: LocalState) -> Estimate:
        """More than half of the votes, or mean weights above the threshold."""
        assert state.total is not None
        weights, sites = state.total["weights"], float(state.total["sites"])
        warnings = _unfinished(float(state.total["unfinished"]), sites)
        if not self.voting:
            mean: FloatArray = weights / sites
            return Estimate(mean, np.abs(mean) > self.threshold, mean, warnings)
        votes = state.total["votes"]
        # An edge's weight is its mean over the sites that found it, by classes in either direction.
        weights = weights / np.maximum(state.total["joined"] if self.classes else votes, 1.0)
        edges = votes > sites / 2.0
        if not self.classes:
            return Estimate(weights, edges, votes, warnings)
        pdag, known = _pdag(edges), Constraints.none(len(votes)) if self.known is None else self.known
        arrows = known.known(skeleton(pdag) == 1)
        pdag, wrong = without_known_cycles(pdag, votes, arrows, known.required)
        if wrong or consistent_extension(pdag) is None:
            warnings += ("no DAG has the edges and v-structures that won the vote and no others; some were turned",)
        dag = closest_extension(pdag, votes, known.known(skeleton(pdag) == 1))
        return Estimate(weights, dag == ARROW, votes, warnings, cpdag=pdag)


def _both_ways(cpdag: IntArray) -> BoolArray:
    """Arrows, and undirected edges in both directions."""
    lines = cpdag == UNDIRECTED
    both: BoolArray = (cpdag == ARROW) | lines | lines.T
    return both


def _pdag(edges: BoolArray) -> IntArray:
    """The opposite: an edge in both directions is undirected."""
    both = edges & edges.T
    pdag: IntArray = np.where(edges & ~both, ARROW, 0) + np.where(np.triu(both), UNDIRECTED, 0)
    return pdag


def _unfinished(count: float, sites: float) -> tuple[str, ...]:
    return (f"at {count:.0f} of {sites:.0f} sites the learner gave a warning",) if count else ()
