"""NOTEARS-MLP as published (Zheng et al. 2020), on rows in one place: the oracle of model "mlp".

    min over theta of  |f(theta) - x|^2 / (2 n) + lam |W_1|_1 + ridge/2 (|W_1|^2 + |W_2|^2 + ...)   subject to  h(T) = 0

T_ij is the norm of the first layer's weights that take variable i into the network of j; h is the trace exponential.
Augmented Lagrangian and L-BFGS-B, the l1 penalty made smooth by splitting W_1 in two halves.  Rows are centred, which
changes nothing but the way to the minimum: networks have biases.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize
import torch

from dagora.acyclicity import trace_exponential_of_norms
from dagora.arrays import FloatArray
from dagora.models.network import Architecture, against, evaluate, linearise

H_TOLERANCE = 1e-8  # smaller values count as a DAG

Loss = Callable[[FloatArray], tuple[float, FloatArray]]  # of theta: value and gradient


@dataclass(frozen=True, eq=False)
class Solved:
    """Networks, their equivalent adjacency, its h and the penalised objective."""

    theta: FloatArray
    weights: FloatArray
    h: float
    objective: float


def solve(
    rows: FloatArray,
    architecture: Architecture,
    theta: FloatArray,
    lam: float,
    ridge: float,
    *,
    most_penalty: float = 1e16,
    outer: int = 100,
) -> Solved:
    """Their Algorithm 1 with rho from 1, growth 10, progress 1/4, from theta."""
    loss = partial(_loss, torch.tensor(rows), architecture, ridge)
    alpha, rho, h = 0.0, 1.0, np.inf
    for _ in range(outer):
        while True:
            theta = _lagrangian_minimum(loss, architecture, theta, lam, alpha, rho)
            new_h, _ = trace_exponential_of_norms(architecture.first_layer(theta))
            if new_h <= 0.25 * h or rho >= most_penalty:
                break
            rho *= 10.0
        h = new_h
        alpha += rho * h
        if h <= H_TOLERANCE or rho >= most_penalty:
            break
    objective = loss(theta)[0] + lam * float(np.abs(architecture.first_layer(theta)).sum())
    return Solved(theta, architecture.norms(theta), float(h), objective)


def _lagrangian_minimum(
    loss: Loss, architecture: Architecture, theta: FloatArray, lam: float, alpha: float, rho: float
) -> FloatArray:
    """Minimise loss + lam |W_1|_1 + alpha h + rho/2 h^2 with W_1 = V+ - V-, both >= 0; x = (V+, V-, the rest)."""
    first = np.flatnonzero(architecture.free() * architecture.first())  # no self-loops
    rest = np.flatnonzero(~np.broadcast_to(architecture.first(), theta.shape))
    size = len(first)

    def whole(x: FloatArray) -> FloatArray:
        flat = np.zeros(theta.size)
        flat[first], flat[rest] = x[:size] - x[size : 2 * size], x[2 * size :]
        return flat.reshape(theta.shape)

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        theta = whole(x)
        with np.errstate(over="ignore", invalid="ignore"):  # a long trial step; the line search rejects it
            value, gradient = loss(theta)
            h, slope = trace_exponential_of_norms(architecture.first_layer(theta))
            architecture.first_layer(gradient)[:] += (alpha + rho * h) * slope
            value += lam * float(x[: 2 * size].sum()) + alpha * h + 0.5 * rho * h * h
        flat = gradient.ravel()
        return value, np.concatenate([flat[first] + lam, lam - flat[first], flat[rest]])

    flat = theta.ravel()
    start = np.concatenate([np.maximum(flat[first], 0.0), np.maximum(-flat[first], 0.0), flat[rest]])
    lower = np.concatenate([np.zeros(2 * size), np.full(len(rest), -np.inf)])
    bounds = scipy.optimize.Bounds(lower, np.full(len(start), np.inf))
    options: Any = {"maxfun": 10**6, "maxiter": 10**6}
    found: Any = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return whole(np.asarray(found.x, dtype=np.float64))


def _loss(rows: torch.Tensor, architecture: Architecture, ridge: float, theta: FloatArray) -> tuple[float, FloatArray]:
    """Squares and ridge, with the gradient."""
    layers = architecture.split(torch.tensor(theta))
    taken, output = evaluate(layers, rows)
    residual, n = output - rows.T, len(rows)
    shrunk = ridge * architecture.weights() * theta
    value = float((residual * residual).sum()) / (2.0 * n) + 0.5 * float((shrunk * theta).sum())
    return value, against(linearise(layers, taken, output), residual).numpy() / n + shrunk
