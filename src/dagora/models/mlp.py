"""Nonlinear effects by networks, one for each variable (paper, Section 5.2, NOTEARS-MLP-ADMM), at one site.

A site's problem separates over variables, and all are solved at once:

    min over theta of  F(theta) = |f(theta) - x|^2 / (2 N) + rho/2 |theta - centre|^2 in the metric

`MlpModel` takes two Gauss-Newton steps a round, from where the last round ended.  With D = rho x metric, the step
solves (J'J / N + D) s = -gradient.  With fewer rows than parameters that is done by the identity

    (J'J / N + D)^-1 = D^-1 - D^-1 J' (N I + J D^-1 J')^-1 J D^-1

so a step costs O(n^3) or O(size^3) for each variable, whichever is less.  One factor serves both steps.
`PaperMlpModel` minimises F by L-BFGS instead, as the paper has it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.sample import Sample
from dagora.errors import NumericalError
from dagora.federated.protocol import Summand
from dagora.models.network import (
    Architecture,
    Point,
    against,
    along,
    evaluate,
    jacobian,
    kernel,
    linearise,
    network_of,
    squares,
)

Solve = Callable[[Tensor], Tensor]

_SHORTENINGS = 8
_SHRINK = 0.4
_BLOCK = 1 << 25  # numbers of a Jacobian that are held at once


@dataclass(frozen=True, eq=False)
class Fit:
    """A site's rows and where its networks stand."""

    rows: Tensor  # (n, d)
    scale: float  # N = total rows x weight
    theta: FloatArray
    metric: Tensor


