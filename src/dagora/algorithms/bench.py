"""Where sites of one process take their steps of ADMM together, in room that they keep from round to round."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Generic

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.models.base import Problem, by_entry


class Scratch:
    """Room to work in during a step, shared by benches whose steps come one after the other."""

    def __init__(self) -> None:
        self._room = np.zeros(0)

    def matrices(self, count: int, shape: tuple[int, ...]) -> FloatArray:
        """So many of this shape, with anything in them; what was handed out before is handed out again."""
        size = count * prod(shape)
        if size > self._room.size:
            self._room = np.zeros(size)
        return self._room[:size].reshape(count, *shape)


@dataclass(frozen=True)
class Bench(Generic[Problem]):
    """Places for one site, or for several of a process whose problems were put together.

    Arrays have an axis of sites first, matrices being rows of numbers.  `positions`, the last summands w_k (B_k + u_k),
    and `residuals`, the last sqrt(w_k D) (B_k - W) (so that their plain inner products are those of the metric D), are
    rings: a step writes where the bench that it starts from does not read, so that it may be taken again.  Benches of
    earlier rounds are void.  So a round makes no new arrays of W's size but those of the model's step, and the root of
    D where that has a number for each entry.
    """

    problem: Problem
    weight: FloatArray  # w_k, (sites,)
    metric: FloatArray  # D: a number for each row of theta, or for each of its entries
    scratch: Scratch = field(default_factory=Scratch)
    shape: tuple[int, ...] = ()  # of theta, once it is known
    positions: FloatArray = field(default_factory=lambda: np.zeros((0, 0, 0)))  # (sites, ring, entries)
    residuals: FloatArray = field(default_factory=lambda: np.zeros((0, 0, 0)))
    turn: int = 0  # rounds taken part in
    remembered: int = 0

    def roomy(self, shape: tuple[int, ...], memory: int) -> "Bench[Problem]":
        """With room for theta of this shape, to remember so many of."""
        sites, entries = len(self.weight), prod(shape)
        positions, residuals = (np.zeros((sites, ring, entries)) for ring in (memory + 1, memory))
        return replace(self, shape=shape, positions=positions, residuals=residuals)

    def some(self, places: Sequence[int], problem: Problem) -> "Bench[Problem]":
        """Of some of its sites, apart from the others."""
        return replace(
            self,
            problem=problem,
            weight=self.weight[places],
            positions=self.positions[places],
            residuals=self.residuals[places],
        )

    def duals_and_centres(self, W: FloatArray, mix: FloatArray, rescale: float) -> tuple[FloatArray, FloatArray]:
        """u_k, the mixed B_k + u_k less W, rescaled (zero where nothing is mixed, as at the start); and W - u_k."""
        sites = len(self.weight)
        u, centre = self.scratch.matrices(2 * sites, self.shape).reshape(2, sites, *self.shape)
        if len(mix) == 0:
            u.fill(0.0)
        else:
            span, places = _last(self.turn, len(mix), self.positions.shape[1])
            shares = np.zeros((sites, 1, span.stop - span.start))
            shares[:, 0, places] = mix / self.weight[:, None]
            np.matmul(shares, self.positions[:, span], out=u.reshape(sites, 1, -1))
            u -= W
            u *= rescale
        return u, np.subtract(W, u, out=centre)

    def moved(
        self, problem: Problem, W: FloatArray, B: FloatArray, u: FloatArray, keep: int
    ) -> tuple["Bench[Problem]", FloatArray, FloatArray]:
        """With the sites at B_k and u_k, and so many earlier rounds kept in mind; then all that leaves them.

        That is: positions, and the inner products of the newest residual with those in mind, its own the last.
        """
        turn, memory = self.turn + 1, self.residuals.shape[1]
        residual, weight = self.residuals[:, turn % memory], self.weight[:, None, None]
        own, position = (rows.reshape(B.shape) for rows in (residual, self.positions[:, turn % (memory + 1)]))
        np.subtract(B, W, out=own)
        own *= np.sqrt(weight * by_entry(self.metric))
        np.add(B, u, out=position)
        position *= weight
        span, places = _last(turn, keep + 1, memory)
        products = np.zeros((len(self.weight), memory))
        products[:, -len(places) :] = np.matmul(self.residuals[:, span], residual[:, :, None])[:, places, 0]
        return replace(self, problem=problem, turn=turn, remembered=keep + 1), position, products


def _last(turn: int, count: int, ring: int) -> tuple[slice, IntArray]:
    """A part of a ring that holds the last few, and where they are in it, newest last."""
    places = np.arange(turn - count + 1, turn + 1) % ring
    if places[0] <= places[-1]:
        return slice(int(places[0]), int(places[-1]) + 1), places - places[0]
    return slice(0, ring), places
