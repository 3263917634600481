"""One network of sigmoid units for each variable, and its derivatives: what NOTEARS-MLP fits (Zheng et al. 2020).

    f_j(x) = w' a_L + b,   a_l = sigmoid(W_l a_(l-1) + b_l),   a_0 = x         one set of layers for each variable j

All d networks are evaluated at once: a tensor's first axis is the variable.  A parameter vector of all networks is an
array theta (d, size): row j holds the layers of f_j one after the other, each as its weights (a row for each unit, a
column for each input), then its biases.  In the first layer of f_j, the column of input j is zero.

Derivatives are products, written out: for the sums s_l that enter the units of layer l, df/dW_l = df/ds_l a_(l-1)'.
So J J' of the Jacobian J of all rows is a sum over layers of entrywise products of two small Gram matrices, and J
itself is never formed unless rows outnumber parameters.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagora.arrays import BoolArray, FloatArray
from dagora.federated.protocol import Estimate
from dagora.solvers.levenberg import Penalties


class Layer(NamedTuple):
    """One layer of every network."""

    weights: Tensor  # (d, outputs, inputs)
    biases: Tensor  # (d, outputs)


@dataclass(frozen=True)
class Architecture:
    """d networks with d inputs, these hidden layers and one output each."""

    d: int
    hidden: tuple[int, ...] = (10,)

    @cached_property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each layer."""
        widths = (self.d, *self.hidden, 1)
        return tuple(itertools.pairwise(widths))

    @cached_property
    def size(self) -> int:
        """Parameters of one network."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.layers)

    def split(self, theta: Tensor) -> list[Layer]:
        """Views of the layers' parameters."""
        parts, at = [], 0
        for inputs, outputs in self.layers:
            middle, end = at + inputs * outputs, at + (inputs + 1) * outputs
            parts.append(Layer(theta[:, at:middle].view(-1, outputs, inputs), theta[:, middle:end]))
            at = end
        return parts

    def first_layer(self, theta: FloatArray) -> FloatArray:
        """A view of the first layers' weights, (d, units, d): [j, :, i] takes variable i into the network of j."""
        units = self.layers[0][1]
        return theta[:, : units * self.d].reshape(self.d, units, self.d)

    def norms(self, theta: FloatArray) -> FloatArray:
        """The equivalent adjacency matrix: [i, j] is zero exactly if f_j does not depend on x_i."""
        norms: FloatArray = np.sqrt((self.first_layer(theta) ** 2).sum(axis=1)).T
        return norms

    def weights(self) -> BoolArray:
        """(size,), true for a weight, false for a bias."""
        return np.concatenate([np.repeat([True, False], [i * o, o]) for i, o in self.layers])

    def first(self) -> BoolArray:
        """(size,), true for a weight of the first layer."""
        inputs, outputs = self.layers[0]
        return np.arange(self.size) < inputs * outputs

    def using(self, inputs: BoolArray) -> BoolArray:
        """(size,), true for the parameters of a network that takes in only these variables."""
        using = np.ones(self.size, dtype=bool)
        using[self.first()] = np.tile(inputs, self.layers[0][1])
        return using

    def inputs(self, parameters: FloatArray | BoolArray) -> BoolArray:
        """(d,), whether any weight of one network's first layer that takes in a variable is nonzero (true)."""
        units = self.layers[0][1]
        some: BoolArray = (parameters[self.first()] != 0).reshape(units, self.d).any(axis=0)
        return some

    def penalties(self, lam: float, ridge: float) -> Penalties:
        """Of one network: l1 on the first layer's weights, ridge on those of all layers."""
        return Penalties(lam * self.first().astype(np.float64), ridge * self.weights().astype(np.float64))

    def free(self) -> FloatArray:
        """(d, size), 0 for the weights of a variable's own value in its network, 1 for all others."""
        free = np.ones((self.d, self.size))
        self.first_layer(free)[np.arange(self.d), :, np.arange(self.d)] = 0.0
        return free

    def start(self, seed: int, first: float = 0.3) -> FloatArray:
        """Random parameters, uniform within 1 / sqrt(inputs), the first layer's small: cycles are weak, but not zero.

        From zero weights no descent would leave, for all units would move alike.
        """
        rng = np.random.default_rng(seed)
        theta = np.empty((self.d, self.size))
        at = 0
        for depth, (inputs, outputs) in enumerate(self.layers):
            end = at + (inputs + 1) * outputs
            theta[:, at:end] = rng.uniform(-1.0, 1.0, (self.d, end - at)) / np.sqrt(inputs)
            if depth == 0:
                theta[:, : inputs * outputs] *= first
            at = end
        start: FloatArray = theta * self.free()
        return start


def read_norms(theta: FloatArray, architecture: Architecture, threshold: float) -> Estimate:
    """Norms above the threshold are edges."""
    norms = architecture.norms(theta)
    return Estimate(norms, norms > threshold, norms)


class Point(NamedTuple):
    """All networks at one theta and the rows at hand: what each layer takes in, and the output's slopes."""

    taken: list[Tensor]  # (n, inputs) for the first layer, which all networks share, or (d, n, inputs)
    slopes: list[Tensor]  # (d, n, outputs): of the output by the sums that enter a layer's units
    output: Tensor  # (d, n)


Evaluated = tuple[list[Tensor], Tensor]  # what each layer takes in, and the outputs (d, n)


