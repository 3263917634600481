"""The one entry to learning: the command line, notebooks and experiments all call `learn`."""

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from threadpoolctl import threadpool_limits

from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.ledger import Ledger
from dagora.aggregation.registry import check_privacy
from dagora.algorithms.options import Options
from dagora.assembly import assemble, with_default_learner
from dagora.conclusion import conclude
from dagora.data.series import SeriesSource, open_series
from dagora.data.tables import Streamed, open_tables
from dagora.errors import InputError
from dagora.federated.guard import Guard, PolicySource, read_policies
from dagora.federated.policy import DEFAULT_RUNS, Job
from dagora.federated.run import Watcher, run
from dagora.federated.site import Site, naming
from dagora.files import make_folder
from dagora.interchange.knowledge_files import known_as_text
from dagora.knowledge import Knowledge
from dagora.result import Result
from dagora.transport.in_process import InProcess


def learn(
    sites: Sequence[SeriesSource] | Mapping[str, SeriesSource],
    *,
    model: str = "linear",
    method: str = "admm",
    preset: str = "default",
    aggregation: str = "plain",
    epsilon: float | None = None,
    delta: float | None = None,
    colluders: int | None = None,
    policy: PolicySource | Mapping[str, PolicySource] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    learner: str | None = None,
    lam: float | str | None = None,
    threshold: float | str | None = None,
    score: str | None = None,
    penalty: float | None = None,
    alpha: float | None = None,
    polish: bool | None = None,
    intercept: bool | None = None,
    lags: int | None = None,
    lag_lam: float | None = None,
    lag_threshold: float | None = None,
    hidden: int | Sequence[int] | None = None,
    ridge: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    refit: bool | None = None,
    standardize: bool | None = None,
    bootstrap: int | None = None,
    knowledge: Knowledge | str | os.PathLike[str] | None = None,
    series: str | None = None,
    time: str | None = None,
    threads: int = 1,
    watch: Watcher | None = None,
) -> Result:
    """Learn one network from the rows of several sites.

    sites: a list, or a mapping from site name to data; data is a 2-D array, a data frame or a path (CSV, Parquet).
    model: "linear"; or one with curved effects (docs/nonlinear.md), whose weights are never negative:
        "additive": a sum of curves, one a parent; with methods "covariance" (two rounds), "voting" and "pooled".  A
        weight is the standard deviation of an effect.
        "mlp": a neural network for each variable; "admm", "voting", "average", "pooled".  A weight is the norm of the
        first layer's weights.  "masked": the same behind a mask of edges; a weight says how open it is, 0 to 1.
        Or "dynamic": time series, effects within a time step and from `lags` steps before
        (docs/time-series.md); data is then a list of arrays, one a series, or a long table.
    method: "admm" (federated; paper, Section 5), "covariance" (one total, then a learner; paper, Section 4),
        "voting" or "average" (every site learns alone), or "pooled" (all rows in one place: the oracle).
    preset: "default" (the best we know) or "paper" (its text to the letter).
    aggregation: "plain" (the server sees every site's summand), "masked", "shared", "encrypted" (it sees totals), or
        "gaussian" (masked, and totals with noise: differential privacy; method "covariance" only).
    epsilon, delta, colluders: for "gaussian": the privacy loss of the whole run (delta 1e-5), and how many sites may
        pool what they know without harm to the others (half of them).
    policy: what sites allow: a Policy or its TOML file, for all sites or by name; nothing leaves against it.
    ledger: a folder in which each site keeps its own record of what left it (SITE.jsonl).
    learner: "boss", "ges", "exact", "pc" (equivalence classes, whatever the units), "notears" or "golem" (weights, in
        the columns' own units).  None for "boss" with method "covariance", else (and under noise) "notears".
    threads: BLAS threads.  With one, equal input gives equal bits.
    watch: called after every round with its figures; "done" goes from 0 to 1.

    Options of some methods and learners; None for the default, and refused where they would do nothing:

    lam: weight of the l1 penalty (admm, notears, golem): 0.1; 0.01 for admm in the paper's preset; 0.02 for golem, or
        0.002 with score "likelihood"; 0.01 for models "mlp" (ADMM in the paper's preset 0.001) and "masked".
        "auto" (model "linear", preset "default"): chosen by the extended BIC, from the same totals.
    threshold: an edge needs a larger |weight| (admm, notears, golem): 0.3; 0.5 for models "mlp" (paper's preset 0.3)
        and "masked".  "auto": as for lam.
    score: "least-squares" (equal noise variances; the default) or "likelihood" (any), for admm and golem; for model
        "additive" also "similar" (about equal), its default.  With "likelihood", admm finds an equivalence class,
        whatever the units; it then heeds `penalty`, and neither `lam` nor `threshold`.
    penalty: price of an edge in units of the BIC's (boss, ges, exact, admm with score "likelihood", model "additive"):
        2 for boss and admm, 1 for the others.
    standardize: learn from columns divided by their standard deviations over all sites (by voting and averaging, of
        each site), whatever their units (admm, notears, golem): False.  Weights are then in standard deviations.
    alpha: level of independence tests (pc): 0.05.
    polish: reverse edges that are better reversed (admm, notears; not model "masked"): True, but False where the
        paper's preset solves NOTEARS as published (covariance, pooled), and for networks at sites alone.
    intercept: for admm in the paper's preset, bias terms with a consensus (its Section 5.1) instead of centring at
        each site: False.
    refit: model "linear": after the graph, fit coefficients, intercepts and noise variances to the rows of all sites,
        so that `result.network` can be sampled and queried; one total more, unless the server has it already
        (covariance, pooled: True; else False).
    bootstrap: so many replicates, in each of which every site draws its rows again, with replacement: how often an
        edge is found, and which way, is in `result.confidence` (docs/results.md).  100 are a good number; the run
        takes as many times as long.  None: no replicates.
    knowledge: models "linear", "additive" and "dynamic": required and forbidden edges and tiers, which the graph keeps
        to: a Knowledge, or its file (Tetrad's, or CSV; docs/knowledge.md).
    hidden, ridge, seed: models "mlp" and "masked": units of each hidden layer (10), weight of the squared weights
        (0.01), seed of the random start and of the masks (0).
        With `bootstrap`, any model heeds `seed`: rows are drawn by it and the site's name.
    device: where models "mlp" and "masked", ADMM's default preset and learner "notears" work: "cpu", or one of torch's,
        such as "cuda".
    lags: model "dynamic": how many steps back effects reach: 1.  lag_lam, lag_threshold: their lam (0.05) and
        threshold (0.1).  series, time: the columns of a long table that tell series (None: one a site) and times.

    >>> truth, sites = dagora.simulate(d=5, edges=4, n=400, sites=4, seed=1)
    >>> result = dagora.learn(sites, method="covariance", aggregation="masked")
    >>> result.rounds, sorted(result.site_rows.values())
    (1, [100, 100, 100, 100])
    >>> dict(result.ledger[0].fields)  # what left each site, as summands of a total
    {'rows': (), 'sum': (5,), 'squares': (15,)}
    """
    privacy = check_privacy(aggregation, epsilon, delta, colluders)
    learner = with_default_learner(learner, model, method, privacy)
    options = Options(
        model, method, preset, learner, lam, threshold, score, penalty, alpha, polish, intercept,
        lags, lag_lam, lag_threshold, hidden, ridge, 0 if bootstrap is not None and seed is None else seed, device,
        refit, standardize, bootstrap, known_as_text(knowledge),
    )  # fmt: skip
    if threads < 1:
        raise InputError("threads: must be 1 or more")
    tables = open_sites(sites, options, series, time)
    names = tables[0].names
    with threadpool_limits(threads), torch_threads(threads if options.networks else None), ExitStack() as stack:
        assembly = assemble(options, aggregation, privacy, tables, names)
        algorithm, protection, data = assembly.algorithm, assembly.protection, assembly.data
        delta = privacy.delta if privacy else None
        colluders = protection.colluders if isinstance(protection, Gaussian) else None
        job = Job(token_hex(16), method, aggregation, tuple(data), epsilon, delta, options.replicates, colluders)
        guards = _guards(job, assembly.rows, policy, ledger, stack)
        for site, guard in guards.items():
            with naming(site):  # all are asked before any ledger counts the run
                guard.enter() if method == "pooled" else guard.check()
        parts = [Site(site, algorithm.site, own, protection, guards.get(site)) for site, own in data.items()]
        outcome = run(algorithm.server, protection, InProcess(parts), watch, job.run)
    # Exact counts are not noisy: under differential privacy they stay untold.
    known = {} if privacy else assembly.rows
    sites_of = tuple(assembly.rows)
    return conclude(outcome, options, names, aggregation, protection, sites_of, known, assembly.warnings)


