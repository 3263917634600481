"""How far a graph's directions follow from the scale of the columns, or from how well others explain them.

    varsortability    the share of causes that vary less than their effects       (Reisach, Seiler and Weichwald 2021)
    R2-sortability    the share of causes of which all others explain less        (Reisach et al. 2023)

Counted over the pairs that directed paths join, for each length of path; ties are halves.  0.5 is no pattern, 1 a graph
that sorting the columns would give.  Both need the covariance only, so that totals are enough.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dagora.arrays import FloatArray
from dagora.learners.base import FLOOR

_TIE = 1e-9


def sortability(adjacency: npt.ArrayLike, S: FloatArray) -> Mapping[str, float]:
    """ "variance" and "r2", as far as S is known (NaN where not); nothing of a graph without edges."""
    edges = np.asarray(adjacency) != 0
    if not edges.any():
        return {}
    found = {"variance": alignment(edges, np.diag(S))}
    if np.isfinite(S).all():
        found["r2"] = alignment(edges, explained(S))
    return found


def alignment(edges: npt.NDArray[np.bool_], criterion: FloatArray) -> float:
    """The share of pairs (cause, effect) whose effect has more of the criterion."""
    steps = csr_array(edges.astype(np.float64))
    joined, pairs, follow = steps, 0, 0.0
    while joined.nnz > 0:  # ends: the longest path has fewer edges than there are vertices
        causes, effects = joined.nonzero()
        ratio = criterion[effects] / np.maximum(criterion[causes], np.finfo(np.float64).tiny)
        pairs += len(ratio)
        follow += float(np.where(ratio > 1.0 + _TIE, 1.0, np.where(ratio < 1.0 - _TIE, 0.0, 0.5)).sum())
        joined = joined @ steps
        joined.data[:] = 1.0  # whether there is a way, not how many
    return follow / pairs


def explained(S: FloatArray) -> FloatArray:
    """R2 of every column on all others."""
    scale = np.sqrt(np.diag(S))
    R = S / scale[:, None] / scale
    shares: FloatArray = 1.0 - 1.0 / np.diag(np.linalg.inv(R + FLOOR * np.eye(len(R))))
    return np.clip(shares, 0.0, 1.0)
