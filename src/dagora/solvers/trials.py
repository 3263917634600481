"""What reversals of edges would gain: two regressions for each, from a covariance.

To reverse i -> j is to put the vertices that descend from neither first, then j, then i (polish.py).  The child j loses
i and what descends from i; i may use j.

Most reversals are hopeless, and those are the dearest: a child that has lost a strong parent is left with much to
explain, and takes a little of everything.  So a first try allows only what either has for a parent now, and what loses
much in it is given up.  If the graph is right, that loses nothing: given the parents of both, what descends from
neither tells no more.  On the way there it is a guess.

Whatever was found stands in a table for the next search, with what it takes to see whether it still holds: who is a
parent, and who else would be one if it were free.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.solvers.bounded import Price, regress
from dagora.solvers.lasso import product, slack_of
from dagora.solvers.sets import as_columns, as_sets

_HOPELESS = 1.0  # of the loss of both variables: what loses more in the first try is given up
_BLOCK = 512  # columns of coefficients that are worked on at once: more would only fill the memory


@dataclass(frozen=True)
class Best:
    """The best coefficients of a variable where some others are free to be its parents, and the penalised loss."""

    parents: IntArray
    weights: FloatArray
    loss: float
    used: int  # the parents, as a set (sets.py)
    wants: int  # which others would be parents, too, if they were free

    def holds(self, free: int) -> bool:
        """Whether this is still the best where these variables are free."""
        return not (self.used & ~free or self.wants & free)


@dataclass
class Fit:
    """Weights of a graph (p x d), slopes S (W - E) of its loss, and the same column by column.

    It changes as columns are replaced.
    """

    W: FloatArray
    slope: FloatArray
    columns: list[Best]

    @classmethod
    def of(cls, S: FloatArray, W: FloatArray, price: Price) -> "Fit":
        """W stays as it is: the fit works on its own."""
        slope, columns = measured(S, W, np.arange(W.shape[1]), price)
        return cls(W.copy(), slope, columns)

    @property
    def loss(self) -> float:
        """Penalised, of all variables."""
        return sum(column.loss for column in self.columns)

    def put(self, S: FloatArray, columns: FloatArray, variables: IntArray, price: Price) -> None:
        """Give variables other coefficients."""
        slope, found = measured(S, columns, variables, price)
        self.W[:, variables], self.slope[:, variables] = columns, slope
        for variable, column in zip(variables.tolist(), found, strict=True):
            self.columns[variable] = column


@dataclass
class Table:
    """What searches with one covariance and price have found so far."""

    columns: dict[tuple[int, int, bool], Best] = field(default_factory=dict)  # by edge, of its target or its source
    first: dict[tuple[int, int], tuple[int, int, float]] = field(default_factory=dict)  # what was free, and the loss
    ended: bool = True  # whether all regressions came to their end


@dataclass(frozen=True)
class Reversals:
    """Edges, and which parents would be free for the target and for the source of each."""

    edges: Sequence[tuple[int, int]]
    targets_free: Sequence[int]
    sources_free: Sequence[int]

    @cached_property
    def columns(self) -> list[tuple[tuple[int, int, bool], int, int]]:
        """For all targets, then all sources: what it stands under in a table, the variable, and what is free."""
        edges, half = self.edges, range(len(self.edges))
        return [((*edges[k], False), edges[k][1], self.targets_free[k]) for k in half] + [
            ((*edges[k], True), edges[k][0], self.sources_free[k]) for k in half
        ]


def gains(S: FloatArray, fit: Fit, reversals: Reversals, price: Price, table: Table) -> FloatArray:
    """By how much each reversal lowers the penalised loss of its two variables; minus infinity if it was given up.

    The table grows.
    """
    half, columns = len(reversals.edges), reversals.columns
    before = [fit.columns[i].loss + fit.columns[j].loss for i, j in reversals.edges]

    def known(place: int) -> bool:
        key, _, free = columns[place]
        found = table.columns.get(key)
        return found is not None and found.holds(free)

    unknown = [k for k in range(half) if not (known(k) and known(k + half))]
    _try_first(S, fit, reversals, unknown, price, table)
    hopeful = [k for k in unknown if table.first[reversals.edges[k]][2] <= (1.0 + _HOPELESS) * before[k]]
    for block in _blocks((k for edge in hopeful for k in (edge, edge + half) if not known(k)), _BLOCK):
        keys, variables, free = zip(*(columns[k] for k in block), strict=True)
        table.columns.update(zip(keys, _tried(S, fit, variables, free, price, table), strict=True))
    gain = np.full(half, -np.inf)
    for k in range(half):
        if known(k) and known(k + half):
            gain[k] = before[k] - sum(table.columns[columns[place][0]].loss for place in (k, k + half))
    return gain


def _blocks(places: Iterable[int], size: int) -> Iterator[list[int]]:
    some = list(places)
    return (some[start : start + size] for start in range(0, len(some), size))


def _try_first(
    S: FloatArray, fit: Fit, reversals: Reversals, places: Iterable[int], price: Price, table: Table
) -> None:
    """Note the loss of both variables with no parents but those that either has now, and the new one."""
    new = []
    for k in places:
        i, j = edge = reversals.edges[k]
        near = fit.columns[i].used | fit.columns[j].used | 1 << j
        free = reversals.targets_free[k] & near, reversals.sources_free[k] & near
        if table.first.get(edge, ())[:2] != free:
            new.append((edge, free))
    for start in range(0, len(new), _BLOCK // 2):
        edges, free_of_both = zip(*new[start : start + _BLOCK // 2], strict=True)
        parents, children = zip(*edges, strict=True)
        targets_free, sources_free = zip(*free_of_both, strict=True)
        found = _tried(S, fit, children + parents, targets_free + sources_free, price, table)
        for k, edge in enumerate(edges):
            table.first[edge] = (*free_of_both[k], found[k].loss + found[k + len(edges)].loss)


def _tried(
    S: FloatArray, fit: Fit, variables: Sequence[int], free: Sequence[int], price: Price, table: Table
) -> list[Best]:
    """The best of each variable with these parents free."""
    places, own = np.array(variables), as_columns(free, len(S))
    found, ended = regress(S, targets(S, places), fit.W[:, places] * own, own, price.of(places))
    table.ended &= ended
    return measured(S, found, places, price)[1]


def targets(S: FloatArray, variables: IntArray) -> FloatArray:
    """Columns of I."""
    found = np.zeros((len(S), len(variables)))
    found[variables, np.arange(len(variables))] = 1.0
    return found


def measured(S: FloatArray, columns: FloatArray, variables: IntArray, price: Price) -> tuple[FloatArray, list[Best]]:
    """Slopes of the variables' losses with these coefficients, a column each; and what there is to know of each."""
    slope = product(S, columns)
    slope -= S[:, variables]
    slack, lam = slack_of(np.diag(S), np.diag(S)[variables]), price.lam[:, variables]
    used, wants = columns != 0.0, np.abs(slope) > lam + slack
    wants &= ~used
    losses = _losses(S, columns, variables, price, slope)
    rows = [np.flatnonzero(column) for column in used.T]
    found = [
        Best(parents, columns[parents, k], float(losses[k]), has, more)
        for k, (parents, has, more) in enumerate(zip(rows, as_sets(used), as_sets(wants), strict=True))
    ]
    return slope, found


def _losses(S: FloatArray, columns: FloatArray, variables: IntArray, price: Price, slope: FloatArray) -> FloatArray:
    """Penalised loss of each variable."""
    there = columns.nonzero()
    weights, own = columns[there], (there[0], variables[there[1]])
    fit = 0.5 * (slope[there] - S[own]) * weights
    cost = Price(price.lam[own], price.bound[own]).cost(weights)
    found: FloatArray = 0.5 * np.diag(S)[variables] + np.bincount(there[1], fit + cost, columns.shape[1])
    return found
