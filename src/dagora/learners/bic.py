"""Local scores of the linear Gaussian model from a correlation matrix: all that score search asks for.

    s(j | P) = -n/2 log var(j | P) - penalty log(n)/2 |P|             higher is better

var(j | P) is the share of variable j's variance that its parents P leave.  Correlations have no units, so neither
has s.  Conditional variances come from Cholesky factors of sub-matrices, for all candidates at once.
"""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import NumericalError
from dagora.learners.base import FLOOR, correlations, most_parents

Parents = frozenset[int]

_DETERMINED = 10.0 * FLOOR  # a variable of which parents leave less adds nothing to them


class Bic:
    """Scores of a child with its parents."""

    def __init__(self, moments: Moments, penalty: float) -> None:
        R = correlations(moments)
        self.d, self._n = len(R), moments.n
        self.price = penalty * 0.5 * float(np.log(moments.n))
        self.most_parents = most_parents(moments.n, self.d)
        self.R = R
        if moments.n <= self.d:
            R = R + FLOOR * np.eye(self.d)  # some variables determine others: a trace of noise of its own for each
        # A smaller difference of scores is rounding between equal models; scores are log-likelihoods, and grow as n d.
        self.negligible = max(1e-6, 1e-12 * moments.n * self.d)
        self._R = R
        self._known: dict[tuple[int, Parents], float] = {}

    def local(self, child: int, parents: Parents) -> float:
        """s(child | parents), computed once."""
        found = self._known.get((child, parents))
        if found is None:
            L = self._factor([*sorted(parents), child])
            found = self._known[child, parents] = self._score(float(L[-1, -1]) ** 2, len(parents))
        return found

    def gains(self, child: int, parents: Parents) -> FloatArray:
        """s(child | parents + x) - s(child | parents) for every x; minus infinity where x cannot be a parent."""
        if len(parents) >= self.most_parents:
            return np.full(self.d, -np.inf)
        # With R[P, P] = L L' and A = L^-1 R[P, :], cov(x, y | P) = R[x, y] - A[:, x]' A[:, y].
        P = sorted(parents)
        A = dtrtrs(self._factor(P), self._R[P], lower=1)[0] if P else np.zeros((0, self.d))
        left = np.diag(self._R) - (A * A).sum(axis=0)
        usable = left > _DETERMINED
        usable[[child, *P]] = False
        shared = (self._R[child] - A[:, child] @ A)[usable]
        now = max(float(left[child]), FLOOR)
        after = np.maximum(now - shared * shared / left[usable], FLOOR)
        gains = np.full(self.d, -np.inf)
        gains[usable] = 0.5 * self._n * np.log(now / after) - self.price
        return gains

    def without_each(self, child: int, parents: Parents) -> dict[int, float]:
        """s(child | parents - x) for every parent x."""
        # In the inverse of R[P + child, P + child], taking x out is one step of elimination.
        P = sorted(parents)
        inverse = dpotri(self._factor([*P, child]), lower=1)[0]
        kept = inverse[-1, -1] - inverse[-1, :-1] ** 2 / np.diag(inverse)[:-1]
        return {x: self._score(1.0 / float(k), len(P) - 1) for x, k in zip(P, kept, strict=True)}

    def _score(self, left: float, parents: int) -> float:
        return -0.5 * self._n * float(np.log(max(left, FLOOR))) - self.price * parents

    def _factor(self, variables: list[int]) -> FloatArray:
        L, failed = dpotrf(self._R[np.ix_(variables, variables)], lower=1)
        if failed:
            raise NumericalError("a set of variables that passed for independent is not; standardise the columns")
        factor: FloatArray = L
        return factor
