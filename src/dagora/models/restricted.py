"""The linear model's local step where some entries of B are known to be zero, in closed form.

With the site's Gram matrix G in the metric D, and M = (D + G / rho)^-1 D, the step without knowledge is

    B = E + M (C - E)        for the centre C,  E the first d columns of I

Entries F of a column that are held at zero act as a shift of the centre there, t = -M_FF^-1 B_F (linear.py has this for
the diagonal alone).  What follows makes use of what knowledge usually looks like:

- Tiers: blocks of columns that have no parents in later blocks.  Each is a problem over its possible parents alone.
- Single edges that are forbidden: a few more entries to hold, for all columns of a block in one batch.
- Few possible parents: a column with these alone is a small problem of its own.

The multipliers of entries held at zero, their slopes over -rho D, are those entries' duals u_k.  The server needs their
total, for without it the order of the variables could not be improved (schedules.py, `implied_covariance`).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.graphs import strong_components
from dagora.models.base import Alone

_MOST_BLOCKS, _LEAST_COLUMNS = 8, 20  # smaller blocks are taken together: each has a matrix to invert, and calls
_FEW = 4  # a column with fewer parents than one in so many of its block's is a problem of its own


Places = tuple[IntArray, IntArray]  # of entries: rows and columns


@dataclass(frozen=True)
class Block:
    """Columns and the rows over which they are a problem; of each column the rows held, itself first (padded)."""

    columns: IntArray
    rows: IntArray
    outside: IntArray
    held: IntArray  # (columns, f): places among `rows`
    real: BoolArray  # (columns, f): no padding
    step: FloatArray  # M
    steps: FloatArray  # its columns of the diagonal
    inverse: FloatArray  # (columns, f, f): of M_FF
    slopes: FloatArray  # D^-1 G / rho, of the rows outside against these

    @cached_property
    def _here(self) -> Any:
        spans = _span(self.rows), _span(self.columns)
        return (self.rows[:, None], self.columns) if None in spans else spans

    @cached_property
    def _there(self) -> Places:
        return self.outside[:, None], self.columns

    @cached_property
    def _own(self) -> Places:
        return self.held[:, 0], np.arange(len(self.columns))

    @cached_property
    def _each(self) -> Places:
        column = np.broadcast_to(np.arange(len(self.columns))[:, None], self.real.shape)
        return self.held[self.real], column[self.real]

    def take(self, centre: FloatArray, B: FloatArray, u: FloatArray) -> None:
        """Fill in the columns of B, and multipliers."""
        gap = np.array(centre[self._here])
        gap[self._own] -= 1.0
        found = self.step @ gap  # B - E, before anything is held
        if self.held.shape[1] == 1:
            found -= self.steps * ((found[self._own] + 1.0) * self.inverse[:, 0, 0])
        else:
            excess = found[self.held, self._own[1][:, None]] * self.real
            excess[:, 0] += 1.0
            shift = (self.inverse @ excess[:, :, None])[:, :, 0][self.real]
            shifts = np.zeros_like(found)
            shifts[self._each] = shift
            found -= self.step @ shifts
            rows, columns = self._each
            u[self.rows[rows], self.columns[columns]] = shift - gap[self._each]
            found[self._each] = 0.0
        found[self._own] = -1.0
        if len(self.outside):
            u[self._there] = self.slopes @ -found
        found[self._own] = 0.0
        B[self._here] = found


@dataclass(frozen=True)
class Few:
    """Columns with few parents, in one batch: B = step C + start over the parents of each (padded)."""

    columns: IntArray
    parents: IntArray  # (columns, q)
    step: FloatArray  # (columns, q, q), with rows of zeros for padding
    start: FloatArray  # (columns, q)
    slopes: FloatArray  # D^-1 G / rho, of all rows

    def take(self, centre: FloatArray, B: FloatArray, u: FloatArray) -> None:
        """Fill in the columns of B, and multipliers (also, to no avail, those of entries that are not held)."""
        columns = self.columns[:, None]
        found = (self.step @ centre[self.parents, columns][:, :, None])[:, :, 0] + self.start
        np.add.at(B, (self.parents, columns), found)
        gap = B[:, self.columns]
        gap[self.columns, np.arange(len(self.columns))] -= 1.0
        u[:, self.columns] = -(self.slopes @ gap)


@dataclass(frozen=True)
class RestrictedSquares:
    """A site's loss: its Gram matrix, and by rho what every step needs."""

    gram: FloatArray
    metric: FloatArray
    rho: float = 0.0
    parts: tuple[Block | Few, ...] = ()
    u: FloatArray | None = None  # multipliers, after a step


