"""How many lags a model of time series needs: by the BIC, from one total.

    1. one round of the covariance method: the moments of rows stacked with `most` lags, over all sites
    2. server: for p = 0 ... most, the moments of the first d (p + 1) of these variables; the network of order p that
       `learn` finds from them; BIC(p) = n sum_j log v_j + (number of its edges) log n, where v_j is the variance that
       the edges into j leave
    3. the order with the least BIC; of equals the smallest

All orders are judged on the same rows (those with `most` rows before them).  What leaves a site: one count, sums and
products of its stacked rows, as summands of a total.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from dagora.algorithms.covariance import CovarianceServer, CovarianceState
from dagora.algorithms.options import Options
from dagora.arrays import BoolArray, FloatArray
from dagora.assembly import assemble
from dagora.data.moments import Moments
from dagora.data.series import SeriesSource, open_series
from dagora.errors import InputError
from dagora.federated.protocol import Estimate
from dagora.federated.run import Departure, run
from dagora.federated.site import Site
from dagora.learners.base import FLOOR, Learned, LearnerOptions, fit
from dagora.learners.notears import notears
from dagora.transport.in_process import InProcess

_EQUAL = 1e-3  # lags that add no edge leave the BIC as it is, but for rounding; an edge is worth log n


@dataclass(frozen=True)
class LagOrder:
    """The order with the least BIC, the BIC of every order from 0, and what left the sites."""

    lags: int
    bic: tuple[float, ...]
    rows: int
    ledger: tuple[Departure, ...]


def select_lags(
    sites: Sequence[SeriesSource] | Mapping[str, SeriesSource],
    most: int = 4,
    *,
    series: str | None = None,
    time: str | None = None,
    aggregation: str = "plain",
    lam: float | None = None,
    threshold: float | None = None,
    lag_lam: float | None = None,
    lag_threshold: float | None = None,
) -> LagOrder:
    """Choose `lags` for `learn(model="dynamic")` among 0 ... most.  The other arguments are those of `learn`.

    >>> truth, sites = dagora.simulate_series(d=4, series=8, length=60, sites=4, lags=2, seed=0)
    >>> dagora.select_lags(sites, most=3).lags
    2
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError("most: must be a whole number, 1 or more")
    if aggregation == "gaussian":
        raise InputError("aggregation: 'gaussian' is for model 'linear'; choose another for model 'dynamic'")
    options = Options(
        "dynamic", "covariance", lam=lam, threshold=threshold, lags=most, lag_lam=lag_lam, lag_threshold=lag_threshold
    )
    tables = open_series(sites, most, series, time)
    names, d = tables[0].names, len(tables[0].variables)
    with threadpool_limits(1):
        assembly = assemble(options, aggregation, None, tables, names)
        parts = [Site(site, assembly.algorithm.site, own, assembly.protection) for site, own in assembly.data.items()]
        outcome = run(OrderServer(len(names), _Judge(d, options)), assembly.protection, InProcess(parts))
    bic = outcome.estimate.weights
    least = int(np.flatnonzero(bic <= bic.min() + _EQUAL)[0])
    return LagOrder(least, tuple(bic.tolist()), sum(assembly.rows.values()), outcome.ledger)


@dataclass(frozen=True)
class OrderServer(CovarianceServer):
    """Asks for the totals as the covariance method does; its answer holds a BIC an order."""

    def estimate(self, state: CovarianceState) -> Estimate:
        """The BICs in place of weights, and which is least."""
        assert state.learned is not None
        return Estimate(state.learned.weights, state.learned.edges, state.learned.weights)


@dataclass(frozen=True)
class _Judge:
    d: int
    options: Options

    def __call__(self, moments: Moments) -> Learned:
        bic = np.array([self._bic(moments, lags) for lags in range(self.options.past + 1)])
        return Learned(bic, bic == bic.min())

    def _bic(self, moments: Moments, lags: int) -> float:
        k = self.d * (lags + 1)
        part = Moments(moments.n, moments.mean[:k], moments.scatter[:k, :k])
        edges = notears(part, LearnerOptions(**{**self.options.effective, "lags": lags})).edges
        left = residual_variances(part.covariance, edges)
        return float(moments.n * np.log(left).sum() + np.log(moments.n) * edges.sum())


def residual_variances(S: FloatArray, edges: BoolArray) -> FloatArray:
    """What the parents (rows of `edges`) leave of the variance of each variable that has a column there."""
    d = edges.shape[1]
    graph = np.zeros(S.shape, dtype=bool)
    graph[:, :d] = edges
    R = (np.eye(len(S)) - fit(S, graph))[:, :d]
    variances = np.diag(S)[:d]
    left: FloatArray = np.maximum((R * (S @ R)).sum(axis=0), FLOOR * variances)
    return left
