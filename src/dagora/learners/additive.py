"""The best additive network, sought over orders of the variables, from the moments of their functions alone.

    score(DAG) = fit - penalty log(n)/2 (functions in all edges),     v_j the variance that its parents leave of j:

    "least-squares"  fit = -n d/2 log mean v               noise variances equal
    "likelihood"     fit = -n/2 sum log v_j                noise variances free; units do not matter
    "similar"        fit = max over s of n d w/2 log s - n (1 + w)/2 sum log(w s + v_j),   w = 1

"similar" is between: variances are drawn from an inverse gamma law about a common s, worth as much as w n rows.  Equal
variances tell directions, but where the model does not hold (parents that act together), a variable keeps more than its
noise; "least-squares" then buys false parents for it, for it measures gains against the mean of v, not against v_j.

    1. Functions of each variable are made orthonormal; those that vary no more once the others are known are dropped
       (all but z, where a variable has two values).
    2. With s fixed, the score is a sum over variables.  The order search of boss.py finds a DAG; s is then that DAG's,
       and so on as long as the score gains.  For "least-squares" too: -log is convex, so its tangent is a lower bound.
    3. An edge's weight is the standard deviation of the fitted effect f_ij(x_i), in units of x_j; never negative, for a
       curve need not rise or fall.
"""

from dataclasses import dataclass, field
from math import inf, log

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs
from scipy.optimize import brentq

from dagora.arrays import BoolArray, FloatArray
from dagora.data.moments import Moments
from dagora.errors import InputError, NumericalError
from dagora.knowledge import Constraints
from dagora.learners.base import FLOOR, Learned, correlations
from dagora.learners.bic import Parents
from dagora.learners.boss import Order, as_matrix, first_order, searches
from dagora.models.additive import FUNCTIONS

SCORES = {"similar": 1.0, "least-squares": inf, "likelihood": 0.0}  # w: rows that the common variance is worth, over n

_VARIES = 1e-6  # a function of which others of its variable leave a smaller share adds nothing
_RIDGE = 1e-8  # on the functions' correlations, so that few rows or dependent variables leave them invertible


def additive(
    moments: Moments, scale: FloatArray, penalty: float, score: str, constraints: Constraints | None = None
) -> Learned:
    """The best network found.  `moments` are those of `Basis.expand`, `scale` the basis's: the columns' deviations."""
    design = Design.of(moments)
    most = int(design.functions.max())
    if design.freedom < most:
        raise InputError(
            f"too few rows for additive effects: {moments.n}, but {2 * most + 1} or more are needed for {most} "
            "functions an edge; add rows or use model 'linear'"
        )
    variances = scale**2
    price = penalty * 0.5 * log(moments.n) * design.functions
    parents = _search(design, variances, price, SCORES[score], constraints)
    fitted = np.zeros((design.d, FUNCTIONS, design.d))  # [i, :, j]: of the orthonormal functions of i, for j
    for child, chosen in enumerate(parents):
        if chosen:
            effects = design.coefficients(child, chosen).reshape(-1, FUNCTIONS)
            fitted[sorted(chosen), :, child] = scale[child] * effects
    weights = np.sqrt((fitted**2).sum(axis=1))
    edges: BoolArray = as_matrix(parents) == 1
    return Learned(weights, edges, coefficients=design.T.T @ fitted.reshape(-1, design.d))


