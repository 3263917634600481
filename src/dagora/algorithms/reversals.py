"""Local search over orders for networks: which edges are better turned around, as polish.py does for linear models.

To turn i -> j, the vertices that descend from neither come first, then j, then i.  The network of j loses what it may
no longer use, that of i may use j; both are fitted anew (refit.py).  Turns that lower the two networks' objective are
made, the best first, those left out that would touch a variable twice or close a cycle.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dagora.arrays import BoolArray, FloatArray
from dagora.graphs import descendants, is_dag
from dagora.models.network import Architecture
from dagora.solvers.levenberg import Descent, Quadratic

_STRONG = 0.2  # norm of an edge that is worth a try
# Relative to the objective of the two variables: a turn that is so far off after the first rounds will not gain; and
# smaller gains than this are not worth one.
_HOPELESS, _GAIN = 0.05, 1e-3


@dataclass(frozen=True)
class Fitted:
    """A variable's network: which inputs it may use, which it does use now, and its descent."""

    variable: int
    allowed: BoolArray
    used: BoolArray
    descent: Descent

    @classmethod
    def at(
        cls,
        architecture: Architecture,
        variable: int,
        theta: FloatArray,
        allowed: BoolArray,
        prior: Quadratic | None = None,
    ) -> "Fitted":
        """A network that starts from theta, less the inputs that are not allowed."""
        theta = theta * architecture.using(allowed)
        return cls(variable, allowed, architecture.inputs(theta), Descent.at(theta, prior))

    def allowing(self, architecture: Architecture, allowed: BoolArray) -> "Fitted":
        """The same network with other inputs, to go on from where it is."""
        return Fitted.at(architecture, self.variable, self.descent.x, allowed, self.descent.model)

    def moved(self, descent: Descent, architecture: Architecture, lam: float) -> "Fitted":
        """After a step: inputs are in use whose weights are not zero, or would not stay so."""
        assert descent.model is not None
        pulled = architecture.inputs(np.abs(descent.model.gradient) > lam)
        return replace(self, descent=descent, used=architecture.inputs(descent.trial) | (pulled & self.allowed))


def in_order(architecture: Architecture, theta: FloatArray, allowed: BoolArray) -> tuple[Fitted, ...]:
    """A network for each variable, with the inputs [i, j] that an order or a graph allows."""
    return tuple(Fitted.at(architecture, j, theta[j], allowed[:, j]) for j in range(len(theta)))


def parameters(networks: Sequence[Fitted]) -> FloatArray:
    """Where they stand, (d, size)."""
    return np.stack([fitted.descent.x for fitted in networks])


class Turn(NamedTuple):
    """An edge to be turned, source -> target, among these strong edges into either end."""

    source: int
    target: int
    parents: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Reversals:
    """`start`: random networks, for variables that had no inputs before."""

    architecture: Architecture
    start: FloatArray

    def turns(self, networks: tuple[Fitted, ...]) -> tuple[Turn, ...]:
        """All strong edges."""
        strong = self._norms(networks) > _STRONG
        parents = [tuple(np.flatnonzero(column).tolist()) for column in strong.T]
        return tuple(Turn(i, j, (parents[i], parents[j])) for i, j in np.argwhere(strong).tolist())

    def tried(self, networks: tuple[Fitted, ...], turns: Iterable[Turn]) -> tuple[Fitted, ...]:
        """Two networks for each turn of i -> j, one after the other: of j without i, and of i with j."""
        descends = descendants(self._norms(networks) > 0.0)
        tried = []
        for i, j, _ in turns:
            spared = ~descends[i]  # which are j's, too
            with_child = spared.copy()
            with_child[j] = True
            tried.append(networks[j].allowing(self.architecture, spared))
            tried.append(Fitted.at(self.architecture, i, self._joined(networks[i].descent.x, i, j), with_child))
        return tuple(tried)

    def _norms(self, networks: tuple[Fitted, ...]) -> FloatArray:
        return self.architecture.norms(parameters(networks))

    def _joined(self, theta: FloatArray, i: int, j: int) -> FloatArray:
        """The network of i with random weights for j: weights that are all zero would move alike, or not at all."""
        beyond = self.architecture.weights() & ~self.architecture.first()
        if np.abs(theta[beyond]).max() < 1e-6:  # it took nothing in, so all of it is zero
            start: FloatArray = self.start[i]
            return start
        alone = np.arange(self.architecture.d) == j
        new = self.architecture.using(alone) & self.architecture.first()
        return np.where(new, self.start[i], theta)

    def promising(self, networks: tuple[Fitted, ...], tried: tuple[Fitted, ...]) -> tuple[Fitted, ...]:
        """The same networks, those at rest that are so far off after a few rounds that no more would help."""
        kept = []
        for pair in zip(tried[::2], tried[1::2], strict=True):
            before = sum(networks[fitted.variable].descent.value for fitted in pair)
            off = sum(fitted.descent.value for fitted in pair) > (1.0 + _HOPELESS) * before
            kept += [replace(fitted, descent=replace(fitted.descent, ended=True)) if off else fitted for fitted in pair]
        return tuple(kept)

    def made(self, networks: tuple[Fitted, ...], tried: tuple[Fitted, ...]) -> tuple[tuple[Fitted, ...], int]:
        """The networks with the turns that are made, and their number."""
        pairs = list(zip(tried[::2], tried[1::2], strict=True))  # (network of j, network of i)
        before = [sum(networks[fitted.variable].descent.value for fitted in pair) for pair in pairs]
        gains = np.array(before) - [sum(fitted.descent.value for fitted in pair) for pair in pairs]
        found, graph = list(networks), np.stack([self._parents(fitted) for fitted in networks], axis=1)
        touched: set[int] = set()
        for k in np.argsort(-gains, kind="stable").tolist():
            variables = [fitted.variable for fitted in pairs[k]]
            if gains[k] <= _GAIN * before[k] or touched.intersection(variables):
                continue
            turned = graph.copy()
            turned[:, variables] = np.stack([self._parents(fitted) for fitted in pairs[k]], axis=1)
            if is_dag(turned):
                graph = turned
                touched.update(variables)
                for fitted in pairs[k]:
                    found[fitted.variable] = fitted
        return tuple(found), len(touched) // 2

    def _parents(self, fitted: Fitted) -> BoolArray:
        return self.architecture.inputs(fitted.descent.x)
