"""The server's W-step for networks: consensus, l1 and ridge on the weights, and acyclicity of the first layer's norms.

    min over theta of  c/2 |theta - Z|^2 + lam |W_1|_1 + ridge/2 (|W_1|^2 + |W_2|^2 + ...) + (a penalty on h(T))

T_ij is the norm of the weights that take variable i into the network of j.  Biases are free.  Given T, the weights of a
group follow: with S = soft(Z, lam / c), they are T_ij S / |S|, for c is one number in a group.  What is left are d(d-1)
numbers T_ij >= 0, with (c + ridge)/2 T^2 - c |S| T each, and h.
"""

import numpy as np
import scipy.optimize

from dagora.acyclicity import trace_exponential_of_norms
from dagora.arrays import FloatArray
from dagora.models.network import Architecture
from dagora.solvers.global_step import path_step
from dagora.solvers.proximal import soft_threshold


def network_step(
    architecture: Architecture,
    theta: FloatArray,
    Z: FloatArray,
    c: FloatArray,
    lam: float,
    ridge: float,
    mu: float,
    tolerance: float,
) -> FloatArray:
    """W-step with the penalty mu h(T), h the log-determinant, from theta.

    No sign has to be guarded: h is even in each norm, so the minimum has the signs of the norms that it starts from.
    """
    moved = shrunk(architecture, Z, c, ridge)  # right for all but the first layer
    price = architecture.first_layer(c)  # the same for all units
    S = soft_threshold(architecture.first_layer(Z), lam / price)
    sizes = np.sqrt((S * S).sum(axis=1)).T
    curvature = price[:, 0].T + ridge
    wanted = sizes * price[:, 0].T / curvature
    T = np.abs(path_step(architecture.norms(theta), wanted, curvature, 0.0, mu, tolerance).W)
    share = np.divide(T, sizes, out=np.zeros_like(T), where=sizes > 0.0)
    architecture.first_layer(moved)[:] = S * share.T[:, None]
    return moved


def shrunk(architecture: Architecture, Z: FloatArray, c: FloatArray, ridge: float) -> FloatArray:
    """The minimum where there is only the ridge."""
    minimum: FloatArray = Z * (c / (c + ridge * architecture.weights()))
    return minimum


def paper_network_step(
    architecture: Architecture, theta: FloatArray, Z: FloatArray, c: float, lam: float, alpha: float, rho1: float
) -> tuple[FloatArray, float]:
    """W-step of the paper (Eq. 5) and h(T) after it: alpha h + rho1/2 h^2, h the trace exponential, by L-BFGS.

    As in the paper's Section 5.1, the l1 penalty enters by a subgradient (0 at 0).
    """
    moved = Z.copy()  # right for all but the first layer
    first, centre = architecture.first_layer(moved), architecture.first_layer(Z)

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        W = flat.reshape(centre.shape)
        gap = W - centre
        with np.errstate(over="ignore", invalid="ignore"):  # a long trial step; the line search rejects it
            h, slope = trace_exponential_of_norms(W)
            value = 0.5 * c * float((gap * gap).sum()) + lam * float(np.abs(W).sum()) + alpha * h + 0.5 * rho1 * h * h
            gradient = c * gap + lam * np.sign(W) + (alpha + rho1 * h) * slope
        return (value, gradient.ravel()) if np.isfinite(value) else rejected

    start = architecture.first_layer(theta).ravel()
    rejected = np.inf, np.zeros(start.size)
    # Where h overflows, a value above the start's, but finite: L-BFGS may end its line search on an infinite one.
    rejected = 2.0 * abs(objective(start)[0]) + 1.0, np.zeros(start.size)
    first[:] = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B").x.reshape(centre.shape)
    return moved, trace_exponential_of_norms(first)[0]