@dataclass(frozen=True)
class Design:
    """Orthonormal functions: their correlations, and how many each variable has.

    A dropped function keeps its place, so that all groups have equal length, and correlates with nothing.
    """

    C: FloatArray
    T: FloatArray  # from functions as they are, less their means, to orthonormal ones
    functions: FloatArray
    n: int
    _known: dict[tuple[int, Parents], float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, moments: Moments) -> "Design":
        """From the moments of functions.  Variables in a linear relation are refused, as by other learners."""
        G, d = moments.covariance, len(moments.mean) // FUNCTIONS
        linear = slice(0, None, FUNCTIONS)
        correlations(Moments(moments.n, moments.mean[linear], moments.scatter[linear, linear]))
        T = np.zeros_like(G)
        functions = np.zeros(d)
        for j in range(d):
            group = slice(j * FUNCTIONS, (j + 1) * FUNCTIONS)
            T[group, group] = _orthonormal(G[group, group])
            functions[j] = np.count_nonzero(np.diag(T)[group])
        C = T @ G @ T.T
        np.fill_diagonal(C, 1.0)
        return cls(C, T, functions, moments.n)

    @property
    def d(self) -> int:
        """Variables."""
        return len(self.functions)

    @property
    def freedom(self) -> int:
        """Functions that a variable's parents may have in all: half of the rows' degrees of freedom."""
        return max(self.n - 1, 0) // 2

    def left(self, child: int, parents: Parents) -> float:
        """The share of the child's variance that its parents leave, computed once."""
        if not parents:
            return 1.0
        found = self._known.get((child, parents))
        if found is None:
            explained = self.coefficients(child, parents) @ self.C[self._columns(parents), child * FUNCTIONS]
            found = self._known[child, parents] = max(1.0 - float(explained), FLOOR)
        return found

    def left_with_each(self, child: int, parents: Parents) -> FloatArray:
        """The same with one parent more, for every variable; NaN where it cannot be one."""
        used = sorted({*parents, child})
        r, blocks = self._given(parents, child * FUNCTIONS)
        blocks[used] = np.eye(FUNCTIONS)
        drops = (r * np.linalg.solve(blocks, r[:, :, None])[:, :, 0]).sum(axis=1)
        left = np.maximum(self.left(child, parents) - drops, FLOOR)
        left[used] = np.nan
        used_up = self.functions[sorted(parents)].sum() + self.functions > self.freedom
        return np.where(used_up, np.nan, left)

    def coefficients(self, child: int, parents: Parents) -> FloatArray:
        """Of the standardised child on its parents' functions, parent after parent."""
        columns = self._columns(parents)
        b: FloatArray = dpotrs(self._factor(columns), self.C[columns, child * FUNCTIONS], lower=1)[0]
        return b

    def _given(self, parents: Parents, target: int) -> tuple[FloatArray, FloatArray]:
        """Covariances given the parents: of all functions with the target, and of each variable's functions."""
        d, identity = self.d, (1.0 + _RIDGE) * np.eye(FUNCTIONS)
        if not parents:
            return self.C[:, target].reshape(d, FUNCTIONS).copy(), np.tile(identity, (d, 1, 1))
        # With C[P, P] = L L' and A = L^-1 C[P, :], cov(x, y | P) = C[x, y] - A[:, x]' A[:, y].
        columns = self._columns(parents)
        A = dtrtrs(self._factor(columns), self.C[columns], lower=1)[0]
        B = A.reshape(-1, d, FUNCTIONS)
        r = (self.C[:, target] - A[:, target] @ A).reshape(d, FUNCTIONS)
        return r, identity - B.transpose(1, 2, 0) @ B.transpose(1, 0, 2)

    def _columns(self, parents: Parents) -> list[int]:
        return [i * FUNCTIONS + k for i in sorted(parents) for k in range(FUNCTIONS)]

    def _factor(self, columns: list[int]) -> FloatArray:
        L, failed = dpotrf(self.C[np.ix_(columns, columns)] + _RIDGE * np.eye(len(columns)), lower=1)
        if failed:
            raise NumericalError("sums of products that no rows have; check that all sites run the same version")
        factor: FloatArray = L
        return factor


