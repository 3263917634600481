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
from heapq import heapify, heappop, heappush

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.solvers.bounded import Price, continued, regress, still_minimal
from dagora.solvers.lasso import product
from dagora.solvers.trials import Reversals, Table, gains, scores

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

    def free(self, parents: BoolArray, variables: IntArray | slice) -> BoolArray:
        """Of these parents of variables, a column each, those that are permitted; all inputs are parents."""
        inputs = np.ones((len(self.permitted) - len(parents), parents.shape[1]), dtype=bool)
        free: BoolArray = np.concatenate([parents, inputs]) & self.permitted[:, variables]
        return free


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
    targets = np.eye(len(S))[:, :d]
    W, converged = regress(S, targets, W, limits.free(allowed, slice(None)), limits.price)
    if other is not None:
        V, ended = regress(S, targets, W, limits.free(other, slice(None)), limits.price)
        if _loss(S, V, limits.price) < _loss(S, W, limits.price) - _GAIN * float(np.diag(S).min()):
            W, allowed, converged = V, other, ended
    table = Table()
    reversals = 0
    while search and d > 1 and reversals < 4 * d:
        found = _best_reversal(S, W, allowed, limits, table)
        if found is not None:
            (allowed, W), reversals = found, reversals + 1
        elif settle:
            allowed, settle = _settled(S, W, limits.required), False
        else:
            break
        W, ended = _refitted(S, W, limits.free(allowed, slice(None)), limits.price)
        converged = converged and ended
    return Polished(W, allowed, reversals, converged and table.ended and reversals < 4 * d)


def _refitted(S: FloatArray, W: FloatArray, free: BoolArray, price: Price) -> tuple[FloatArray, bool]:
    """W with the columns that are no longer minimal fitted anew, or further where they are better than that."""
    targets = np.eye(*W.shape)
    moved = np.flatnonzero(~still_minimal(S, targets, W, free, price))
    old, own = W[:, moved], (free[:, moved], price.of(moved))
    new, ended = regress(S, targets[:, moved], old, *own)
    kept = (old == 0.0) | own[0]
    better = kept.all(axis=0) & (scores(S, old, moved, price) < scores(S, new, moved, price))
    some, further = moved[better], True
    if len(some):
        new[:, better], further = continued(S, targets[:, some], W[:, some], free[:, some], price.of(some))
    W = W.copy()
    W[:, moved] = new
    return W, ended and further


def _by_entry(lam: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """A price for each entry, from one, or one for each row, or these already."""
    return np.broadcast_to(lam if lam.ndim == 2 else lam.reshape(-1, 1), shape)


def _best_reversal(
    S: FloatArray, W: FloatArray, allowed: BoolArray, limits: Limits, table: Table
) -> tuple[BoolArray, FloatArray] | None:
    """The order after the reversal that lowers the score most, with W's two columns for it; or None."""
    d, required = len(allowed), limits.required
    descends = _descendants((W[:d] != 0) | required, allowed)
    sources, targets = _candidates(S, W, limits)
    # Two columns a candidate: the child j without i, and i with j.
    spared = ~(descends[sources] | descends[targets]).T  # descends from neither; a vertex descends from itself
    gains_parent = spared.copy()
    gains_parent[targets, np.arange(len(sources))] = True
    keeps = ~((required[:, targets] & ~spared) | (required[:, sources] & ~gains_parent)).any(axis=0)
    sources, targets, spared, gains_parent = sources[keeps], targets[keeps], spared[:, keeps], gains_parent[:, keeps]
    if len(sources) == 0:
        return None
    free = limits.free(np.hstack([spared, gains_parent]), np.concatenate([targets, sources]))
    reversals = Reversals(sources, targets, free)
    gain = gains(S, W, reversals, limits.price, table)
    best = int(np.argmax(gain))
    i, j = reversals.edges[best]
    if gain[best] <= _GAIN * float(np.diag(S)[[i, j]].min()):
        return None
    W = W.copy()
    for variable, key in ((j, (i, j, False)), (i, (i, j, True))):  # a bounded price may have other minima, worse ones
        W[:, variable] = 0.0
        W[table.columns[key].parents, variable] = table.columns[key].weights
    return _reordered(allowed, i, j, spared[:, best]), W


def _settled(S: FloatArray, W: FloatArray, required: BoolArray) -> BoolArray:
    """Entries of an order that follows the edges worth a try, and where these leave it open, the variances."""
    variances = np.log(np.diag(S)[: len(required)]).round(6)  # those of standardised columns are alike up to rounding
    parents = (_effects(S, W) > _EFFECT) | required
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


def _effects(S: FloatArray, W: FloatArray) -> FloatArray:
    """Sizes of the weights on standardised variables."""
    d = W.shape[1]
    variances = np.diag(S)[:d]
    sizes: FloatArray = np.abs(W[:d]) * np.sqrt(variances[:, None] / variances)
    return sizes


def _descendants(edges: BoolArray, allowed: BoolArray) -> BoolArray:
    """[i, j]: a way leads from i to j, or i = j; the edges follow an order, so those of the last come first."""
    reached = np.eye(len(edges), dtype=bool)
    for vertex in np.argsort(-allowed.sum(axis=0)):
        reached[vertex] |= reached[edges[vertex]].any(axis=0)
    return reached


def _candidates(S: FloatArray, W: FloatArray, limits: Limits) -> tuple[IntArray, IntArray]:
    """Pairs (i, j) to be ordered j before i: edges i -> j, and entries j -> i that the loss wants but the order bars.

    Of the edges those whose effect on standardised variables counts, of the barred entries the d most wanted; in either
    case only where j -> i is permitted.
    """
    d = W.shape[1]
    variances, within = np.diag(S)[:d], W[:d]
    slope = np.maximum(np.abs(product(S, W)[:d] - S[:d, :d]) - limits.price.lam[:d], 0.0)
    np.fill_diagonal(slope, 0.0)
    slope[~limits.permitted[:d]] = 0.0
    want = (slope**2 / variances[:, None]).T * ((within == 0) & (within.T == 0))  # twice the gain of that entry alone
    wanted = want > max(float(np.partition(want, -d - 1, axis=None)[-d - 1]), 0.0)
    i, j = np.nonzero(((_effects(S, W) > _EFFECT) & limits.permitted[:d].T) | wanted)
    return i, j


def _loss(S: FloatArray, W: FloatArray, price: Price) -> float:
    """The penalised loss of all variables."""
    return float(scores(S, W, np.arange(W.shape[1]), price).sum())


def _reordered(allowed: BoolArray, i: int, j: int, first: BoolArray) -> BoolArray:
    """Entries that the new order allows: `first` in their old order, then j, i, then the rest in theirs."""
    place = allowed.sum(axis=0).astype(np.float64)  # how many come before, in the old order
    d = len(place)
    place[~first] += 2.0 * d
    place[j], place[i] = d + 1.0, d + 2.0
    before: BoolArray = place[:, None] < place
    return before
