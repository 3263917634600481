"""Other packages' learners, with their graphs in our notation: 1 for an arrow, -1 once (i < j) for an undirected edge.

They see rows where ours see moments.  Their own warnings are not ours to fix.
"""

import warnings

import ges as juan_gamella
import numpy as np
from causallearn.search.ConstraintBased import PC
from causallearn.search.ScoreBased import GES

from dagora.arrays import BoolArray, FloatArray, IntArray


def causal_learn_pc(X: FloatArray, alpha: float = 0.05) -> IntArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = PC.pc(X, alpha, "fisherz", stable=True, uc_rule=0, uc_priority=2, show_progress=False)
    return _from_ends(found.G.graph)


def causal_learn_ges(X: FloatArray) -> IntArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _from_ends(GES.ges(X)["G"].graph)


def ges_package(X: FloatArray) -> IntArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = juan_gamella.fit_bic(X, phases=["forward", "backward"])[0]
    return _from_both_ways(np.asarray(found) != 0)


def _from_ends(ends: IntArray) -> IntArray:
    """causal-learn's graph: at [i, j] it has -1 for a tail at i and 1 for an arrowhead at i."""
    arrows = (ends == -1) & (ends.T == 1)
    lines = np.triu((ends == -1) & (ends.T == -1))
    pdag: IntArray = arrows.astype(np.int64) - lines
    return pdag


def _from_both_ways(edges: BoolArray) -> IntArray:
    """The graph of `ges`: an undirected edge is one in both directions."""
    both = edges & edges.T
    pdag: IntArray = (edges & ~both).astype(np.int64) - np.triu(both)
    return pdag
