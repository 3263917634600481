"""A causal order from variances alone, where those of the noise are equal (Chen, Drton and Wang 2019).

Each next variable is the one of least variance given all before it.  Under equal noise variances a variable whose
parents are among those before has just its noise left, and any other has more: with rows enough the order is right.
With other noise it is an order like any other, and may serve as a start.

This is a Cholesky factorisation whose next pivot is the least, column by column.
"""

import numpy as np

from dagora.arrays import BoolArray, FloatArray

_TIE = 1e-6  # those of standardised columns are alike up to rounding: the first is taken
_NOTHING = 1e-12  # of a variance: what is left of a variable that those before determine


def top_down(S: FloatArray, required: BoolArray) -> BoolArray:
    """[i, j]: i comes before j, for the first d variables of S (all others are inputs, given to each).

    required: d x d, edges that the order has to follow.
    """
    p, d = len(S), len(required)
    L = np.zeros((p, p), order="F")  # a column a variable, in the order in which they come
    variances = np.diag(S)
    remaining, waiting, place = variances.copy(), required.sum(axis=0), np.full(d, -1)
    for step in range(p):
        turn = step - (p - d)
        ready = np.where((place < 0) & (waiting == 0), remaining[:d], np.inf)
        least = ready.min(initial=np.inf)
        v = d + step if turn < 0 else int(np.argmax(ready <= least + _TIE * abs(least)))
        if remaining[v] > _NOTHING * variances[v]:
            L[:, step] = (S[:, v] - L[:, :step] @ L[v, :step]) / np.sqrt(remaining[v])
            remaining -= L[:, step] ** 2
        if turn >= 0:
            place[v] = turn
            waiting -= required[v]
    before: BoolArray = place[:, None] < place
    return before
