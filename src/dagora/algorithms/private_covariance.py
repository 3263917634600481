"""Learning from noisy totals: the covariance method for rows that differential privacy protects.

    1. "magnitudes": histograms that say in which range each column lies (private_ranges.py)
    2. "positions":  only if some column's spread is small against its mean: once or more, a closer look
    3. "moments", three times.  Site: z = A (x - c), shortened to length r = sqrt(d) at most; the sums of 1, z, z z'.
       Server: with the noisy mean and covariance of z, new c and A, so that z has about the covariance I next time
    4. the learner, at the server, from the last moments alone

Step 3 is the point.  Noise of one size on all covariances hides what matters most: the small variance that parents
leave.  Once rows are whitened by an earlier, rougher answer, noise is small against that variance too (the idea of
Kamath, Li, Singhal and Ullman 2019 and of CoinPress: Biswas, Dong, Kamath and Ullman 2020).  Noise on the covariance
of whitened rows is also like the error of fewer rows: learners are told n' with 1/n' = 1/n + (noise per covariance)^2,
and so price edges rightly.  Shortening whitened rows scales the covariance of elliptical data and leaves its shape.

What leaves a site: those sums, of which one row changes at most the stated L2 sensitivity.  c, A and r are functions of
noisy totals.  Public beforehand: d, the number of sites, epsilon, delta, and the constants of these files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dagora.aggregation.bounded import Bounded
from dagora.algorithms.private_moments import NoisyMoments, read_sums, sensitivity, shortened_share, sums
from dagora.algorithms.private_ranges import (
    MAGNITUDES,
    POSITIONS,
    Ranges,
    magnitudes,
    positions,
    read_magnitudes,
    read_positions,
    search_interval,
)
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.rows import Rows
from dagora.data.wording import listing
from dagora.errors import MessageError, NumericalError
from dagora.federated.message import Message, array, number
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.learners.base import Learned

# Shares of the budget: multiples of 1/1024, so that they add up to 1 exactly.
_MAGNITUDES_SHARE, _POSITIONS_SHARE = 1 / 16, 1 / 32
_MOMENTS_SHARES = (5 / 32, 10 / 32)  # of what the ranges leave; the last answer has the rest
_MOST_LOOKS = 3  # each about 50 times closer
_FEW = 50  # rows a column, below which noise decides too much

_FLOOR = 0.7  # of sqrt(d) times the noise, whose eigenvalues reach 2 in these units: less is taken for noise

_DROWNED = (
    "there are too few rows for so little epsilon: the noise hides them; raise epsilon, add rows or leave out columns"
)


@dataclass(frozen=True)
class PrivateCovarianceSite:
    """Answers with histograms, and with sums of shortened rows; each answer states its sensitivity."""

    def init(self, data: Rows) -> Rows:
        """The rows are read anew in every round."""
        return data

    def local_update(self, state: Rows, message: Message) -> tuple[Rows, Summand]:
        """What the phase asks for."""
        phase, share = message.get("phase"), number(message, "share")
        if phase == "magnitudes":
            counts = sum(map(magnitudes, state.chunks()), np.zeros((state.d, MAGNITUDES)))
            return state, Bounded({"counts": counts}, np.sqrt(state.d), share)
        if phase == "positions":
            low, high = _sized(message, "low", state.d), _sized(message, "high", state.d)
            each = (positions(rows, low, high) for rows in state.chunks())
            return state, Bounded({"counts": sum(each, np.zeros((state.d, POSITIONS)))}, np.sqrt(state.d), share)
        if phase == "moments":
            centre, whiten = _sized(message, "centre", state.d), _sized(message, "whiten", state.d, state.d)
            if number(message, "radius") != radius(state.d):  # sums are refused by radius and rows: it must not probe
                raise MessageError("message refused: its radius is not the one that the number of columns gives")
            answer = sums(state.chunks(), centre, whiten, radius(state.d))
            return state, Bounded(answer, sensitivity(radius(state.d)), share)
        raise MessageError("message refused: it asks for no phase that the site knows")


def radius(d: int) -> float:
    """Whitened rows have this length on average; shortening those above it costs little, a larger one more noise."""
    return float(np.sqrt(d))


def _sized(message: Message, name: str, *shape: int) -> FloatArray:
    """An array of the message, of the only shape that does not depend on the rows."""
    values = array(message, name)
    if values.shape != shape:
        raise MessageError(f"message refused: its {name!r} has not the size that the columns give")
    return values


@dataclass(frozen=True)
class PrivateCovarianceState:
    """The budget left; ranges; centre, whitening matrix and its inverse; and what was learned."""

    left: float = 1.0
    ranges: Ranges | None = None
    rows: float = 0.0
    looks: int = 0
    slack: float = 0.25
    centre: FloatArray | None = None
    whiten: FloatArray | None = None
    unwhiten: FloatArray | None = None
    asked: int = 0
    worth: int = 0  # rows that would have as much error without noise
    moments: Moments | None = None
    learned: Learned | None = None


@dataclass(frozen=True)
class PrivateCovarianceServer:
    """Learns from noisy totals of d variables.

    noise: deviation of the noise in a total whose sensitivity is 1 and which may use the whole budget.  It is public
    (`Gaussian.multiplier`).
    """

    names: tuple[str, ...]
    learn: Callable[[Moments], Learned]
    noise: float

    @property
    def d(self) -> int:
        """Variables."""
        return len(self.names)

    def init(self) -> PrivateCovarianceState:
        """Nothing is known yet, not even the columns' units."""
        return PrivateCovarianceState()

    def broadcast(self, state: PrivateCovarianceState) -> Message | None:
        """Ranges first, then moments."""
        if state.learned is not None:
            return None
        share = self._share(state)
        if state.ranges is None:
            return {"phase": "magnitudes", "share": share}
        if state.centre is None or state.whiten is None:
            low, high = search_interval(state.ranges, state.slack)
            return {"phase": "positions", "share": share, "low": low, "high": high}
        return {
            "phase": "moments",
            "share": share,
            "centre": state.centre,
            "whiten": state.whiten,
            "radius": radius(self.d),
        }

    def global_update(self, state: PrivateCovarianceState, total: Total) -> PrivateCovarianceState:
        """Read the noisy total, and charge it to the budget."""
        share = self._share(state)
        after = replace(state, left=state.left - share)
        deviation = self.noise / np.sqrt(share)
        if state.ranges is None:
            found = read_magnitudes(total["counts"], deviation * np.sqrt(self.d))
            if found is None:
                raise NumericalError(_DROWNED)
            after = replace(after, ranges=found[0], rows=found[1])
            return self._look_closer_or_go_on(after)
        if state.centre is None or state.whiten is None:
            low, high = search_interval(state.ranges, state.slack)
            ranges = read_positions(
                total["counts"], low, high, deviation * np.sqrt(self.d), state.rows, before=state.ranges
            )
            # A range of one or two bins may have its neighbours' values near its ends.
            return self._look_closer_or_go_on(replace(after, ranges=ranges, looks=state.looks + 1, slack=1.0))
        moments = read_sums(total, deviation * sensitivity(radius(self.d)))
        if moments is None:
            raise NumericalError(_DROWNED)
        return self._whitened(after, moments)

    def progress(self, state: PrivateCovarianceState) -> Mapping[str, float]:
        """Done when the learner is; the budget used so far."""
        return {"done": 1.0 if state.learned is not None else (1 + state.asked) / 5, "budget": 1.0 - state.left}

    def estimate(self, state: PrivateCovarianceState) -> Estimate:
        """As the learner says."""
        assert state.learned is not None
        found = state.learned
        worth, warnings = {"rows_worth": np.array(float(state.worth))}, found.warnings
        if state.worth < _FEW * self.d:
            warnings += (
                f"the noisy totals are worth {state.worth} rows, too few for {self.d} columns: another run may give "
                "another graph; raise epsilon, add rows or leave out columns",
            )
        assert state.moments is not None
        return Estimate(
            found.weights,
            found.edges,
            found.weights,
            warnings,
            worth,
            found.cpdag,
            moments=state.moments,
            covariance=state.moments.covariance,
            chosen=found.chosen,
        )

    def _share(self, state: PrivateCovarianceState) -> float:
        if state.ranges is None:
            return _MAGNITUDES_SHARE
        if state.centre is None:
            return _POSITIONS_SHARE
        if state.asked == len(_MOMENTS_SHARES):
            return state.left
        spared = 1.0 - _MAGNITUDES_SHARE - state.looks * _POSITIONS_SHARE
        return spared * _MOMENTS_SHARES[state.asked]

    def _look_closer_or_go_on(self, state: PrivateCovarianceState) -> PrivateCovarianceState:
        assert state.ranges is not None
        if not state.ranges.resolved.all() and state.looks < _MOST_LOOKS:
            return state
        if not state.ranges.resolved.all():
            columns = listing([self.names[j] for j in np.flatnonzero(~state.ranges.resolved)])
            raise NumericalError(
                f"column {columns}: the spread is too small against the mean, or most values are the same; subtract a "
                "constant that all sites agree on, or leave it out"
            )
        scale = state.ranges.scale
        return replace(state, centre=state.ranges.centre, whiten=np.diag(1.0 / scale), unwhiten=np.diag(scale))

    def _whitened(self, state: PrivateCovarianceState, found: NoisyMoments) -> PrivateCovarianceState:
        """New centre and whitening matrix; after the last answer, the learner's turn."""
        assert state.centre is not None
        assert state.whiten is not None
        assert state.unwhiten is not None
        eigenvalues, Q = np.linalg.eigh(found.covariance)
        eigenvalues = np.maximum(eigenvalues, _FLOOR * np.sqrt(self.d) * found.noise + 1e-6)
        deviations = np.sqrt(eigenvalues / shortened_share(self.d, radius(self.d)))
        state = replace(
            state,
            centre=state.centre + state.unwhiten @ found.mean,
            whiten=(Q / deviations).T @ state.whiten,
            unwhiten=state.unwhiten @ (Q * deviations),
            asked=state.asked + 1,
        )
        if state.asked <= len(_MOMENTS_SHARES):
            return state
        assert state.centre is not None
        assert state.unwhiten is not None
        rows = max(2, round(1.0 / (1.0 / found.rows + found.noise**2)))
        scatter = rows * (state.unwhiten @ state.unwhiten.T)
        moments = Moments(rows, state.centre, scatter)
        return replace(state, worth=rows, moments=moments, learned=self.learn(moments))
