"""Other packages' structure learners on rows in one place: rows in, CPDAG out, in our notation.

They see rows where ours see moments.  Their progress bars and warnings are not ours to fix.
"""

import contextlib
import io
import random
import warnings
from collections.abc import Callable

import ges
import numpy as np
from causallearn.search.ConstraintBased.PC import pc
from causallearn.search.PermutationBased.BOSS import boss
from causallearn.search.PermutationBased.GRaSP import grasp
from causallearn.search.ScoreBased.GES import ges as causal_learn_ges

from dagora.arrays import FloatArray, IntArray

PEERS: dict[str, Callable[[FloatArray], IntArray]] = {  # each with its own defaults
    "causal-learn PC": lambda X: _from_ends(pc(X, show_progress=False).G.graph),
    "causal-learn BOSS": lambda X: _from_ends(boss(X, verbose=False).graph),
    "causal-learn GRaSP": lambda X: _from_ends(grasp(X, verbose=False).graph),
    "causal-learn GES": lambda X: _from_ends(causal_learn_ges(X)["G"].graph),
    "ges": lambda X: from_both_ways(ges.fit_bic(X)[0]),
    "ges, two phases": lambda X: from_both_ways(ges.fit_bic(X, phases=["forward", "backward"])[0]),
}


def ask(peer: str, rows: FloatArray) -> IntArray:
    """The peer's answer, quietly, and the same each time: some draw their start from Python's generator."""
    random.seed(0)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return PEERS[peer](rows)


def _from_ends(ends: FloatArray) -> IntArray:
    """causal-learn: at [i, j] the mark at i, -1 for a tail and 1 for an arrowhead."""
    lines = np.triu((ends == -1) & (ends.T == -1))
    cpdag: IntArray = ((ends == -1) & (ends.T == 1)).astype(np.int64) - lines
    return cpdag


def from_both_ways(both: FloatArray) -> IntArray:
    """ges and XGES: an undirected edge at [i, j] and [j, i]."""
    present = np.asarray(both) != 0
    cpdag: IntArray = (present & ~present.T).astype(np.int64) - np.triu(present & present.T)
    return cpdag
