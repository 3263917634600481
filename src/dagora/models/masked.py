"""Networks behind a mask that is about binary (paper, Section 5.2; Ng et al. 2022), at one site.

    f_j(m_j o x),   m_ij = sigmoid((U_ij + e_ij) / tau),   e_ij from the logistic law:   Gumbel-softmax of two classes

theta (d, size + d): the parameters of the network of j, then its logits U_1j ... U_dj.  As tau falls, masks tend to 0,
or to 1 with probability sigmoid(U).  The loss is the mean over a few draws of e, in pairs e and -e, whose errors cancel
to first order.  Draws come from the seed and the count of rounds, so every site masks alike: the mean loss over the
sites is that of pooled rows under the same masks.

Steps are Gauss-Newton's for networks and logits together: a logit's column of J is

    df_j / dU_ij = (df_j / d(m_ij x_i)) x_i m_ij (1 - m_ij) / tau
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagora.arrays import FloatArray
from dagora.data.sample import Sample
from dagora.federated.protocol import Estimate
from dagora.models.gauss_newton import Proximal
from dagora.models.mlp import Fit, MlpModel
from dagora.models.network import Architecture, Evaluated, Layer, NetworkSlopes, evaluate, linearise, squares
from dagora.solvers.mask_step import mask


def start_masked(architecture: Architecture, seed: int) -> FloatArray:
    """(d, size + d): random networks, and masks about as open as h's domain allows: all cycles have a gain of 0.9.

    The first layer is as wide as the others: it is the mask that keeps cycles weak.
    """
    theta, d = architecture.start(seed, first=1.0), architecture.d
    p = min(0.95 / np.sqrt(d), 0.5)
    return np.concatenate([theta, np.full((d, d), np.log(p / (1.0 - p)))], axis=1)


def probabilities(theta: FloatArray, architecture: Architecture) -> FloatArray:
    """The mask's mean, [i, j] for i -> j."""
    return mask(theta[:, architecture.size :].T)


def read_masks(theta: FloatArray, architecture: Architecture, threshold: float) -> Estimate:
    """Masks more open than the threshold are edges."""
    P = probabilities(theta, architecture)
    return Estimate(P, threshold < P, P)


