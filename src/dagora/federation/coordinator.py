"""A run at the server: introductions, agreement, rounds, result; and what it keeps so that it can go on after a crash.

runs/ID/rounds    the total of every round that is over (server states are functions of totals)
runs/ID/starts    how often the server has begun, so that no attempt has the number of another
runs/ID/result    the result, once there is one
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.inspection import inspected
from dagora.assembly import build_under
from dagora.conclusion import conclude
from dagora.errors import InputError
from dagora.federated.message import Message, decode, encode, number
from dagora.federated.protocol import Transport
from dagora.federated.run import Kept, Watcher, run
from dagora.federation.joining import Joining
from dagora.federation.kits import Kit
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from dagora.federation.schema import agreed, names_from, schema_hash
from dagora.federation.store import Records, write_whole
from dagora.federation.texts import boxed, text_in
from dagora.learn import torch_threads
from dagora.result import Result
from dagora.version import __version__

_LOG = logging.getLogger("dagora.server")


class Link(Transport, Protocol):
    """A transport that also carries what comes before rounds and after them."""

    def ask(self, topic: str, requests: dict[str, bytes], enough: int | None = None) -> dict[str, bytes]:
        """One request to each site, one reply from each; or from enough of them, if a number is given."""


def coordinate(
    kit: Kit,
    order: Order,
    folder: Path,
    link: Link,
    watch: Watcher | None = None,
    kept: Callable[[int, Kept], None] = lambda round, kept: None,
) -> Result:
    """Learn with the sites of the ordered plan, or go on where an earlier start of the same run has stopped.

    watch: called after every round; kept: after every round that was not over already when the server started.
    """
    run_id, plan = order.run, Plan.from_json(order.plan)
    sites, settings = plan.sites, plan.settings
    memory = RoundsOnDisk(folder, kept)
    if len(sites) == 1 and plan.privacy is None and plan.aggregation != "plain":
        raise InputError(
            f"aggregation: {plan.aggregation!r} hides nothing with one site, whose data is the total; add a site"
        )
    names, certificates = _introduced(order, memory.starts, sites, link)
    joining = Joining(order, names, tuple(certificates[site] for site in sites))
    _joined(joining, sites, link)
    cohort = joining.cohort(kit)
    protection = AGGREGATIONS[plan.aggregation](cohort, plan.privacy)
    algorithm = build_under(settings, names, protection)
    if plan.privacy is None:  # under differential privacy no exact fact may decide whether a run takes place
        algorithm = inspected(algorithm, names)
    with threadpool_limits(1), torch_threads(1 if settings.networks else None):
        outcome = run(algorithm.server, protection, link, watch, run_id, retries=0, memory=memory)
        return conclude(outcome, settings, names, plan.aggregation, protection, sites, {})


def say_goodbye(run_id: str, how: str, sites: tuple[str, ...], link: Link) -> list[str]:
    """Tell sites that the run is over, so that they delete what they kept for it; those that did not hear it."""
    goodbye = encode({"run": run_id, "how": how})
    heard = link.ask("end", dict.fromkeys(sites, goodbye), enough=0)
    return [site for site in sites if site not in heard]


def _introduced(order: Order, start: int, sites: tuple[str, ...], link: Link) -> tuple[tuple[str, ...], dict[str, str]]:
    """Columns that all sites have, in the first one's order, and the sites' signing certificates.

    The start makes it a new question each time: files may have been corrected since the last one.
    """
    asked = encode({**order.fields(), "start": start})
    replies = {site: decode(reply) for site, reply in link.ask("introduce", dict.fromkeys(sites, asked)).items()}
    for site, reply in replies.items():
        if reply.get("version") != __version__:
            raise InputError(
                f"site {site!r}: has Dagora {reply.get('version')}, the server {__version__}; install the same"
            )
    names = agreed({site: names_from(text_in(replies[site], "columns")) for site in sites})
    return names, {site: text_in(replies[site], "certificate") for site in sites}


def _joined(joining: Joining, sites: tuple[str, ...], link: Link) -> None:
    """All sites have joined, with the same columns, and have noted the heads of each other's ledgers.

    Before that no number is asked for.
    """
    request = encode(joining.fields())
    replies = {site: decode(reply) for site, reply in link.ask("join", dict.fromkeys(sites, request)).items()}
    for site, reply in replies.items():
        if reply.get("schema") != schema_hash(joining.columns):
            raise InputError(f"site {site!r}: has not agreed to the columns of the run; stop it")
    heads: Message = {
        "run": joining.order.run,
        "heads": boxed(json.dumps([text_in(replies[site], "head") for site in sites])),
        "signatures": np.concatenate([np.asarray(replies[site].get("signature", ())) for site in sites]),
    }
    link.ask("witness", dict.fromkeys(sites, encode(heads)))


class RoundsOnDisk:
    """The memory of a run (federated/run.py)."""

    def __init__(self, folder: Path, told: Callable[[int, Kept], None] = lambda round, kept: None) -> None:
        self._told = told
        self._records = Records(folder / "rounds")
        self._kept = [_kept(record) for record in self._records]
        starts = folder / "starts"
        self.starts = int(starts.read_text()) + 1 if starts.exists() else 0
        write_whole(starts, str(self.starts).encode())

    def recall(self, round: int) -> Kept | None:
        """Rounds count from 1."""
        return self._kept[round - 1] if round <= len(self._kept) else None

    def keep(self, round: int, kept: Kept) -> None:
        """On the disk before the server takes it in."""
        fields = {f"total.{name}": np.asarray(values) for name, values in kept.total.items()}
        figures = {"sent": kept.sent, "received": kept.received, "seconds": kept.seconds}
        self._records.append(encode({**figures, **fields}))
        self._told(round, kept)


def _kept(record: bytes) -> Kept:
    message = decode(record)
    total = {
        name.removeprefix("total."): np.array(value, dtype=np.float64)  # a copy lies as the total of a live round does
        for name, value in message.items()
        if name.startswith("total.")
    }
    return Kept(total, int(number(message, "sent")), int(number(message, "received")), number(message, "seconds"))
