"""The l1-penalised least-squares DAG from a covariance alone, in two ways to the same problem:

    min over W of  tr((I - W)' S (I - W)) / 2 + lam |W|_1    subject to   W is a DAG

`notears_published` is the method of Zheng et al. (2018): trace exponential, augmented Lagrangian, L-BFGS-B, l1 by
splitting.  `notears_path` follows the log-determinant's path (solvers/path.py, solvers/path_stage.py).  Either can end
with a polish of the order (solvers/polish.py): a search by the same objective, then, where there are rows enough, one
in which the price of a weight is bounded (solvers/bounded.py), so that true effects are not shrunk below the
threshold.  That one starts from the first one's order or, if it is better, from one by variances (solvers/top_down.py).
Collinear columns and few rows are no obstacle: the l1 penalty chooses among equal fits.
Heeds `lam`, `threshold`, `published`, `polish`, `bounded`, `standardize` and `device`.

With `lags` it is DYNOTEARS (Pamfil et al. 2020), from the covariance of (x_t, x_t-1, ...): W gets d rows a lag below
its first d, at prices of their own (`lag_lam`, `lag_threshold`), and only the first d rows must be a DAG.

With knowledge, forbidden entries are zero and required ones have no price.  Where it settles all directions between
blocks of variables (tiers), every block is a problem of its own, with the earlier ones as inputs.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.optimize

from dagora.acyclicity import trace_exponential
from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.devices import CPU, Device, device
from dagora.graphs import order_of
from dagora.knowledge import Constraints
from dagora.learners.base import Learned, LearnerOptions, in_units
from dagora.models.dynamic import by_part
from dagora.solvers.bounded import Price
from dagora.solvers.path import MOST_STAGES, STAGES, path_ended, path_penalty
from dagora.solvers.path_stage import descend
from dagora.solvers.polish import polish
from dagora.solvers.proximal import l1
from dagora.solvers.selection import choose, first_lam
from dagora.solvers.top_down import top_down

Lam = float | FloatArray


@dataclass(frozen=True)
class Solution:
    """Weights before thresholding, and what the user should know of how the solver ended."""

    weights: FloatArray
    warnings: tuple[str, ...] = ()


_ON_THE_WAY = 1e-3  # tolerance of the path's stages, which need only show the way: the last word is the polish's
# Stages at most, and steps of each: a search that starts from the better of two orders needs less of the path.
_ALL_OF_THE_PATH, _LESS_OF_THE_PATH = (MOST_STAGES, 8), (STAGES, 4)
_NOTHING = 1e-28  # a variance below this share of the largest is rounding


def notears(moments: Moments, options: LearnerOptions) -> Learned:
    """Solve, and take the weights above the threshold for edges."""
    S, d = in_units(moments, options), len(moments.mean) // (options.lags + 1)
    if options.lam is None or options.threshold is None:
        return _chosen(S, moments.n, options)
    lam = by_part(d, options.lags, options.lam, options.lag_lam)
    bounds = Bounds.of(options.constraints, len(S), d)
    least, where = _least(S, moments.n, options), device(options.device)
    if options.published:
        found = notears_published(S, lam, d, bounds=bounds)
        if options.polish:
            found = _polished(S, found.weights, lam, bounds, search=True, least=least)
    else:
        found = _by_blocks(S, lam, d, options.constraints, search=options.polish, least=least, device=where)
    edges = np.abs(found.weights) > by_part(d, options.lags, options.threshold, options.lag_threshold)
    edges |= bounds.required
    return Learned(found.weights, edges, warnings=found.warnings)


def _least(S: FloatArray, n: float, options: LearnerOptions) -> float | None:
    """The least variance, in whose units prices are bounded, or None where they are not to be.

    Under equal variances it is about that of the noise.  With few rows more noise than effects would be free of a
    price, and the lasso is better.
    """
    variances, enough = np.diag(S), n >= max(len(S) + 100, 1.5 * len(S))
    varies = variances > _NOTHING * variances.max()
    if not (options.polish and options.bounded and enough and varies.any()):
        return None
    return float(variances[varies].min())


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
    least, where = _least(T, n, options), device(options.device)
    found = _by_blocks(T, first, len(T), own, search=options.polish, least=least, device=where)

    def solve(near: FloatArray, lam: float) -> FloatArray:
        return _polished(T, near, lam, bounds, search=options.polish, least=least).weights

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
    past: BoolArray  # rows that are only inputs

    @classmethod
    def of(cls, known: Constraints | None, rows: int, d: int) -> "Bounds":
        """Inputs, below the first d rows, are always free."""
        known = Constraints.none(d) if known is None else known
        past = np.ones((rows - d, d), dtype=bool)
        permitted, required = np.concatenate([known.permitted, past]), np.concatenate([known.required, ~past])
        return cls(permitted, required, np.arange(rows) >= d)

    def within(self, rows: IntArray, columns: IntArray) -> "Bounds":
        """For some rows, those of the columns first."""
        some = np.ix_(rows, columns)
        return Bounds(self.free[some], self.required[some], self.past[rows])

    @property
    def edges(self) -> BoolArray:
        """The required ones among the columns' variables, which an order has to follow."""
        return self.required[: self.required.shape[1]]

    def prices(self, lam: Lam) -> Lam:
        """A price for each entry, if some have none."""
        if not self.required.any():
            return lam
        return np.where(self.required, 0.0, lam)


