"""From options and tables to an algorithm, its protection and what each site starts from, for `learn` and audits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dagora.aggregation.cohort import Cohort
from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.registry import AGGREGATIONS, Privacy
from dagora.algorithms.presets import Options, build, build_private
from dagora.data.moments import Moments
from dagora.data.rows import Rows
from dagora.data.sample import Sample
from dagora.data.summary import check_together, summarise
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
    if options.model != "linear" and privacy is not None:  # e.g. one row of a series is part of several stacked rows
        raise InputError(f"aggregation: 'gaussian' is for model 'linear'; choose another for model {options.model!r}")
    if privacy is not None and options.method != "covariance":
        raise InputError(
            f"aggregation: a summand of method {options.method!r} states no sensitivity, so noise cannot protect it; "
            "use method 'covariance'"
        )
    summaries = [summarise(table, names) for table in tables]
    # Under differential privacy no exact fact of the data may decide whether a run takes place.
    pooled = check_together(names, summaries) if privacy is None else None
    rows = {summary.site: summary.moments.n for summary in summaries}
    data: dict[str, Any] = {summary.site: summary.moments for summary in summaries}
    if options.additive or options.networks or (privacy is not None and options.method == "covariance"):
        data = {table.site: Rows.of([table], names) for table in tables}
    if options.method == "pooled":
        data = {"pooled": Rows.of(tables, names) if options.additive or options.networks else pooled}
    if options.method != "pooled" and len(data) == 1 and privacy is None and aggregation != "plain":
        raise InputError(
            f"aggregation: {aggregation!r} hides nothing with one site, whose data is the total; add a site"
        )
    warnings: tuple[str, ...] = ()
    if options.networks and pooled is not None and options.method not in ("voting", "average"):
        warnings = _check_for_networks(options, names, pooled)
    if options.networks:
        data = {site: Sample.read(chunks) for site, chunks in data.items()}
    protection = AGGREGATIONS[aggregation](Cohort.simulated(tuple(data)), privacy)
    algorithm: Algorithm[Any, Any, Any] = build(options, names)
    if isinstance(protection, Gaussian) and options.method == "covariance":
        algorithm = build_private(options, names, protection.multiplier)
    return Assembly(algorithm, protection, data, rows, warnings)


def _check_for_networks(options: Options, names: tuple[str, ...], pooled: Moments) -> tuple[str, ...]:
    """The default preset's server checks by itself; the paper's sees no variances."""
    check_rows(pooled.n)
    variances = np.diag(pooled.covariance)
    if options.preset == "default":
        return ()
    known = check_scale(names, variances)
    return known if options.method == "pooled" else known + check_centre(names, pooled.mean, variances)