def evaluate(layers: Sequence[Layer], rows: Tensor) -> Evaluated:
    """What each layer takes in, and the outputs (d, n)."""
    taken = [rows]
    for depth, (weights, biases) in enumerate(layers):
        sums = torch.matmul(taken[-1], weights.transpose(1, 2)) + biases.unsqueeze(1)
        if depth < len(layers) - 1:
            taken.append(torch.sigmoid(sums))
    return taken, sums.squeeze(2)


def linearise(layers: Sequence[Layer], taken: list[Tensor], output: Tensor) -> Point:
    """Slopes, from the output back to the first layer."""
    slopes = [torch.ones_like(output).unsqueeze(2)]
    for (weights, _), units in zip(reversed(layers[1:]), reversed(taken[1:]), strict=True):
        slopes.insert(0, torch.matmul(slopes[0], weights) * units * (1.0 - units))
    return Point(taken, slopes, output)


def along(point: Point, direction: Sequence[Layer]) -> Tensor:
    """J v: how the outputs (d, n) change along a direction."""
    change = torch.zeros_like(point.output)
    for taken, slopes, (weights, biases) in zip(point.taken, point.slopes, direction, strict=True):
        change += (slopes * (torch.matmul(taken, weights.transpose(1, 2)) + biases.unsqueeze(1))).sum(2)
    return change


def against(point: Point, y: Tensor) -> Tensor:
    """J'y, (d, size), for y (d, n)."""
    parts = []
    for taken, slopes in zip(point.taken, point.slopes, strict=True):
        scaled = slopes * y.unsqueeze(2)
        parts += [torch.matmul(scaled.transpose(1, 2), taken).flatten(1), scaled.sum(1)]
    return torch.cat(parts, 1)


def kernel(point: Point, inverse: Sequence[Layer]) -> Tensor:
    """J E J', (d, n, n), for a diagonal E >= 0 that is the same for all units of a layer."""
    d, n = point.output.shape
    total = torch.zeros((d, n, n), dtype=point.output.dtype, device=point.output.device)
    for taken, slopes, (weights, biases) in zip(point.taken, point.slopes, inverse, strict=True):
        inputs = torch.matmul(taken * weights[:, :1], taken.transpose(-1, -2)) + biases[:, :1, None]
        total += inputs * torch.matmul(slopes, slopes.transpose(1, 2))
    return total


def jacobian(point: Point) -> Tensor:
    """J itself, (d, n, size)."""
    parts = []
    for taken, slopes in zip(point.taken, point.slopes, strict=True):
        parts += [(slopes.unsqueeze(-1) * taken.unsqueeze(-2)).flatten(-2), slopes]
    return torch.cat(parts, -1)


def network_of(point: Point, k: int, inputs: Tensor) -> Point:
    """One of the networks, with those inputs only (by index): J is then (n, size of what is used)."""
    first, *later = point.taken
    taken = [first[:, inputs], *(units[k] for units in later)]
    return Point(taken, [slopes[k] for slopes in point.slopes], point.output[k])


def squares(point: Point) -> Tensor:
    """Sums over rows of the squared entries of J, as means over the units of a layer, (d, size).

    One number for each input of the first layer, one for all weights of a later one, one for a layer's biases.
    """
    parts = []
    for depth, (taken, slopes) in enumerate(zip(point.taken, point.slopes, strict=True)):
        outputs = slopes.shape[2]
        by_row = (slopes**2).mean(2)  # (d, n)
        weights = torch.matmul(by_row.unsqueeze(1), taken**2).squeeze(1)  # (d, inputs)
        if depth > 0:
            weights = weights.mean(1, keepdim=True).expand_as(weights)
        parts += [weights.repeat(1, outputs), by_row.sum(1, keepdim=True).repeat(1, outputs)]
    return torch.cat(parts, 1)


@dataclass(frozen=True, eq=False)
class NetworkSlopes:
    """J at a point, for Gauss-Newton steps: directions are arrays (d, size)."""

    architecture: Architecture
    point: Point

    def along(self, direction: Tensor) -> Tensor:
        """J v."""
        return along(self.point, self.architecture.split(direction))

    def against(self, y: Tensor) -> Tensor:
        """J'y."""
        return against(self.point, y)

    def kernel(self, inverse: Tensor) -> Tensor:
        """J E J'."""
        return kernel(self.point, self.architecture.split(inverse))

    def rows(self, part: slice) -> Tensor:
        """J for some of the rows."""
        taken, slopes = [t[..., part, :] for t in self.point.taken], [s[:, part] for s in self.point.slopes]
        return jacobian(Point(taken, slopes, self.point.output[:, part]))


@dataclass(frozen=True, eq=False)
class AtRows:
    """All networks at fixed rows: (n, d), or (d, n, d) if every network has its own."""

    architecture: Architecture
    rows: Tensor

    def evaluate(self, theta: Tensor) -> tuple[Tensor, Evaluated]:
        """Outputs (d, n), and the same with what each layer takes in."""
        evaluated = evaluate(self.architecture.split(theta), self.rows)
        return evaluated[1], evaluated

    def slopes(self, theta: Tensor, evaluated: Evaluated) -> NetworkSlopes:
        """J there."""
        return NetworkSlopes(self.architecture, linearise(self.architecture.split(theta), *evaluated))


@dataclass(frozen=True, eq=False)
class Networks:
    """Fitted networks, in the units of the variables."""

    architecture: Architecture
    theta: FloatArray
    centre: FloatArray
    scale: FloatArray

    def predict(self, rows: FloatArray) -> FloatArray:
        """Expected values of all variables, each by its network."""
        _, output = evaluate(self.architecture.split(torch.tensor(self.theta)), torch.tensor(rows - self.centre))
        expected: FloatArray = self.centre + output.numpy().T
        return expected
