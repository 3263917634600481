"""The PC algorithm (Spirtes and Glymour 1991) from correlations alone.

    skeleton        PC-stable (Colombo and Maathuis 2014): Fisher z tests of partial correlations at level alpha,
                    given more and more neighbours; edges go only when all tests with as many neighbours are done
    v-structures    x -> y <- z if y is in none of the sets that separated x and z; the first ones win
    the rest        Meek's rules

As in causal-learn (fisherz, stable, uc_rule 0, uc_priority 2), but for two faults of it: where n leaves no degree of
freedom it takes edges out untested, or fails (here such tests are not made; with n <= 3 no test can be made, and there
are no edges); and its test that Meek's rules close no cycle overlooks some paths.
Where the tests contradict each other, Meek's rules also depend on the order of the edges, which is not the same.

With knowledge, pairs without a permitted edge are never joined (tests still look for what separates them), required
edges stay, and arrows that it directs come first and are never turned.
"""

from collections.abc import Iterator
from itertools import combinations, islice
from math import sqrt, tanh

import numpy as np
from scipy.special import ndtri

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.graphs import (
    ARROW,
    UNDIRECTED,
    closest_extension,
    consistent_extension,
    meek,
    skeleton,
    without_known_cycles,
)
from dagora.knowledge import Constraints
from dagora.learners.base import FLOOR, Learned, LearnerOptions, correlations, fit

Separators = dict[tuple[int, int], set[int]]  # by pair x < y: the union of the sets that separated them

_CONTRADICTION = (
    "PC's tests contradict each other: no DAG has the edges and v-structures that they found and no others, so some "
    "arrows were turned or v-structures added; more rows or a smaller alpha may help"
)
_BATCH = 2_000_000  # numbers in a stack of regressions: some 16 MB


def pc(moments: Moments, options: LearnerOptions) -> Learned:
    """The PDAG that independence tests at level `options.alpha` identify, and one DAG that agrees with it."""
    R = correlations(moments)
    known = Constraints.none(len(R)) if options.constraints is None else options.constraints
    joined, separators = _skeleton(R, moments.n, options.alpha, known)
    start = np.where(np.triu(joined), UNDIRECTED, 0)
    arrows = known.known(joined)
    start = np.where(arrows, ARROW, np.where(arrows.T, 0, start))
    # Tests may join a cycle of pairs whose directions are known: its weakest edge cannot be true.
    start, wrong = without_known_cycles(start, R, arrows, known.required)
    found = _with_v_structures(start, separators)
    # Asked of what the tests found: Meek's rules can hide a contradiction, by v-structures that no test found.
    warnings = () if not wrong and consistent_extension(found) is not None else (_CONTRADICTION,)
    pdag = meek(found)
    # Weak correlations are the least sure, so where arrows make a cycle it is theirs that give way.
    edges = closest_extension(pdag, R, known.known(skeleton(pdag) == 1)) == ARROW
    return Learned(fit(moments.scatter, edges), edges, pdag, warnings)


def _skeleton(R: FloatArray, n: int, alpha: float, known: Constraints) -> tuple[BoolArray, Separators]:
    """The pairs that no set of neighbours separates, and what separated the others."""
    joined = known.permitted | known.permitted.T
    required = known.required | known.required.T
    apart_by_knowledge = ~joined & ~np.eye(len(R), dtype=np.bool_)  # pairs for which a separator is still sought
    separators: Separators = {}
    if n <= 3:
        return required, separators  # no test has a degree of freedom: no evidence of any edge
    critical = -float(ndtri(alpha / 2.0))  # of a standard normal variable
    depth = 0
    # A set too large for n is not tested, and separates nothing.
    while joined.sum(axis=1).max() > depth and n - depth - 3 >= 1:
        independent = tanh(critical / sqrt(n - depth - 3))  # Fisher's z, the other way round: |r| = 1 needs no care
        separated = np.zeros_like(joined)
        for x in range(len(R)):
            neighbours = np.flatnonzero(joined[x])
            others = np.flatnonzero((joined[x] & ~required[x]) | apart_by_knowledge[x])
            for S, apart in _separating(R, x, neighbours, others, depth, independent):
                separated[x, others] |= apart.any(axis=0)
                for place in np.flatnonzero(apart.any(axis=0)):
                    y = int(others[place])
                    separators.setdefault((min(x, y), max(x, y)), set()).update(S[apart[:, place]].ravel().tolist())
        joined &= ~(separated | separated.T)
        apart_by_knowledge &= ~(separated | separated.T)
        depth += 1
    return joined, separators


def _separating(
    R: FloatArray, x: int, neighbours: IntArray, others: IntArray, size: int, independent: float
) -> Iterator[tuple[IntArray, BoolArray]]:
    """Batches of the sets S of neighbours of x, and which [set, other] have |partial correlation| < independent.

    One regression on S serves all others: only residual variances and covariances with x are needed.
    """
    sets = combinations(neighbours.tolist(), size) if len(others) else iter(())
    most = max(1, _BATCH // ((size + 1) * (len(others) + 1)))
    while batch := list(islice(sets, most)):
        S = np.array(batch, dtype=np.int64).reshape(len(batch), size)
        of_x, variance, covariance, collinear = _residuals(R, x, others, S)
        # Given a set that determines x or y there is nothing left to test.  Its own members it always determines.
        tested = ~collinear[:, None] & (of_x > FLOOR)[:, None] & (variance > FLOOR)
        yield S, tested & (np.abs(covariance) < independent * np.sqrt(np.maximum(of_x[:, None] * variance, 0.0)))


def _residuals(
    R: FloatArray, x: int, others: IntArray, S: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """After regression on each set: variance of x, of the others, their covariances with x; is the set collinear?"""
    within = R[S[:, :, None], S[:, None, :]]
    collinear = np.linalg.eigvalsh(within).min(axis=1, initial=1.0) < FLOOR
    within[collinear] = np.eye(S.shape[1])
    on_x, on_others = R[S, x], R[S[:, :, None], others]
    coefficients = np.linalg.solve(within, np.concatenate([on_x[:, :, None], on_others], axis=2))
    of_x = 1.0 - (on_x * coefficients[:, :, 0]).sum(axis=1)
    variance = 1.0 - (on_others * coefficients[:, :, 1:]).sum(axis=1)
    covariance = R[x, others] - (on_x[:, :, None] * coefficients[:, :, 1:]).sum(axis=1)
    return of_x, variance, covariance, collinear


def _with_v_structures(pdag: IntArray, separators: Separators) -> IntArray:
    """The graph with x -> y <- z for pairs that y did not help to separate; an arrow is never turned."""
    pdag, joined = pdag.copy(), skeleton(pdag) == 1
    for y in range(len(joined)):
        for x, z in combinations(np.flatnonzero(joined[y]).tolist(), 2):
            unshielded = not joined[x, z] and (x, z) in separators and y not in separators[x, z]
            if unshielded and pdag[y, x] != ARROW and pdag[y, z] != ARROW:
                for tail in (x, z):
                    pdag[min(tail, y), max(tail, y)] = 0
                    pdag[tail, y] = ARROW
    return pdag
