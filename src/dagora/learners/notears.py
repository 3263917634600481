"""The l1-penalised least-squares DAG from a covariance alone, in two ways to the same problem:

    min over W of  tr((I - W)' S (I - W)) / 2 + lam |W|_1    subject to   W is a DAG

`notears_published` is the method of Zheng et al. (2018): trace exponential, augmented Lagrangian, L-BFGS-B, l1 by
splitting.  `notears_path` follows the log-determinant's path (solvers/path.py).  Either can end with a polish of the
order (solvers/polish.py).  Collinear columns and few rows are no obstacle: the l1 penalty chooses among equal fits.
Heeds `lam`, `threshold`, `published`, `polish` and `standardize`.

With `lags` it is DYNOTEARS (Pamfil et al. 2020), from the covariance of (x_t, x_t-1, ...): W gets d rows a lag below
its first d, at prices of their own (`lag_lam`, `lag_threshold`), and only the first d rows must be a DAG.

With knowledge, forbidden entries are zero and required ones have no price.  Where it settles all directions between
blocks of variables (tiers), every block is a problem of its own, with the earlier ones as inputs.
"""

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from dagora.acyclicity import trace_exponential, walk_weights
from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.graphs import order_of
from dagora.knowledge import Constraints
from dagora.learners.base import Learned, LearnerOptions, in_units
from dagora.models.dynamic import by_part
from dagora.solvers.path import path_ended, path_penalty
from dagora.solvers.polish import polish
from dagora.solvers.proximal import l1, minimise_l1
from dagora.solvers.selection import choose, first_lam

Price = float | FloatArray


@dataclass(frozen=True)
class Solution:
    """Weights before thresholding, and what the user should know of how the solver ended."""

    weights: FloatArray
    warnings: tuple[str, ...] = ()


_ON_THE_WAY = 1e-3  # tolerance of the path's stages, which need only show the way: the last word is the polish's
_NOTHING = 1e-28  # a variance below this share of the largest is rounding


def notears(moments: Moments, options: LearnerOptions) -> Learned:
    """Solve, and take the weights above the threshold for edges."""
    S, d = in_units(moments, options), len(moments.mean) // (options.lags + 1)
    if options.lam is None or options.threshold is None:
        return _chosen(S, moments.n, options)
    lam = by_part(d, options.lags, options.lam, options.lag_lam)
    bounds = Bounds.of(options.constraints, len(S), d)
    if options.published:
        found = notears_published(S, lam, d, bounds=bounds)
        if options.polish:
            found = _polished(S, found.weights, lam, bounds)
    else:
        found = _by_blocks(S, lam, d, options.constraints, search=options.polish)
    edges = np.abs(found.weights) > by_part(d, options.lags, options.threshold, options.lag_threshold)
    edges |= bounds.required
    return Learned(found.weights, edges, warnings=found.warnings)


def _chosen(S: FloatArray, n: int, options: LearnerOptions) -> Learned:
    """The same with lam, the threshold or both chosen by score."""
    varies = np.flatnonzero(np.diag(S) > _NOTHING * np.diag(S).max())
    known = Constraints.none(len(S)) if options.constraints is None else options.constraints
    if len(varies) < 2:
        return Learned(np.zeros_like(S), known.required)
    within = np.ix_(varies, varies)
    T, own = S[within], known.within(varies)
    bounds = Bounds.of(own, len(T), len(T))
    first = options.lam if options.lam is not None else first_lam(np.diag(T))
    found = _by_blocks(T, first, len(T), own, search=options.polish)

    def solve(near: FloatArray, lam: float) -> FloatArray:
        return _polished(T, near, lam, bounds, search=options.polish).weights

    other = solve if options.lam is None else None
    best = choose(T, n, found.weights, first, other, options.threshold, required=own.required)
    W = np.zeros_like(S)
    W[within] = best.W
    chosen = {} if options.lam is not None else {"lam": best.lam}
    chosen |= {} if options.threshold is not None else {"threshold": best.threshold}
    edges = (np.abs(W) > best.threshold) | known.required
    return Learned(W, edges, warnings=found.warnings, chosen=chosen)


