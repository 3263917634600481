"""Parameters after the structure: one total more, and a learned graph is a Bayesian network.

    1. the algorithm, as it is, until it has nothing more to ask
    2. server sends "parameters" with a centre c, zero at first, and the pairs of variables whose products it needs
    3. site: its number of rows, sum of x - c, and for these pairs the sum of (x_i - c_i)(x_j - c_j)
    4. server: means, variances and covariances of all rows together (gaussian_network.py makes parameters of them)
    5. only if some mean is so large against its spread that step 4 loses digits: once more, with c the mean found

What leaves a site: those sums, as summands of a total.  The pairs are those within families (a child and its parents):
least squares needs no others, so no others are asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dagora.algorithms.covariance import cancels
from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.errors import MessageError
from dagora.federated.message import Message, array
from dagora.federated.protocol import Algorithm, Estimate, ServerPart, SitePart, Summand, Total, asks_jointly
from dagora.graphs import break_cycles

PHASE = "parameters"


@dataclass(frozen=True)
class SiteState:
    """The moments, and the algorithm's own state."""

    data: Moments
    inner: Any


@dataclass(frozen=True)
class ParametersSite:
    """The algorithm's site, and sums for a graph that it is asked about."""

    part: SitePart[Moments, Any]

    def init(self, data: Moments) -> SiteState:
        """The moments serve both."""
        return SiteState(data, self.part.init(data))

    def local_update(self, state: SiteState, message: Message) -> tuple[SiteState, Summand]:
        """Sums of the site's rows, or the algorithm's answer."""
        if message.get("phase") != PHASE:
            inner, summand = self.part.local_update(state.inner, message)
            return replace(state, inner=inner), summand
        centre, (i, j) = array(message, "centre"), _pairs(message, len(state.data.mean))
        if centre.shape != state.data.mean.shape:
            raise MessageError("message refused: its centre is not one of these variables")
        return state, {
            "rows": np.array(float(state.data.n)),
            "sum": state.data.n * (state.data.mean - centre),
            "products": state.data.about(centre)[i, j],
        }

    def joint(self, message: Message) -> bool:
        """As the algorithm does."""
        return asks_jointly(self.part, message)

    def local_updates(self, states: Sequence[SiteState], message: Message) -> list[tuple[SiteState, Summand]]:
        """The algorithm's steps of several sites."""
        assert asks_jointly(self.part, message)
        steps = self.part.local_updates([state.inner for state in states], message)
        return [(replace(state, inner=inner), sums) for state, (inner, sums) in zip(states, steps, strict=True)]


def _pairs(message: Message, d: int) -> tuple[IntArray, IntArray]:
    pairs = message.get("pairs")
    if not isinstance(pairs, np.ndarray) or pairs.dtype != np.int64 or pairs.ndim != 2 or pairs.shape[0] != 2:
        raise MessageError("message refused: it names no pairs of variables")
    if pairs.size and not (pairs.min() >= 0 and pairs.max() < d):
        raise MessageError("message refused: it names variables that there are not")
    return pairs[0], pairs[1]


@dataclass(frozen=True)
class ServerState:
    """The algorithm's own state; its estimate once it has one; then the centre asked for, and moments."""

    inner: Any
    estimate: Estimate | None = None
    centre: FloatArray | None = None
    pairs: IntArray | None = None
    again: bool = False  # whether the centre is one that was found
    moments: Moments | None = None


@dataclass(frozen=True)
class ParametersServer:
    """Hands over to the algorithm, then asks for what its graph needs."""

    part: ServerPart[Any]
    d: int

    def init(self) -> ServerState:
        """The algorithm's turn."""
        return ServerState(self.part.init())

    def broadcast(self, state: ServerState) -> Message | None:
        """The algorithm's question; then one, seldom two, of its own."""
        if state.estimate is None:
            return self.part.broadcast(state.inner)
        if state.moments is not None:
            return None
        assert state.centre is not None
        assert state.pairs is not None
        return {"phase": PHASE, "centre": state.centre, "pairs": state.pairs}

    def global_update(self, state: ServerState, total: Total) -> ServerState:
        """Take in the total of either."""
        if state.estimate is None:
            state = replace(state, inner=self.part.global_update(state.inner, total))
            if self.part.broadcast(state.inner) is not None:
                return state
            found = self.part.estimate(state.inner)
            return replace(state, estimate=found, centre=np.zeros(self.d), pairs=families(found, self.d))
        assert state.centre is not None
        assert state.pairs is not None
        moments = _moments(total, state.centre, state.pairs)
        if not state.again and cancels(moments.mean - state.centre, np.diag(moments.covariance)):
            return replace(state, centre=moments.mean, again=True)
        return replace(state, moments=moments)

    def progress(self, state: ServerState) -> Mapping[str, float]:
        """The algorithm's figures; the last round adds nothing but its end."""
        figures = self.part.progress(state.inner)
        return figures if state.moments is not None else {**figures, "done": min(figures["done"], 0.99)}

    def estimate(self, state: ServerState) -> Estimate:
        """The algorithm's, with moments."""
        assert state.estimate is not None
        return replace(state.estimate, moments=state.moments)


def families(found: Estimate, d: int) -> IntArray:
    """Pairs i <= j, (2, m): every variable with itself, with its parents, and its parents among each other."""
    dag = break_cycles(found.edges[:d], found.strength[:d])[0] != 0
    family = (dag | np.eye(d, dtype=bool)).astype(np.int64)  # [i, j]: i is in the family of j
    return np.array(np.nonzero(np.triu(family @ family.T)), dtype=np.int64)


def with_parameters(algorithm: Algorithm[Any, Any, Any], d: int) -> Algorithm[Any, Any, Any]:
    """The algorithm, and parameters of its graph after it."""
    return Algorithm(ParametersSite(algorithm.site), ParametersServer(algorithm.server, d))


def _moments(total: Total, centre: FloatArray, pairs: IntArray) -> Moments:
    """Moments of all rows; what was not asked for is NaN."""
    n, (i, j) = round(float(total["rows"])), pairs
    shift = total["sum"] / n
    scatter = np.full((len(centre), len(centre)), np.nan)
    scatter[i, j] = scatter[j, i] = total["products"] - n * shift[i] * shift[j]
    return Moments(n, centre + shift, scatter)
