"""Where sites of one process take their steps of ADMM together, in room that they keep from round to round."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Generic

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.models.base import Problem, by_entry


@dataclass(frozen=True)
class Bench(Generic[Problem]):
    """Places for one site, or for several of a process whose problems were put together.

    Arrays have an axis of sites first, matrices being rows of numbers.  `positions`, the last summands w_k (B_k + u_k),
    and `residuals`, the last sqrt(w_k D) (B_k - W) (so that their plain inner products are those of the metric D), are
    rings: a step writes where no state before it reads, so that it may be taken again.  `u` and `centre` are room to
    work in.  So a round makes no new arrays of W's size but those of the model's step.
    """

    problem: Problem
    weight: FloatArray  # w_k, (sites,)
    metric: FloatArray  # D: a number for each row of theta, or for each of its entries
    shape: tuple[int, ...]  # of theta
    positions: FloatArray  # (sites, ring, entries)
    residuals: FloatArray
    u: FloatArray  # (sites, entries)
    centre: FloatArray
    newest: int = 0
    remembered: int = 0

    @classmethod
    def of(cls, problem: Problem, weight: FloatArray, metric: FloatArray) -> "Bench[Problem]":
        """Before theta is known."""
        none = np.zeros((len(weight), 0))
        return cls(problem, weight, metric, (), none, none, none, none)

    def roomy(self, shape: tuple[int, ...], memory: int) -> "Bench[Problem]":
        """With room for theta of this shape, to remember so many of."""
        sites, entries = len(self.weight), prod(shape)
        rings, room = (np.zeros((2, sites, *more)) for more in ((memory + 1, entries), (entries,)))
        return Bench(self.problem, self.weight, self.metric, shape, *rings, *room)

    def some(self, places: Sequence[int], problem: Problem) -> "Bench[Problem]":
        """Of some of its sites, apart from the others."""
        return replace(
            self,
            problem=problem,
            weight=self.weight[places],
            positions=self.positions[places],
            residuals=self.residuals[places],
            u=self.u[places],
            centre=self.centre[places],
        )

    def duals(self, W: FloatArray, mix: FloatArray, rescale: float) -> FloatArray:
        """u_k: the mixed B_k + u_k less W, rescaled; zero where nothing is mixed, as at the start."""
        if len(mix) == 0:
            self.u.fill(0.0)
            return self._shaped(self.u)
        span, places = self._last(len(mix))
        shares = np.zeros((len(self.weight), 1, span.stop - span.start))
        shares[:, 0, places] = mix / self.weight[:, None]
        np.matmul(shares, self.positions[:, span], out=self.u[:, None])
        u = self._shaped(self.u)
        u -= W
        u *= rescale
        return u

    def centres(self, W: FloatArray, u: FloatArray) -> FloatArray:
        """W - u_k."""
        return np.subtract(W, u, out=self._shaped(self.centre))

    def moved(
        self, problem: Problem, W: FloatArray, B: FloatArray, u: FloatArray, keep: int
    ) -> tuple["Bench[Problem]", FloatArray, FloatArray]:
        """With the sites at B_k and u_k, and so many earlier rounds kept in mind; then all that leaves them.

        That is: positions, and the inner products of the newest residual with those in mind, its own the last.
        """
        ring = self.positions.shape[1]
        after = replace(self, problem=problem, newest=(self.newest + 1) % ring, remembered=keep + 1)
        residual, position = self.residuals[:, after.newest], self._shaped(self.positions[:, after.newest])
        weight = self.weight[:, None, None]
        np.subtract(B, W, out=self._shaped(residual))
        self._shaped(residual)[...] *= np.sqrt(weight * by_entry(self.metric))
        np.add(B, u, out=position)
        position *= weight
        span, places = after._last(keep + 1)
        products = np.zeros((len(self.weight), ring - 1))
        products[:, -len(places) :] = np.matmul(self.residuals[:, span], residual[:, :, None])[:, places, 0]
        return after, position, products

    def _shaped(self, rows: FloatArray) -> FloatArray:
        """A view of rows of numbers, a theta for each site."""
        return rows.reshape(-1, *self.shape)

    def _last(self, count: int) -> tuple[slice, IntArray]:
        """A part of the rings that holds the last few, and where they are in it, newest last."""
        places = np.arange(self.newest - count + 1, self.newest + 1)
        if places[0] >= 0:
            return slice(int(places[0]), self.newest + 1), places - places[0]
        return slice(0, self.positions.shape[1]), places % self.positions.shape[1]
