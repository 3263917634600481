"""GOLEM (Ng, Ghassami and Zhang 2020): a Gaussian likelihood with soft penalties in place of the DAG constraint.

    min over W of  f(W) - log|det(I - W)| + lam |W|_1 + 5 h(W)          h(W) = tr exp(W o W) - d

With V = (I - W)' S (I - W), f is d/2 log tr V for noise of equal variances ("least-squares", GOLEM-EV), and
1/2 sum_j log V_jj for any variances ("likelihood", GOLEM-NV, which starts from the solution of GOLEM-EV).

As its authors do, it works on the data in their own units: the likelihood of GOLEM-NV has none, but its l1 penalty,
h and the threshold have, and GOLEM-EV's equal variances are a statement about units.
With no more rows than variables, or with collinear columns, the likelihoods are unbounded (with cycles, W can leave no
residuals): refused.
With knowledge, forbidden entries are zero and required ones have no price.
Heeds `lam` (the authors': 2e-2 for EV, 2e-3 for NV), `threshold`, `score` and `standardize`.
"""

import numpy as np
import scipy.linalg
import scipy.optimize

from dagora.arrays import BoolArray, FloatArray
from dagora.data.moments import Moments
from dagora.errors import InputError
from dagora.graphs import break_cycles, threshold
from dagora.knowledge import Constraints
from dagora.learners.base import FLOOR, Learned, LearnerOptions, correlations, in_units
from dagora.solvers.selection import Choice, choose

EQUAL_LAM = 2e-2
UNEQUAL_LAM = 2e-3
ACYCLICITY = 5.0  # the authors' lambda_2

_TOLERANCE = 1e-4  # of a slope over the root of its curvature: half its square, 5e-9, is what a step could gain
_RENEWALS = 10


def golem(moments: Moments, options: LearnerOptions) -> Learned:
    """Minimise, drop weights up to the threshold, then the weakest edges on cycles."""
    S = in_units(moments, options)
    equal = options.score == "least-squares"
    _refuse_unbounded(moments)
    W = np.zeros(S.shape)
    varies = np.diag(S) > 0.0  # a column that is constant here has no edges
    inner = np.ix_(varies, varies)
    first = options.lam if options.lam is not None else EQUAL_LAM if equal else UNEQUAL_LAM
    converged, tau, chosen = True, options.threshold or 0.0, {}
    known = Constraints.none(len(S)) if options.constraints is None else options.constraints
    if varies.sum() > 1:
        own = known.within(np.flatnonzero(varies))
        W[inner], converged = minimum(S[inner], first, equal, own)
        if options.lam is None or options.threshold is None:
            best = _chosen(S[inner], moments.n, W[inner], first, options, own, equal)
            W[inner], tau = best.W, best.threshold
            chosen = {} if options.lam is not None else {"lam": best.lam}
            chosen |= {} if options.threshold is not None else {"threshold": tau}
    present = (threshold(W, tau) != 0) | known.required
    edges = break_cycles(present, W, known.required)[0] != 0
    told = () if converged else ("GOLEM stopped before its tolerance was met",)
    return Learned(W, edges, warnings=told, chosen=chosen)


def _chosen(
    S: FloatArray, n: int, W: FloatArray, lam: float, options: LearnerOptions, known: Constraints, equal: bool
) -> Choice:
    """lam, the threshold or both by score (solvers/selection.py); weakest edges on cycles are cut first."""

    def cut(W: FloatArray) -> FloatArray:
        present = (W != 0.0) | known.required
        return np.where(break_cycles(present, W, known.required)[0] != 0, W, 0.0)

    def solve(near: FloatArray, lam: float) -> FloatArray:
        return cut(_descend(S, near, lam, known, equal=equal)[0])

    other = solve if options.lam is None else None
    return choose(S, n, cut(W), lam, other, options.threshold, equal, known.required)


def minimum(S: FloatArray, lam: float, equal: bool, known: Constraints | None = None) -> tuple[FloatArray, bool]:
    """W where the objective is least, locally, and whether the descent came to its end."""
    start = np.zeros(S.shape)
    known = Constraints.none(len(S)) if known is None else known
    if equal:
        return _descend(S, start, lam, known, equal=True)
    by_equal = _descend(S, start, EQUAL_LAM, known, equal=True)[0]
    return _descend(S, by_equal if np.isfinite(smooth(S, by_equal, False)[0]) else start, lam, known, equal=False)


