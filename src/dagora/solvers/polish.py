"""Local search over orders: reverse single edges while the penalised least squares falls (as in NoFears and TOPO).

    F(order) = min over W that follows the order of  tr((I - W)' S (I - W)) / 2 + prices of the weights

The price of a weight is lam |w|, or one that stops growing (bounded.py).
A descent along a smooth path ends in a minimum that depends on rounding where two directions of an edge are nearly as
good; a minimum over reversals does not.  To reverse i -> j, the vertices that descend from neither come first, j and i
next, all others last.  Only the columns of i and j of W change (j loses its parents among i's descendants): trials.py
tells what that gains.

S may have more variables than W has columns: those after the first d are inputs (the past of a time series), which no
order concerns.  They may be parents of any variable at their own price, and W has a row for each.

What is known beforehand stays: entries that are not permitted are zero in every order, and an order that puts a
required parent after its child is not tried.
"""

from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.solvers.bounded import Price, continued, regress
from dagora.solvers.sets import as_columns, as_sets
from dagora.solvers.trials import Fit, Reversals, Table, gains, measured, targets

_EFFECT = 0.05  # on standardised variables: weaker edges are not worth a try
_GAIN = 1e-4  # relative to the loss of a variable: smaller gains are rounding, or not worth a reversal


@dataclass(frozen=True)
class Polished:
    """A minimum over reversals: weights (a row an input below them), the d x d entries that its order allows, and how
    many edges were reversed.
    """

    W: FloatArray
    allowed: BoolArray
    reversals: int
    converged: bool


@dataclass(frozen=True)
class Limits:
    """What W may be: a price for each entry, which entries may differ from zero, which edges have to be there."""

    price: Price
    permitted: BoolArray
    required: BoolArray  # d x d

    def free(self, allowed: BoolArray) -> BoolArray:
        """Entries that an order allows, and those of inputs, as far as they are permitted."""
        inputs = np.ones((len(self.permitted) - len(allowed), allowed.shape[1]), dtype=bool)
        free: BoolArray = np.concatenate([allowed, inputs]) & self.permitted
        return free

    @cached_property
    def permitted_parents(self) -> list[int]:
        """Of each variable, as a set (sets.py)."""
        return as_sets(self.permitted)

    @cached_property
    def required_parents(self) -> list[int]:
        """The same for those that are required."""
        return as_sets(self.required)


def polish(
    S: FloatArray,
    W: FloatArray,
    allowed: BoolArray,
    lam: float | FloatArray | Price,
    *,
    search: bool = True,
    permitted: BoolArray | None = None,
    required: BoolArray | None = None,
    settle: bool = False,
    other: BoolArray | None = None,
) -> Polished:
    """Fit; reverse the best edge and fit again, until no reversal gains (or at once, without `search`).

    lam: the price of a weight, one for all rows of W, or one for each, or one for each entry; or a bounded one.
    permitted: the entries of W that may differ from zero, none but those of `allowed` in its first d rows (None: all);
    required: the edges of which `allowed` is to bar none (None: no such edges).
    settle: let effects too weak to be tried the other way round lie as the variances say, not as `allowed` had it, so
    that rounding on the way here leaves no trace.
    other: another order, to start from where it is better.
    """
    d = len(allowed)
    limits = Limits(
        lam if isinstance(lam, Price) else Price.lasso(_by_entry(np.asarray(lam), W.shape)),
        np.ones(W.shape, dtype=bool) if permitted is None else permitted,
        np.zeros((d, d), dtype=bool) if required is None else required,
    )
    all_targets = np.eye(*W.shape)
    W, converged = regress(S, all_targets, W, limits.free(allowed), limits.price)
    search = search and d > 1
    if not search and other is None:
        return Polished(W, allowed, 0, converged)
    fit = Fit.of(S, W, limits.price)
    if other is not None:
        V, ended = regress(S, all_targets, W, limits.free(other), limits.price)
        there = Fit.of(S, V, limits.price)
        if there.loss < fit.loss - _GAIN * float(np.diag(S).min()):
            fit, allowed, converged = there, other, ended
    table = Table()
    reversals = 0
    while search and reversals < 4 * d:
        after = _reversed(S, fit, allowed, limits, table)
        if after is not None:
            allowed, reversals = after, reversals + 1
        elif settle:
            allowed, settle = _settled(S, fit.W, limits.required), False
        else:
            break
        converged &= _refitted(S, fit, limits.free(allowed), limits.price)
    return Polished(fit.W, allowed, reversals, converged and table.ended and reversals < 4 * d)


def _refitted(S: FloatArray, fit: Fit, free: BoolArray, price: Price) -> bool:
    """Fit the columns anew that are no longer minimal, or further where they are better than that.

    Whether all came to their end.
    """
    kept = [column.holds(parents) for column, parents in zip(fit.columns, as_sets(free), strict=True)]
    moved = np.flatnonzero(~np.array(kept))
    if len(moved) == 0:
        return True
    old, own, prices = fit.W[:, moved], free[:, moved], price.of(moved)
    new, ended = regress(S, targets(S, moved), old, own, prices)
    possible = ((old == 0.0) | own).all(axis=0)
    before = np.array([fit.columns[variable].loss for variable in moved])
    after = np.array([column.loss for column in measured(S, new, moved, price)[1]])
    better = np.flatnonzero(possible & (before < after))
    further = True
    if len(better):
        some = moved[better]
        new[:, better], further = continued(S, targets(S, some), old[:, better], own[:, better], price.of(some))
    fit.put(S, new, moved, price)
    return ended and further


