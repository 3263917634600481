"""Learning additive effects from totals: the covariance method on functions of the variables.

    1. server sends "spread" with a centre c, zero at first
    2. site: its number of rows, sum of x - c, sum of (x - c)^2 of each variable
    3. server: means and deviations of all rows; they fix the functions (models/additive.py).  Only if some mean is so
       large against its spread that this loses digits: once more, with c the mean found
    4. server sends "moments" with these means and deviations
    5. site: its number of rows, sums of the functions and of their products, of which one triangle travels
    6. server: the search for the best network (learners/additive.py), from these moments alone

What leaves a site: those sums, as summands of a total, in two rounds.  The totals are those of the pooled rows, so the
answer is the pooled one for any number of sites.  A site that learns alone does all of this by itself.

The products of functions say more of the rows than those of the variables do: with f functions, f d (f d + 1) / 2 sums.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.algorithms.covariance import cancels, folded, pooled_moments
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.rows import Rows
from dagora.errors import MessageError, NumericalError
from dagora.federated.message import Message, array
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.learners.base import Learned
from dagora.models.additive import FUNCTIONS, Basis, Curves

Learn = Callable[[Moments, FloatArray], Learned]  # from the functions' moments and the variables' deviations


@dataclass(frozen=True)
class AdditiveSite:
    """Answers with sums of its variables' squares, then of products of their functions."""

    def init(self, data: Rows) -> Rows:
        """The rows are read anew in every round."""
        return data

    def local_update(self, state: Rows, message: Message) -> tuple[Rows, Summand]:
        """What the phase asks for."""
        phase, centre = message.get("phase"), array(message, "centre")
        if phase == "spread":
            moments = Moments.of(state.chunks(), state.d)
            return state, {
                "rows": np.array(float(moments.n)),
                "sum": moments.n * (moments.mean - centre),
                "squares": np.diag(moments.about(centre)).copy(),
            }
        if phase == "moments":
            moments = function_moments(state, Basis(centre, array(message, "scale")))
            return state, {
                "rows": np.array(float(moments.n)),
                "sum": moments.total,
                "squares": folded(moments.about(np.zeros(len(moments.mean)))),
            }
        raise MessageError("message refused: it asks for no phase that the site knows")


@dataclass(frozen=True)
class AdditiveState:
    """The centre asked for last, the deviations once they are known, and what was learned."""

    centre: FloatArray
    asked: int = 0
    scale: FloatArray | None = None
    means: FloatArray | None = None  # of the functions
    learned: Learned | None = None


@dataclass(frozen=True)
class AdditiveServer:
    """Learns from the totals of d variables."""

    d: int
    learn: Learn

    def init(self) -> AdditiveState:
        """Sums about zero first: nothing is known yet."""
        return AdditiveState(np.zeros(self.d))

    def broadcast(self, state: AdditiveState) -> Message | None:
        """Means and deviations first, then the functions that they fix."""
        if state.learned is not None:
            return None
        if state.scale is None:
            return {"phase": "spread", "centre": state.centre}
        return {"phase": "moments", "centre": state.centre, "scale": state.scale}

    def global_update(self, state: AdditiveState, total: Total) -> AdditiveState:
        """Fix the functions, or learn from their moments."""
        if state.scale is not None:
            moments = pooled_moments(total, np.zeros(self.d * FUNCTIONS))
            return replace(state, means=moments.mean, learned=self.learn(moments, state.scale))
        n = round(float(total["rows"]))
        shift = total["sum"] / n
        variances = total["squares"] / n - shift**2
        state = replace(state, centre=state.centre + shift, asked=state.asked + 1)
        if state.asked == 1 and cancels(shift, variances):
            return state
        if not (variances > 0.0).all():
            raise NumericalError("the totals leave some column without variance; standardise the columns")
        return replace(state, scale=np.sqrt(variances))

    def progress(self, state: AdditiveState) -> Mapping[str, float]:
        """Done when the search is."""
        return {"done": 1.0 if state.learned is not None else 0.5}

    def estimate(self, state: AdditiveState) -> Estimate:
        """As the search says."""
        assert state.learned is not None
        assert state.learned.coefficients is not None
        assert state.means is not None
        assert state.scale is not None
        found = state.learned
        curves = Curves(Basis(state.centre, state.scale), state.means, state.learned.coefficients)
        return Estimate(found.weights, found.edges, found.weights, found.warnings, functions=curves)


def alone(rows: Rows, learn: Learn) -> Learned:
    """What a site learns from its own rows; a column that is constant there has a scale of 1, and no edges."""
    moments = Moments.of(rows.chunks(), rows.d)
    deviations = np.sqrt(np.diag(moments.covariance))
    scale = np.where(deviations > 0.0, deviations, 1.0)
    return learn(function_moments(rows, Basis(moments.mean, scale)), scale)


def function_moments(rows: Rows, basis: Basis) -> Moments:
    """Moments of the functions of rows."""
    return Moments.of(map(basis.expand, rows.chunks()), rows.d * FUNCTIONS)