def smooth(S: FloatArray, W: FloatArray, equal: bool) -> tuple[float, FloatArray]:
    """The objective without l1, and its gradient; infinite where det(I - W) <= 0, V is rounding or h overflows.

    The set where det(I - W) > 0 holds all DAGs, and -log det is infinite at its border, so nothing is lost by it.
    """
    d = len(S)
    R = np.eye(d) - W
    outside = np.inf, np.full((d, d), np.nan)
    with np.errstate(over="ignore", invalid="ignore"):  # a long trial step, which the line search shortens
        squares = W * W
        sign, log_determinant = np.linalg.slogdet(R)
        if sign <= 0.0 or not np.isfinite(squares).all():
            return outside
        E = scipy.linalg.expm(squares)
        SR = S @ R
        V = (R * SR).sum(axis=0)
        value = ACYCLICITY * (float(np.trace(E)) - d) - float(log_determinant)
        left = V.sum() / np.trace(S) if equal else (V / np.diag(S)).min()
        if not np.isfinite(value) or left <= FLOOR:
            return outside
        value += 0.5 * d * float(np.log(V.sum())) if equal else 0.5 * float(np.log(V).sum())
        gradient = 2.0 * ACYCLICITY * W * E.T + np.linalg.inv(R).T - SR * _precision(V, equal)
    return value, gradient


def _descend(S: FloatArray, W: FloatArray, lam: float, known: Constraints, *, equal: bool) -> tuple[FloatArray, bool]:
    """L-BFGS-B until W is stationary, with the scale renewed: its own test of progress may stop it in a flat place."""
    prices, free = np.broadcast_to(known.prices(lam), S.shape), known.permitted
    for _ in range(_RENEWALS):
        scale = np.sqrt(_curvature(S, W, equal))
        candidate = _lbfgs(S, W, prices, free, scale, equal)
        value, gradient = smooth(S, candidate, equal)
        if not np.isfinite(value):
            return W, False  # the line search has ended on a rejected trial: what it started from is the last word
        W = candidate
        if (_slope(gradient, W, prices, free) <= _TOLERANCE * scale).all():
            return W, True
    return W, False


def _lbfgs(
    S: FloatArray, W: FloatArray, prices: FloatArray, free: BoolArray, scale: FloatArray, equal: bool
) -> FloatArray:
    """One run on W = (U+ - U-) / scale, both >= 0, so that l1 is smooth.

    The scale evens out the curvatures of the entries, which differ with the units and the variances of parents.
    Proximal gradient steps (solvers/proximal.py) need more evaluations here: the likelihood is ill-conditioned.
    """
    d = len(S)
    c = scale.ravel()
    price = prices.ravel() / c
    # A trial outside the domain: higher than any point passed, but finite, so that the line search can interpolate.
    rejected = smooth(S, W, equal)[0] + float((prices * np.abs(W)).sum()) + 1.0, np.zeros(2 * d * d)

    def objective(halves: FloatArray) -> tuple[float, FloatArray]:
        up, down = halves[: d * d], halves[d * d :]
        value, gradient = smooth(S, ((up - down) / c).reshape(d, d), equal)
        if not np.isfinite(value):
            return rejected
        slope = gradient.ravel() / c
        return value + float(price @ (up + down)), np.concatenate([price + slope, price - slope])

    start = W.ravel() * c
    upper = np.where(free.ravel(), np.inf, 0.0)
    solution = scipy.optimize.minimize(
        objective,
        np.concatenate([np.maximum(start, 0.0), np.maximum(-start, 0.0)]),
        jac=True,
        method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(np.zeros(2 * d * d), np.concatenate([upper, upper])),
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-12, "gtol": 1e-6},
    )
    halves = np.asarray(solution.x, dtype=np.float64)
    return ((halves[: d * d] - halves[d * d :]) / c).reshape(d, d)


def _slope(gradient: FloatArray, W: FloatArray, prices: FloatArray, free: BoolArray) -> FloatArray:
    """How steeply the objective with l1 falls in each entry that is free: zero at a minimum."""
    slope = np.where(W != 0.0, np.abs(gradient + prices * np.sign(W)), np.maximum(np.abs(gradient) - prices, 0.0))
    slope[~free] = 0.0
    return slope


def _curvature(S: FloatArray, W: FloatArray, equal: bool) -> FloatArray:
    """About the diagonal of the Hessian of `smooth`, from the parts that are never negative."""
    R = np.eye(len(S)) - W
    precision = _precision((R * (S @ R)).sum(axis=0), equal)
    E = scipy.linalg.expm(W * W)
    curvature: FloatArray = np.diag(S)[:, None] * precision + np.linalg.inv(R).T ** 2 + 2.0 * ACYCLICITY * E.T
    return curvature


def _precision(V: FloatArray, equal: bool) -> FloatArray:
    """One over the noise variances, as the residual variances V estimate them."""
    return np.full(V.shape, len(V) / V.sum()) if equal else 1.0 / V


def _refuse_unbounded(moments: Moments) -> None:
    """Where some variables determine another, the likelihood has no maximum."""
    if moments.n <= len(moments.mean):
        raise InputError("learner 'golem' needs more rows than variables; use 'notears' or 'boss'")
    correlations(moments)  # names collinear columns
