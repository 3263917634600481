"""What reversals of edges would gain: two regressions for each, from a covariance.

To reverse i -> j is to put the vertices that descend from neither first, then j, then i (polish.py).  The child j loses
i and what descends from i; i may use j.

Most reversals are hopeless, and those are the dearest: a child that has lost a strong parent is left with much to
explain, and takes a little of everything.  So a first try allows only what either has for a parent now, and what loses
much in it is given up.  If the graph is right, that loses nothing: given the parents of both, what descends from
neither tells no more.  On the way there it is a guess.

Whatever was found stands in a table, with all that it depends on, for the next search.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.solvers.bounded import Price, regress, still_minimal
from dagora.solvers.lasso import product

_HOPELESS = 1.0  # of the loss of both variables: what loses more in the first try is given up
_BLOCK = 512  # columns of coefficients that are worked on at once: more would only fill the memory


@dataclass(frozen=True)
class Best:
    """The best of a variable after a reversal: which parents were free, which it took, and the penalised loss."""

    free: bytes
    parents: IntArray
    weights: FloatArray
    score: float


@dataclass
class Table:
    """What searches with one covariance and price have found so far."""

    columns: dict[tuple[int, int, bool], Best] = field(default_factory=dict)
    first: dict[tuple[int, int], tuple[bytes, float]] = field(default_factory=dict)  # by edge: what was free, the loss
    ended: bool = True  # whether all regressions came to their end


@dataclass(frozen=True)
class Reversals:
    """Edges from sources to targets, and the entries that would be free: a column each target, then each source."""

    sources: IntArray
    targets: IntArray
    free: BoolArray

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """Sources and targets."""
        return list(zip(self.sources.tolist(), self.targets.tolist(), strict=True))

    @cached_property
    def variables(self) -> IntArray:
        """Whose the columns are."""
        return np.concatenate([self.targets, self.sources])

    @cached_property
    def keys(self) -> list[tuple[int, int, bool]]:
        """What the columns stand under in a table: the edge, and whether the column is the source's."""
        return [(*edge, False) for edge in self.edges] + [(*edge, True) for edge in self.edges]

    @cached_property
    def marks(self) -> list[bytes]:
        """What is free in the columns."""
        return _marks(self.free)


def gains(S: FloatArray, W: FloatArray, reversals: Reversals, price: Price, table: Table) -> FloatArray:
    """By how much each reversal lowers the penalised loss of its two variables; minus infinity if it was given up.

    The table grows.
    """
    old = scores(S, W, np.arange(W.shape[1]), price)
    before = old[reversals.sources] + old[reversals.targets]
    half = len(before)

    def known(column: int) -> bool:
        found = table.columns.get(reversals.keys[column])
        return found is not None and found.free == reversals.marks[column]

    for block in _blocks(k for k in range(2 * half) if reversals.keys[k] in table.columns and not known(k)):
        _confirm(S, reversals, block, price, table)
    unknown = [k for k in range(half) if not (known(k) and known(k + half))]
    for block in _blocks(unknown, _BLOCK // 2):
        _try_first(S, W, reversals, block, price, table)
    hopeful = [k for k in unknown if table.first[reversals.edges[k]][1] <= (1.0 + _HOPELESS) * before[k]]
    for block in _blocks(k for edge in hopeful for k in (edge, edge + half) if not known(k)):
        _try(S, W, reversals, block, price, table)
    gain = np.full(half, -np.inf)
    for k in range(half):
        if known(k) and known(k + half):
            gain[k] = before[k] - sum(table.columns[reversals.keys[column]].score for column in (k, k + half))
    return gain


def _blocks(places: Iterable[int], size: int = _BLOCK) -> Iterator[IntArray]:
    some = np.fromiter(places, dtype=np.intp)
    return (some[start : start + size] for start in range(0, len(some), size))


def _marks(free: BoolArray) -> list[bytes]:
    return [column.tobytes() for column in np.packbits(free, axis=0).T]


def _confirm(S: FloatArray, reversals: Reversals, block: IntArray, price: Price, table: Table) -> None:
    """Of columns that were found with other entries free, mark those that are still the best."""
    columns, variables = np.zeros((len(S), len(block))), reversals.variables[block]
    for place, k in enumerate(block):
        found = table.columns[reversals.keys[k]]
        columns[found.parents, place] = found.weights
    holds = still_minimal(S, _targets(S, variables), columns, reversals.free[:, block], price.of(variables))
    for k in block[holds]:
        key = reversals.keys[k]
        table.columns[key] = replace(table.columns[key], free=reversals.marks[k])


def _try_first(S: FloatArray, W: FloatArray, reversals: Reversals, block: IntArray, price: Price, table: Table) -> None:
    """Note the loss of both variables with no parents but those that either has now, and the new one."""
    sources, targets, half = reversals.sources[block], reversals.targets[block], len(reversals.sources)
    near = (W[:, sources] != 0.0) | (W[:, targets] != 0.0)
    near[targets, np.arange(len(block))] = True
    free = reversals.free[:, block] & near, reversals.free[:, block + half] & near
    marks = [one + other for one, other in zip(*map(_marks, free), strict=True)]
    edges = [reversals.edges[k] for k in block]
    new = [k for k, edge in enumerate(edges) if table.first.get(edge, (b"", 0.0))[0] != marks[k]]
    variables = np.concatenate([targets[new], sources[new]])
    columns = _regressed(S, W, variables, np.hstack([part[:, new] for part in free]), price, table)
    loss = scores(S, columns, variables, price).reshape(2, -1).sum(axis=0)
    table.first.update({edges[k]: (marks[k], float(value)) for k, value in zip(new, loss, strict=True)})


def _try(S: FloatArray, W: FloatArray, reversals: Reversals, block: IntArray, price: Price, table: Table) -> None:
    """Note the best columns."""
    variables = reversals.variables[block]
    columns = _regressed(S, W, variables, reversals.free[:, block], price, table)
    for k, column, score in zip(block, columns.T, scores(S, columns, variables, price), strict=True):
        parents = np.flatnonzero(column)
        table.columns[reversals.keys[k]] = Best(reversals.marks[k], parents, column[parents], float(score))


def _regressed(
    S: FloatArray, W: FloatArray, variables: IntArray, free: BoolArray, price: Price, table: Table
) -> FloatArray:
    found, ended = regress(S, _targets(S, variables), W[:, variables] * free, free, price.of(variables))
    table.ended &= ended
    return found


def _targets(S: FloatArray, variables: IntArray) -> FloatArray:
    """Columns of I."""
    targets = np.zeros((len(S), len(variables)))
    targets[variables, np.arange(len(variables))] = 1.0
    return targets


def scores(S: FloatArray, columns: FloatArray, variables: IntArray, price: Price) -> FloatArray:
    """Penalised loss of each variable with the given column of coefficients."""
    there = columns.nonzero()
    weights, own = columns[there], (there[0], variables[there[1]])
    fit = 0.5 * (product(S, columns)[there] - 2.0 * S[own]) * weights
    cost = Price(price.lam[own], price.bound[own]).cost(weights)
    found: FloatArray = 0.5 * np.diag(S)[variables] + np.bincount(there[1], fit + cost, columns.shape[1])
    return found
