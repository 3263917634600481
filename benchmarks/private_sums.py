"""What private sums cost: a d x d matrix a round, at a site, at the server and in bytes."""

import time
from collections.abc import Mapping
from statistics import median

import numpy as np

from benchmarks.tables import publish
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.registry import AGGREGATIONS
from dagora.arrays import FloatArray
from dagora.federated.message import Message
from dagora.federated.protocol import Summand
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess

CELLS = (
    *((8, d, name) for d in (20, 50, 100) for name in ("plain", "masked", "shared", "encrypted")),
    *((64, d, name) for d in (20, 50, 100) for name in ("plain", "masked")),
)
ROUNDS = 20  # the first, with its keys, is told apart


class Constant:
    """A site part that has its answer ready: what remains is the protection."""

    def init(self, data: FloatArray) -> FloatArray:
        """The answer itself."""
        return data

    def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
        """Always the same."""
        return state, {"position": state}


class Timed(InProcess):
    """Adds up the sites' time in a round; sites in reality work at once, so the mean site counts."""

    seconds = 0.0

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> dict[str, Message]:
        """Time what the sites do."""
        start = time.perf_counter()
        replies = super().exchange(message, own, enough)
        self.seconds += time.perf_counter() - start
        return replies


def cost(name: str, d: int, sites: int) -> tuple[float, float, float, float]:
    """Milliseconds at a site and at the server, kB a site sends, and milliseconds at a site in the first round."""
    names = tuple(f"site-{k}" for k in range(sites))
    aggregation = AGGREGATIONS[name](Cohort.simulated(names), None)
    W = np.random.default_rng(0).standard_normal((d, d))
    wire = Timed([Site(site, Constant(), W, aggregation) for site in names])
    at_site, at_server, sent = [], [], 0
    for turn in range(1, ROUNDS + 1):
        wire.seconds, sent, start = 0.0, wire.sent, time.perf_counter()
        total = aggregation.total(wire, {"run": "benchmark", "round": turn, "W": W})
        at_server.append((time.perf_counter() - start - wire.seconds) * 1e3)
        at_site.append(wire.seconds * 1e3 / sites)
        np.testing.assert_allclose(total["position"], sites * W, rtol=1e-12)
    return median(at_site[1:]), median(at_server[1:]), (wire.sent - sent) / sites / 1e3, at_site[0]


def main(runs: int, jobs: int) -> None:
    table = []
    for sites, d, name in CELLS:
        own, server, sent, first = cost(name, d, sites)
        table.append([sites, d, name, f"{own:.2f}", f"{server:.2f}", f"{sent:.0f}", f"{first:.1f}"])
    publish(
        "private_sums",
        "Private sums of a d x d matrix: cost a site and round (medians; the first round has the keys)",
        ["sites", "d", "aggregation", "ms at a site", "ms at the server", "kB sent by a site", "ms, first round"],
        table,
    )
