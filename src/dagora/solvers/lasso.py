"""Lasso regressions from a covariance, solved exactly: one a column.

    min over w, zero where not free, of  w'Sw / 2 - w'S t + sum_i lam_i |w_i|  for every column t of `targets`

Prices may be zero, and differ from column to column.

Feature-sign search (Lee, Battle, Raina and Ng 2006): with the signs of w's nonzero entries given, its minimum is a
linear system.  Go towards it; whoever reaches zero on the way leaves; at the minimum, whoever's slope exceeds lam most
enters.  Each step lowers the loss, so no set of signs comes twice and the search ends at the minimum.  Columns that
start at their minimum cost next to nothing.

Before that, a few leaps: all that should leave or enter do so at once (a semismooth Newton method; Hintermueller, Ito
and Kunisch 2003).  They end at the minimum too, with fewer systems to solve, or nowhere: then the search starts.
"""

import numpy as np
from scipy.linalg.lapack import dposv

from dagora.arrays import BoolArray, FloatArray, IntArray

_RIDGE = 1e-12  # of a variance: makes the system solvable where columns are collinear
_LEAPS = 12
_SLACK = 1e-9  # of a slope, in units of its two deviations: rounding


def lasso(
    S: FloatArray, targets: FloatArray, W: FloatArray, free: BoolArray, lam: float | FloatArray
) -> tuple[FloatArray, bool]:
    """Columns of coefficients, started at W, and whether all came to their end (always, but for rounding).

    lam: one for all variables, or one for each, or one for each in each column.
    """
    by_row = np.asarray(lam)
    prices = np.broadcast_to(by_row if by_row.ndim == 2 else by_row.reshape(-1, 1), W.shape)
    S = S + _RIDGE * np.diag(np.diag(S))
    cross = S @ targets
    slack = _SLACK * np.sqrt(np.outer(np.diag(S), np.maximum((targets * cross).sum(axis=0), 0.0)))
    found = W * free
    slope = S @ found - cross
    off = np.where(found != 0.0, np.abs(slope + prices * np.sign(found)), np.abs(slope) - prices)
    ended = True
    for k in np.flatnonzero(((off > slack) & free).any(axis=0)):
        column = cross[:, k], found[:, k], free[:, k], prices[:, k], slack[:, k]
        ended &= _leaped(S, *column) or _to_minimum(S, *column)
    return found, ended


def _leaped(
    S: FloatArray, cross: FloatArray, w: FloatArray, free: BoolArray, lam: FloatArray, slack: FloatArray
) -> bool:
    """Bring one column to its minimum by leaps, in place; leave it alone if they do not get there."""
    signs, tried = np.sign(w), np.zeros_like(w)
    for _ in range(_LEAPS):
        active = np.flatnonzero(signs)
        tried[:] = 0.0
        if len(active):
            tried[active] = dposv(S[active][:, active], cross[active] - lam[active] * signs[active])[1]
        slope = S @ tried - cross
        # Of an active entry, the slope is that of its sign: it stays if it has kept it.
        pull = np.where(signs != 0.0, tried, -np.sign(slope) * np.maximum(np.abs(slope) - lam - slack, 0.0))
        wanted = np.where(free & ((signs == 0.0) | (tried * signs > 0.0)), np.sign(pull), 0.0)
        if (wanted == signs).all():
            w[:] = tried
            return True
        signs = wanted
    return False


def _to_minimum(
    S: FloatArray, cross: FloatArray, w: FloatArray, free: BoolArray, lam: FloatArray, slack: FloatArray
) -> bool:
    """Bring one column to its minimum, in place."""
    active: IntArray = np.flatnonzero(w)
    signs = np.sign(w[active])
    for _ in range(20 * len(w) + 20):
        start = w[active]
        goal = dposv(S[active][:, active], cross[active] - lam[active] * signs)[1] if len(active) else start
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
        slope = S @ w - cross
        excess = np.abs(slope) - lam - slack
        excess[active] = -1.0
        excess[~free] = -1.0
        newcomer = int(excess.argmax())
        if excess[newcomer] <= 0.0:
            return True
        active, signs = np.append(active, newcomer), np.append(signs, -np.sign(slope[newcomer]))
    return False
