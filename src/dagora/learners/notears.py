"""The l1-penalised least-squares DAG from a covariance alone, in two ways to the same problem:

    min over W of  tr((I - W)' S (I - W)) / 2 + lam |W|_1    subject to   W is a DAG

`notears_published` is the method of Zheng et al. (2018): trace exponential, augmented Lagrangian, L-BFGS-B, l1 by
splitting.  `notears_path` follows the log-determinant's path (solvers/path.py).  Either can end with a polish of the
order (solvers/polish.py).  Collinear columns and few rows are no obstacle: the l1 penalty chooses among equal fits.
Heeds `lam`, `threshold`, `published` and `polish`.
"""

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from dagora.acyclicity import trace_exponential, walk_weights
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.graphs import order_of
from dagora.learners.base import Learned, LearnerOptions
from dagora.solvers.path import path_ended, path_penalty
from dagora.solvers.polish import polish
from dagora.solvers.proximal import minimise_l1


@dataclass(frozen=True)
class Solution:
    """Weights before thresholding, and what the user should know of how the solver ended."""

    weights: FloatArray
    warnings: tuple[str, ...] = ()


_ON_THE_WAY = 1e-3  # tolerance of the path's stages, which need only show the way: the last word is the polish's
_NOTHING = 1e-28  # a variance below this share of the largest is rounding


def notears(moments: Moments, options: LearnerOptions) -> Learned:
    """Solve, and take the weights above the threshold for edges."""
    S, lam = moments.covariance, options.lam
    if options.published:
        found = notears_published(S, lam)
        if options.polish:
            found = _polished(S, found.weights, lam)
    else:
        found = notears_path(S, lam, search=options.polish)
    return Learned(found.weights, np.abs(found.weights) > options.threshold, warnings=found.warnings)


def notears_published(
    S: FloatArray, lam: float, *, h_tolerance: float = 1e-8, most_penalty: float = 1e16, outer: int = 100
) -> Solution:
    """Augmented Lagrangian of Zheng et al. (2018), their Algorithm 1 with rho from 1, growth 10, progress 1/4."""
    d = len(S)
    W, h = np.zeros((d, d)), np.inf
    alpha, rho = 0.0, 1.0
    for _ in range(outer):
        while True:
            candidate = _lagrangian_minimum(S, W, lam, alpha, rho)
            new_h, _ = trace_exponential(candidate)
            if new_h <= 0.25 * h or rho >= most_penalty:
                break
            rho *= 10.0
        W, h = candidate, new_h
        alpha += rho * h
        if h <= h_tolerance or rho >= most_penalty:
            break
    return Solution(W, () if h <= h_tolerance else (f"h(W) is still {h:.1e}: W is not close to a DAG",))


def _lagrangian_minimum(S: FloatArray, W: FloatArray, lam: float, alpha: float, rho: float) -> FloatArray:
    """Minimise loss + lam |W|_1 + alpha h + rho/2 h^2 with W = V+ - V-, both >= 0, so that l1 is smooth."""
    d = len(S)
    identity = np.eye(d)

    def objective(halves: FloatArray) -> tuple[float, FloatArray]:
        W = (halves[: d * d] - halves[d * d :]).reshape(d, d)
        R = identity - W
        with np.errstate(over="ignore", invalid="ignore"):  # a long trial step; the line search rejects it
            SR = S @ R
            h, slope = trace_exponential(W)
            gradient = ((alpha + rho * h) * slope - SR).ravel()
            value = 0.5 * float((R * SR).sum()) + lam * float(halves.sum()) + alpha * h + 0.5 * rho * h * h
        return value, np.concatenate([gradient + lam, lam - gradient])

    upper = np.where(identity.ravel() == 1.0, 0.0, np.inf)
    bounds = scipy.optimize.Bounds(np.zeros(2 * d * d), np.concatenate([upper, upper]))
    start = np.concatenate([np.maximum(W, 0.0).ravel(), np.maximum(-W, 0.0).ravel()])
    solution = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    halves = np.asarray(solution.x, dtype=np.float64)
    return (halves[: d * d] - halves[d * d :]).reshape(d, d)


def notears_path(S: FloatArray, lam: float, *, search: bool = True) -> Solution:
    """Stages of growing mu h(W), then the order that they settled, improved by `search`: h(W) = 0 exactly."""
    d = len(S)
    variances = np.diag(S)
    W = np.zeros((d, d))
    varies = variances > _NOTHING * variances.max()
    if varies.sum() < 2:
        return Solution(W)
    if not varies.all():  # at a site with few rows: such a column has no edges there
        inner = np.ix_(varies, varies)
        rest = notears_path(S[inner], lam, search=search)
        W[inner] = rest.weights
        return Solution(W, rest.warnings)
    stage = 0
    while not path_ended(stage, W, variances):
        W = _descend(S, W, lam, path_penalty(stage, variances), _ON_THE_WAY)
        stage += 1
    return _polished(S, W, lam, search=search)


def _polished(S: FloatArray, W: FloatArray, lam: float, *, search: bool = True) -> Solution:
    """The lasso in W's order, or in the best one that reversals of edges lead to."""
    found = polish(S, W, order_of(W), lam, search=search)
    return Solution(found.W, () if found.converged else ("the search over orders did not come to its end",))


def _descend(S: FloatArray, W: FloatArray, lam: float, mu: float, tolerance: float, renewals: int = 3) -> FloatArray:
    """Minimise loss + lam |W|_1 + mu h; the metric, which knows the cycles' curvature, is renewed now and then."""
    identity = np.eye(len(S))
    free = identity == 0.0
    variances = np.diag(S)[:, None]

    def smooth(W: FloatArray) -> tuple[float, FloatArray]:
        R = identity - W
        SR = S @ R
        walks, h = walk_weights(W)
        return 0.5 * float((R * SR).sum()) + mu * h, 2.0 * mu * W * walks.T - SR

    bound = tolerance * float(np.linalg.norm(variances))
    for _ in range(renewals):
        metric = variances + 2.0 * mu * walk_weights(W)[0].T
        minimum = minimise_l1(smooth, W, lam, metric, free, bound, 60)
        W = minimum.W
        if minimum.converged:
            break
    return W
