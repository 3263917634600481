"""The linear model X = W'X + b + N, fitted by least squares (paper, Eq. 2 and Appendix A)."""

from dataclasses import dataclass, replace

import numpy as np

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.devices import CPU, Device, clear_diagonal
from dagora.federated.protocol import Estimate


@dataclass(frozen=True)
class LeastSquares:
    """A site's loss as factors of its Gram matrix G (p x p) in the metric D: D^-1/2 G D^-1/2 = Q L Q'.

    Thin: of rank r <= min(rows, p), so a step costs O(p d r).  Where r is large and rho stays, one product serves all
    steps from the second on, at half the cost.
    """

    left: FloatArray  # D^-1/2 Q, (p, r)
    right: FloatArray  # Q' D^1/2, (r, p)
    eigenvalues: FloatArray  # L, (r,)
    share: FloatArray  # Q o Q, (p, r)
    rho: float = 0.0  # of the last step
    pull: FloatArray | None = None  # left L / (L + rho) right, (p, p): how far the data draw B from the centre


@dataclass(frozen=True)
class LinearModel:
    """theta = W, or W with a row of intercepts b below (the paper's bias terms).

    `no_self_loops` keeps diag(W) = 0 in the local step.  The paper does not, so that its B_k = I fits perfectly
    and the first rounds say nothing.
    """

    no_self_loops: bool = True
    intercept: bool = False
    device: Device = CPU  # where steps are taken

    def shape(self, d: int) -> tuple[int, int]:
        """(d, d), or (d + 1, d) with intercepts."""
        return (d + 1 if self.intercept else d, d)

    def prepare(
        self, data: Moments, rows: float, centre: FloatArray | None, weight: float, metric: FloatArray
    ) -> LeastSquares:
        """Factor the Gram matrix of rows centred at `centre` (None: at the site's own mean)."""
        if self.intercept:
            gram = np.empty((len(data.mean) + 1,) * 2)
            gram[:-1, :-1] = data.about(np.zeros_like(data.mean))
            gram[-1, :-1] = gram[:-1, -1] = data.total
            gram[-1, -1] = data.n
        else:
            gram = data.scatter if centre is None else data.about(centre)
        root = np.sqrt(metric)
        eigenvalues, Q = np.linalg.eigh(gram / (rows * weight) / root[:, None] / root)
        kept = eigenvalues > eigenvalues[-1] * len(root) * np.finfo(np.float64).eps
        Q = Q[:, kept]
        left, right = np.ascontiguousarray(Q / root[:, None]), np.ascontiguousarray((Q * root[:, None]).T)
        return LeastSquares(*map(self.device.put, (left, right, eigenvalues[kept], Q * Q)))

    def prox(self, problem: LeastSquares, centre: FloatArray, rho: float) -> tuple[FloatArray, LeastSquares]:
        """Solve (G + rho D) B = rho D C + G E in closed form, E the first d columns of I.

        With g = L / (L + rho): B = C - left g right (C - E).  A zero diagonal of B has multipliers that act as
        a shift of the centre's diagonal by t, and t follows from the unconstrained diagonal.
        """
        centre = self.device.put(centre)
        gain = problem.eigenvalues / (problem.eigenvalues + rho)
        if rho != problem.rho or 2 * len(gain) <= len(centre):
            B, problem = self._by_factors(problem, centre, gain), replace(problem, rho=rho, pull=None)
        else:
            pull = (problem.left * gain) @ problem.right if problem.pull is None else problem.pull
            B, problem = self._by_product(pull, centre), replace(problem, pull=pull)
        if self.no_self_loops:
            clear_diagonal(B)
        return self.device.get(B), problem

    def _by_factors(self, problem: LeastSquares, centre: FloatArray, gain: FloatArray) -> FloatArray:
        d = centre.shape[1]
        right = problem.right * gain[:, None]
        inner = right @ centre
        inner -= right[:, :d]
        if self.no_self_loops:
            unconstrained = centre[:d].diagonal() - (problem.left[:d].T * inner).sum(axis=0)
            inner -= right[:, :d] * (unconstrained / (1.0 - problem.share[:d] @ gain))
        B: FloatArray = problem.left @ inner
        B *= -1.0
        B += centre
        return B

    def _by_product(self, pull: FloatArray, centre: FloatArray) -> FloatArray:
        own = pull[:, : centre.shape[1]]
        B: FloatArray = pull @ centre
        B -= own
        B *= -1.0
        B += centre
        if self.no_self_loops:
            B += own * (B.diagonal() / (1.0 - own.diagonal()))
        return B


def read_weights(theta: FloatArray, d: int, threshold: float | FloatArray) -> Estimate:
    """Weights above the threshold are edges; a row below those of the d variables holds intercepts."""
    W = theta[:d]
    extras = {"intercepts": theta[d]} if len(theta) > d else {}
    return Estimate(W, np.abs(W) > threshold, W, extras=extras)
