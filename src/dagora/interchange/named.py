"""A graph with names: what all formats have in common."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.errors import InputError
from dagora.graphs import UNDIRECTED


class NamedEdge(NamedTuple):
    """An arrow from source to target, or a line between them."""

    source: str
    target: str
    weight: float = 1.0
    directed: bool = True


@dataclass(frozen=True, eq=False)
class NamedGraph:
    """A weighted graph with names for its variables."""

    weights: FloatArray
    names: tuple[str, ...]
    lag_weights: FloatArray | None = None  # of time series, (lags, d, d)
    lines: BoolArray | None = None  # [i, j], once: an edge without direction, whose weight is at [i, j]
    matrix: bool = False  # whether it was a matrix of weights, of which edges are yet to be chosen

    @classmethod
    def of(cls, edges: Iterable[NamedEdge], names: Sequence[str] = ()) -> "NamedGraph":
        """From edges; `names` come first and may have no edges."""
        found = list(edges)
        index = {name: position for position, name in enumerate(names)}
        for edge in found:
            for name in edge[:2]:
                index.setdefault(name, len(index))
        weights, lines = np.zeros((len(index), len(index))), np.zeros((len(index), len(index)), dtype=bool)
        for edge in found:
            ends = index[edge.source], index[edge.target]
            ends = ends if edge.directed else (min(ends), max(ends))
            weights[ends], lines[ends] = edge.weight, not edge.directed
        return cls(weights, tuple(index), lines=lines if lines.any() else None)

    @property
    def adjacency(self) -> IntArray:
        """1 for an arrow i -> j, -1 (once, i < j) for an edge without direction."""
        present: IntArray = (self.weights != 0).astype(np.int64)
        return present if self.lines is None else np.where(self.lines, UNDIRECTED, present)

    @property
    def lag_adjacency(self) -> IntArray | None:
        """1 where there is an effect of an earlier time."""
        return None if self.lag_weights is None else (self.lag_weights != 0).astype(np.int64)

    def edges(self) -> list[NamedEdge]:
        """The edges of the same time, the largest |weight| first."""
        found = [
            NamedEdge(self.names[i], self.names[j], float(self.weights[i, j]), bool(mark != UNDIRECTED))
            for (i, j), mark in np.ndenumerate(self.adjacency)
            if mark
        ]
        return sorted(found, key=lambda edge: -abs(edge.weight))

    def with_marks(self, cpdag: IntArray) -> "NamedGraph":
        """The class of the graph, in whose arrows and lines its weights are kept."""
        either = np.where(self.weights != 0, self.weights, self.weights.T)
        return replace(self, weights=np.where(cpdag != 0, either, 0.0), lines=cpdag == UNDIRECTED)

    def without_lags(self, what: str) -> "NamedGraph":
        """Itself; a graph over time is refused where a format has no place for time."""
        if self.lag_weights is not None:
            raise InputError(f"{what} has no place for effects of earlier times; write edges.csv with save()")
        return self