def open_sites(
    sites: Sequence[Any] | Mapping[str, Any], options: Options, series: str | None, time: str | None
) -> Sequence[Streamed]:
    """Open every site's data as the model wants it."""
    if options.dynamic:
        return open_series(sites, options.past, series, time)
    for option, column in (("series", series), ("time", time)):
        if column is not None:
            raise InputError(f"{option}: model {options.model!r} has no use for it; leave it out")
    return open_tables(sites)


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Torch has threads of its own; None where it is not used, and need not be there."""
    if count is None or importlib.util.find_spec("torch") is None:
        yield
        return
    import torch  # an extra, and slow to import

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _guards(
    job: Job,
    rows: Mapping[str, int],
    policy: PolicySource | Mapping[str, PolicySource] | None,
    folder: str | os.PathLike[str] | None,
    stack: ExitStack,
) -> dict[str, Guard]:
    """Who watches over each site: nobody in a simulation, unless there is a policy or a ledger is wanted."""
    if policy is None and folder is None:
        return {}
    policies = read_policies(policy, tuple(rows))
    if folder is not None:
        make_folder(folder)
    elif any(p is not None and (p.runs != DEFAULT_RUNS or p.epsilon is not None) for p in policies.values()):
        raise InputError("ledger: a policy that limits runs or epsilon over the life of data needs one; name a folder")
    guards = {}
    for site, count in rows.items():
        path = None if folder is None else Path(folder) / f"{quote(site, safe=' ')}.jsonl"
        guards[site] = Guard(job, count, policies[site], stack.enter_context(Ledger(site, path)))
    return guards
