"""Lasso regressions from a covariance, solved exactly: one a column.

    min over w, zero where not free, of  w'Sw / 2 - w'S t + sum_i (lam_i |w_i| + ridge_i w_i^2 / 2)

for every column t of `targets`.  Prices may be zero, and differ from column to column; so may ridges.

Feature-sign search (Lee, Battle, Raina and Ng 2006): with the signs of w's nonzero entries given, its minimum is a
linear system.  Go towards it; whoever reaches zero on the way leaves; at the minimum, whoever's slope exceeds lam most
enters.  Each step lowers the loss, so no set of signs comes twice and the search ends at the minimum.  Columns that
start at their minimum cost next to nothing.

Before that, a few leaps: all that should leave do so at once, and many that should enter (a semismooth Newton method;
Hintermueller, Ito and Kunisch 2003).  They end at the minimum too, with fewer systems to solve, or nowhere: then the
search starts.  From far off nearly all coefficients would like to enter, and few stay in the end; letting in only those
with the steepest slopes keeps the systems about as small as the answer.

Either works with the rows of S that belong to nonzero entries: with a of them, a step costs d a + a^3, not d^2.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dposv
from scipy.sparse import csr_array

from dagora.arrays import BoolArray, FloatArray, IntArray

_RIDGE = 1e-12  # of a variance: makes the system solvable where columns are collinear
_LEAPS = 30
_FEWEST = 8  # that may enter in a leap; or half as many as there are, if that is more
_SLACK = 1e-9  # of a slope, in units of its two deviations: rounding


def product(S: FloatArray, W: FloatArray) -> FloatArray:
    """S W, S being symmetric; by W's nonzero entries where they are few."""
    if W.size < 10_000 or 8 * np.count_nonzero(W) > W.size:
        return S @ W
    transposed: FloatArray = np.asarray(csr_array(W.T) @ S)
    return transposed.T


def slopes_slack(S: FloatArray, targets: FloatArray, cross: FloatArray) -> FloatArray:
    """How far rounding may take the slopes of targets' regressions; cross: S targets."""
    return slack_of(np.diag(S), np.maximum((targets * cross).sum(axis=0), 0.0))


def slack_of(variances: FloatArray, of_targets: FloatArray) -> FloatArray:
    """The same from variances, a column for each target."""
    deviations, units = np.sqrt(variances), _SLACK * np.sqrt(of_targets)
    slack: FloatArray = deviations[:, None] * units
    return slack


def lasso(
    S: FloatArray,
    targets: FloatArray,
    W: FloatArray,
    free: BoolArray,
    lam: float | FloatArray,
    ridge: FloatArray | None = None,
) -> tuple[FloatArray, bool]:
    """Columns of coefficients, started at W, and whether all came to their end (always, but for rounding).

    lam: one for all variables, or one for each, or one for each in each column; ridge: one for each in each column.
    """
    by_row = np.asarray(lam)
    prices = np.broadcast_to(by_row if by_row.ndim == 2 else by_row.reshape(-1, 1), W.shape)
    cross = product(S, targets)
    slack = slopes_slack(S, targets, cross)
    found = W * free
    slope = product(S, found) - cross
    if ridge is not None:
        slope += ridge * found
    there = found.nonzero()
    off = np.abs(slope) - prices
    off[there] = np.abs(slope[there] + prices[there] * np.sign(found[there]))
    ended = True
    for k in np.flatnonzero(((off > slack) & free).any(axis=0)):
        bend = None if ridge is None else ridge[:, k]
        column = Column(cross[:, k], free[:, k], prices[:, k], slack[:, k], bend)
        ended &= minimise(S, column, found[:, k])
    return found, ended


@dataclass(frozen=True)
class Column:
    """One regression: S times its target, what is free, its prices, rounding of its slopes, and ridges if any."""

    cross: FloatArray
    free: BoolArray
    lam: FloatArray
    slack: FloatArray
    ridge: FloatArray | None = None


def minimise(S: FloatArray, column: Column, w: FloatArray) -> bool:
    """Bring the coefficients w of one column to their minimum, in place; whether they came there."""
    return _leaped(S, column, w) or _to_minimum(S, column, w)


def _leaped(S: FloatArray, column: Column, w: FloatArray) -> bool:
    """By leaps; leaves w alone if they do not get there."""
    active: IntArray = np.flatnonzero(w)
    signs = np.sign(w[active])
    limit = np.where(column.free, column.lam + column.slack, np.inf)
    for _ in range(_LEAPS):
        goal = _with_signs(S, column, active, signs)
        slope = goal @ S[active] - column.cross
        slope[active] = 0.0
        kept = goal * signs > 0.0
        excess = np.abs(slope) - limit
        newcomers = np.flatnonzero(excess > 0.0)
        if kept.all() and len(newcomers) == 0:
            w[:] = 0.0
            w[active] = goal
            return True
        if len(newcomers) > (most := max(_FEWEST, len(active) // 2)):
            newcomers = newcomers[np.argpartition(-excess[newcomers], most)[:most]]
        active = np.concatenate([active[kept], newcomers])
        signs = np.concatenate([signs[kept], -np.sign(slope[newcomers])])
    return False


def _to_minimum(S: FloatArray, column: Column, w: FloatArray) -> bool:
    """By the search."""
    active: IntArray = np.flatnonzero(w)
    signs = np.sign(w[active])
    for _ in range(20 * len(w) + 20):
        start = w[active]
        goal = _with_signs(S, column, active, signs)
        crossing = goal * signs <= 0.0  # also a newcomer that rounding has brought: it starts at zero, and leaves
        if crossing.any():
            way = np.full(len(active), np.inf)
            way[crossing] = np.abs(start[crossing]) / np.maximum(np.abs((goal - start)[crossing]), 1e-300)
            first = int(way.argmin())
            w[active] = start + way[first] * (goal - start)
            w[active[first]] = 0.0
            kept = np.arange(len(active)) != first
            active, signs = active[kept], signs[kept]
            continue
        w[active] = goal
        slope = goal @ S[active] - column.cross
        excess = np.abs(slope) - column.lam - column.slack
        excess[active] = -1.0
        excess[~column.free] = -1.0
        newcomer = int(excess.argmax())
        if excess[newcomer] <= 0.0:
            return True
        active, signs = np.append(active, newcomer), np.append(signs, -np.sign(slope[newcomer]))
    return False


def _with_signs(S: FloatArray, column: Column, active: IntArray, signs: FloatArray) -> FloatArray:
    """The active entries at the minimum that they would have if their signs were given."""
    if len(active) == 0:
        return np.zeros(0)
    system = S[active[:, None], active]
    system.flat[:: len(active) + 1] *= 1.0 + _RIDGE
    if column.ridge is not None:
        system.flat[:: len(active) + 1] += column.ridge[active]
    solution: FloatArray = dposv(system, column.cross[active] - column.lam[active] * signs)[1]
    return solution