@dataclass(frozen=True)
class RestrictedModel(Alone[RestrictedSquares]):
    """theta = W, and rows of the past below; the entries that are not `free` stay zero, the diagonal among them."""

    free: BoolArray

    def prepare(
        self, data: Moments, rows: float, centre: FloatArray | None, weight: float, metric: FloatArray
    ) -> RestrictedSquares:
        """The Gram matrix of rows centred at `centre`; the rest waits for rho."""
        gram = data.scatter if centre is None else data.about(centre)
        return RestrictedSquares(gram / (rows * weight), metric)

    def prox(self, problem: RestrictedSquares, centre: FloatArray, rho: float) -> tuple[FloatArray, RestrictedSquares]:
        """The step, part by part."""
        if problem.rho != rho:
            parts: list[Block | Few] = [_block(problem, rho, self.free, columns) for columns in self._blocks]
            parts += [_few(problem, rho, self.free, self._few)] if len(self._few) else []
            problem = replace(problem, rho=rho, parts=tuple(parts))
        B, u = np.zeros((2, *self.free.shape))
        for part in problem.parts:
            part.take(centre.reshape(B.shape), B, u)
        return B.reshape(centre.shape), replace(problem, u=u)

    def multipliers(self, problem: RestrictedSquares, u: FloatArray) -> FloatArray:
        """u with the multipliers of the last step where entries are held."""
        assert problem.u is not None
        return np.where(self._held, problem.u, u)

    @cached_property
    def _held(self) -> BoolArray:
        d = self.free.shape[1]
        held: BoolArray = ~self.free
        held[np.arange(d), np.arange(d)] = False
        return held

    @cached_property
    def _merged(self) -> list[IntArray]:
        """The columns in blocks, each with no parents in later ones, not too small."""
        d = self.free.shape[1]
        merged: list[list[int]] = [[]]
        for block in strong_components(self.free[:d]):
            if len(merged[-1]) >= max(d / _MOST_BLOCKS, _LEAST_COLUMNS):
                merged.append([])
            merged[-1] += block.tolist()
        return [np.sort(block) for block in merged]

    @cached_property
    def _few(self) -> IntArray:
        few = [self.free[:, block].sum(axis=0) * _FEW < self.free[:, block].any(axis=1).sum() for block in self._merged]
        return np.concatenate([block[own] for block, own in zip(self._merged, few, strict=True)])

    @cached_property
    def _blocks(self) -> list[IntArray]:
        left = [np.setdiff1d(block, self._few) for block in self._merged]
        return [block for block in left if len(block)]


def _span(places: IntArray) -> slice | None:
    """Neighbouring places as a slice, which costs less."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first == len(places) - 1 else None


def _block(problem: RestrictedSquares, rho: float, free: BoolArray, columns: IntArray) -> Block:
    inside: BoolArray = np.asarray(free[:, columns].any(axis=1))
    inside[columns] = True
    rows, outside = np.flatnonzero(inside), np.flatnonzero(~inside)
    step = _step(problem, rho, rows, np.diag(problem.metric[rows]))
    own = np.searchsorted(rows, columns)
    barred = ~free[np.ix_(rows, columns)]
    held = [[i, *(k for k in np.flatnonzero(barred[:, j]).tolist() if k != i)] for j, i in enumerate(own.tolist())]
    f = max(map(len, held))
    padded = np.array([some + [some[0]] * (f - len(some)) for some in held])
    real = np.arange(f) < np.array([len(some) for some in held])[:, None]
    both = real[:, :, None] & real[:, None, :]
    M = np.where(both, step[padded[:, :, None], padded[:, None, :]], np.eye(f))
    slopes = problem.gram[np.ix_(outside, rows)] / (rho * problem.metric[outside, None])
    return Block(columns, rows, outside, padded, real, step, step[:, own], np.linalg.inv(M), slopes)


def _few(problem: RestrictedSquares, rho: float, free: BoolArray, columns: IntArray) -> Few:
    q = int(free[:, columns].sum(axis=0).max())
    parents = np.zeros((len(columns), q), dtype=np.int64)
    step, start = np.zeros((len(columns), q, q)), np.zeros((len(columns), q))
    for place, column in enumerate(columns.tolist()):
        own = np.flatnonzero(free[:, column])
        k = len(own)
        parents[place, :k] = own
        if k:
            sides = np.column_stack([np.diag(problem.metric[own]), problem.gram[own, column] / rho])
            solved = _step(problem, rho, own, sides)
            step[place, :k, :k], start[place, :k] = solved[:, :k], solved[:, k]
    return Few(columns, parents, step, start, problem.gram / (rho * problem.metric[:, None]))


def _step(problem: RestrictedSquares, rho: float, rows: IntArray, sides: FloatArray) -> FloatArray:
    """(D + G / rho)^-1 times what is given, over some variables."""
    D = np.diag(problem.metric[rows])
    found: FloatArray = scipy.linalg.cho_solve(
        scipy.linalg.cho_factor(D + problem.gram[np.ix_(rows, rows)] / rho), sides
    )
    return found
