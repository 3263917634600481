"""The only round loop of the package."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from secrets import token_hex

import numpy as np

from dagora.errors import MissingSiteError, NumericalError
from dagora.federated.message import Message
from dagora.federated.protocol import Aggregation, Estimate, ServerPart, ServerState, Total, Transport

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


def run(
    server: ServerPart[ServerState],
    aggregation: Aggregation,
    transport: Transport,
    watch: Watcher | None = None,
    name: str = "",
    retries: int = 2,
) -> Run:
    """Broadcast, add up, update, until the server part has nothing more to ask.

    name: tells this run from all others; new and random if empty.
    retries: how often a round is asked again when a site did not answer.
    """
    name = name or token_hex(16)
    start = time.perf_counter()
    state = server.init()
    history: list[Mapping[str, float]] = []
    ledger: dict[str, Departure] = {}
    while (message := server.broadcast(state)) is not None:
        sent, received = transport.sent, transport.received
        asked: Message = {"run": name, "round": len(history) + 1, **message}
        total = _finite(_insist(aggregation, transport, asked, retries))
        state = server.global_update(state, total)
        phase = str(message.get("phase", ""))
        ledger[phase] = _departure(
            ledger.get(phase), phase, total, transport.sent - sent, transport.received - received
        )
        history.append({"round": len(history) + 1, **server.progress(state)})
        if watch is not None:
            watch(history[-1])
    return Run(server.estimate(state), tuple(history), tuple(ledger.values()), time.perf_counter() - start)


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


def _departure(earlier: Departure | None, phase: str, total: Total, sent: int, received: int) -> Departure:
    fields = {name: values.shape for name, values in total.items()}
    if earlier is None:
        return Departure(phase, fields, 1, sent, received)
    largest = {  # of those that came in different rounds
        name: max((known[name] for known in (earlier.fields, fields) if name in known), key=prod)
        for name in {**earlier.fields, **fields}
    }
    return Departure(phase, largest, earlier.rounds + 1, earlier.sent + sent, earlier.received + received)
