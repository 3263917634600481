"""Learning from totals (paper, Section 4): n, sum x and sum x x' are all that a linear Gaussian model needs.

    1. server sends "moments" with a centre c, zero at first
    2. site: its number of rows, sum of x - c, sum of (x - c)(x - c)', of which one triangle travels
    3. server: from the totals the mean and scatter of all rows together
    4. only if some mean is so large against its spread that step 3 loses digits: once more, with c the mean found
    5. the learner, at the server, from these moments alone

What leaves a site: those three sums, as summands of a total.  The total is that of the pooled rows, so the answer is
the pooled one.  The pooled oracle is the same over one site that holds all rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import NumericalError
from dagora.federated.message import Message, array
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.learners.base import Learned

_CANCELS = 1e4  # mean^2 over variance: rounding is then 1e-12 of a variance, well below what any learner sees


@dataclass(frozen=True)
class CovarianceSite:
    """Answers with its sums about a centre."""

    def init(self, data: Moments) -> Moments:
        """The moments are all it needs."""
        return data

    def local_update(self, state: Moments, message: Message) -> tuple[Moments, Summand]:
        """Sums of the site's rows."""
        centre = array(message, "centre")
        return state, {
            "rows": np.array(float(state.n)),
            "sum": state.n * (state.mean - centre),
            "squares": folded(state.about(centre)),
        }


@dataclass(frozen=True)
class CovarianceState:
    """The centre asked for last, the moments once they are exact enough, and what was learned from them."""

    centre: FloatArray
    asked: int = 0
    moments: Moments | None = None
    learned: Learned | None = None


@dataclass(frozen=True)
class CovarianceServer:
    """Learns from the totals of d variables."""

    d: int
    learn: Callable[[Moments], Learned]

    def init(self) -> CovarianceState:
        """Sums about zero first: nothing is known yet."""
        return CovarianceState(np.zeros(self.d))

    def broadcast(self, state: CovarianceState) -> Message | None:
        """One question; a second one where the first answer had too large means."""
        return {"phase": "moments", "centre": state.centre} if state.learned is None else None

    def global_update(self, state: CovarianceState, total: Total) -> CovarianceState:
        """Moments of all rows, and the learner's answer."""
        moments = pooled_moments(total, state.centre)
        state = replace(state, asked=state.asked + 1)
        if state.asked == 1 and cancels(moments.mean - state.centre, np.diag(moments.covariance)):
            return replace(state, centre=moments.mean)
        if not (np.diag(moments.scatter) > 0.0).all():
            raise NumericalError("the totals leave some column without variance; standardise the columns")
        return replace(state, moments=moments, learned=self.learn(moments))

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
    shift = total["sum"] / n
    return Moments(n, centre + shift, unfolded(total["squares"], len(centre)) - n * np.outer(shift, shift))


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
