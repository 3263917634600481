"""What the sequence of totals reveals of single sites, whatever protects the summands.

Every round the server asks another question and learns the sum of the sites' answers; with few sites there are soon
more equations (equations.py) than unknowns.  Solved by Levenberg-Marquardt with exact derivatives, from random starts
about the pooled covariance (which the totals give at consensus), until the equations hold, which the server can see
for itself, or time is over.  Sites come out in no particular order, and with their weights where these were unknown.
"""

import time
from collections.abc import Mapping

import numpy as np
from scipy.optimize import linear_sum_assignment

from dagora.arrays import FloatArray
from dagora.audit.equations import Equations
from dagora.audit.finding import SERVER, Finding, blind_error, relative_error
from dagora.audit.inversion import second_moments, typical
from dagora.audit.recovery import Recovered, Setting, centre_of, recover
from dagora.audit.transcript import Transcript
from dagora.data.moments import Moments

_SOLVED = 1e-9  # relative size of what the equations leave: rounding is 1e-15, a wrong solution leaves far more
_SPREADS = (0.05, 0.1, 0.2, 0.4)  # of the starts: sites may be alike or not
_STEPS = 150
_MOST_DERIVATIVES = 2e7  # numbers in memory: d = 20 with two sites, d = 15 with six
_PATIENCE = 8  # steps in which the cost has to fall by 2%, after the first few


def multi_round(
    transcript: Transcript, moments: Mapping[str, Moments], seconds: float = 60.0, seed: int = 0
) -> Finding | None:
    """The server solves the totals for every site's sums of squares.

    None for a single round, in which there is nothing to combine, and for problems too large to try.

    Target: the sites' shares in the pooled second moments, sum (x - c)(x - c)' / n, n the rows of all sites.
    """
    if "consensus" not in transcript.phases or len(transcript.sites) < 2:
        return None
    d = len(next(iter(moments.values())).mean)
    setting, centre = Setting.of(transcript.messages), centre_of(transcript.messages, d)
    pooled = _augmented(recover(transcript.messages, transcript.totals, whole=True), len(setting.metric))
    root = np.sqrt(setting.metric)
    equations = Equations.of(transcript)
    if equations.derivatives > _MOST_DERIVATIVES:
        return None
    x, left, starts = solve(equations, pooled / np.outer(root, root), seconds, np.random.default_rng(seed))
    L, w = equations.unpack(x)
    found = (w[:, None, None] * (L @ L.transpose(0, 2, 1)) * np.outer(root, root))[:, :d, :d]
    truth = np.stack([own.n / setting.rows * second_moments(own, centre) for own in moments.values()])
    _, order = linear_sum_assignment(((truth[:, None] - found[None]) ** 2).sum(axis=(2, 3)))
    share = np.array([own.n / setting.rows for own in moments.values()])
    guess = share[:, None, None] * typical(list(moments.values()), centre)
    unknowns, known = len(x), equations.totals.size
    outcome = "hold" if left < _SOLVED else f"are left with {left:.0e} of their size"
    detail = (
        f"{known} equations from totals for {unknowns} unknowns {outcome} after {starts} starts; sites in any order; "
        "blind: all sites alike, and their row counts known"
    )
    target = f"covariances of all {len(truth)} sites"
    error = relative_error(found[order], truth)
    return Finding("multi-round", SERVER, target, error, blind_error(guess, truth), detail)


def consensus(transcript: Transcript, moments: Mapping[str, Moments]) -> Finding | None:
    """The server computes the pooled covariance from totals: the default preset's own polish rests on it.

    With method "covariance" it is what the server asks for.  None where nothing of it is sent.
    """
    if "learn" in transcript.phases:
        return None
    d = len(next(iter(moments.values())).mean)
    truth = typical(list(moments.values()), centre_of(transcript.messages, d))
    found = recover(transcript.messages, transcript.totals, whole=True).second
    guess = np.diag(np.diag(truth))
    how = "solved from totals as if they were one site's" if "consensus" in transcript.phases else "the total asked for"
    detail = f"{how}; blind: the variances and no covariance"
    error = relative_error(found, truth)
    return Finding("consensus", SERVER, "covariance of all rows", error, blind_error(guess, truth), detail)


def solve(
    equations: Equations, pooled: FloatArray, seconds: float, rng: np.random.Generator
) -> tuple[FloatArray, float, int]:
    """Unknowns that fit best, the relative size of what they leave, and how many starts it took."""
    end = time.perf_counter() + seconds
    K, p = equations.sites, len(pooled)
    rows, columns = np.tril_indices(p)
    root = np.linalg.cholesky(pooled + 1e-9 * np.trace(pooled) * np.eye(p))
    size = float(np.linalg.norm(equations.totals))
    best, least, starts = np.zeros(0), np.inf, 0
    while starts == 0 or (least > _SOLVED and time.perf_counter() < end):
        about = np.eye(p) + rng.choice(_SPREADS) * np.tril(rng.standard_normal((K, p, p)))
        logits = 0.1 * rng.standard_normal(K if equations.by_rows else 0)
        x, cost = descend(equations, np.concatenate([(root @ about)[:, rows, columns].ravel(), logits]), end)
        starts += 1
        if np.sqrt(cost) / size < least:
            best, least = x, float(np.sqrt(cost) / size)
    return best, least, starts


def descend(equations: Equations, x: FloatArray, end: float) -> tuple[FloatArray, float]:
    """Levenberg-Marquardt: damped Gauss-Newton steps that lower the sum of squares, until they hardly do."""
    left, J = equations.errors(x)
    costs, damping = [float(left @ left)], 1e-3
    floor = (1e-14 * float(np.linalg.norm(equations.totals))) ** 2
    while len(costs) <= _STEPS and costs[-1] > floor and damping < 1e12 and time.perf_counter() < end:
        A = J.T @ J
        A += damping * np.diag(np.diag(A) + 1e-14 * np.trace(A))
        trial = x - np.linalg.lstsq(A, J.T @ left, rcond=None)[0]
        left_there, J_there = equations.errors(trial)
        cost = float(left_there @ left_there)
        if not cost < costs[-1]:
            damping *= 5.0
            continue
        x, left, J = trial, left_there, J_there
        damping = max(damping / 5.0, 1e-15)
        costs.append(cost)
        if len(costs) > 2 * _PATIENCE and cost > 0.98 * costs[-_PATIENCE]:
            break
    return x, costs[-1]


def _augmented(found: Recovered, p: int) -> FloatArray:
    """With a row and column of means where the model has intercepts."""
    if len(found.second) == p or found.mean is None:
        return found.second
    return np.block([[found.second, found.mean[:, None]], [found.mean[None], np.ones((1, 1))]])
