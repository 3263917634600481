"""The linear model X = W'X + b + N, fitted by least squares (paper, Eq. 2 and Appendix A)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.devices import CPU, Device, diagonal, stack
from dagora.federated.protocol import Estimate
from dagora.models.base import lots

# Of all sites' B in a lot.
_ENTRIES, _ENTRIES_ELSEWHERE = 1 << 16, 1 << 24


@dataclass(frozen=True)
class LeastSquares:
    """A site's loss as factors of its Gram matrix G (p x p) in the metric D: D^-1/2 G D^-1/2 = Q L Q'.

    Thin: of rank r <= min(rows, p), so a step costs O(p d r).  Of several sites, with an axis of sites first.
    """

    factor: FloatArray  # Q' D^1/2, (r, p)
    eigenvalues: FloatArray  # L, (r,)
    metric: FloatArray  # D, (p,)
    rho: float = 0.0  # of the last step; then, for all steps with it:
    gained: FloatArray | None = None  # g factor, with g = L / (L + rho); or the whole pull if r is large
    shrink: FloatArray | None = None  # 1 - diagonal of the pull


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
        factor = np.ascontiguousarray((Q[:, kept] * root[:, None]).T)
        return LeastSquares(*map(self.device.put, (factor, eigenvalues[kept], metric)))

    def together(self, problems: Sequence[LeastSquares]) -> list[tuple[list[int], LeastSquares]]:
        """Those of one shape, as many as fit a cache; an accelerator takes more."""
        most = _ENTRIES if self.device is CPU else _ENTRIES_ELSEWHERE
        shapes = [tuple(problem.factor.shape) for problem in problems]
        found = lots(shapes, [p * p for _, p in shapes], most)
        return [(places, _stacked([problems[place] for place in places])) for places in found]

    def apart(self, problem: LeastSquares, places: Sequence[int]) -> LeastSquares:
        """The same, of some sites."""
        return LeastSquares(problem.factor[places], problem.eigenvalues[places], problem.metric)

    def prox(self, problem: LeastSquares, centre: FloatArray, rho: float) -> tuple[FloatArray, LeastSquares]:
        """Solve (G + rho D) B = rho D C + G E in closed form, E the first d columns of I.

        With the pull P = D^-1 factor' g factor, g = L / (L + rho):  B = C - P (C - E).  A zero diagonal of B has
        multipliers that act as a shift of the centre's diagonal by t, and t follows from the unconstrained diagonal.
        """
        d, thin = centre.shape[-1], 2 * problem.factor.shape[-2] <= problem.factor.shape[-1]
        if rho != problem.rho:
            problem = _at(problem, rho, d, thin)
        assert problem.gained is not None
        assert problem.shrink is not None
        centre = self.device.put(centre)
        own = problem.gained[..., :d]
        B = problem.gained @ centre
        B -= own
        if thin:
            if self.no_self_loops:
                drawn = (problem.factor[..., :d] * B).sum(-2) / problem.metric[:d]
                B -= own * ((diagonal(centre) - drawn) / problem.shrink)[..., None, :]
            B = problem.factor.swapaxes(-1, -2) @ B
            B /= problem.metric[:, None]
        B *= -1.0
        B += centre
        if self.no_self_loops:
            if not thin:
                B += own * (diagonal(B) / problem.shrink)[..., None, :]
            diagonal(B)[...] = 0.0
        return self.device.get(B), problem


def _at(problem: LeastSquares, rho: float, d: int, thin: bool) -> LeastSquares:
    """What all steps with this rho have in common."""
    factor, gain = problem.factor, problem.eigenvalues / (problem.eigenvalues + rho)
    gained = factor * gain[..., None]
    if thin:
        shrink = 1.0 - (factor[..., :d] * gained[..., :d]).sum(-2) / problem.metric[:d]
    else:
        gained = factor.swapaxes(-1, -2) @ gained
        gained /= problem.metric[:, None]
        shrink = 1.0 - diagonal(gained[..., :d])
    return replace(problem, rho=rho, gained=gained, shrink=shrink)


def _stacked(problems: Sequence[LeastSquares]) -> LeastSquares:
    first = problems[0]
    if len(problems) == 1:  # a view: nothing is held twice
        return replace(first, factor=first.factor[None], eigenvalues=first.eigenvalues[None])
    factors, eigenvalues = [p.factor for p in problems], [p.eigenvalues for p in problems]
    return LeastSquares(stack(factors), stack(eigenvalues), first.metric)


def read_weights(theta: FloatArray, d: int, threshold: float | FloatArray) -> Estimate:
    """Weights above the threshold are edges; a row below those of the d variables holds intercepts."""
    W = theta[:d]
    extras = {"intercepts": theta[d]} if len(theta) > d else {}
    return Estimate(W, np.abs(W) > threshold, W, extras=extras)