def _by_entry(lam: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """A price for each entry, from one, or one for each row, or these already."""
    return np.broadcast_to(lam if lam.ndim == 2 else lam.reshape(-1, 1), shape)


def _reversed(S: FloatArray, fit: Fit, allowed: BoolArray, limits: Limits, table: Table) -> BoolArray | None:
    """The order after the reversal that lowers the loss most, the fit with its two columns; or None, and no change."""
    d, p = len(allowed), len(S)
    descends = _descendants(fit, limits, allowed)
    everything, edges, spared = (1 << p) - 1, [], []
    targets_free, sources_free = [], []
    for i, j in _candidates(S, fit, limits):
        neither = everything & ~(descends[i] | descends[j])  # a vertex descends from itself
        with_child = neither | 1 << j
        if limits.required_parents[j] & ~neither or limits.required_parents[i] & ~with_child:
            continue
        edges.append((i, j))
        spared.append(neither)
        targets_free.append(neither & limits.permitted_parents[j])
        sources_free.append(with_child & limits.permitted_parents[i])
    if not edges:
        return None
    gain = gains(S, fit, Reversals(edges, targets_free, sources_free), limits.price, table)
    best = int(np.argmax(gain))
    i, j = edges[best]
    if gain[best] <= _GAIN * float(np.diag(S)[[i, j]].min()):
        return None
    columns = np.zeros((p, 2))
    for place, key in enumerate(((i, j, False), (i, j, True))):  # a bounded price may have other minima, worse ones
        columns[table.columns[key].parents, place] = table.columns[key].weights
    fit.put(S, columns, np.array([j, i]), limits.price)
    return _reordered(allowed, i, j, as_columns([spared[best]], p)[:d, 0])


def _settled(S: FloatArray, W: FloatArray, required: BoolArray) -> BoolArray:
    """Entries of an order that follows the edges worth a try, and where these leave it open, the variances."""
    variances = np.log(np.diag(S)[: len(required)]).round(6)  # those of standardised columns are alike up to rounding
    parents = required.copy()
    parents[_strong(S, W)] = True
    waiting, place = parents.sum(axis=0), np.empty(len(parents))
    ready = [(float(variances[v]), int(v)) for v in np.flatnonzero(waiting == 0)]
    heapify(ready)
    for turn in range(len(parents)):
        _, vertex = heappop(ready)
        place[vertex] = turn
        waiting -= parents[vertex]
        for child in np.flatnonzero(parents[vertex] & (waiting == 0)).tolist():
            heappush(ready, (float(variances[child]), child))
    before: BoolArray = place[:, None] < place
    return before


def _strong(S: FloatArray, W: FloatArray) -> tuple[IntArray, IntArray]:
    """Edges whose effects on standardised variables count: sources and targets."""
    within = W[: W.shape[1]]
    i, j = within.nonzero()
    variances = np.diag(S)
    strong = np.abs(within[i, j]) * np.sqrt(variances[i] / variances[j]) > _EFFECT
    return i[strong], j[strong]


def _descendants(fit: Fit, limits: Limits, allowed: BoolArray) -> list[int]:
    """Of each vertex itself and where ways lead from it; the edges follow an order, so those of the last come first."""
    d = len(allowed)
    reached = [1 << vertex for vertex in range(d)]
    for vertex in np.argsort(-allowed.sum(axis=0)).tolist():
        edges = fit.W[:d, vertex] != 0.0
        for parent in np.flatnonzero(edges | limits.required[:, vertex]).tolist():
            reached[parent] |= reached[vertex]
    return reached


def _candidates(S: FloatArray, fit: Fit, limits: Limits) -> list[tuple[int, int]]:
    """Pairs (i, j) to be ordered j before i: edges i -> j, and entries j -> i that the loss wants but the order bars.

    Of the edges those whose effect on standardised variables counts, of the barred entries the d most wanted; in either
    case only where j -> i is permitted.
    """
    d = fit.W.shape[1]
    variances, within = np.diag(S), fit.W[:d]
    strong_i, strong_j = _strong(S, fit.W)
    steep = np.abs(fit.slope[:d])
    steep -= limits.price.lam[:d]
    j, i = (steep > 0.0).nonzero()
    barred = (i != j) & (within[i, j] == 0.0) & (within[j, i] == 0.0) & limits.permitted[j, i]
    i, j = i[barred], j[barred]
    want = steep[j, i] ** 2 / variances[j]  # twice the gain of that entry alone
    if len(want) > d:
        most = want > np.partition(want, len(want) - d - 1)[len(want) - d - 1]
        i, j = i[most], j[most]
    keep = limits.permitted[strong_j, strong_i]
    both = np.concatenate([strong_i[keep], i]), np.concatenate([strong_j[keep], j])
    return sorted(zip(*map(np.ndarray.tolist, both), strict=True))


def _reordered(allowed: BoolArray, i: int, j: int, first: BoolArray) -> BoolArray:
    """Entries that the new order allows: `first` in their old order, then j, i, then the rest in theirs."""
    place = allowed.sum(axis=0).astype(np.float64)  # how many come before, in the old order
    d = len(place)
    place[~first] += 2.0 * d
    place[j], place[i] = d + 1.0, d + 2.0
    before: BoolArray = place[:, None] < place
    return before