@dataclass(frozen=True)
class Bounds:
    """What is known of the entries of W: which may differ from zero, and which edges have to be there."""

    free: BoolArray
    required: BoolArray

    @classmethod
    def of(cls, known: Constraints | None, rows: int, d: int) -> "Bounds":
        """Inputs, below the first d rows, are always free."""
        known = Constraints.none(d) if known is None else known
        past = np.ones((rows - d, d), dtype=bool)
        return cls(np.concatenate([known.permitted, past]), np.concatenate([known.required, ~past]))

    def within(self, rows: IntArray, columns: IntArray) -> "Bounds":
        """For some rows, those of the columns first."""
        some = np.ix_(rows, columns)
        return Bounds(self.free[some], self.required[some])

    @property
    def edges(self) -> BoolArray:
        """The required ones among the columns' variables, which an order has to follow."""
        return self.required[: self.required.shape[1]]

    def prices(self, lam: Price) -> Price:
        """A price for each entry, if some have none."""
        if not self.required.any():
            return lam
        return np.where(self.required, 0.0, lam)


def _by_blocks(S: FloatArray, lam: Price, d: int, known: Constraints | None, *, search: bool) -> Solution:
    """Block by block, where knowledge tells their order; else all at once."""
    if known is None or len(known.blocks) == 1:
        return notears_path(S, lam, d, search=search, bounds=Bounds.of(known, len(S), d))
    W, bounds = np.zeros((len(S), d)), Bounds.of(known, len(S), d)
    warnings: tuple[str, ...] = ()
    for block in known.blocks:
        parents: BoolArray = np.asarray(bounds.free[:, block].any(axis=1))
        parents[block] = False
        rows = np.concatenate([block, np.flatnonzero(parents)])
        prices = lam[rows] if isinstance(lam, np.ndarray) else lam
        own = bounds.within(rows, block)
        found = notears_path(S[np.ix_(rows, rows)], prices, len(block), search=search, bounds=own)
        W[np.ix_(rows, block)] = found.weights
        warnings = warnings or found.warnings
    return Solution(W, warnings)


def notears_published(
    S: FloatArray,
    lam: Price,
    d: int | None = None,
    *,
    h_tolerance: float = 1e-8,
    most_penalty: float = 1e16,
    outer: int = 100,
    bounds: Bounds | None = None,
) -> Solution:
    """Augmented Lagrangian of Zheng et al. (2018), their Algorithm 1 with rho from 1, growth 10, progress 1/4.

    d: how many variables of S have a column in W (None: all); lam: a price, or a column of prices.
    """
    d = len(S) if d is None else d
    W, h = np.zeros((len(S), d)), np.inf
    bounds = Bounds.of(None, len(S), d) if bounds is None else bounds
    alpha, rho = 0.0, 1.0
    for _ in range(outer):
        while True:
            candidate = _lagrangian_minimum(S, W, bounds.prices(lam), alpha, rho, bounds.free)
            new_h, _ = trace_exponential(candidate[:d])
            if new_h <= 0.25 * h or rho >= most_penalty:
                break
            rho *= 10.0
        W, h = candidate, new_h
        alpha += rho * h
        if h <= h_tolerance or rho >= most_penalty:
            break
    return Solution(W, () if h <= h_tolerance else (f"h(W) is still {h:.1e}: W is not close to a DAG",))