@dataclass(frozen=True)
class Masking:
    """How masks are drawn."""

    seed: int
    draws: int = 4  # even, in pairs
    warm: float = 1.0  # temperature at first
    cold: float = 0.5  # and in the end: colder ones leave steps too little slope
    rounds: int = 80  # from one to the other

    def temperature(self, count: int) -> float:
        """Falls by the same factor from round to round."""
        return float(max(self.warm * (self.cold / self.warm) ** (count / self.rounds), self.cold))

    def noise(self, count: int, d: int) -> FloatArray:
        """(draws, d, d), the same at every site."""
        half = np.random.default_rng([self.seed, count]).logistic(size=(self.draws // 2, d, d))
        return np.concatenate([half, -half])


@dataclass(frozen=True, eq=False)
class MaskedFit(Fit):
    """The same, and how many rounds it took part in."""

    count: int = 0


@dataclass(frozen=True)
class MaskedModel(MlpModel):
    """`start` (d, size + d)."""

    masking: Masking = Masking(0)

    def prepare(
        self, data: Sample, rows: float, centre: FloatArray | None, weight: float, metric: FloatArray
    ) -> MaskedFit:
        """Before the first round."""
        fit = super().prepare(data, rows, centre, weight, metric)
        return MaskedFit(fit.rows, fit.targets, fit.scale, fit.theta, fit.metric)

    def together(self, problems: Sequence[Fit]) -> list[tuple[list[int], Fit]]:
        """Each by itself: the draws are a batch already."""
        return [([place], problem) for place, problem in enumerate(problems)]

    def curvature(self, problem: Fit) -> FloatArray:
        """Sums over rows of squared derivatives, the mean over draws."""
        masked = self._masked(problem)
        theta = self._tensor(problem.theta)
        slopes = masked.slopes(theta, masked.evaluate(theta)[1])
        total = torch.cat([squares(slopes.networks.point), (slopes.logits**2).sum(1)], 1)
        mean: FloatArray = total.cpu().numpy() / self.masking.draws
        return mean

    def prox(self, problem: Fit, centre: FloatArray, rho: float) -> tuple[FloatArray, Fit]:
        """Gauss-Newton steps under this round's masks."""
        assert isinstance(problem, MaskedFit)
        draws, D = self.masking.draws, rho * problem.metric
        free = np.concatenate([self.architecture.free(), 1.0 - np.eye(self.architecture.d)], axis=1)
        y, target = problem.targets.repeat(1, draws), self._tensor(centre.reshape(problem.theta.shape))
        proximal = Proximal(self._masked(problem), y, problem.scale * draws, D, target, self._tensor(free))
        found: FloatArray = proximal.descend(self._tensor(problem.theta), self.steps).cpu().numpy()
        return found.reshape(centre.shape), replace(problem, theta=found, count=problem.count + 1)

    def _masked(self, problem: Fit) -> "Masked":
        assert isinstance(problem, MaskedFit)
        noise = self._tensor(self.masking.noise(problem.count, self.architecture.d))
        return Masked(self.architecture, problem.rows, noise, self.masking.temperature(problem.count))


class MaskedPass(NamedTuple):
    """A forward pass: the masks (draws, d, d), [s, j, i] of variable i in the network of j, and the networks' pass."""

    masks: Tensor
    networks: Evaluated


@dataclass(frozen=True, eq=False)
class Masked:
    """All networks at rows, once for each draw of the noise (draws, d, d)."""

    architecture: Architecture
    rows: Tensor  # (n, d)
    noise: Tensor
    temperature: float

    def evaluate(self, theta: Tensor) -> tuple[Tensor, MaskedPass]:
        """Outputs (d, draws n), draw after draw."""
        masks = torch.sigmoid((theta[:, self.architecture.size :] + self.noise) / self.temperature)
        passed = evaluate(self._layers(theta), self._by_draw(masks))
        return passed[1], MaskedPass(masks, passed)

    def slopes(self, theta: Tensor, evaluated: MaskedPass) -> "MaskedSlopes":
        """J there."""
        layers = self._layers(theta)
        point = linearise(layers, *evaluated.networks)
        bends = evaluated.masks * (1.0 - evaluated.masks) / self.temperature
        logits = torch.matmul(point.slopes[0], layers[0].weights) * self._by_draw(bends)
        return MaskedSlopes(NetworkSlopes(self.architecture, point), logits)

    def _layers(self, theta: Tensor) -> list[Layer]:
        return self.architecture.split(theta[:, : self.architecture.size])

    def _by_draw(self, factors: Tensor) -> Tensor:
        """x_i times a factor for each draw, network and input: (d, draws n, d)."""
        draws, d, _ = factors.shape
        return (factors.unsqueeze(2) * self.rows).transpose(0, 1).reshape(d, draws * len(self.rows), d)


@dataclass(frozen=True, eq=False)
class MaskedSlopes:
    """J of networks, and columns of logits (d, draws n, d) beside it."""

    networks: NetworkSlopes
    logits: Tensor

    def along(self, direction: Tensor) -> Tensor:
        """J v."""
        size = self.networks.architecture.size
        moved = torch.matmul(self.logits, direction[:, size:].unsqueeze(2)).squeeze(2)
        return self.networks.along(direction[:, :size]) + moved

    def against(self, y: Tensor) -> Tensor:
        """J'y."""
        return torch.cat([self.networks.against(y), torch.matmul(y.unsqueeze(1), self.logits).squeeze(1)], 1)

    def kernel(self, inverse: Tensor) -> Tensor:
        """J E J'."""
        size = self.networks.architecture.size
        scaled = self.logits * inverse[:, None, size:]
        return self.networks.kernel(inverse[:, :size]) + torch.matmul(scaled, self.logits.transpose(1, 2))

    def rows(self, part: slice) -> Tensor:
        """J for some of the rows."""
        return torch.cat([self.networks.rows(part), self.logits[:, part]], 2)
