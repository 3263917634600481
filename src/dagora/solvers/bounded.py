"""Regressions from a covariance whose price of a coefficient is bounded (the minimax concave penalty, Zhang 2010).

    min over w, zero where not free, of  w'Sw / 2 - w'S t + sum_i p_i(|w_i|)

    p(a) = lam (a - a^2 / (2 bound))  up to a = bound, and  lam bound / 2  beyond it

A lasso shrinks what is large as much as what is small, and where parents are correlated it shrinks true effects below
any threshold.  Here small coefficients are priced as in a lasso, and those beyond the bound are least squares'.

The price is concave, so its tangent at |w| lies above it: minimising with the tangent instead, a lasso with prices
lam (1 - |w| / bound)+, lowers the objective, and again from there (local linear approximation, Zou and Li 2008).  The
first tangent is that at zero, the lasso itself: from there the way is unique.  Once a step has changed neither signs
nor which coefficients are beyond their bound, where the steps lead to is the solution of one linear system.

Of many coefficients few differ from zero, or nearly do, at the lasso: the steps are taken among those, and others join
only if at the end their slope exceeds lam.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dposv

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.solvers.lasso import Column, lasso, minimise, product, slopes_slack

BOUND = 3.0  # as is usual (Breheny and Huang 2011)
_MOST_STEPS = 200
_NEAR = 0.5  # of its price: a coefficient whose slope is less, at the start, will hardly differ from zero


@dataclass(frozen=True)
class Price:
    """Of each entry of W: lam, the slope at zero, and the weight from which on it does not grow (infinite: a lasso)."""

    lam: FloatArray
    bound: FloatArray

    @classmethod
    def lasso(cls, lam: FloatArray) -> "Price":
        """In proportion to the weight, however large."""
        return cls(lam, np.full(lam.shape, np.inf))

    @classmethod
    def bounded(cls, lam: FloatArray, variance: float) -> "Price":
        """Bounded at three times what a lasso takes off the weight of a variable with this variance."""
        return cls(lam, np.where(lam > 0.0, BOUND * lam / variance, np.inf))

    def of(self, variables: IntArray) -> "Price":
        """For the columns of these variables."""
        return Price(self.lam[:, variables], self.bound[:, variables])

    def slope(self, W: FloatArray) -> FloatArray:
        """What a little more of each weight costs."""
        return self.lam * np.maximum(1.0 - np.abs(W) / self.bound, 0.0)

    def pieces(self, W: FloatArray) -> FloatArray:
        """On which piece of its price each weight is: -2 beyond the bound, -1 inside, 0 at zero, 1 inside, 2 beyond."""
        pieces: FloatArray = np.sign(W) * np.where(np.abs(W) < self.bound, 1.0, 2.0)
        return pieces

    def cost(self, W: FloatArray) -> FloatArray:
        """What each weight costs."""
        counted = np.minimum(np.abs(W), self.bound)
        cost: FloatArray = self.lam * (counted - 0.5 * counted * (counted / self.bound))
        return cost


def regress(
    S: FloatArray, targets: FloatArray, W: FloatArray, free: BoolArray, price: Price
) -> tuple[FloatArray, bool]:
    """Columns of coefficients, one for each column of targets, and whether all came to their end; W: a guess."""
    start, ended = lasso(S, targets, W, free, price.lam)
    found, there = continued(S, targets, start, free, price)
    return found, ended and there


def continued(
    S: FloatArray, targets: FloatArray, W: FloatArray, free: BoolArray, price: Price
) -> tuple[FloatArray, bool]:
    """The same from W, whatever that is, and no worse than it; where prices have no bound, W itself."""
    found, ended = W.copy(), True
    cross = product(S, targets)
    slack = slopes_slack(S, targets, cross)
    for j in np.flatnonzero(((found != 0.0) & np.isfinite(price.bound)).any(axis=0)):
        own = Price(price.lam[:, j], price.bound[:, j])
        ended &= _descended(S, cross[:, j], found[:, j], free[:, j], own, slack[:, j])
    return found, ended


def _descended(
    S: FloatArray, cross: FloatArray, w: FloatArray, free: BoolArray, price: Price, slack: FloatArray
) -> bool:
    """Bring one column to its end, in place: among the few that may matter, until no other does."""
    slope = _slope(S, cross, w)
    near = (w != 0.0) | (free & (np.abs(slope) > _NEAR * price.lam))
    while True:
        some = np.flatnonzero(near)
        part, own = w[some], Price(price.lam[some], price.bound[some])
        ended = _arrived(S[some[:, None], some], cross[some], part, own, slack[some])
        w[some] = part
        enters = free & ~near & (np.abs(_slope(S, cross, w)) > price.lam + slack)
        if not ended or not enters.any():
            return ended
        near |= enters


def _slope(S: FloatArray, cross: FloatArray, w: FloatArray) -> FloatArray:
    active = np.flatnonzero(w)
    slope: FloatArray = w[active] @ S[active] - cross
    return slope


def _arrived(S: FloatArray, cross: FloatArray, w: FloatArray, price: Price, slack: FloatArray) -> bool:
    """Go from tangent to tangent, in place, until a step changes slopes by no more than rounding."""
    free, variances = np.ones(len(w), dtype=bool), np.diag(S)
    for _ in range(_MOST_STEPS):
        before = w.copy()
        if not minimise(S, Column(cross, free, price.slope(before), slack), w):
            return False
        if (np.abs(w - before) * variances <= slack).all():
            return True
        if (price.pieces(w) == price.pieces(before)).all() and _leaped(S, cross, w, price, slack):
            return True
    return False


def _leaped(S: FloatArray, cross: FloatArray, w: FloatArray, price: Price, slack: FloatArray) -> bool:
    """Bring one column to the minimum within its pieces, in place; leave it alone if that is none of the whole."""
    active = np.flatnonzero(w)
    signs, lam, limit = np.sign(w[active]), price.lam[active], price.bound[active]
    inside = np.abs(w[active]) < limit
    system = S[active[:, None], active]
    system.flat[:: len(active) + 1] -= np.where(inside, lam / limit, 0.0)
    _, goal, indefinite = dposv(system, cross[active] - np.where(inside, lam * signs, 0.0))
    if indefinite or not ((goal * signs > 0.0) & ((np.abs(goal) < limit) == inside)).all():
        return False
    slope = goal @ S[active] - cross
    slope[active] = 0.0
    if (np.abs(slope) > price.lam + slack).any():
        return False
    w[active] = goal
    return True
