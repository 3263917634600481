"""The one entry to learning: the command line, notebooks and experiments all call `learn`."""

import warnings
from collections.abc import Mapping, Sequence

from threadpoolctl import threadpool_limits

from dagora.aggregation.cohort import Cohort
from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.presets import Options, build
from dagora.data.summary import check_together, summarise
from dagora.data.tables import Source, open_tables
from dagora.errors import ConvergenceWarning, InputError
from dagora.federated.run import Watcher, run
from dagora.federated.site import Site
from dagora.graphs import break_cycles
from dagora.result import Result
from dagora.transport.in_process import InProcess
from dagora.version import __version__


def learn(
    sites: Sequence[Source] | Mapping[str, Source],
    *,
    model: str = "linear",
    method: str = "admm",
    preset: str = "default",
    aggregation: str = "plain",
    learner: str | None = None,
    lam: float | None = None,
    threshold: float | None = None,
    score: str | None = None,
    penalty: float | None = None,
    alpha: float | None = None,
    polish: bool | None = None,
    intercept: bool | None = None,
    threads: int = 1,
    watch: Watcher | None = None,
) -> Result:
    """Learn one network from the rows of several sites.

    sites: a list, or a mapping from site name to data; data is a 2-D array, a data frame or a path (CSV, Parquet).
    method: "admm" (federated; paper, Section 5), "covariance" (one total, then a learner; paper, Section 4),
        "voting" or "average" (every site learns alone), or "pooled" (all rows in one place: the oracle).
    preset: "default" (the best we know) or "paper" (its text to the letter).
    learner: "boss", "ges", "exact", "pc" (equivalence classes, whatever the units), "notears" or "golem" (weights, in
        the columns' own units).  None for "boss" with method "covariance", else "notears".
    threads: BLAS threads.  With one, equal input gives equal bits.
    watch: called after every round with its figures; "done" goes from 0 to 1.

    Options of some methods and learners; None for the default, and refused where they would do nothing:

    lam: weight of the l1 penalty (admm, notears, golem): 0.1; 0.01 for admm in the paper's preset; 0.02 for golem, or
        0.002 with score "likelihood".
    threshold: an edge needs a larger |weight| (admm, notears, golem): 0.3.
    score: "least-squares" (equal noise variances; the default) or "likelihood" (any), for golem.
    penalty: price of an edge in units of the BIC's (boss, ges, exact): 2 for boss, 1 for the others.
    alpha: level of independence tests (pc): 0.05.
    polish: reverse edges that are better reversed (admm, notears): True, but False where the paper's preset solves
        NOTEARS as published (covariance, pooled).
    intercept: for admm in the paper's preset, bias terms with a consensus (its Section 5.1) instead of centring at
        each site: False.
    """
    options = Options(
        model, method, preset, learner, lam, threshold, score, penalty, alpha, polish, intercept
    )  # fmt: skip
    if aggregation not in AGGREGATIONS:
        choices = ", ".join(AGGREGATIONS)
        raise InputError(f"aggregation: there is no {aggregation!r}; choose from {choices}")
    if threads < 1:
        raise InputError("threads: must be 1 or more")
    tables = open_tables(sites)
    names = tables[0].names
    with threadpool_limits(threads):
        summaries = [summarise(table, names) for table in tables]
        pooled = check_together(names, summaries)
        data = {"pooled": pooled} if method == "pooled" else {s.site: s.moments for s in summaries}
        algorithm, protection = build(options, names), AGGREGATIONS[aggregation](Cohort.simulated(tuple(data)))
        transport = InProcess([Site(site, algorithm.site, own, protection) for site, own in data.items()])
        outcome = run(algorithm.server, protection, transport, watch)
    estimate = outcome.estimate
    adjacency, removed = break_cycles(estimate.edges, estimate.strength)
    for text in estimate.warnings:
        warnings.warn(text, ConvergenceWarning, stacklevel=2)
    settings = options.settings | {"aggregation": aggregation, "version": __version__}
    return Result(
        weights=estimate.weights + 0.0,  # no -0.0 in files
        adjacency=adjacency,
        names=names,
        history=outcome.history,
        ledger=outcome.ledger,
        seconds=outcome.seconds,
        settings=settings,
        site_rows={summary.site: summary.moments.n for summary in summaries},
        warnings=estimate.warnings,
        removed=tuple(removed),
        extras=estimate.extras,
        identified=estimate.cpdag,
    )
