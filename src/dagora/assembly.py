"""From options and tables to an algorithm, its protection and what each site starts from, for `learn` and audits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dagora.aggregation.cohort import Cohort
from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.registry import AGGREGATIONS, Privacy
from dagora.algorithms.options import Options
from dagora.algorithms.presets import build, build_private
from dagora.data.moments import Moments
from dagora.data.resample import Resamples, key_of
from dagora.data.rows import Rows
from dagora.data.sample import Sample
from dagora.data.summary import Prepared, check_together, summarise
from dagora.data.tables import Streamed
from dagora.errors import InputError
from dagora.federated.protocol import Aggregation, Algorithm
from dagora.models.network_data import check_centre, check_rows, check_scale


@dataclass(frozen=True)
class Assembly:
    """All that a run in one process needs; `data` is by site, `rows` counts them."""

    algorithm: Algorithm[Any, Any, Any]
    protection: Aggregation
    data: dict[str, Any]
    rows: dict[str, int]
    warnings: tuple[str, ...] = ()


def assemble(
    options: Options, aggregation: str, privacy: Privacy | None, tables: Sequence[Streamed], names: tuple[str, ...]
) -> Assembly:
    """Read every site's rows once, refuse data from which nothing can be learned, and put the parts together."""
    check_combination(options, privacy)
    pooling = options.method == "pooled"
    prepared = [prepare(options, privacy, table, names, pooling) for table in tables]
    summaries = [one.summary for one in prepared]
    # Under differential privacy no exact fact of the data may decide whether a run takes place.
    pooled = check_together(names, summaries) if privacy is None else None
    rows = {summary.site: summary.moments.n for summary in summaries}
    data: dict[str, Any] = {one.summary.site: one.data for one in prepared}
    if pooling:
        data = {"pooled": _start(options, Rows.of(tables, names)) if options.additive or options.networks else pooled}
    if not pooling and len(data) == 1 and privacy is None and aggregation != "plain":
        raise InputError(
            f"aggregation: {aggregation!r} hides nothing with one site, whose data is the total; add a site"
        )
    if options.replicates:
        read = {"pooled": tables} if pooling else {table.site: [table] for table in tables}
        counted = {"pooled": sum(rows.values())} if pooling else rows
        for site, own in data.items():
            key = partial(key_of, 0 if options.seed is None else int(options.seed), site)
            data[site] = with_resamples(options, own, read[site], names, counted[site], key)
    warnings: tuple[str, ...] = ()
    if options.networks and pooled is not None and options.method not in ("voting", "average"):
        warnings = _check_for_networks(options, names, pooled)
    cohort = Cohort.simulated(tuple(data)).under(options=repr(options), columns=repr(names))
    protection = AGGREGATIONS[aggregation](cohort, privacy)
    return Assembly(build_under(options, names, protection), protection, data, rows, warnings)


def build_under(options: Options, names: tuple[str, ...], protection: Aggregation) -> Algorithm[Any, Any, Any]:
    """The algorithm; under differential privacy, the one whose summands state their sensitivity."""
    if isinstance(protection, Gaussian):
        return build_private(options, names, protection.multiplier)
    return build(options, names)


def prepare(
    options: Options, privacy: Privacy | None, table: Streamed, names: tuple[str, ...], summary_only: bool = False
) -> Prepared:
    """Read a site's rows."""
    summary = summarise(table, names)
    if summary_only or not (options.additive or options.networks or privacy is not None):
        return Prepared(summary, summary.moments)
    return Prepared(summary, _start(options, Rows.of([table], names)))


def with_resamples(
    options: Options,
    data: Any,
    tables: Sequence[Streamed],
    names: tuple[str, ...],
    n: int,
    key: Callable[[], bytes],
) -> Resamples:
    """What a bootstrap starts from, around what the algorithm does."""
    start = partial(_start, options) if options.additive or options.networks else _moments
    return Resamples(data, Rows.of(tables, names), n, start, key)


def _start(options: Options, rows: Rows) -> Rows | Sample:
    return Sample.read(rows) if options.networks else rows


def _moments(rows: Rows) -> Moments:
    return Moments.of(rows.chunks(), rows.d)


def check_combination(options: Options, privacy: Privacy | None) -> None:
    """Refuse noise where it would protect nothing, or would be spent again and again."""
    if options.replicates and privacy is not None:
        raise InputError("bootstrap: every replicate would spend epsilon again; leave it out under 'gaussian'")
    if options.model != "linear" and privacy is not None:  # e.g. one row of a series is part of several stacked rows
        raise InputError(f"aggregation: 'gaussian' is for model 'linear'; choose another for model {options.model!r}")
    if privacy is not None and options.method != "covariance":
        raise InputError(
            f"aggregation: a summand of method {options.method!r} states no sensitivity, so noise cannot protect it; "
            "use method 'covariance'"
        )


def with_default_learner(learner: str | None, model: str, method: str, privacy: Privacy | None) -> str | None:
    """Under noise the default is a learner that heeds it."""
    private = privacy is not None and (model, method) == ("linear", "covariance")
    return "notears" if private and learner is None else learner


def _check_for_networks(options: Options, names: tuple[str, ...], pooled: Moments) -> tuple[str, ...]:
    """The default preset's server checks by itself; the paper's sees no variances."""
    check_rows(pooled.n)
    variances = np.diag(pooled.covariance)
    if options.preset == "default":
        return ()
    known = check_scale(names, variances)
    return known if options.method == "pooled" else known + check_centre(names, pooled.mean, variances)
