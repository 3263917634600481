"""The server's W-step: the consensus term, the l1 penalty and acyclicity, for a given centre Z.

    min over W of  c/2 |W - Z|^2 + lam |W|_1 + (a penalty on h(W)),      c = rho x metric, entry by entry

Z is the weighted mean of the sites' B_k + u_k, so nothing here depends on the number of sites.
W may have more rows than columns (an intercept): the penalties act on its first d rows.
"""

from dataclasses import replace

import numpy as np
import scipy.optimize

from dagora.acyclicity import trace_exponential, walk_weights
from dagora.arrays import BoolArray, FloatArray
from dagora.devices import CPU, Device
from dagora.knowledge import Constraints
from dagora.solvers.proximal import Minimum, minimise_l1, soft_threshold

_SMALL = 40  # variables: the steps of fewer cost little more than the calls


def path_step(
    W: FloatArray,
    Z: FloatArray,
    c: FloatArray,
    lam: float | FloatArray,
    mu: float,
    tolerance: float,
    most_steps: int = 50,
    permitted: BoolArray | None = None,
    device: Device = CPU,
) -> Minimum:
    """W-step with the penalty mu h(W), h the log-determinant; entries that are not `permitted` stay zero.

    The curvature of mu h along entry (i, j) is about 2 mu times the walks from j back to i, so entries that
    close strong cycles get short steps and all others long ones: without it large mu takes many more steps.
    """
    free = ~np.eye(len(W), dtype=bool) if permitted is None else permitted
    W, Z, c, lam, free = map(device.put, (W, Z, c, lam, free))
    walks, _ = walk_weights(W)

    def smooth(W: FloatArray) -> tuple[float, FloatArray]:
        walks, h = walk_weights(W)
        gap = W - Z
        pull = c * gap
        return mu * h + 0.5 * float((pull * gap).sum()), 2.0 * mu * W * walks.T + pull

    found = minimise_l1(smooth, W, lam, c + 2.0 * mu * walks.T, free, tolerance, most_steps)
    return replace(found, W=device.get(found.W))


def ordered_step(Z: FloatArray, c: FloatArray, lam: float | FloatArray, allowed: BoolArray) -> FloatArray:
    """W-step when the order of the variables is settled: acyclic by its zeros, hence in closed form."""
    return soft_threshold(Z, lam / c) * allowed


def block_step(
    W: FloatArray,
    Z: FloatArray,
    c: FloatArray,
    prices: float | FloatArray,
    mu: float,
    tolerance: float,
    known: Constraints,
    device: Device = CPU,
) -> FloatArray:
    """W-step with the penalty mu h(W) where some directions are known: cycles are within blocks of variables.

    So h is a sum over blocks.  Each has a W-step of its own, small ones together; what leads from one to another is in
    closed form.
    """
    found = ordered_step(Z, c, prices, known.permitted)
    by_entry = np.broadcast_to(prices, W.shape)
    together: list[int] = []
    for place, block in enumerate(known.blocks, start=1):
        together += block.tolist() if len(block) > 1 else []
        if len(together) >= _SMALL or (together and place == len(known.blocks)):
            own = np.ix_(together, together)
            share = tolerance * float(np.sqrt(len(together) / len(W)))
            part = W[own], Z[own], c[own], by_entry[own]
            found[own] = path_step(*part, mu, share, permitted=known.permitted[own], device=device).W
            together = []
    return found


def paper_step(W: FloatArray, Z: FloatArray, c: float, lam: float, alpha: float, rho1: float) -> FloatArray:
    """W-step of the paper (Eq. 5): alpha h + rho1/2 h^2, h the trace exponential, by L-BFGS.

    As in the paper's Section 5.1, the l1 penalty enters by a subgradient (0 at 0).
    """
    shape, d = W.shape, W.shape[1]

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        W = flat.reshape(shape)
        gap = W - Z
        value = 0.5 * c * float((gap * gap).sum())
        gradient = c * gap
        weights = W[:d]
        with np.errstate(over="ignore", invalid="ignore"):  # a long trial step; the line search rejects it
            h, slope = trace_exponential(weights)
            value += lam * float(np.abs(weights).sum()) + alpha * h + 0.5 * rho1 * h * h
            gradient[:d] += lam * np.sign(weights) + (alpha + rho1 * h) * slope
        return value, gradient.ravel()

    start = W.ravel()
    # Where h overflows, a value above the start's, but finite: L-BFGS may end its line search on an infinite one.
    rejected = 2.0 * abs(objective(start)[0]) + 1.0, np.zeros(start.size)

    def finite(flat: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective(flat)
        return (value, gradient) if np.isfinite(value) else rejected

    solution = scipy.optimize.minimize(finite, start, jac=True, method="L-BFGS-B")
    return np.asarray(solution.x, dtype=np.float64).reshape(shape)
