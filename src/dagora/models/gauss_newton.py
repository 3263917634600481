"""Gauss-Newton steps towards the minimum of a site's problem, for the networks of all variables at once.

    min over theta of  F(theta) = |f(theta) - y|^2 / (2 N) + |theta - centre|^2 / 2 in the metric D

A step solves (J'J / N + D) s = -gradient.  With fewer rows than parameters that is done by the identity

    (J'J / N + D)^-1 = D^-1 - D^-1 J' (N I + J D^-1 J')^-1 J D^-1

so a step costs O(n^3) or O(p^3) for each variable, whichever is less.  One factor serves all steps of a call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dagora.errors import NumericalError

Solve = Callable[[Tensor], Tensor]

_SHORTENINGS = 8
_SHRINK = 0.4
_BLOCK = 1 << 25  # numbers of a Jacobian that are held at once


class Slopes(Protocol):
    """J of f at one theta: (d, n, p), a matrix for each variable, not necessarily formed."""

    def along(self, direction: Tensor) -> Tensor:
        """J v, (d, n), for v (d, p)."""

    def against(self, y: Tensor) -> Tensor:
        """J'y, (d, p), for y (d, n)."""

    def kernel(self, inverse: Tensor) -> Tensor:
        """J E J', (d, n, n), for a diagonal E >= 0, (d, p)."""

    def rows(self, part: slice) -> Tensor:
        """J itself, for some of the rows."""


class Functions(Protocol):
    """f at fixed rows, as a function of theta."""

    def evaluate(self, theta: Tensor) -> tuple[Tensor, Any]:
        """f, (d, n), and what its slopes will need."""

    def slopes(self, theta: Tensor, evaluated: Any) -> Slopes:
        """J there."""


@dataclass(frozen=True, eq=False)
class Proximal:
    """The problem.  `free` is 0 for parameters that stay zero, else 1."""

    f: Functions
    y: Tensor  # (d, n)
    N: float
    D: Tensor  # (d, p)
    centre: Tensor
    free: Tensor

    def descend(self, theta: Tensor, steps: int) -> Tensor:
        """Steps from theta; one is shortened for the variables whose F it would raise."""
        value, output, evaluated = self._objective(theta)
        slopes = self.f.slopes(theta, evaluated)
        solve = self._factored(slopes)
        for step in range(steps):
            if step > 0:
                slopes = self.f.slopes(theta, evaluated)
            gradient = slopes.against(output - self.y) / self.N + self.D * (theta - self.centre)
            move, length = solve(gradient * self.free), torch.ones_like(value)
            for shortening in range(_SHORTENINGS):
                tried = theta - length.unsqueeze(1) * move
                value_there, output, evaluated = self._objective(tried)
                worse = ~(value_there <= value * (1.0 + 1e-12))
                if not bool(worse.any()):
                    break
                length = torch.where(worse, length * (_SHRINK if shortening < _SHORTENINGS - 2 else 0.0), length)
            theta, value = tried, value_there
        return theta

    def _objective(self, theta: Tensor) -> tuple[Tensor, Tensor, Any]:
        """F of each variable, and f."""
        output, evaluated = self.f.evaluate(theta)
        gap = theta - self.centre
        value = ((output - self.y) ** 2).sum(1) / (2.0 * self.N) + 0.5 * (self.D * gap * gap).sum(1)
        return value, output, evaluated

    def _factored(self, slopes: Slopes) -> Solve:
        """g -> (J'J / N + D)^-1 g, J restricted to free parameters."""
        n, p = self.y.shape[1], self.D.shape[1]
        # Thirds of a multiplication: to factor n x n; to form J'J and factor p x p.
        return self._by_parameters(slopes) if n**3 > 3 * n * p * p + p**3 else self._by_rows(slopes)

    def _by_rows(self, slopes: Slopes) -> Solve:
        inverse = self.free / self.D
        M = slopes.kernel(inverse)
        M.diagonal(dim1=1, dim2=2).add_(self.N)
        factor = _cholesky(M)

        def solve(g: Tensor) -> Tensor:
            scaled = inverse * g
            y = torch.cholesky_solve(slopes.along(scaled).unsqueeze(2), factor)
            return scaled - inverse * slopes.against(y.squeeze(2))

        return solve

    def _by_parameters(self, slopes: Slopes) -> Solve:
        (d, n), p = self.y.shape, self.D.shape[1]
        A = torch.diag_embed(self.D)
        block = max(_BLOCK // (d * p), 1)
        for at in range(0, n, block):
            J = slopes.rows(slice(at, at + block)) * self.free.unsqueeze(1)
            A.baddbmm_(J.transpose(1, 2), J, alpha=1.0 / self.N)
        factor = _cholesky(A)
        return lambda g: torch.cholesky_solve(g.unsqueeze(2), factor).squeeze(2) * self.free


def _cholesky(matrices: Tensor) -> Tensor:
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrices)
    if bool(failed.any()):
        raise NumericalError(
            "the equations of a Gauss-Newton step cannot be solved; rescale the columns, or try another seed or penalty"
        )
    return factor
