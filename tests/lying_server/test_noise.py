"""Noise against a lying server: a game in which the server guesses whether one row was there.

Many runs are played with the row, and as many without.  From what it saw the server computes a number for every run;
how well a threshold tells the two kinds apart bounds epsilon from below (Clopper and Pearson's limits at 99.9%):

    epsilon >= log((hits - delta) / false alarms)

Whatever the server does, that bound must stay below what was promised.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from scipy.special import betaincinv

from dagora.aggregation.bounded import Bounded
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.fixed_point import add_to, decode, negative
from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.masked import Masked
from dagora.aggregation.plain import Plain
from dagora.arrays import FloatArray
from dagora.errors import DagoraError
from dagora.federated.message import Message
from dagora.federated.protocol import Summand
from dagora.federated.site import Site
from tests.effort import effort
from tests.unit.test_private_sums import Wire, payload

pytestmark = pytest.mark.soak

EPSILON, DELTA = 1.0, 1e-5
SITES = tuple(f"site-{k:02}" for k in range(10))
VICTIM, COLLUDERS = SITES[0], SITES[5:]  # half of the sites: what the default promises
RUNS = effort(150, 3000)  # of each kind
SURE = 1e-3


class Counting:
    """A site part that adds up one bounded number a row."""

    def init(self, data: FloatArray) -> FloatArray:
        return data

    def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
        return state, Bounded({"sum": np.array(state.sum())}, sensitivity=1.0, share=1.0)


class World:
    """A run whose rounds are runs of their own: the account is cleared, for the promise is one of each."""

    def __init__(self, row: bool) -> None:
        cohort = Cohort.simulated(SITES)
        self.gaussian = Gaussian(Masked(cohort), len(SITES), EPSILON, DELTA, len(COLLUDERS))
        self.noise: dict[str, float] = {}  # what sites sent before masks; the adversary has the colluders' only
        noisy = self.gaussian.noisy
        self.wire = Wire([self._site(site, row, noisy) for site in SITES])
        self.turn = 0

    def _site(self, site: str, row: bool, noisy: Callable[[Summand], Summand]) -> "Site[FloatArray, FloatArray]":
        class Noted(Gaussian):
            def noisy(other, summand: Summand) -> Summand:  # noqa: N805
                protected = noisy(summand)
                self.noise[site] = float(protected["sum"])
                return protected

        gaussian = Noted(self.gaussian.inner, len(SITES), EPSILON, DELTA, len(COLLUDERS))
        gaussian._shares = self.gaussian._shares
        return Site(site, Counting(), np.full(3 + (row and site == VICTIM), 1.0), gaussian)

    def ask(self) -> float:
        """The total of one run."""
        self.turn += 1
        self.gaussian._shares.clear()
        total = self.gaussian.total(self.wire, {"run": "run", "round": self.turn})
        return float(total["sum"])


def honest(world: World) -> float:
    """Server and colluders: the total less what they know of it."""
    return world.ask() - sum(world.noise[site] for site in COLLUDERS)


def split(world: World) -> float:
    """A lying server asks the victim something else in a field that changes nothing, and subtracts its payload."""
    world.ask()
    asked, replies = next((m, r) for m, r in reversed(world.wire.log) if m["secure.step"] == "sum")
    kept = {site: payload(reply)["words"] for site, reply in replies.items()}
    other: Mapping[str, Message] = {VICTIM: {"secure.high": 1, "secure.attempt": 1}}
    world.gaussian._shares.clear()
    try:
        kept[VICTIM] = negative(payload(world.wire.exchange(asked, other)[VICTIM])["words"])
    except DagoraError:
        pass
    words = np.zeros_like(kept[VICTIM])
    for own in kept.values():
        add_to(*words, *own)
    return float(decode(words)[0])


def bound(with_row: FloatArray, without: FloatArray) -> float:
    """A lower bound on epsilon: the threshold is chosen on one half of the runs and judged on the other."""
    half = len(with_row) // 2
    with np.errstate(divide="ignore"):
        chosen = max(
            np.quantile(without[:half], np.linspace(0.5, 1.0, 200)[:-1]),
            key=lambda t: np.log(np.mean(with_row[:half] > t) / (np.mean(without[:half] > t) + 1.0 / half)),
        )
    hits, alarms = int((with_row[half:] > chosen).sum()), int((without[half:] > chosen).sum())
    n = len(with_row) - half
    low = betaincinv(hits, n - hits + 1, SURE / 2) if hits else 0.0
    high = betaincinv(alarms + 1, n - alarms, 1.0 - SURE / 2) if alarms < n else 1.0
    return math.log((low - DELTA) / high) if low > DELTA else -math.inf


@pytest.mark.parametrize("adversary", [honest, split])
def test_a_lying_server_learns_no_more_of_a_row_than_was_promised(adversary: Callable[[World], float]) -> None:
    pytest.importorskip("opendp")
    worlds = World(row=True), World(row=False)
    seen = np.array([[adversary(world) for world in worlds] for _ in range(RUNS)])
    assert bound(seen[:, 0], seen[:, 1]) < EPSILON


def test_the_game_finds_noise_that_is_too_little() -> None:
    # One site's part of the noise alone, as a server that undid the masks would see it; fifty sites.
    pytest.importorskip("opendp")
    gaussian = Gaussian(Plain(), 50, EPSILON, DELTA)
    seen = np.array(
        [
            [float(gaussian.noisy(Bounded({"sum": np.array(rows)}, 1.0, 1.0))["sum"]) for rows in (4.0, 3.0)]
            for _ in range(20_000)
        ]
    )
    assert bound(seen[:, 0], seen[:, 1]) > EPSILON
    # And it does not find too much where the noise of all honest sites is in the sum.
    whole = seen[: 20_000 // 25 * 25].reshape(-1, 25, 2).sum(axis=1)
    assert bound(whole[:, 0] - 25 * 3.0 - np.where(True, 24.0, 0.0), whole[:, 1] - 25 * 3.0) < EPSILON


def test_the_bound_is_one() -> None:
    # Randomised response with epsilon 1: the bound is close to 1, and below it.
    rng, keep = np.random.default_rng(0), math.e / (1.0 + math.e)
    yes, no = (np.where(rng.random(100_000) < keep, bit, 1.0 - bit) for bit in (1.0, 0.0))
    assert 0.9 < bound(yes, no) < 1.0
