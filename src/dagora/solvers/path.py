"""The path to a DAG: which penalty mu on the log-determinant h(W) comes when, and when the order is settled.

    stage 0, 1, 2, ...:   min over W of  loss(W) + lam |W|_1 + mu_stage h(W),   each from the last one's minimum

With mu small both directions of an edge share its effect; as mu grows, cycles are squeezed until one direction
remains.  The end is a minimum of the same problem as NOTEARS' (l1, h = 0); on the paper's data one with fewer wrong
edges (benchmarks/results/accuracy.md).
"""

import numpy as np

from dagora.arrays import BoolArray, FloatArray
from dagora.graphs import break_cycles

STAGES = 4  # as a rule; more follow while cycles are not cut through
MOST_STAGES = 9
_FIRST, _GROWTH = 0.03, 10.0
_THREAD = 0.05


def path_penalty(stage: int, variances: FloatArray) -> float:
    """mu of a stage, in units of the variables' geometric mean variance (h itself has no unit)."""
    return float(_FIRST * _GROWTH**stage * np.exp(np.log(variances).mean()))


def path_ended(
    stages: int, W: FloatArray, variances: FloatArray, required: BoolArray | None = None, most: int = MOST_STAGES
) -> bool:
    """Whether, after so many stages, all cycles hang by threads: edges that may be cut without harm.

    An edge is a thread when its effect on standardised variables is below 0.05.  Required edges are none.
    most: stages after which the path ends anyway; STAGES where a search over orders from more than one start follows,
    for what cutting a cycle here or there changes, the search mends.
    """
    if stages < STAGES:
        return False
    if stages >= most:
        return True
    _, cut = break_cycles(W != 0 if required is None else (W != 0) | required, W, required)
    scale = np.sqrt(variances)
    return all(abs(W[i, j]) * scale[i] / scale[j] < _THREAD for i, j in cut)
