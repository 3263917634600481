"""Noise against a lying server: a game in which the server guesses whether one row was there.

Many runs are played with the row, and as many without.  From what it saw the server computes a number for every run;
how well a threshold tells the two kinds apart bounds epsilon from below (Clopper and Pearson's limits at 99.9%):

    epsilon >= log((hits - delta) / false alarms)

Whatever the server does, that bound must stay below what was promised.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import betaincinv

from dagora.aggregation.bounded import Bounded
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.fixed_point import add_to, decode
from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.masked import Masked
from dagora.aggregation.plain import Plain
from dagora.arrays import FloatArray
from dagora.federated.message import Message
from dagora.federated.protocol import Summand
from dagora.federated.site import Site
from tests.effort import effort
from tests.unit.test_private_sums import Wire, payload

pytestmark = pytest.mark.soak

EPSILON, DELTA = 1.0, 1e-5
SITES = tuple(f"site-{k:02}" for k in range(10))
VICTIM, COLLUDERS = SITES[0], SITES[5:]  # half of the sites: what the default promises
ROWS = 1000  # at each site
RUNS = effort(150, 3000)  # of each kind
SAMPLES = effort(10_000, 50_000)
SURE = 1e-3


class Counting:
    """A site part that adds up one bounded number a row."""

    def init(self, data: FloatArray) -> FloatArray:
        return data

    def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
        return state, Bounded({"sum": np.array(state.sum())}, sensitivity=1.0, share=1.0)


class Noted(Gaussian):
    """Notes the noisy summand of its site: the adversary may know those of the sites that collude."""

    last = 0.0

    def noisy(self, summand: Bounded) -> Summand:
        protected = super().noisy(summand)
        self.last = float(protected["sum"])
        return protected


class World:
    """A run whose rounds are runs of their own: the account is cleared, for the promise is one of each."""

    def __init__(self, row: bool) -> None:
        masked = Masked(Cohort.simulated(SITES))
        self._at = {site: Noted(masked, len(SITES), EPSILON, DELTA, len(COLLUDERS)) for site in SITES}
        self._wire = Wire(
            [
                Site(site, Counting(), np.ones(ROWS + (row and site == VICTIM)), gaussian)
                for site, gaussian in self._at.items()
            ]
        )
        self._turn = 0

    def honest_total(self) -> float:
        """Of one run."""
        self._turn += 1
        for gaussian in self._at.values():
            gaussian._shares.clear()
        return float(self._at[VICTIM].total(self._wire, {"run": "run", "round": self._turn})["sum"])

    @property
    def known(self) -> float:
        """What the colluding sites added."""
        return sum(self._at[site].last for site in COLLUDERS)

    def sum_of(self, attempt: int, victim: Message) -> float:
        """Of the payloads of the round, where the victim is asked something more than the others."""
        asked: Message = {"run": "run", "round": self._turn, "secure.attempt": attempt, "secure.step": "sum"}
        own: dict[str, Message] = {site: victim if site == VICTIM else {} for site in SITES}
        words = np.zeros((2, 2), dtype=np.uint64)
        for reply in self._wire.exchange(asked, own).values():
            add_to(*words, *payload(reply)["words"])
        return float(decode(words)[0])


def honest(world: World) -> float:
    """Server and colluders: the total less what they know of it."""
    return world.honest_total() - world.known


def isolate(world: World) -> float:
    """A lying server makes the victim balk at narrow words, and subtracts that total from an honest one.

    Where narrow words were not part of the question, and a site that balked added zeros, this was the victim's summand
    with its own part of the noise only.
    """
    honest_total = world.honest_total()
    return honest_total - world.sum_of(1, {"secure.high": 1})


def bound(with_row: FloatArray, without: FloatArray) -> float:
    """A lower bound on epsilon: the threshold is chosen on one half of the runs and judged on the other."""
    half = len(with_row) // 2
    tried = np.quantile(without[:half], np.linspace(0.5, 1.0, 200)[:-1])
    chosen = max(tried, key=lambda t: np.mean(with_row[:half] > t) / (np.mean(without[:half] > t) + 1.0 / half))
    hits, alarms = int((with_row[half:] > chosen).sum()), int((without[half:] > chosen).sum())
    n = len(with_row) - half
    low = betaincinv(hits, n - hits + 1, SURE / 2) if hits else 0.0
    high = betaincinv(alarms + 1, n - alarms, 1.0 - SURE / 2) if alarms < n else 1.0
    return math.log((low - DELTA) / high) if low > DELTA else -math.inf


@pytest.mark.parametrize("adversary", [honest, isolate])
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
            for _ in range(SAMPLES)
        ]
    )
    assert bound(seen[:, 0], seen[:, 1]) > EPSILON
    # And it does not find too much where the noise of all honest sites is in the sum.
    whole = seen.reshape(-1, 25, 2).sum(axis=1)
    assert bound(whole[:, 0] - 24.0, whole[:, 1]) < EPSILON  # one row more at one site of 25


def test_the_bound_is_one() -> None:
    # Randomised response with epsilon 1: the bound is close to 1, and below it.
    rng, keep = np.random.default_rng(0), math.e / (1.0 + math.e)
    yes, no = (np.where(rng.random(100_000) < keep, bit, 1.0 - bit) for bit in (1.0, 0.0))
    assert 0.9 < bound(yes, no) < 1.0
