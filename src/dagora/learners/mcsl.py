"""Masked structure learning in the manner of MCSL (Ng et al. 2022), on rows in one place: the oracle of model "masked".

    min over theta, U of  E |f(m o x; theta) - x|^2 / (2 n) + lam sum P + ridge/2 |weights|^2   subject to   h(P) = 0

P = sigmoid(U); masks m are drawn by Gumbel-softmax, a new one for each step.  Augmented Lagrangian and Adam, gradients
by autodiff, h the trace exponential of P.  Unlike theirs, networks are those of our model, so that the problems agree.
"""

import numpy as np
import torch
from torch import Tensor

from dagora.acyclicity import trace_exponential
from dagora.arrays import FloatArray
from dagora.learners.notears_mlp import Solved
from dagora.models.network import Architecture, evaluate

_STEP = 0.03  # of Adam
_TEMPERATURE = 0.2
_CLOSED = 0.5  # a probability below is no edge


def solve(
    rows: FloatArray,
    architecture: Architecture,
    start: FloatArray,
    lam: float,
    ridge: float,
    *,
    seed: int,
    h_tolerance: float = 1e-8,
    outer: int = 25,
    steps: int = 1000,
) -> Solved:
    """From `start` (d, size + d); rho from 1e-5, ten times larger whenever h has not fallen by 3/4."""
    X, n, d, size = torch.tensor(rows), len(rows), architecture.d, architecture.size
    theta = torch.tensor(start, requires_grad=True)
    weights = torch.tensor(ridge * architecture.weights())
    free = torch.tensor(np.concatenate([architecture.free(), 1.0 - np.eye(d)], axis=1))
    generator = torch.Generator().manual_seed(seed)

    def lagrangian(alpha: float, rho: float) -> Tensor:
        U = theta[:, size:]
        uniform = torch.rand((d, d), generator=generator, dtype=torch.float64).clamp(1e-12, 1.0 - 1e-12)
        mask = torch.sigmoid((U + torch.logit(uniform)) / _TEMPERATURE)
        _, output = evaluate(architecture.split(theta[:, :size]), mask.unsqueeze(1) * X)
        h, P = acyclicity(U)
        squares = ((output - X.T) ** 2).sum() / (2.0 * n)
        shrunk = 0.5 * (weights * theta[:, :size] ** 2).sum()
        return squares + shrunk + lam * P.sum() + alpha * h + 0.5 * rho * h * h

    def acyclicity(U: Tensor) -> tuple[Tensor, Tensor]:
        P = torch.sigmoid(U) * free[:, size:]
        return torch.trace(torch.linalg.matrix_exp(P)) - d, P

    alpha, rho, h = 0.0, 1e-5, np.inf
    for _ in range(outer):
        adam = torch.optim.Adam([theta], lr=_STEP)
        for _ in range(steps):
            adam.zero_grad()
            lagrangian(alpha, rho).backward()  # type: ignore[no-untyped-call]
            assert theta.grad is not None
            theta.grad *= free
            adam.step()
        new_h = float(acyclicity(theta[:, size:])[0].detach())
        alpha += rho * new_h
        rho *= 10.0 if new_h > 0.25 * h else 1.0
        h = new_h
        if h <= h_tolerance:
            break
    return _solved(theta.detach(), X, architecture, lam, ridge)


def _solved(theta: Tensor, X: Tensor, architecture: Architecture, lam: float, ridge: float) -> Solved:
    """Masks rounded to 0 or 1."""
    size = architecture.size
    P = torch.sigmoid(theta[:, size:]).numpy().T.copy()
    np.fill_diagonal(P, 0.0)
    networks = theta[:, :size].numpy() * 1.0
    architecture.first_layer(networks)[:] *= (P > _CLOSED).T[:, None]
    _, output = evaluate(architecture.split(torch.tensor(networks)), X)
    squares = float(((output - X.T) ** 2).sum()) / (2.0 * len(X))
    penalty = architecture.penalties(0.0, ridge)
    h, _ = trace_exponential((P > _CLOSED).astype(np.float64))
    return Solved(networks, P, h, squares + sum(map(penalty.at, networks)) + lam * float(P.sum()))
