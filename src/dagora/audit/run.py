"""An audit: run the method on all sites' data in one place, attack what crossed, and compare with the truth."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.registry import Privacy, check_privacy
from dagora.algorithms.options import Options
from dagora.arrays import FloatArray
from dagora.assembly import assemble
from dagora.audit.differencing import differencing, differencing_row
from dagora.audit.finding import Finding
from dagora.audit.inversion import broadcast_setup, collusion, inversion
from dagora.audit.lying_server import lying_server
from dagora.audit.multi_round import consensus, multi_round
from dagora.audit.report import AuditReport
from dagora.audit.rows import MOST_ROWS, rows
from dagora.audit.transcript import Recorder, Summands, Transcript
from dagora.data.moments import Moments
from dagora.data.tables import Source, open_tables
from dagora.errors import DagoraError, InputError
from dagora.federated.run import run
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess

ADVERSARIES = ("honest", "lying-server")

MOST_SITES = 6  # for the attack on sequences of totals: from four on it often runs out of time, yet beats a guess


@dataclass(frozen=True)
class Played:
    """A run as the auditor saw it."""

    transcript: Transcript
    summands: Summands


Play = Callable[[Mapping[str, FloatArray]], Played]


def audit(
    sites: Sequence[Source] | Mapping[str, Source],
    *,
    method: str = "admm",
    preset: str = "default",
    aggregation: str = "plain",
    epsilon: float | None = None,
    delta: float | None = None,
    colluders: int | None = None,
    seconds: float = 60.0,
    play: Play | None = None,
    adversary: str = "honest",
    **options: Any,
) -> AuditReport:
    """Attack runs of a method on these sites.

    seconds: time for the attack on sequences of totals.
    play: how to run the method on rows by site and record it; None for `recorded` with the other arguments.
    adversary: "honest" for parties that keep to the protocol and analyse all they see; "lying-server" for a server
        that deviates from it (lying_server.py).
    options: those of `learn`.
    """
    if adversary not in ADVERSARIES:
        raise InputError(f"adversary: there is no {adversary!r}; choose from {', '.join(ADVERSARIES)}")
    if method == "pooled":
        raise InputError("method: 'pooled' puts all rows in one place; there is nothing to audit")
    if options.get("bootstrap") is not None:
        raise InputError("bootstrap: the attacks are on a run without replicates; leave it out (docs/privacy.md)")
    if options.get("model", "linear") != "linear":
        raise InputError("model: the attacks know the linear model only; leave it out")
    privacy = check_privacy(aggregation, epsilon, delta, colluders)
    chosen = Options(method=method, preset=preset, **options)
    if play is None:
        play = recorded(chosen, aggregation, privacy)
    tables = open_tables(sites)
    data = {table.site: np.concatenate(list(table.chunks(tables[0].names))) for table in tables}
    with threadpool_limits(1):
        if adversary == "honest":
            found = tuple(findings(data, play, seconds))
        else:
            found = tuple(_lies(data, play, chosen, aggregation, privacy))
    return AuditReport(method, preset, aggregation, len(data), found, adversary)


def _lies(
    data: Mapping[str, FloatArray], play: Play, options: Options, aggregation: str, privacy: Privacy | None
) -> Iterable[Finding]:
    """The attacks of a lying server, on the questions of an honest run."""
    messages = play(data).transcript.messages
    tables = open_tables(data)
    assembly = assemble(options, aggregation, privacy, tables, tables[0].names)
    moments = {site: Moments.of_rows(own) for site, own in data.items()}
    return lying_server(aggregation, privacy, options.method, assembly.algorithm.site, assembly.data, moments, messages)


def findings(data: Mapping[str, FloatArray], play: Play, seconds: float) -> Iterable[Finding]:
    """All attacks; those that need one victim are shown on the smallest site, which has most to fear."""
    played = play(data)
    seen, summands = played.transcript, played.summands
    moments = {site: Moments.of_rows(own) for site, own in data.items()}
    victim = min(data, key=lambda site: len(data[site]))
    yield from (inversion(seen, site, moments, summands) for site in data)
    if "learn" not in seen.phases:
        for site in [site for site, own in data.items() if len(own) <= MOST_ROWS]:
            yield rows(seen, site, moments, data[site])
    yield from _present(consensus(seen, moments))
    if 2 <= len(data) <= MOST_SITES:
        yield from _present(multi_round(seen, moments, seconds))
    if len(data) > 1:
        yield collusion(seen, victim, moments, summands)
        yield from _present(broadcast_setup(seen, victim, moments))
    yield from _reruns(data, play, played, victim, moments)


def recorded(options: Options, aggregation: str, privacy: Privacy | None = None) -> Play:
    """Run in one process under a recorder, as `learn` would."""

    def play(data: Mapping[str, FloatArray]) -> Played:
        tables = open_tables(data)
        assembly = assemble(options, aggregation, privacy, tables, tables[0].names)
        protection = assembly.protection
        if isinstance(protection, Gaussian):  # sites know their own noise, so what counts is noted after it
            protection.inner = recorder = Recorder(protection.inner)
        else:
            protection = recorder = Recorder(protection)
        parts = [Site(site, assembly.algorithm.site, own, protection) for site, own in assembly.data.items()]
        run(assembly.algorithm.server, protection, InProcess(parts))
        return Played(recorder.transcript, recorder.summands)

    return play


def _reruns(
    data: Mapping[str, FloatArray], play: Play, first: Played, victim: str, moments: Mapping[str, Moments]
) -> Iterable[Finding]:
    """Without the victim, and without one row of the largest site; nothing where such a run is impossible."""
    if len(data) > 1 and (second := _try(play, {site: own for site, own in data.items() if site != victim})):
        yield differencing(first.transcript, second.transcript, victim, moments, first.summands[victim])
    largest = max(data, key=lambda site: len(data[site]))
    if len(data[largest]) > 1 and (second := _try(play, {**data, largest: data[largest][:-1]})):
        yield from _present(differencing_row(first.transcript, second.transcript, data[largest][-1]))


def _try(play: Play, data: Mapping[str, FloatArray]) -> Played | None:
    try:
        return play(data)
    except DagoraError:
        return None


def _present(finding: Finding | None) -> Iterable[Finding]:
    return () if finding is None else (finding,)
