"""Where an estimated graph gives wrong intervention effects: the structural intervention distance (SID).

Peters & Bühlmann (2015), "Structural intervention distance for evaluating causal graphs".
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dagora.arrays import BoolArray, IntArray
from dagora.graphs import descendants

Edges: TypeAlias = NDArray[np.float32] | csr_array
_MANY = 200  # variables: from here on products by the few edges alone are faster


def structural_intervention_distance(truth: IntArray, estimate: IntArray) -> int:
    """Number of pairs (i, j) where adjusting for i's estimated parents gets the effect of i on j wrong."""
    present = truth != 0
    descends = descendants(present)
    edges: Edges = present.astype(np.float32)  # float products run in BLAS, boolean ones do not
    if len(truth) > _MANY:
        edges = csr_array(edges)
    wrong = [_wrong_effects(i, estimate[:, i] != 0, present, edges, descends) for i in range(len(truth))]
    return int(np.sum(wrong))


def _wrong_effects(i: int, adjusted: BoolArray, present: BoolArray, edges: Edges, descends: BoolArray) -> BoolArray:
    """The vertices j for which adjusting for i's estimated parents gets the effect of i wrong."""
    # Harm of the first kind: adjusting for a vertex on a directed path from i to j, or below one.
    spoilt = descends[i] & np.any(descends[:, adjusted], axis=1)
    spoilt[i] = False
    on_path = descends[spoilt].any(axis=0)
    # Of the second kind: an open path from i to j that is not directed.  One that begins with i -> c, where c
    # leads to j, has a collider below c: if it is open, the harm is of the first kind already.
    children = np.flatnonzero(present[i])
    from_parents, from_children = _open_ways(i, present[:, i], children, adjusted, edges)
    confounded = from_parents | (from_children & ~descends[children]).any(axis=0)
    # An estimated parent of i is taken to be unaffected by i.
    wrong: BoolArray = np.where(adjusted, descends[i], on_path | confounded)
    wrong[i] = False
    return wrong


def _open_ways(
    i: int, parents: BoolArray, children: IntArray, adjusted: BoolArray, edges: Edges
) -> tuple[BoolArray, BoolArray]:
    """The vertices d-connected to i by ways that leave i to a parent; and, a row a child, to that child.

    Bayes ball with a row for each way to leave i.  `up` was entered from a child, `down` from a parent.
    A ball that falls on an adjusted vertex bounces back, which opens the colliders above it.
    """
    up = np.zeros((1 + len(children), len(adjusted)), dtype=np.bool_)
    down = np.zeros_like(up)
    up[0] = parents
    down[np.arange(len(children)) + 1, children] = True
    reached = -1
    while reached < (reached := int(up.sum() + down.sum())):
        rising = ((up & ~adjusted) | (down & adjusted)).astype(np.float32)
        falling = ((up | down) & ~adjusted).astype(np.float32)
        up |= (rising @ edges.T) > 0
        down |= (falling @ edges) > 0
        up[:, i] = down[:, i] = False  # a way through i again is another way to leave it
    connected = up | down
    return connected[0], connected[1:]
