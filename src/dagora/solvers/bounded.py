"""Regressions from a covariance whose price of a coefficient is bounded (the minimax concave penalty, Zhang 2010).

    min over w, zero where not free, of  w'Sw / 2 - w'S t + sum_i p_i(|w_i|)

    p(a) = lam (a - a^2 / (2 bound))  up to a = bound, and  lam bound / 2  beyond it

A lasso shrinks what is large as much as what is small, and where parents are correlated it shrinks true effects below
any threshold.  Here small coefficients are priced as in a lasso, and those beyond the bound are least squares'.

The price is concave, so its tangent at |w| lies above it: minimising with the tangent instead, a lasso with prices
lam (1 - |w| / bound)+, lowers the objective, and again from there (local linear approximation, Zou and Li 2008).  The
first tangent is that at zero, the lasso itself: from there the way is unique.  Once a step has changed neither signs
nor which coefficients are beyond their bound, where the steps lead to is the solution of one linear system.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dposv

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.solvers.lasso import lasso, product, slopes_slack

BOUND = 3.0  # as is usual (Breheny and Huang 2011)
_MOST_STEPS = 200
_STILL = 1e-9  # a coefficient that moves less, on standardised variables, has arrived


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

    def by_column(self, W: FloatArray) -> FloatArray:
        """What the weights of each column cost."""
        counted = np.minimum(np.abs(W), self.bound)
        cost: FloatArray = (self.lam * (counted - 0.5 * counted * (counted / self.bound))).sum(axis=0)
        return cost


def regress(
    S: FloatArray, targets: FloatArray, W: FloatArray, free: BoolArray, price: Price
) -> tuple[FloatArray, bool]:
    """Columns of coefficients, one for each column of targets, and whether all came to their end; W: a guess."""
    found, ended = lasso(S, targets, W, free, price.lam)
    units = np.sqrt(np.diag(S))[:, None]
    cross = product(S, targets)
    slack = slopes_slack(S, targets, cross)
    size = np.sqrt(np.maximum((targets * cross).sum(axis=0), 0.0))
    left = np.flatnonzero(((found != 0.0) & np.isfinite(price.bound)).any(axis=0))
    for _ in range(_MOST_STEPS):
        if len(left) == 0:
            return found, ended
        before, own = found[:, left], price.of(left)
        moved, there = lasso(S, targets[:, left], before, free[:, left], own.slope(before))
        found[:, left], ended = moved, ended and there
        moving: BoolArray = np.any(np.abs(moved - before) * units > _STILL * size[left], axis=0)
        for k in np.flatnonzero(moving & (own.pieces(moved) == own.pieces(before)).all(axis=0)):
            j = left[k]
            column = cross[:, j], found[:, j], free[:, j], price.lam[:, j], price.bound[:, j]
            moving[k] = not _leaped(S, *column, slack[:, j])
        left = left[moving]
    return found, ended and len(left) == 0


def still_minimal(S: FloatArray, targets: FloatArray, W: FloatArray, free: BoolArray, price: Price) -> BoolArray:
    """Of columns that were minima when other entries were free, those that still are."""
    cross = product(S, targets)
    enters = (W == 0.0) & free & (np.abs(product(S, W) - cross) > price.lam + slopes_slack(S, targets, cross))
    kept: BoolArray = ~(enters | ((W != 0.0) & ~free)).any(axis=0)
    return kept


def _leaped(
    S: FloatArray,
    cross: FloatArray,
    w: FloatArray,
    free: BoolArray,
    lam: FloatArray,
    bound: FloatArray,
    slack: FloatArray,
) -> bool:
    """Bring one column to the minimum within its pieces, in place; leave it alone if that is none of the whole."""
    active: IntArray = np.flatnonzero(w)
    signs, limit = np.sign(w[active]), bound[active]
    inside = np.abs(w[active]) < limit
    system = S[active[:, None], active]
    system.flat[:: len(active) + 1] -= np.where(inside, lam[active] / limit, 0.0)
    _, goal, indefinite = dposv(system, cross[active] - np.where(inside, lam[active] * signs, 0.0))
    if indefinite or not ((goal * signs > 0.0) & ((np.abs(goal) < limit) == inside)).all():
        return False
    slope = goal @ S[active] - cross
    slope[active] = 0.0
    if ((np.abs(slope) > lam + slack) & free).any():
        return False
    w[active] = goal
    return True
