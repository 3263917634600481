"""Learning from totals (paper, Section 4): n, sum x and sum x x' are all that a linear Gaussian model needs.

    1. server sends "moments"
    2. site: its number of rows, sum of x, sum of x x', of which one triangle travels; with twice a double's digits
       (wide.py) for the sake of large means, and rounded to where a site's own arithmetic no longer shows
    3. server: from the totals the mean and scatter of all rows together
    4. the learner, at the server, from these moments alone

What leaves a site: those three sums, as summands of a total.  The total is that of the pooled rows, so the answer is
the pooled one.  The pooled oracle is the same over one site that holds all rows.

Sums are about zero, whatever the server says.  Were it to choose the point, it could ask for sums about a thousand
points: totals are exact, and what rounding leaves in them would tell each site's mean (tests/unit/test_covariance.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import MessageError, NumericalError
from dagora.federated.message import Message, array
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.learners.base import Learned
from dagora.wide import Wide

PHASE = "moments"
_CANCELS = 1e4  # mean^2 over variance: rounding is then 1e-12 of a variance, well below what any learner sees


@dataclass(frozen=True)
class CovarianceSite:
    """Answers with its sums about zero."""

    def init(self, data: Moments) -> Moments:
        """The moments are all it needs."""
        return data

    def local_update(self, state: Moments, message: Message) -> tuple[Moments, Summand]:
        """Sums of the site's rows: always the same."""
        centre = array(message, "centre")
        if message.get("phase") != PHASE or centre.shape != state.mean.shape or centre.any():
            raise MessageError("message refused: a site's sums are about zero")
        n = np.full(len(state.mean), float(state.n))
        i, j = np.triu_indices(len(state.mean))
        shift = Wide.product(state.mean[i], state.mean[j]).times(Wide(n[i], np.zeros(len(i))))
        squares = shift + Wide(state.scatter[i, j], np.zeros(len(i)))
        of_sums, of_squares = _grids(state)
        return state, {
            "rows": np.array(float(state.n)),
            **Wide.product(n, state.mean).rounded(of_sums).fields("sum"),
            **squares.rounded(of_squares).fields("squares"),
        }


@dataclass(frozen=True)
class CovarianceState:
    """The moments of all rows, and what was learned from them."""

    moments: Moments | None = None
    learned: Learned | None = None


@dataclass(frozen=True)
class CovarianceServer:
    """Learns from the totals of d variables."""

    d: int
    learn: Callable[[Moments], Learned]

    def init(self) -> CovarianceState:
        """Nothing is known yet."""
        return CovarianceState()

    def broadcast(self, state: CovarianceState) -> Message | None:
        """One question."""
        return {"phase": PHASE, "centre": np.zeros(self.d)} if state.learned is None else None

    def global_update(self, state: CovarianceState, total: Total) -> CovarianceState:
        """Moments of all rows, and the learner's answer."""
        moments = pooled_moments(total, np.zeros(self.d))
        if not (np.diag(moments.scatter) > 0.0).all():
            raise NumericalError("the totals leave some column without variance; standardise the columns")
        return CovarianceState(moments, self.learn(moments))

    def progress(self, state: CovarianceState) -> Mapping[str, float]:
        """Done when the learner is."""
        return {"done": 0.5 if state.learned is None else 1.0}

    def estimate(self, state: CovarianceState) -> Estimate:
        """As the learner says."""
        assert state.learned is not None
        found = state.learned
        assert state.moments is not None
        return Estimate(
            found.weights,
            found.edges,
            found.weights,
            found.warnings,
            cpdag=found.cpdag,
            moments=state.moments,
            covariance=state.moments.covariance,
            chosen=found.chosen,
        )


def pooled_moments(total: Total, centre: FloatArray) -> Moments:
    """Moments of all rows from the totals of their sums about a centre."""
    n = round(float(total["rows"]))
    sums, (i, j) = Wide.of(total, "sum"), np.triu_indices(len(centre))
    products = Wide(sums.high[i], sums.low[i]).times(Wide(sums.high[j], sums.low[j]))
    scatter = Wide.of(total, "squares") - products.over(n)
    shift = sums.over(n)
    return Moments(n, centre + shift.high, unfolded(scatter.high, len(centre)))


def _grids(moments: Moments) -> tuple[FloatArray, FloatArray]:
    """Powers of two to which sums and squares are rounded: coarser than the rounding in them, finer than statistics.

    The sum of a column of whole numbers is a whole number.  What rounding adds, n times the rounded mean less that
    number, depends on the site's rows in a way that can be searched for; exact totals would show it.  So it is rounded
    away.  Where the mean is more than some hundred deviations, digits of the variance are worth more.
    """
    n = max(moments.n, 1)
    spread = np.sqrt(np.maximum(np.diag(moments.scatter), 0.0) / n)
    spread = np.maximum(np.maximum(spread, 2.0**-30 * np.abs(moments.mean)), 2.0**-200)
    far = np.abs(moments.mean) / spread
    farthest = max(float(far.max(initial=0.0)), 1.0)  # what a sum loses, products with this column's mean lose, too
    sums = n * spread * np.maximum(2.0**-40 / farthest, np.minimum(2.0**-50 * far, 2.0**-31 / farthest))
    each = spread * np.maximum(2.0**-20, np.minimum(2.0**-24.5 * far, 2.0**-15.5))
    i, j = np.triu_indices(len(spread))
    return _power_of_two(sums), _power_of_two(n * each[i] * each[j])


def _power_of_two(values: FloatArray) -> FloatArray:
    """The next one below, where there is one."""
    with np.errstate(all="ignore"):
        found = 2.0 ** np.floor(np.log2(values))
    return np.where(np.isfinite(found) & (found > 0.0), found, 1.0)


def folded(symmetric: FloatArray) -> FloatArray:
    """The upper triangle of a symmetric matrix, row by row."""
    return symmetric[np.triu_indices(len(symmetric))]


def unfolded(triangle: FloatArray, d: int) -> FloatArray:
    """The symmetric matrix of an upper triangle."""
    symmetric = np.empty((d, d))
    symmetric[np.triu_indices(d)] = triangle
    symmetric.T[np.triu_indices(d)] = triangle
    return symmetric


def cancels(shift: FloatArray, variances: FloatArray) -> bool:
    """Whether squares about a centre this far from the mean lose digits of the variance."""
    return bool((shift**2 > _CANCELS * variances).any())
