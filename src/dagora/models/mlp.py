"""Nonlinear effects by networks, one for each variable (paper, Section 5.2, NOTEARS-MLP-ADMM), at one site.

A site's problem separates over variables, and all are solved at once:

    min over theta of  F(theta) = |f(theta) - x|^2 / (2 N) + rho/2 |theta - centre|^2 in the metric

`MlpModel` takes two Gauss-Newton steps a round (gauss_newton.py), from where the last round ended.
`PaperMlpModel` minimises F by L-BFGS instead, as the paper has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.sample import Sample
from dagora.federated.protocol import Summand
from dagora.models.base import by_entry, lots
from dagora.models.gauss_newton import Proximal
from dagora.models.network import (
    Architecture,
    AtRows,
    Point,
    against,
    evaluate,
    jacobian,
    linearise,
    network_of,
    squares,
)

_NUMBERS = 1 << 27  # of the largest arrays of a lot


@dataclass(frozen=True, eq=False)
class Fit:
    """A site's rows and where its networks stand; of several sites, the networks of one after those of the other."""

    rows: Tensor  # (n, d); or (sites, n, d)
    targets: Tensor  # (networks, n)
    scale: float  # N = total rows x weight
    theta: FloatArray  # (networks, size)
    metric: Tensor

    @property
    def inputs(self) -> Tensor:
        """What the networks see: (n, d), or of several sites (networks, n, d), made anew each time it is asked for."""
        return self.rows if self.rows.dim() == 2 else self.rows.repeat_interleave(self.rows.shape[2], 0)


@dataclass(frozen=True)
class MlpModel:
    """theta (d, size), the networks' parameters; `device` is where they are fitted ("cpu", "cuda")."""

    architecture: Architecture
    start: FloatArray
    device: str = "cpu"
    steps: int = 2

    def prepare(self, data: Sample, rows: float, centre: FloatArray | None, weight: float, metric: FloatArray) -> Fit:
        """Rows about the centre (None: as they are, for networks have biases)."""
        X = self._tensor(data.rows if centre is None else data.rows - centre)
        return Fit(X, X.T, rows * weight, self.start, self._metric(metric))

    def together(self, problems: Sequence[Fit]) -> list[tuple[list[int], Fit]]:
        """On an accelerator, those of sites with equally many rows.

        On the CPU each by itself: where numbers lie decides there how torch rounds, and a site's answer must not depend
        on who else is in its process.
        """
        if torch.device(self.device).type == "cpu":
            return [([place], problem) for place, problem in enumerate(problems)]
        d, rows = self.architecture.d, [problem.targets.shape[1] for problem in problems]
        kinds = [(n, problem.scale) for n, problem in zip(rows, problems, strict=True)]
        found = lots(kinds, [d * n * max(d, n) for n in rows], _NUMBERS)
        return [(places, joined([problems[place] for place in places])) for places in found]

    def apart(self, problem: Fit, places: Sequence[int]) -> Fit:
        """The networks of some sites."""
        d = self.architecture.d
        if len(problem.theta) == d:
            return problem
        sites = [slice(d * place, d * (place + 1)) for place in places]
        return joined(
            [
                replace(
                    problem,
                    rows=problem.rows[place],
                    targets=problem.targets[site],
                    theta=problem.theta[site],
                    metric=problem.metric[site],
                )
                for place, site in zip(places, sites, strict=True)
            ]
        )

    def measured(self, problem: Fit, metric: FloatArray) -> Fit:
        """Keep the metric where the rows are."""
        return replace(problem, metric=self._metric(metric).repeat(self._sites(problem), 1))

    def curvature(self, problem: Fit) -> FloatArray:
        """Sums over rows of squared derivatives."""
        total: FloatArray = squares(self._point(problem.theta, problem.inputs)).cpu().numpy()
        return total

    def normal_equations(
        self, problem: Fit, variables: IntArray, theta: FloatArray, used: BoolArray, products: BoolArray
    ) -> Summand:
        """For each network, a row of theta: the sum of squares that it leaves of its variable, and half the gradient.

        products: of which also J'J of the parameters with the inputs in use, one network's triangle after the other's.
        """
        X = problem.rows
        point = self._point(theta, X)
        residual = point.output - X.T[torch.tensor(variables, device=self.device)]
        sums = {
            "squares": (residual * residual).sum(1).cpu().numpy(),
            "gradient": against(point, residual).cpu().numpy(),
        }
        if not products.any():
            return sums
        triangles = []
        for k in np.flatnonzero(products).tolist():
            J = jacobian(network_of(point, k, torch.tensor(np.flatnonzero(used[k]), device=self.device)))
            upper = torch.triu_indices(J.shape[1], J.shape[1], device=self.device)
            triangles.append((J.T @ J)[upper[0], upper[1]])
        return sums | {"products": torch.cat(triangles).cpu().numpy()}

    def prox(self, problem: Fit, centre: FloatArray, rho: float) -> tuple[FloatArray, Fit]:
        """Gauss-Newton steps."""
        f = AtRows(self.architecture, problem.inputs)
        free = self._tensor(self.architecture.free()).repeat(self._sites(problem), 1)
        target = self._tensor(centre.reshape(problem.theta.shape))
        proximal = Proximal(f, problem.targets, problem.scale, rho * problem.metric, target, free)
        found: FloatArray = proximal.descend(self._tensor(problem.theta), self.steps).cpu().numpy()
        return found.reshape(centre.shape), replace(problem, theta=found)

    def _sites(self, problem: Fit) -> int:
        return len(problem.theta) // self.architecture.d

    def _point(self, theta: FloatArray, rows: Tensor) -> Point:
        layers = self.architecture.split(self._tensor(theta))
        return linearise(layers, *evaluate(layers, rows))

    def _metric(self, metric: FloatArray) -> Tensor:
        return self._tensor(np.broadcast_to(by_entry(metric), self.start.shape))

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
        return found.reshape(centre.shape), replace(problem, theta=found)

    def together(self, problems: Sequence[Fit]) -> list[tuple[list[int], Fit]]:
        """Each by itself: one line search for several sites would be another descent."""
        return [([place], problem) for place, problem in enumerate(problems)]


def joined(fits: Sequence[Fit]) -> Fit:
    """The networks of several sites, one site's after the other's."""
    if len(fits) == 1:
        return fits[0]
    rows = torch.stack([fit.rows for fit in fits])
    targets, metric = torch.cat([fit.targets for fit in fits]), torch.cat([fit.metric for fit in fits])
    return Fit(rows, targets, fits[0].scale, np.concatenate([fit.theta for fit in fits]), metric)
