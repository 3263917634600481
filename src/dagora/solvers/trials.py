"""What reversals of edges would gain: two regressions for each, from a covariance.

To reverse i -> j is to put the vertices that descend from neither first, then j, then i (polish.py).  The child j loses
i and what descends from i; i may use j.

Most reversals are hopeless, and those are the dearest: a child that has lost a strong parent is left with much to
explain, and takes a little of everything.  So a first try allows only what either has for a parent now.  If the graph
is right, that is all there is to be had: given the parents of both, what descends from neither tells nothing more.
Only what comes near to a gain is tried in full.  What a search has found, the next one finds in a table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.solvers.bounded import Price, regress, still_minimal
from dagora.solvers.lasso import product

_HOPELESS = 0.5  # of the loss of both variables: what loses more in the first try is given up
_BLOCK = 512  # columns that are worked on at once: more would only fill the memory


@dataclass(frozen=True)
class Column:
    """The best that a variable would have after a reversal: which parents were free, and which it took."""

    free: bytes
    parents: IntArray
    weights: FloatArray
    score: float


@dataclass(frozen=True)
class Known:
    """What former searches have found: columns, by variable and other end of the edge; and which edges were hopeless
    with what free for their two ends.
    """

    columns: dict[tuple[int, int], Column] = field(default_factory=dict)
    hopeless: dict[tuple[int, int], tuple[bytes, bytes]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reversals:
    """Edges from sources to targets, and the entries that would be free: a column each target, then each source."""

    sources: IntArray
    targets: IntArray
    free: BoolArray

    def only(self, some: IntArray) -> "Reversals":
        """Some of them."""
        columns = np.concatenate([some, some + len(self.sources)])
        return Reversals(self.sources[some], self.targets[some], self.free[:, columns])

    @property
    def variables(self) -> IntArray:
        """Whose the columns are."""
        return np.concatenate([self.targets, self.sources])


def gains(S: FloatArray, W: FloatArray, reversals: Reversals, price: Price, known: Known) -> FloatArray:
    """By how much each reversal lowers the penalised loss of its two variables; minus infinity where it is hopeless."""
    old = scores(S, W, np.arange(W.shape[1]), price)
    before = old[reversals.sources] + old[reversals.targets]
    edges = list(zip(reversals.sources.tolist(), reversals.targets.tolist(), strict=True))
    marks = [column.tobytes() for column in np.packbits(reversals.free, axis=0).T]
    pairs = list(zip(marks[: len(edges)], marks[len(edges) :], strict=True))
    gain = np.full(len(edges), -np.inf)
    for block in _blocks([k for k, edge in enumerate(edges) if known.hopeless.get(edge) != pairs[k]]):
        fresh = np.array([k for k in block if not _is_known(edges[k], pairs[k], known)], dtype=np.intp)
        lost = _first_try(S, W, reversals.only(fresh), price) - before[fresh]
        given_up = fresh[lost > _HOPELESS * before[fresh]]
        known.hopeless.update({edges[k]: pairs[k] for k in given_up})
        tried = np.setdiff1d(block, given_up)
        new = _full_try(S, W, reversals.only(tried), [pairs[k] for k in tried], price, known)
        gain[tried] = before[tried] - new
    return gain


def _blocks(places: list[int]) -> Iterator[list[int]]:
    return (places[start : start + _BLOCK] for start in range(0, len(places), _BLOCK))


def _is_known(edge: tuple[int, int], marks: tuple[bytes, bytes], known: Known) -> bool:
    """Whether both columns are."""
    columns = known.columns.get(edge[::-1]), known.columns.get(edge)
    return all(column is not None and column.free == mark for column, mark in zip(columns, marks, strict=True))


def _first_try(S: FloatArray, W: FloatArray, reversals: Reversals, price: Price) -> FloatArray:
    """Loss of the two variables with parents that either has now, and with the new one."""
    near = (W[:, reversals.sources] != 0.0) | (W[:, reversals.targets] != 0.0)
    near[reversals.targets, np.arange(len(reversals.targets))] = True
    columns, _ = _regressions(S, W, reversals.variables, reversals.free & np.hstack([near, near]), price)
    lost: FloatArray = scores(S, columns, reversals.variables, price).reshape(2, -1).sum(axis=0)
    return lost


def _full_try(
    S: FloatArray, W: FloatArray, reversals: Reversals, marks: list[tuple[bytes, bytes]], price: Price, known: Known
) -> FloatArray:
    """Loss of the two variables with all that is free: by the columns known, where they still hold, or regressions."""
    variables, others = reversals.variables, np.concatenate([reversals.sources, reversals.targets])
    keys = list(zip(variables.tolist(), others.tolist(), strict=True))
    columns, score = np.zeros(reversals.free.shape), np.full(len(keys), np.nan)
    for k, key in enumerate(keys):
        if key in known.columns:
            found = known.columns[key]
            columns[found.parents, k], score[k] = found.weights, found.score
    targets = _targets(S, variables)
    holds = still_minimal(S, targets, columns, reversals.free, price.of(variables))
    new = np.flatnonzero(np.isnan(score) | ~holds)
    columns[:, new], _ = _regressions(S, W, variables[new], reversals.free[:, new], price)
    score[new] = scores(S, columns[:, new], variables[new], price)
    for k, (key, mark) in enumerate(zip(keys, [*(t for t, _ in marks), *(s for _, s in marks)], strict=True)):
        parents = np.flatnonzero(columns[:, k])
        known.columns[key] = Column(mark, parents, columns[parents, k], float(score[k]))
    both: FloatArray = score.reshape(2, -1).sum(axis=0)
    return both


def _regressions(
    S: FloatArray, W: FloatArray, variables: IntArray, free: BoolArray, price: Price
) -> tuple[FloatArray, bool]:
    return regress(S, _targets(S, variables), W[:, variables] * free, free, price.of(variables))


def _targets(S: FloatArray, variables: IntArray) -> FloatArray:
    """Columns of I."""
    targets = np.zeros((len(S), len(variables)))
    targets[variables, np.arange(len(variables))] = 1.0
    return targets


def scores(S: FloatArray, columns: FloatArray, variables: IntArray, price: Price) -> FloatArray:
    """Penalised loss of each variable with the given column of coefficients."""
    there = columns.nonzero()
    rows, weights = there[0], columns[there]
    slopes = product(S, columns)[there] - 2.0 * S[rows, variables[there[1]]]
    fit = np.bincount(there[1], slopes * weights, columns.shape[1])
    found: FloatArray = 0.5 * (np.diag(S)[variables] + fit) + price.of(variables).by_column(columns)
    return found
