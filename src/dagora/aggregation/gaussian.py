"""Differential privacy: every site adds its share of Gaussian noise before its summand is protected and sent.

    site         values to a grid, plus discrete Gaussian integers     the server sees a noisy total only,
    inner        adds (in practice by a masked sum)                    never an exact one

A row's contribution is bounded by the summand's own word (`Bounded`); one that says nothing is refused.  With a budget
rho for the run, a round with share q has noise of deviation s = D / sqrt(2 rho q) for sensitivity D, and is
q rho-zCDP (see accounting.py).  Of K sites, `colluders` may pool what they know, their own noise included, with each
other and with the server: a site's variance is s^2 / (K - colluders), so the others' noise alone reaches s^2.

Why integers: noise drawn as doubles betrays the value under it by its last digits (Mironov 2012).  Values are rounded
to multiples of g, a power of two near s / 2^20, which may move each of m values by one multiple more: D grows by
sqrt(m) g.  All multiples of g that occur are doubles, so the noisy values are exact.  A sum of discrete Gaussians is
not quite one, but the difference falls as exp(-pi^2 v) with v a site's variance in multiples, here 2^40 or more
(Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation"): it is zero for all purposes.  The inner sum must keep multiples of g as they are: `Plain` and the masked
sum do.

The noise is drawn by OpenDP's exact sampler from the operating system's randomness.  It cannot be seeded: two runs
differ, and must.
"""

import math
from collections.abc import Callable, Mapping
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from dagora.aggregation.accounting import MISSING, budget, spent
from dagora.aggregation.bounded import Bounded
from dagora.arrays import FloatArray, IntArray
from dagora.errors import DagoraError, InputError, NumericalError
from dagora.federated.message import Message, array, decode, encode
from dagora.federated.protocol import Aggregation, Summand, Total, Transport
from dagora.federated.vault import Vault

_FINENESS = 20  # a site's deviation is 2^20 multiples of the grid, or up to twice that
_LEAST_SHARE = 1e-6  # of a budget: less is no answer to any honest question
_ASKED = "secure.asked"  # with the noise that is kept: the question that it was drawn for
_EXACT = 2.0**52  # smaller whole numbers, and halves of them, are doubles


class Gaussian:
    """Adds noise at the sites, so that a run is (epsilon, delta)-differentially private for rows added or removed."""

    def __init__(
        self, inner: Aggregation, sites: int, epsilon: float, delta: float = 1e-5, colluders: int | None = None
    ) -> None:
        """Inner adds up; of `sites` sites, half (rounded down) may collude unless `colluders` says otherwise."""
        colluders = sites // 2 if colluders is None else colluders
        if not 0 <= colluders < sites:
            raise InputError(f"colluders: must be 0 or more and below the number of sites, {sites}")
        self.inner = inner
        self.epsilon, self.delta = epsilon, delta
        self.colluders = colluders
        self.rho = budget(epsilon, delta)
        self._honest = sites - colluders
        self._sites = sites
        self._shares: dict[str, float] = {}
        self._at_sites = False

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Noise first, then the inner protection.  The site keeps its own account, whatever the server asks."""
        last: list[tuple[Summand, Summand]] = []
        self._at_sites = True

        def noisy_answer(message: Message) -> Summand:
            summand = answer(message)
            if not isinstance(summand, Bounded):
                raise InputError(
                    "a summand states no sensitivity, so noise cannot protect it; use method 'covariance', or leave "
                    "out epsilon"
                )
            # A retry is answered with the very summand, and gets the very noise: fresh noise would be a second release.
            if not last or last[0][0] is not summand:
                self._charge(site, summand.share)
                last[:] = [(summand, drawn_once(message, summand))]
            return last[0][1]

        def drawn_once(message: Message, summand: Bounded) -> Summand:
            """Also after a restart; and then for the same question only, whose share of the budget is the same."""
            if vault is None:
                return self.noisy(summand)
            turn, asked = f"noisy {message.get('run')} {message.get('round')}", _digest(message)
            drawn = decode(vault.once(turn, lambda: encode({**self.noisy(summand), _ASKED: asked})))
            if drawn.pop(_ASKED) != asked:
                raise DagoraError("this round was asked before with another question; nothing was sent")
            return {name: array(drawn, name) for name in drawn}

        return self.inner.at_site(site, noisy_answer, vault)

    def total(self, transport: Transport, message: Message) -> Total:
        """The inner total: noise is in every summand already."""
        return self.inner.total(transport, message)

    def noisy(self, summand: Bounded) -> Summand:
        """The summand with one site's noise."""
        values = np.concatenate([np.ravel(field) for field in summand.values()])
        grid, deviation = grid_and_deviation(
            summand.sensitivity, len(values), 2.0 * self.rho * summand.share, self._honest
        )
        whole = np.rint(values / grid)
        if not (np.abs(whole) < _EXACT).all():  # false for NaN, too
            raise NumericalError("a sum is too large for its noise, or not finite; nothing was sent")
        protected = (whole + discrete_gaussian(deviation, len(values))) * grid
        ends = np.cumsum([np.size(field) for field in summand.values()])
        parts = zip(summand.items(), np.split(protected, ends[:-1]), strict=True)
        return {name: part.reshape(np.shape(field)) for (name, field), part in parts}

    @property
    def multiplier(self) -> float:
        """Deviation of all sites' noise together, in a total of sensitivity 1 that may use the whole budget."""
        return math.sqrt(self._sites / (2.0 * self.rho * self._honest))

    @property
    def epsilon_spent(self) -> float:
        """Epsilon at delta of what the sites of this process have released so far; at a coordinator, of all."""
        used = max(self._shares.values(), default=0.0) if self._at_sites else 1.0
        return spent(self.rho * used, self.delta)

    @property
    def shares(self) -> Mapping[str, float]:
        """How much of its budget each site of this process has used."""
        return dict(self._shares)

    def _charge(self, site: str, share: float) -> None:
        used = self._shares.get(site, 0.0) + share
        if not _LEAST_SHARE <= share <= 1.0 or used > 1.0:
            raise DagoraError("the privacy budget of this run is used up; nothing was sent")
        self._shares[site] = used


def _digest(message: Message) -> str:
    """Of what the algorithm asks; attempts at it differ."""
    return sha256(encode({n: value for n, value in message.items() if not n.startswith("secure.")})).hexdigest()


def grid_and_deviation(sensitivity: float, values: int, doubled_rho: float, honest: int) -> tuple[float, float]:
    """The grid, and the deviation of one site's noise in multiples of it."""
    if not 0.0 < sensitivity < math.inf:
        raise InputError("a summand's sensitivity must be a finite number above 0")
    ideal = sensitivity / math.sqrt(doubled_rho * honest)
    grid = 2.0 ** (math.frexp(ideal)[1] - 1 - _FINENESS)
    whole = sensitivity / grid + math.sqrt(values)  # rounding moves each value by one multiple more at most
    return grid, whole / math.sqrt(doubled_rho * honest)


def discrete_gaussian(deviation: float, size: int) -> FloatArray:
    """Whole numbers z with probability in proportion to exp(-z^2 / (2 deviation^2)), exactly."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise DagoraError(MISSING) from None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l2_distance(T=dp.f64)
    draw = dp.m.make_gaussian(*space, scale=deviation)
    zeros: npt.NDArray[np.int64] = np.zeros(size, dtype=np.int64)
    noise: IntArray = np.asarray(draw(zeros), dtype=np.int64)
    return noise.astype(np.float64)