def _by_blocks(
    S: FloatArray, lam: Lam, d: int, known: Constraints | None, *, search: bool, least: float | None, device: Device
) -> Solution:
    """Block by block, where knowledge tells their order; else all at once."""
    if known is None or len(known.blocks) == 1:
        bounds = Bounds.of(known, len(S), d)
        return notears_path(S, lam, d, search=search, least=least, bounds=bounds, device=device)
    W, bounds = np.zeros((len(S), d)), Bounds.of(known, len(S), d)
    warnings: tuple[str, ...] = ()
    for block in known.blocks:
        parents: BoolArray = np.asarray(bounds.free[:, block].any(axis=1))
        parents[block] = False
        rows = np.concatenate([block, np.flatnonzero(parents)])
        prices = lam[rows] if isinstance(lam, np.ndarray) else lam
        own = bounds.within(rows, block)
        part = S[np.ix_(rows, rows)]
        found = notears_path(part, prices, len(block), search=search, least=least, bounds=own, device=device)
        W[np.ix_(rows, block)] = found.weights
        warnings = warnings or found.warnings
    return Solution(W, warnings)


def notears_published(
    S: FloatArray,
    lam: Lam,
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
    S: FloatArray, W: FloatArray, lam: Lam, alpha: float, rho: float, free: BoolArray
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
    S: FloatArray,
    lam: Lam,
    d: int | None = None,
    *,
    search: bool = True,
    least: float | None = None,
    bounds: Bounds | None = None,
    device: Device = CPU,
) -> Solution:
    """Stages of growing mu h(W), then the order that they settled, improved by `search`: h(W) = 0 exactly.

    d: how many variables of S have a column in W (None: all); lam: a price, or a column of prices, bounded in units of
    the variance `least` (None: not) in a second search that starts where the first ended; device: where the stages are
    followed.
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
        part = S[np.ix_(rows, rows)]
        rest = notears_path(part, prices, len(columns), search=search, least=least, bounds=own, device=device)
        W[np.ix_(rows, columns)] = rest.weights
        return Solution(W, rest.warnings)
    stage, (most, steps) = 0, _ALL_OF_THE_PATH if least is None else _LESS_OF_THE_PATH
    while d > 1 and not path_ended(stage, W[:d], variances, bounds.edges, most):
        mu = path_penalty(stage, variances)
        W = descend(S, W, bounds.prices(lam), mu, _ON_THE_WAY, bounds.free, device, steps)
        stage += 1
    return _polished(S, W, lam, bounds, search=search, least=least)


def _polished(S: FloatArray, W: FloatArray, lam: Lam, bounds: Bounds, *, search: bool, least: float | None) -> Solution:
    """The lasso in W's order, or in the best one that reversals lead to; `least`: then with bounded prices."""
    order = order_of(W[: W.shape[1]], bounds.edges)
    prices = np.broadcast_to(bounds.prices(lam), W.shape)
    search_orders = partial(polish, S, permitted=bounds.free, required=bounds.edges)
    found = search_orders(W, order, prices, search=search)
    if least is not None:
        price = Price.bounded(prices, least)
        price.bound[bounds.past] = np.inf  # their threshold is that of a lasso
        found = search_orders(found.W, found.allowed, price, settle=True, other=top_down(S, bounds.edges))
    return Solution(found.W, () if found.converged else ("the search over orders did not come to its end",))
