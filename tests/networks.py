"""Oracles for networks, written anew: a plain forward pass, Jacobians by autograd, minima by a generic optimiser."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from dagora.arrays import BoolArray, FloatArray

Smooth = Callable[[FloatArray], tuple[float, FloatArray]]  # of a flat x: value and gradient


def forward(d: int, hidden: Sequence[int], theta: Tensor, rows: Tensor) -> Tensor:
    """(n,), one network: theta holds each layer's weights, a row for each unit, and then its biases."""
    widths, at, units = (d, *hidden, 1), 0, rows
    for depth, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        weights = theta[at : at + inputs * outputs].reshape(outputs, inputs)
        biases = theta[at + inputs * outputs : at + (inputs + 1) * outputs]
        units = torch.nn.functional.linear(units, weights, biases)
        units = torch.sigmoid(units) if depth < len(hidden) else units
        at += (inputs + 1) * outputs
    assert at == len(theta)
    return units[:, 0]


def outputs_of(hidden: Sequence[int], theta: FloatArray, rows: FloatArray) -> FloatArray:
    """(networks, n)."""
    d = rows.shape[1]
    found: FloatArray = np.stack([forward(d, hidden, torch.tensor(own), torch.tensor(rows)).numpy() for own in theta])
    return found


def jacobian_of(hidden: Sequence[int], theta: FloatArray, rows: FloatArray) -> FloatArray:
    """(networks, n, size), by reverse-mode differentiation."""
    d, X = rows.shape[1], torch.tensor(rows)
    jacobians = [torch.func.jacrev(lambda own: forward(d, hidden, own, X))(torch.tensor(own)) for own in theta]
    found: FloatArray = torch.stack(jacobians).numpy()
    return found


def generic_minimum(
    smooth: Smooth, x: FloatArray, lam: float | FloatArray = 0.0, free: BoolArray | None = None
) -> tuple[FloatArray, float]:
    """L-BFGS-B on smooth(x) + sum_i lam_i |x_i| from x, which is split in two halves; the rest stays as it is."""
    moving = np.flatnonzero(np.ones(x.shape, dtype=bool) if free is None else free)
    prices, k = np.broadcast_to(lam, x.shape).ravel()[moving], len(moving)

    def whole(halves: FloatArray) -> FloatArray:
        flat = x.ravel().copy()
        flat[moving] = halves[:k] - halves[k:]
        return flat.reshape(x.shape)

    def objective(halves: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = smooth(whole(halves))
        slope = gradient.ravel()[moving]
        return value + float(prices @ (halves[:k] + halves[k:])), np.concatenate([slope + prices, prices - slope])

    own = x.ravel()[moving]
    start = np.concatenate([np.maximum(own, 0.0), np.maximum(-own, 0.0)])
    options: Any = {"maxiter": 50000, "maxfun": 100000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
    bounds = scipy.optimize.Bounds(np.zeros(2 * k), np.full(2 * k, np.inf))
    found: Any = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return whole(np.asarray(found.x, dtype=np.float64)), float(found.fun)
