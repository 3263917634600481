"""The DAG with the best BIC of all DAGs, by dynamic programming over subsets, from the correlation matrix alone.

    score(DAG) = sum over j of  -n/2 log var(j | parents) - penalty log(n)/2 |parents|

Silander and Myllymaki (2006), Koivisto and Sood (2004).  A subset of the variables is a number whose bit i says
whether it has variable i; a table over subsets is an array indexed by it.  A table of child j is over subsets of the
others, so its number skips bit j.  All take about d^2 2^d operations and d 2^d / 2 floats.
With knowledge, sets with a forbidden parent or without a required one count for nothing.  Heeds `penalty`.
"""

import math
from typing import TypeVar

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.errors import InputError
from dagora.graphs import dag_to_cpdag
from dagora.knowledge import Constraints
from dagora.learners.base import FLOOR, Learned, LearnerOptions, correlations, learned_class, most_parents

MOST_VARIABLES = 20

Subset = TypeVar("Subset", int, IntArray)


def exact(moments: Moments, options: LearnerOptions) -> Learned:
    """The class of the best DAG, and one DAG of it.

    Parent sets are limited to `most_parents`, for with few rows some explain a child exactly.  All DAGs of a class
    have the same largest number of parents, so the limit never divides a class.
    """
    d = len(moments.mean)
    if d > MOST_VARIABLES:
        raise InputError(f"learner 'exact' takes at most {MOST_VARIABLES} variables; use 'boss'")
    minors = log_minors(correlations(moments))
    price = 0.5 * options.penalty * math.log(max(moments.n, 1))
    known = options.constraints
    tables = []
    for child in range(d):
        limit = most_parents(moments.n, d)
        if known is not None:
            limit = max(limit, int(known.required[:, child].sum()))
        scores = _local_scores(minors, child, moments.n, price, limit)
        tables.append(_best_parents(scores if known is None else _only_known(scores, child, known)))
    # Which DAG of the class came out on top is rounding; the answer depends on the class alone.
    return learned_class(moments, dag_to_cpdag(_backtrack(tables, _best_networks(tables))), known)


def log_minors(R: FloatArray) -> FloatArray:
    """log det R[P, P] for all subsets P (the recursion of Griffin and Tsatsomeros 2006).

    `rest` holds, for every subset of the variables passed, the conditional covariance of those to come; each variable
    doubles the subsets: those without it, and those with it, whose Schur complement removes what it explains.
    """
    minors = np.zeros(1)
    rest = R[None]
    for _ in range(len(R)):
        variance = np.maximum(rest[:, 0, 0], FLOOR)
        explained = rest[:, 1:, :1] * (rest[:, :1, 1:] / variance[:, None, None])
        minors = np.concatenate([minors, minors + np.log(variance)])
        rest = np.concatenate([rest[:, 1:, 1:], rest[:, 1:, 1:] - explained])
    return minors


def _local_scores(minors: FloatArray, child: int, n: int, price: float, limit: int) -> FloatArray:
    """Table of the child: its score with exactly these parents; minus infinity for too many."""
    split = minors.reshape(-1, 2, 1 << child)  # without and with the child
    log_variance = np.maximum(split[:, 1] - split[:, 0], math.log(FLOOR)).ravel()
    parents = np.bitwise_count(np.arange(len(log_variance)))
    return np.where(parents <= limit, -0.5 * n * log_variance - price * parents, -np.inf)


def _only_known(scores: FloatArray, child: int, known: Constraints) -> FloatArray:
    """The table with minus infinity for parents of which one is forbidden, or among which a required one is missing."""
    subsets = np.arange(len(scores))
    for kind, wrong in ((known.forbidden, 1), (known.required, 0)):
        for other in np.flatnonzero(kind[:, child]):
            if other != child:
                bit = int(other) - (other > child)
                scores = np.where(subsets >> bit & 1 == wrong, -np.inf, scores)
    return scores


def _best_parents(scores: FloatArray) -> FloatArray:
    """Table of the child: the best score with parents among these, the maximum over all subsets of the subset."""
    best = scores.copy()
    bit = 1
    while bit < len(best):
        without, with_it = np.moveaxis(best.reshape(-1, 2, bit), 1, 0)
        np.maximum(without, with_it, out=with_it)
        bit *= 2
    return best


def _best_networks(tables: list[FloatArray]) -> FloatArray:
    """The best score of a DAG over these variables alone, for all subsets.

    A DAG has a sink: best[S] = max over j in S of best[S without j] + best parents of j in S without j.
    """
    best = np.full(1 << len(tables), -np.inf)
    best[0] = 0.0
    sizes = np.bitwise_count(np.arange(len(best)))
    for size in range(1, len(tables) + 1):
        subsets = np.flatnonzero(sizes == size)
        for sink, table in enumerate(tables):
            having = subsets[subsets >> sink & 1 == 1]
            others = having ^ (1 << sink)
            best[having] = np.maximum(best[having], best[others] + table[_skip(others, sink)])
    return best


def _backtrack(tables: list[FloatArray], best: FloatArray) -> IntArray:
    """A DAG with the best score: take sinks off until nothing is left."""
    d = len(tables)
    dag = np.zeros((d, d), dtype=np.int64)
    left = (1 << d) - 1
    while left:
        sinks = [j for j in range(d) if left >> j & 1]
        sink = max(sinks, key=lambda j: best[left ^ (1 << j)] + tables[j][_skip(left ^ (1 << j), j)])
        left ^= 1 << sink
        dag[_parents(tables[sink], left, sink, d), sink] = 1
    return dag


def _parents(table: FloatArray, among: int, child: int, d: int) -> list[int]:
    """The parents whose score is the best among these: leave out whoever can be left out without loss."""
    best = table[_skip(among, child)]
    for parent in range(d):
        without = among & ~(1 << parent)
        if table[_skip(without, child)] == best:  # equal to the last bit: maxima are copies
            among = without
    return [parent for parent in range(d) if among >> parent & 1]


def _skip(subset: Subset, child: int) -> Subset:
    """The number of a subset without the child in the child's table: bits above the child's move down by one."""
    low = (1 << child) - 1
    return subset >> 1 & ~low | subset & low