@dataclass(frozen=True)
class MlpModel:
    """theta (d, size), the networks' parameters; `device` is where they are fitted ("cpu", "cuda")."""

    architecture: Architecture
    start: FloatArray
    device: str = "cpu"
    steps: int = 2

    def prepare(self, data: Sample, rows: float, centre: FloatArray | None, weight: float, metric: FloatArray) -> Fit:
        """Rows about the centre (None: as they are, for networks have biases)."""
        centred = data.rows if centre is None else data.rows - centre
        return Fit(self._tensor(centred), rows * weight, self.start, self._metric(metric))

    def measured(self, problem: Fit, metric: FloatArray) -> Fit:
        """Keep the metric where the rows are."""
        return replace(problem, metric=self._metric(metric))

    def curvature(self, problem: Fit) -> FloatArray:
        """Sums over rows of squared derivatives."""
        total: FloatArray = squares(self._point(problem.theta, problem.rows)).cpu().numpy()
        return total

    def normal_equations(
        self, problem: Fit, variables: IntArray, theta: FloatArray, used: BoolArray, products: bool
    ) -> Summand:
        """For each network, a row of theta: the sum of squares that it leaves of its variable, and half the gradient.

        products: also J'J of the parameters with the inputs in use, one network's triangle after the other's.
        """
        X = problem.rows
        point = self._point(theta, X)
        residual = point.output - X.T[torch.tensor(variables, device=self.device)]
        sums = {
            "squares": (residual * residual).sum(1).cpu().numpy(),
            "gradient": against(point, residual).cpu().numpy(),
        }
        if not products:
            return sums
        triangles = []
        for k, inputs in enumerate(used):
            J = jacobian(network_of(point, k, torch.tensor(np.flatnonzero(inputs), device=self.device)))
            upper = torch.triu_indices(J.shape[1], J.shape[1], device=self.device)
            triangles.append((J.T @ J)[upper[0], upper[1]])
        return sums | {"products": torch.cat(triangles).cpu().numpy()}

    def prox(self, problem: Fit, centre: FloatArray, rho: float) -> tuple[FloatArray, Fit]:
        """Gauss-Newton steps with one factor; a step is shortened for the variables whose F it would raise."""
        split, X = self.architecture.split, problem.rows
        free = self._tensor(self.architecture.free())
        D, target = rho * problem.metric, self._tensor(centre)
        theta = self._tensor(problem.theta)

        def objective(theta: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
            taken, output = evaluate(split(theta), X)
            gap = theta - target
            return ((output - X.T) ** 2).sum(1) / (2.0 * problem.scale) + 0.5 * (D * gap * gap).sum(1), taken, output

        value, taken, output = objective(theta)
        point = linearise(split(theta), taken, output)
        solve = self._factored(point, D, free, problem.scale)
        for step in range(self.steps):
            if step > 0:
                point = linearise(split(theta), taken, output)
            gradient = (against(point, output - X.T) / problem.scale + D * (theta - target)) * free
            move, length = solve(gradient), torch.ones_like(value)
            for shortening in range(_SHORTENINGS):
                tried = theta - length.unsqueeze(1) * move
                value_there, taken, output = objective(tried)
                worse = ~(value_there <= value * (1.0 + 1e-12))
                if not bool(worse.any()):
                    break
                length = torch.where(worse, length * (_SHRINK if shortening < _SHORTENINGS - 2 else 0.0), length)
            theta, value = tried, value_there
        found: FloatArray = theta.cpu().numpy()
        return found, replace(problem, theta=found)

    def _point(self, theta: FloatArray, rows: Tensor) -> Point:
        layers = self.architecture.split(self._tensor(theta))
        return linearise(layers, *evaluate(layers, rows))

    def _factored(self, point: Point, D: Tensor, free: Tensor, N: float) -> Solve:
        """g -> (J'J / N + D)^-1 g, J restricted to free parameters."""
        (_, n), p = point.output.shape, self.architecture.size
        units = sum(outputs for _, outputs in self.architecture.layers)
        if n**3 / 3 + 2 * n * n * units > n * p * p + p**3 / 3:
            return self._factored_by_parameters(point, D, free, N)
        inverse = free / D
        M = kernel(point, self.architecture.split(inverse))
        M.diagonal(dim1=1, dim2=2).add_(N)
        factor = _cholesky(M)

        def solve(g: Tensor) -> Tensor:
            scaled = inverse * g
            y = torch.cholesky_solve(along(point, self.architecture.split(scaled)).unsqueeze(2), factor)
            return scaled - inverse * against(point, y.squeeze(2))

        return solve

    def _factored_by_parameters(self, point: Point, D: Tensor, free: Tensor, N: float) -> Solve:
        (d, n), p = point.output.shape, self.architecture.size
        A = torch.diag_embed(D)
        block = max(_BLOCK // (d * p), 1)
        for at in range(0, n, block):
            J = jacobian(_rows_of(point, slice(at, at + block))) * free.unsqueeze(1)
            A.baddbmm_(J.transpose(1, 2), J, alpha=1.0 / N)
        factor = _cholesky(A)
        return lambda g: torch.cholesky_solve(g.unsqueeze(2), factor).squeeze(2) * free

    def _metric(self, metric: FloatArray) -> Tensor:
        by_entry = metric[:, None] if metric.ndim == 1 else metric
        return self._tensor(np.broadcast_to(by_entry, self.start.shape))

    def _tensor(self, values: FloatArray) -> Tensor:
        return torch.tensor(values, device=self.device)


@dataclass(frozen=True)
class PaperMlpModel(MlpModel):
    """The same problem by L-BFGS, self-loops barred."""

    def prox(self, problem: Fit, centre: FloatArray, rho: float) -> tuple[FloatArray, Fit]:
        """Minimise F from where the last round ended."""
        free, X = self.architecture.free().ravel(), problem.rows
        D, shape = rho * problem.metric.cpu().numpy().ravel(), self.start.shape
        target = centre.ravel()

        def objective(flat: FloatArray) -> tuple[float, FloatArray]:
            point = self._point(flat.reshape(shape), X)
            residual = point.output - X.T
            gradient = against(point, residual).cpu().numpy().ravel() / problem.scale
            gap = flat - target
            value = float((residual * residual).sum()) / (2.0 * problem.scale) + 0.5 * float((D * gap) @ gap)
            return value, (gradient + D * gap) * free

        start = problem.theta.ravel() * free
        solution = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B")
        found = np.asarray(solution.x, dtype=np.float64).reshape(shape)
        return found, replace(problem, theta=found)


def _rows_of(point: Point, part: slice) -> Point:
    """The same for some of the rows."""
    taken, slopes = [t[..., part, :] for t in point.taken], [s[:, part] for s in point.slopes]
    return Point(taken, slopes, point.output[:, part])


def _cholesky(matrices: Tensor) -> Tensor:
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrices)
    if bool(failed.any()):
        raise NumericalError("a Gauss-Newton step has no solution; standardise the columns")
    return factor
