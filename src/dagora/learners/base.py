"""What every learner is: a function from moments and options to what it identifies.  No rows anywhere.

    learner(moments, options) -> Learned         moments: n, mean, scatter, of pooled rows, of one site, or from totals

One file a learner.  What they share is here and in bic.py: correlations that are safe to invert, and the
least-squares fit of a graph that has been found.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.errors import DagoraError, NumericalError
from dagora.graphs import ARROW, consistent_extension
from dagora.knowledge import Constraints

FLOOR = 1e-9  # a share of variance below this is rounding: the variable is a linear combination of others
_INVOLVED = 1e-4  # a smaller coefficient, on standardised variables, is rounding


@dataclass(frozen=True)
class LearnerOptions:
    """What learners can be told; each file says which of these it heeds."""

    lam: float | None = 0.1  # weight of the l1 penalty; None to choose it (solvers/selection.py)
    threshold: float | None = 0.3  # an edge needs a larger |weight|; None to choose it
    penalty: float = 1.0  # price of an edge, in multiples of the BIC's log(n) / 2
    alpha: float = 0.05  # level of independence tests
    score: str = "least-squares"
    published: bool = False  # the published solver instead of the best known one
    polish: bool = True
    bounded: bool = True  # end with prices that do not grow without bound, where rows suffice
    device: str = "cpu"  # where continuous solvers work (devices.py)
    standardize: bool = False  # in units of the columns' standard deviations
    lags: int = 0  # the last d x lags variables are the past of the first d, at lag 1, 2, ... (models/dynamic.py)
    lag_lam: float = 0.1  # lam and threshold of effects of the past
    lag_threshold: float = 0.3
    constraints: Constraints | None = None  # what is known beforehand; all heed it


@dataclass(frozen=True)
class Learned:
    """A graph with weights; the class that it stands for, if directions were not all identified; and warnings."""

    weights: FloatArray  # [i, j] is the effect of variable i on variable j; rows of the past below, where there is one
    edges: BoolArray  # a DAG, but for cycles that a continuous solver may leave above its threshold
    cpdag: IntArray | None = None  # 1 for an arrow i -> j, -1 once (i < j) for an undirected edge
    warnings: tuple[str, ...] = ()
    coefficients: FloatArray | None = None  # of functions (models/additive.py), a column a variable
    chosen: Mapping[str, float] = field(default_factory=dict)  # lam and threshold, where they were left to the learner


Learner = Callable[[Moments, LearnerOptions], Learned]


class CollinearError(DagoraError):
    """Columns that determine each other linearly; whoever knows their names tells the user."""

    def __init__(self, columns: Sequence[int]) -> None:
        super().__init__(f"columns {list(columns)} are linearly dependent")
        self.columns = tuple(columns)


def correlations(moments: Moments) -> FloatArray:
    """Correlation matrix; whatever the units, the same up to rounding.

    A column that is constant here (at a site with few rows) correlates with nothing.  With more rows than columns
    the matrix must be positive definite, or `CollinearError` names the columns of one linear relation.  With fewer it
    never is, and learners keep to parent sets that the rows can tell apart (see `most_parents`).
    """
    squares = np.diag(moments.scatter)
    varies = squares > 0.0
    scale = np.where(varies, np.sqrt(np.where(varies, squares, 1.0)), np.inf)
    R: FloatArray = moments.scatter / scale[:, None] / scale
    R = np.clip(0.5 * (R + R.T), -1.0, 1.0)
    np.fill_diagonal(R, 1.0)
    if moments.n > len(R) and (columns := _dependent_columns(R)):
        raise CollinearError(columns)
    return R


def in_units(moments: Moments, options: LearnerOptions) -> FloatArray:
    """The covariance that a learner with units works on: of the columns as they are, or standardised."""
    S = moments.covariance
    if not options.standardize:
        return S
    scale = np.sqrt(np.where(np.diag(S) > 0.0, np.diag(S), 1.0))
    standardised: FloatArray = S / scale[:, None] / scale
    return standardised


def most_parents(n: int, d: int) -> int:
    """Parents that n rows can tell apart with as many degrees of freedom left: (n - 1) / 2, and at most d - 1.

    Without it, a variable with nearly as many parents as rows fits so well that false edges seem worth their price.
    """
    return min(d - 1, max(n - 1, 0) // 2)


def fit(S: FloatArray, dag: BoolArray) -> FloatArray:
    """Least-squares coefficients of every variable on its parents in the DAG."""
    scale = np.sqrt(np.where(np.diag(S) > 0.0, np.diag(S), 1.0))
    R = S / scale[:, None] / scale
    W = np.zeros(S.shape)
    for child in range(len(S)):
        parents = np.flatnonzero(dag[:, child])
        if len(parents):
            # Not `solve`: parents may be collinear at a site with few rows; the shortest solution is then as good.
            W[parents, child] = scipy.linalg.lstsq(R[np.ix_(parents, parents)], R[parents, child])[0]
    return W * scale / scale[:, None]


def turned_weights(S: FloatArray, dag: BoolArray, weights: FloatArray) -> FloatArray:
    """The weights, and for each edge i -> j also the weight at [j, i] that it has when it is turned.

    That is the coefficient of j in the regression of i on j and j's other parents: both are cov(i, j | others) over a
    conditional variance.
    """
    both = weights.copy()
    for i, j in np.argwhere(dag).tolist():
        others = dag[:, j].copy()
        others[[i, j]] = [False, True]
        graph = np.zeros_like(dag)
        graph[:, i] = others
        both[j, i] = fit(S, graph)[j, i]
    return both


def learned_class(moments: Moments, cpdag: IntArray, known: Constraints | None = None) -> Learned:
    """What a learner of classes has found: the CPDAG, and its first consistent extension with fitted weights.

    Of a class, only those members count that keep to what is known.
    """
    kept = cpdag if known is None else known.of_class(cpdag)
    dag = None if kept is None else consistent_extension(kept)
    if dag is None or kept is None:
        raise NumericalError("the search ended at a graph that is no equivalence class")
    cpdag = kept
    edges: BoolArray = dag == ARROW
    return Learned(fit(moments.covariance, edges), edges, cpdag)


def _dependent_columns(R: FloatArray) -> list[int]:
    """The columns of one linear relation, or none."""
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(R, tol=FLOOR, lower=1)
    if rank == len(R):
        return []
    order = pivots - 1
    independent, dependent = order[:rank], int(order[rank])
    lower = np.tril(factor[:rank, :rank])
    coefficients = scipy.linalg.cho_solve((lower, True), R[independent, dependent])
    return sorted([dependent, *independent[np.abs(coefficients) > _INVOLVED].tolist()])