def _lagrangian_minimum(
    S: FloatArray, W: FloatArray, lam: Price, alpha: float, rho: float, free: BoolArray
) -> FloatArray:
    """Minimise loss + lam |W|_1 + alpha h + rho/2 h^2 with W = V+ - V-, both >= 0, so that l1 is smooth."""
    shape, size, d = W.shape, W.size, W.shape[1]
    identity = np.eye(*shape)
    prices = np.broadcast_to(lam, shape).ravel()

    def objective(halves: FloatArray) -> tuple[float, FloatArray]:
        W = (halves[:size] - halves[size:]).reshape(shape)
        R = identity - W
        with np.errstate(over="ignore", invalid="ignore"):  # a long trial step; the line search rejects it
            SR = S @ R
            h, slope = trace_exponential(W[:d])
            gradient = -SR
            gradient[:d] += (alpha + rho * h) * slope
            flat = gradient.ravel()
            price = l1(halves.reshape(2, *shape), lam)
            value = 0.5 * float((R * SR).sum()) + price + alpha * h + 0.5 * rho * h * h
        return value, np.concatenate([flat + prices, prices - flat])

    upper = np.where(free.ravel(), np.inf, 0.0)
    bounds = scipy.optimize.Bounds(np.zeros(2 * size), np.concatenate([upper, upper]))
    start = np.concatenate([np.maximum(W, 0.0).ravel(), np.maximum(-W, 0.0).ravel()])
    solution = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    halves = np.asarray(solution.x, dtype=np.float64)
    return (halves[:size] - halves[size:]).reshape(shape)


def notears_path(
    S: FloatArray, lam: Price, d: int | None = None, *, search: bool = True, bounds: Bounds | None = None
) -> Solution:
    """Stages of growing mu h(W), then the order that they settled, improved by `search`: h(W) = 0 exactly.

    d: how many variables of S have a column in W (None: all); lam: a price, or a column of prices.
    """
    d = len(S) if d is None else d
    bounds = Bounds.of(None, len(S), d) if bounds is None else bounds
    variances = np.diag(S)[:d]
    W = np.zeros((len(S), d))
    varies = variances > _NOTHING * variances.max()
    if varies.sum() < (2 if len(S) == d else 1):  # a lone variable may still depend on its past
        return Solution(W)
    if not varies.all():  # at a site with few rows: such a column has no edges there
        columns = np.flatnonzero(varies)
        rows = np.concatenate([columns, np.arange(d, len(S))])
        prices = lam[rows] if isinstance(lam, np.ndarray) else lam
        own = bounds.within(rows, columns)
        rest = notears_path(S[np.ix_(rows, rows)], prices, len(columns), search=search, bounds=own)
        W[np.ix_(rows, columns)] = rest.weights
        return Solution(W, rest.warnings)
    stage = 0
    while d > 1 and not path_ended(stage, W[:d], variances, bounds.edges):
        W = _descend(S, W, bounds.prices(lam), path_penalty(stage, variances), _ON_THE_WAY, bounds.free)
        stage += 1
    return _polished(S, W, lam, bounds, search=search)


def _polished(S: FloatArray, W: FloatArray, lam: Price, bounds: Bounds, *, search: bool = True) -> Solution:
    """The lasso in W's order, or in the best one that reversals of edges lead to."""
    order = order_of(W[: W.shape[1]], bounds.edges)
    prices = np.broadcast_to(bounds.prices(lam), W.shape)
    found = polish(S, W, order, prices, search=search, permitted=bounds.free, required=bounds.edges)
    return Solution(found.W, () if found.converged else ("the search over orders did not come to its end",))


def _descend(
    S: FloatArray,
    W: FloatArray,
    lam: Price,
    mu: float,
    tolerance: float,
    free: BoolArray | None = None,
    renewals: int = 3,
) -> FloatArray:
    """Minimise loss + lam |W|_1 + mu h; the metric, which knows the cycles' curvature, is renewed now and then."""
    d = W.shape[1]
    identity = np.eye(len(S), d)
    free = identity == 0.0 if free is None else free
    variances = np.diag(S)[:, None]

    def smooth(W: FloatArray) -> tuple[float, FloatArray]:
        R = identity - W
        SR = S @ R
        walks, h = walk_weights(W[:d])
        gradient = -SR
        gradient[:d] += 2.0 * mu * W[:d] * walks.T
        return 0.5 * float((R * SR).sum()) + mu * h, gradient

    bound = tolerance * float(np.linalg.norm(variances))
    for _ in range(renewals):
        metric = np.repeat(variances, d, axis=1)
        metric[:d] += 2.0 * mu * walk_weights(W[:d])[0].T
        minimum = minimise_l1(smooth, W, lam, metric, free, bound, 60)
        W = minimum.W
        if minimum.converged:
            break
    return W