@dataclass(frozen=True)
class AdditiveScore:
    """Local scores for a common variance s, for the order search; higher is better."""

    design: Design
    variances: FloatArray
    price: FloatArray  # of each variable as a parent
    share: float  # w
    s: float

    @property
    def d(self) -> int:
        """Variables."""
        return self.design.d

    @property
    def negligible(self) -> float:
        """A smaller difference is rounding."""
        return max(1e-6, 1e-12 * self.design.n * self.d)

    def local(self, child: int, parents: Parents) -> float:
        """The child's term."""
        return float(self._fit(child, self.design.left(child, parents))) - float(self.price[list(parents)].sum())

    def gains(self, child: int, parents: Parents) -> FloatArray:
        """What each variable would add as one more parent; minus infinity where it cannot be one."""
        after = self.design.left_with_each(child, parents)
        gains = self._fit(child, after) - self._fit(child, self.design.left(child, parents)) - self.price
        return np.where(np.isnan(gains), -np.inf, gains)

    def without_each(self, child: int, parents: Parents) -> dict[int, float]:
        """The child's term without each of its parents."""
        return {x: self.local(child, parents - {x}) for x in parents}

    def _fit(self, child: int, left: FloatArray | float) -> FloatArray:
        v, n = self.variances[child] * np.asarray(left), self.design.n
        if self.share == inf:
            return np.asarray(-0.5 * n * v / self.s)
        return np.asarray(-0.5 * n * (1.0 + self.share) * np.log(self.share * self.s + v))


def _search(
    design: Design, variances: FloatArray, price: FloatArray, share: float, known: Constraints | None
) -> list[Parents]:
    """Orders and the common variance in turns."""
    order = _start(design, variances, share)
    v, best, parents = variances, -inf, [frozenset[int]()] * design.d
    while True:
        score = AdditiveScore(design, variances, price, share, common_variance(v, share))
        order, found = _best_order(score, order, known)
        v = variances * np.array([design.left(child, chosen) for child, chosen in enumerate(found)])
        total = fit(v, design.n, share) - sum(float(price[list(chosen)].sum()) for chosen in found)
        if total <= best + score.negligible:
            return parents
        best, parents = total, found
        if share == 0.0:
            return parents


def _best_order(score: AdditiveScore, order: Order, known: Constraints | None) -> tuple[Order, list[Parents]]:
    """The order search from a given order, block by block where knowledge tells their order (boss.py)."""
    best: Order = []
    parents: list[Parents] = [frozenset()] * score.d
    for search in searches(score, known):
        own = search.turn_edges(search.climb(search.valid(order)))
        found = search.dag(own)[1]
        best += own
        for v in own:
            parents[v] = found[v]
    return best, parents


def _start(design: Design, variances: FloatArray, share: float) -> Order:
    """Where variances are alike, effects vary more than their causes; else an order that no unit changes."""
    if share == 0.0:
        return first_order(design.C[::FUNCTIONS, ::FUNCTIONS])
    order: Order = np.argsort(variances, kind="stable").tolist()
    return order


def common_variance(v: FloatArray, share: float) -> float:
    """The s of best fit; for w > 0 it solves (1 + w) mean of s / (w s + v) = 1, whose left side rises with s."""
    if share in (0.0, inf) or v.min() == v.max():
        return float(v.mean())

    def excess(logarithm: float) -> float:
        s = np.exp(logarithm)
        return float((1.0 + share) * (s / (share * s + v)).mean()) - 1.0

    root: float = brentq(excess, log(v.min()), log(v.max()), xtol=1e-14, rtol=1e-14)
    return float(np.exp(root))


def fit(v: FloatArray, n: int, share: float) -> float:
    """How well variances v are explained, at the best s."""
    s, d = common_variance(v, share), len(v)
    if share == inf:
        return -0.5 * n * d * log(s)
    common = d * share * log(s) if share else 0.0
    return 0.5 * n * (common - (1.0 + share) * float(np.log(share * s + v).sum()))


def _orthonormal(G: FloatArray) -> FloatArray:
    """T such that T f has the identity for its covariance, where G is that of f; rows of zeros for what is dropped.

    Gram and Schmidt, in the order of the functions, so that the first stays the variable itself.
    """
    T = np.zeros_like(G)
    for k in range(len(G)):
        t = np.zeros(len(G))
        t[k] = 1.0
        for _ in range(2):  # twice, for rounding
            t -= T.T @ (T @ (G @ t))
        variance = float(t @ G @ t)
        if variance > _VARIES * G[k, k]:
            T[k] = t / np.sqrt(variance)
    return T
