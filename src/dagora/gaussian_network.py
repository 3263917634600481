"""A linear Gaussian Bayesian network: a graph with its parameters, and what can be asked of it.

    x_j = a_j + sum over its parents i of W_ij x_i + e_j,      e_j ~ N(0, v_j), independent

So x is Gaussian with mean (I - W')^-1 a and covariance (I - W)^-T diag(v) (I - W)^-1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.data.tables import Source, open_table
from dagora.errors import InputError, NumericalError
from dagora.graphs import topological_order
from dagora.learners.base import fit


@dataclass(frozen=True, eq=False)
class Conditional:
    """The normal distribution of some variables, given others."""

    names: tuple[str, ...]
    mean: FloatArray
    covariance: FloatArray


@dataclass(frozen=True, eq=False)
class GaussianNetwork:
    """Coefficients of the edges, intercepts and noise variances; of the maximum likelihood if fitted.

    >>> effects = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])  # a -> b -> c
    >>> network = dagora.GaussianNetwork(("a", "b", "c"), effects, intercepts=np.zeros(3), variances=np.ones(3))
    >>> network.total_effect("a", "c")
    1.0
    >>> seen = network.given({"b": 5.0})  # evidence for its cause, too
    >>> dict(zip(seen.names, seen.mean.round(6).tolist(), strict=True))
    {'a': 2.0, 'c': 2.5}
    >>> network.do({"b": 5.0}).mean.tolist()  # set, it says nothing of its cause
    [0.0, 5.0, 2.5]
    """

    names: tuple[str, ...]
    coefficients: FloatArray  # (d, d): [i, j] is the effect of i on j, 0 where there is no edge
    intercepts: FloatArray
    variances: FloatArray  # of the noise; 0 for a variable that was set by `do`

    @classmethod
    def fitted(cls, names: tuple[str, ...], moments: Moments, dag: IntArray) -> "GaussianNetwork":
        """Least squares of every variable on its parents.

        Needs the means, the variances and the covariances within each family (a child and its parents) only.
        """
        S, W = moments.covariance, fit(moments.covariance, dag != 0)
        # Where there is no edge the covariance may be unknown (NaN): it is not looked at.
        variances = np.diag(S).copy()
        for child in range(len(S)):
            parents = np.flatnonzero(dag[:, child])
            variances[child] -= S[child, parents] @ W[parents, child]
        # What parents determine up to rounding keeps a variance that a density can be made of.
        floor = np.finfo(np.float64).eps * np.diag(S)
        if not (np.isfinite(W).all() and np.isfinite(variances).all()):
            raise NumericalError("the parameters of the network are not finite; check the data for extreme values")
        return cls(names, W, moments.mean - W.T @ moments.mean, np.maximum(variances, floor))

    @property
    def adjacency(self) -> IntArray:
        """1 where there is an edge; a fitted effect is never exactly 0."""
        present: IntArray = (self.coefficients != 0).astype(np.int64)
        return present

    def summary(self) -> dict[str, Any]:
        """By variable, for machines."""
        return {
            name: {
                "intercept": float(self.intercepts[j]),
                "coefficients": {self.names[i]: float(self.coefficients[i, j]) for i in self._parents(j)},
                "variance": float(self.variances[j]),
            }
            for j, name in enumerate(self.names)
        }

    @property
    def mean(self) -> FloatArray:
        """Of all variables."""
        found: FloatArray = self._reach.T @ self.intercepts
        return found

    @property
    def covariance(self) -> FloatArray:
        """Of all variables."""
        reach = self._reach
        found: FloatArray = (reach * self.variances[:, None]).T @ reach
        return found

    def log_likelihood(self, data: Source) -> float:
        """The log density of rows, summed over them; an array has columns as in `names`, tables have names."""
        if not (self.variances > 0.0).all():
            raise InputError("a variable that was set has no density; ask the network before do()")
        table = open_table("data", data, self.names if isinstance(data, np.ndarray) else None)
        total = 0.0
        for rows in table.chunks(self.names):
            noise = rows - rows @ self.coefficients - self.intercepts
            total -= 0.5 * float((noise**2 / self.variances).sum())
            total -= 0.5 * len(rows) * float(np.log(2.0 * np.pi * self.variances).sum())
        return total

    def sample(self, n: int, seed: int = 0) -> FloatArray:
        """Rows (n, d), columns as in `names`; the same seed gives the same rows."""
        if n < 1:
            raise InputError("n: must be 1 or more")
        rows = self.intercepts + np.sqrt(self.variances) * np.random.default_rng(seed).standard_normal(
            (n, len(self.names))
        )
        for vertex in topological_order(self.coefficients != 0):
            rows[:, vertex] += rows @ self.coefficients[:, vertex]
        return rows

    def given(self, evidence: Mapping[str, float]) -> Conditional:
        """The distribution of all other variables when these are seen to have these values."""
        seen, values = self._values(evidence)
        if settled := [self.names[j] for j in seen if self.variances[j] == 0.0]:
            raise InputError(f"{settled[0]}: its value was set by do(); leave it out")
        others = np.setdiff1d(np.arange(len(self.names)), seen)
        mean, S = self.mean, self.covariance
        # In units of standard deviations, so that no unit drowns another.
        scale = np.sqrt(np.where(np.diag(S) > 0.0, np.diag(S), 1.0))
        R = S / scale[:, None] / scale
        across = R[np.ix_(seen, others)]
        slope = scipy.linalg.lstsq(R[np.ix_(seen, seen)], across)[0] if len(seen) else across
        shift = slope.T @ ((values - mean[seen]) / scale[seen])
        rest = R[np.ix_(others, others)] - slope.T @ across
        return Conditional(
            tuple(self.names[j] for j in others),
            mean[others] + scale[others] * shift,
            0.5 * (rest + rest.T) * scale[others][:, None] * scale[others],
        )

    def do(self, intervention: Mapping[str, float]) -> "GaussianNetwork":
        """The network in which these variables are set to these values, whatever their parents are."""
        chosen, values = self._values(intervention)
        coefficients, intercepts, variances = self.coefficients.copy(), self.intercepts.copy(), self.variances.copy()
        coefficients[:, chosen], intercepts[chosen], variances[chosen] = 0.0, values, 0.0
        return replace(self, coefficients=coefficients, intercepts=intercepts, variances=variances)

    def total_effect(self, source: str, target: str) -> float:
        """By how much the target's mean grows for each unit by which the source is set higher, over all ways."""
        (i,), (j,) = self._values({source: 0.0})[0], self._values({target: 0.0})[0]
        return float(self._reach[i, j])

    @property
    def _reach(self) -> FloatArray:
        """(I - W)^-1: [i, j] is the sum over all ways from i to j of the products of their effects."""
        d = len(self.names)
        order = topological_order(self.coefficients != 0)
        # Unit triangular in the order of the graph: solved exactly, however the units differ.
        sorted_ = np.eye(d) - self.coefficients[np.ix_(order, order)]
        found = np.empty((d, d))
        found[np.ix_(order, order)] = scipy.linalg.solve_triangular(sorted_, np.eye(d), unit_diagonal=True)
        return found

    def _parents(self, child: int) -> list[int]:
        return np.flatnonzero(self.coefficients[:, child]).tolist()

    def _values(self, given: Mapping[str, float]) -> tuple[IntArray, FloatArray]:
        for name, value in given.items():
            if name not in self.names:
                raise InputError(f"there is no variable {name!r}; choose from {', '.join(self.names)}")
            if not np.isfinite(value):
                raise InputError(f"{name}: the value must be a finite number")
        index = np.array([self.names.index(name) for name in given], dtype=np.int64)
        return index, np.array([float(value) for value in given.values()])
