"""Grow-shrink trees (Andrews et al. 2023): the parents of one variable for any set of allowed ones, cached.

Greedy growth adds the allowed parent that gains most until none gains; greedy shrinking then takes away whoever costs
more than he gives.  Allowed sets differ little from one call to the next, so the steps of growth are kept in a tree:
a node is a set of parents in the order in which they came, with its candidates, best first.

Growth starts from the required parents and shrinking leaves them; where one of them is not allowed there is no answer.
"""

from typing import Protocol

import numpy as np

from dagora.arrays import FloatArray
from dagora.knowledge import Constraints
from dagora.learners.bic import Parents


class LocalScore(Protocol):
    """A score of DAGs that is a sum over variables, higher for better: `Bic`, or one of one's own."""

    @property
    def d(self) -> int:
        """Variables."""

    @property
    def negligible(self) -> float:
        """A smaller difference of scores is rounding."""

    def local(self, child: int, parents: Parents) -> float:
        """The child's term."""

    def gains(self, child: int, parents: Parents) -> FloatArray:
        """What each variable would add as one more parent; minus infinity where it cannot be one."""

    def without_each(self, child: int, parents: Parents) -> dict[int, float]:
        """The child's term without each of its parents."""


class _Node:
    """Parents so far, their score, and (once asked for) candidates, following nodes and the shrunk parents."""

    __slots__ = ("candidates", "following", "gains", "mask", "parents", "score", "shrunk")

    def __init__(self, parents: Parents, score: float) -> None:
        self.parents, self.score = parents, score
        self.candidates: list[int] | None = None
        self.gains: list[float] = []
        self.mask = 0  # of the candidates, as bits
        self.following: dict[int, _Node] = {}
        self.shrunk: tuple[float, Parents] | None = None


class GrowShrinkTree:
    """Answers of one variable."""

    def __init__(self, score: LocalScore, child: int, known: Constraints | None = None) -> None:
        self._score, self._child = score, child
        known = Constraints.none(score.d) if known is None else known
        self._permitted = known.permitted[:, child]
        self._required: Parents = frozenset(np.flatnonzero(known.required[:, child]).tolist())
        self._needed = sum(1 << x for x in self._required)
        self._root = _Node(self._required, score.local(child, self._required))

    def parents(self, allowed: int) -> tuple[float, Parents]:
        """Score and parents within the allowed set, whose bit x says whether x is allowed."""
        if self._needed & ~allowed:
            return -np.inf, frozenset()
        node = self._root
        while True:
            candidates = node.candidates if node.candidates is not None else self._find_candidates(node)
            if not node.mask & allowed:
                break
            place, x = next((place, x) for place, x in enumerate(candidates) if allowed >> x & 1)
            following = node.following.get(x)
            if following is None:
                following = node.following[x] = _Node(node.parents | {x}, node.score + node.gains[place])
            node = following
        if node.shrunk is None:
            node.shrunk = self._shrink(node.score, node.parents)
        return node.shrunk

    def _find_candidates(self, node: _Node) -> list[int]:
        gains = self._score.gains(self._child, node.parents)
        worthy = np.flatnonzero((gains > self._score.negligible) & self._permitted)
        best_first = worthy[np.argsort(-gains[worthy], kind="stable")]
        node.candidates, node.gains = best_first.tolist(), gains[best_first].tolist()
        node.mask = sum(1 << x for x in node.candidates)
        return node.candidates

    def _shrink(self, score: float, parents: Parents) -> tuple[float, Parents]:
        while parents > self._required:
            shorter = self._score.without_each(self._child, parents)
            for x in self._required:
                del shorter[x]
            weakest = max(shorter, key=shorter.__getitem__)
            if shorter[weakest] <= score + self._score.negligible:
                break
            score, parents = shorter[weakest], parents - {weakest}
        return score, parents
