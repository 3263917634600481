"""The only round loop of the package."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from secrets import token_hex
from typing import Protocol

import numpy as np

from dagora.errors import MissingSiteError, NumericalError
from dagora.federated.message import Message, Value
from dagora.federated.protocol import Aggregation, Estimate, ServerPart, ServerState, Total, Transport
from dagora.wide import without_low

Watcher = Callable[[Mapping[str, float]], None]


@dataclass(frozen=True)
class Departure:
    """What left the sites in the rounds of one phase: the fields of a summand, and bytes over all sites."""

    phase: str
    fields: Mapping[str, tuple[int, ...]]  # name and shape, the largest where rounds differ
    rounds: int
    sent: int
    received: int


@dataclass(frozen=True)
class Run:
    """A finished run: the estimate, the figures of every round, and all that left the sites."""

    estimate: Estimate
    history: tuple[Mapping[str, float], ...]
    ledger: tuple[Departure, ...]
    seconds: float


@dataclass(frozen=True)
class Kept:
    """A round that is over: its total, the bytes that left and reached all sites, and the seconds it took."""

    total: Total
    sent: int
    received: int
    seconds: float


class Memory(Protocol):
    """Rounds that survive the server.  States are functions of totals, so that totals are all there is to keep."""

    def recall(self, round: int) -> Kept | None:
        """The round as it was, if it was kept."""

    def keep(self, round: int, kept: Kept) -> None:
        """Write a round down for good, before anything is made of it."""

    @property
    def starts(self) -> int:
        """How often the server has started on this run."""


def run(
    server: ServerPart[ServerState],
    aggregation: Aggregation,
    transport: Transport,
    watch: Watcher | None = None,
    name: str = "",
    retries: int = 2,
    memory: Memory | None = None,
) -> Run:
    """Broadcast, add up, update, until the server part has nothing more to ask.

    name: tells this run from all others; new and random if empty.
    retries: how often a round is asked again when a site did not answer.
    memory: rounds that an earlier start of the same run has finished; they are not asked again.
    """
    name = name or token_hex(16)
    seconds = 0.0
    start = time.perf_counter()
    state = server.init()
    history: list[Mapping[str, float]] = []
    ledger: dict[str, Departure] = {}
    while (message := server.broadcast(state)) is not None:
        asked: dict[str, Value] = {"run": name, "round": len(history) + 1, **message}
        kept = None if memory is None else memory.recall(len(history) + 1)
        if kept is None:
            if memory is not None:
                asked["secure.start"] = memory.starts
            sent, received, begun = transport.sent, transport.received, time.perf_counter()
            total = _finite(_insist(aggregation, transport, asked, retries))
            gone, come = transport.sent - sent, transport.received - received
            kept = Kept(total, gone, come, time.perf_counter() - begun)
            if memory is not None:
                memory.keep(len(history) + 1, kept)
        else:
            seconds += kept.seconds
        state = server.global_update(state, kept.total)
        phase = str(message.get("phase", ""))
        ledger[phase] = _departure(ledger.get(phase), phase, kept)
        history.append({"round": len(history) + 1, **server.progress(state)})
        if watch is not None:
            watch(history[-1])
    seconds += time.perf_counter() - start
    return Run(server.estimate(state), tuple(history), tuple(ledger.values()), seconds)


def _insist(aggregation: Aggregation, transport: Transport, message: Message, retries: int) -> Total:
    """Ask again while sites are missing: those that have answered give the same summand, with new protection."""
    for _ in range(retries):
        try:
            return aggregation.total(transport, message)
        except MissingSiteError:
            continue
    return aggregation.total(transport, message)


def _finite(total: Total) -> Total:
    for name, values in total.items():
        if not np.isfinite(values).all():
            raise NumericalError(
                f"the total of {name!r} is not finite; check the data for extreme values, or standardise it"
            )
    return total


def _departure(earlier: Departure | None, phase: str, kept: Kept) -> Departure:
    fields = {name: values.shape for name, values in without_low(kept.total).items()}
    if earlier is None:
        return Departure(phase, fields, 1, kept.sent, kept.received)
    largest = {  # of those that came in different rounds
        name: max((known[name] for known in (earlier.fields, fields) if name in known), key=prod)
        for name in {**earlier.fields, **fields}
    }
    return Departure(phase, largest, earlier.rounds + 1, earlier.sent + kept.sent, earlier.received + kept.received)
