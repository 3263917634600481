"""The command line: parse, call, print.  No logic."""

import logging
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.markdown import Markdown
from rich.table import Table

from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.options import METHODS, MODELS, PRESETS
from dagora.cli_exchange import Exports, check_exports, convert_command
from dagora.cli_federation import federation
from dagora.cli_nonlinear import (
    Device,
    Effects,
    Hidden,
    Ridge,
    Seed,
    check_effects,
    draw_curves,
    widths,
)
from dagora.cli_privacy import Colluders, Delta, Epsilon, audit_command, ledger_command, policy_command
from dagora.cli_results import Bootstrap, check_report, print_cost, print_edges, write_report
from dagora.cli_series import (
    Drawing,
    LagLam,
    Lags,
    LagThreshold,
    Length,
    SeriesColumn,
    SimulatedLags,
    SimulatedSeries,
    TimeColumn,
    check_drawing,
    draw,
    lags_command,
    print_lagged_edges,
    simulate_series_files,
)
from dagora.data.partition import SPLITS
from dagora.data.simulate import GRAPHS, NOISES, simulate
from dagora.data.simulate import MODELS as SIMULATED_MODELS
from dagora.data.simulation_files import write_simulation
from dagora.demo import run_demo
from dagora.errors import DagoraError, InputError, ResultWarning
from dagora.experiments.figures import FIGURES, QUICK_D, QUICK_RUNS, load_figure
from dagora.files import check_folder
from dagora.interchange.registry import read_estimate, read_graph
from dagora.learn import learn
from dagora.learners.registry import LEARNERS
from dagora.metrics import evaluate
from dagora.terminal import (
    JsonFlag,
    choices,
    complain,
    counting,
    err,
    in_bytes,
    number_or_auto,
    out,
    print_json,
    watching,
)
from dagora.version import __version__
from dagora.visible import Lines

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command("audit")(audit_command)
app.command("convert")(convert_command)
app.command("ledger")(ledger_command)
app.command("lags")(lags_command)
app.command("policy")(policy_command)
app.add_typer(federation, name="federation")


@app.callback(invoke_without_command=True)
def dagora(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Learn the structure of a Bayesian network from data that stays where it is: only sums leave the sites."""
    if version:
        print(__version__)
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command("learn")
def learn_command(
    files: Annotated[list[Path], typer.Argument(help="One CSV or Parquet file a site, with the same columns.")],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for edges.csv, weights.csv and result.json.")
    ] = None,
    model: Annotated[str, typer.Option(help=choices("What a site fits", MODELS))] = "linear",
    method: Annotated[str, typer.Option(help=choices("How sites work together", METHODS))] = "admm",
    preset: Annotated[str, typer.Option(help=choices("The best we know, or the paper's text", PRESETS))] = "default",
    aggregation: Annotated[str, typer.Option(help=choices("How summands are added", AGGREGATIONS))] = "plain",
    epsilon: Epsilon = None,
    delta: Delta = None,
    colluders: Colluders = None,
    policy: Annotated[
        Path | None, typer.Option(help="A policy (TOML) that all sites keep to; see dagora policy.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Folder for each site's record of what left it.")] = None,
    learner: Annotated[
        str | None,
        typer.Option(help=choices("What learns from totals (boss), pooled rows or single sites (notears)", LEARNERS)),
    ] = None,
    lam: Annotated[
        Any,
        typer.Option(
            parser=number_or_auto,
            metavar="NUMBER|auto",
            help="admm, notears, golem: weight of the l1 penalty (0.1; paper's ADMM 0.01; golem 0.02 or 0.002; "
            "mlp 0.01, paper 0.001; masked 0.01), or auto.",
        ),
    ] = None,
    threshold: Annotated[
        Any,
        typer.Option(
            parser=number_or_auto,
            metavar="NUMBER|auto",
            help="admm, notears, golem: an edge needs a larger |weight| (0.3; mlp, masked 0.5), or auto.",
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="admm, golem: least-squares (default) or likelihood (any noise variances; admm: any units); model "
            "additive: also similar."
        ),
    ] = None,
    penalty: Annotated[
        float | None,
        typer.Option(
            help="boss, ges, exact, admm with score likelihood, model additive: price of an edge in BIC units "
            "(boss, admm 2, else 1)."
        ),
    ] = None,
    standardize: Annotated[
        bool | None,
        typer.Option(
            "--standardize", help="admm, notears, golem: learn from columns in units of their standard deviations."
        ),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="pc: level of independence tests (0.05).")] = None,
    polish: Annotated[
        bool | None,
        typer.Option(help="admm, notears: reverse edges that are better reversed (on; paper and masked: off)."),
    ] = None,
    intercept: Annotated[
        bool | None, typer.Option("--intercept", help="admm: the paper's bias terms (with --preset paper).")
    ] = None,
    refit: Annotated[
        bool | None,
        typer.Option(help="linear: fit parameters after the graph (covariance, pooled: on; else one total more: off)."),
    ] = None,
    bootstrap: Bootstrap = None,
    knowledge: Annotated[
        Path | None,
        typer.Option(help="linear, additive, dynamic: required and forbidden edges, tiers (Tetrad's file, or CSV)."),
    ] = None,
    lags: Lags = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
    lag_lam: LagLam = None,
    lag_threshold: LagThreshold = None,
    drawing: Drawing = None,
    hidden: Hidden = None,
    ridge: Ridge = None,
    seed: Seed = None,
    device: Device = None,
    effects: Effects = None,
    exports: Exports = None,
    report: Annotated[bool, typer.Option("--report", help="Write report.html to the folder of --out, too.")] = False,
    threads: Annotated[int, typer.Option(help="BLAS threads; one gives equal bits for equal input.")] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Learn one network from the files of several sites.

    Example: dagora learn north.csv south.csv east.parquet --out result

    Columns in different units: dagora learn north.csv south.csv --method covariance --learner boss

    Curved effects: dagora learn north.csv south.csv --model mlp --effects curves.png

    Time series: dagora learn north.csv south.csv --model dynamic --lags 2 --series id --time t

    Known edges and order in time: dagora learn north.csv south.csv --knowledge known.csv
    """
    check_drawing(model, drawing)
    check_effects(model, method, preset, effects)
    check_exports(model, exports)
    check_report(report, folder)
    if folder is not None:
        check_folder(folder)  # before the work, and before a run is counted
    with watching("Learning", quiet=as_json) as watch:
        result = learn(
            files,
            model=model,
            method=method,
            preset=preset,
            aggregation=aggregation,
            epsilon=epsilon,
            delta=delta,
            colluders=colluders,
            policy=policy,
            ledger=ledger,
            learner=learner,
            lam=lam,
            threshold=threshold,
            score=score,
            penalty=penalty,
            alpha=alpha,
            polish=polish,
            intercept=intercept,
            lags=lags,
            lag_lam=lag_lam,
            lag_threshold=lag_threshold,
            hidden=widths(hidden),
            ridge=ridge,
            seed=seed,
            device=device,
            refit=refit,
            standardize=standardize,
            bootstrap=bootstrap,
            knowledge=knowledge,
            series=series,
            time=time,
            threads=threads,
            watch=watch,
        )
    written = result.save(folder) if folder is not None else []
    written += [result.export(path) for path in exports or ()]
    written += write_report(result, folder, report)
    draw(result, drawing)
    draw_curves(result, effects)
    if as_json:
        print_json(result.summary())
        return
    print_edges(result)
    print_lagged_edges(result)
    print_cost(result)
    for path in written:
        out.print(f"wrote {path}", highlight=False, soft_wrap=True)


@app.command("simulate")
def simulate_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder for site-01.csv, site-02.csv, ... and truth.csv.")],
    d: Annotated[int, typer.Option("--d", help="Variables.")] = 20,
    edges: Annotated[int | None, typer.Option(help="Edges (default: as many as variables).")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Rows over all sites (256).")] = None,
    sites: Annotated[int, typer.Option(help="Sites.")] = 8,
    seed: Annotated[int, typer.Option(help="Same seed, same data.")] = 0,
    model: Annotated[
        str, typer.Option(help=choices("How variables depend on others", (*SIMULATED_MODELS, "dynamic")))
    ] = "linear",
    graph: Annotated[str, typer.Option(help=choices("Kind of random graph", GRAPHS))] = "er",
    noise: Annotated[str, typer.Option(help=choices("Distribution of the noise", NOISES))] = "gaussian",
    split: Annotated[str, typer.Option(help=choices("Sizes of the sites", SPLITS))] = "even",
    lags: SimulatedLags = None,
    series: SimulatedSeries = None,
    length: Length = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate a network and rows at several sites.

    Example: dagora simulate --d 20 --edges 20 --n 256 --sites 8 --seed 0 --out data
    """
    shared = {"d": d, "edges": edges, "n": n, "sites": sites, "seed": seed, "graph": graph, "noise": noise}
    of_series = {"lags": lags, "series": series, "length": length}
    if model == "dynamic":
        simulate_series_files(folder, {**shared, **of_series, "split": split}, as_json)
        return
    for name, value in of_series.items():
        if value is not None:
            raise InputError(f"{name}: model {model!r} has no use for it; leave it out")
    n = 256 if n is None else n
    truth, rows = simulate(d, edges, n, sites, seed=seed, model=model, graph=graph, noise=noise, split=split)
    written = write_simulation(folder, truth, rows)
    if as_json:
        print_json({"files": [str(path) for path in written], "rows": [len(x) for x in rows]})
        return
    out.print(
        f"wrote {len(rows)} sites with {', '.join(str(len(x)) for x in rows[:6])}{', ...' if len(rows) > 6 else ''} "
        f"rows, and truth.csv with {int(truth.adjacency.sum())} edges, to {folder}",
        highlight=False,
        soft_wrap=True,
    )


@app.command("evaluate")
def evaluate_command(
    truth: Annotated[Path, typer.Argument(help="True graph: edges (source, target[, weight]) or a named matrix.")],
    estimate: Annotated[Path, typer.Argument(help="A folder that `learn` wrote, or a file of edges or weights.")],
    threshold: Annotated[
        float | None, typer.Option(help="For a file of weights: an edge needs a larger |weight| (as learned, or 0.3).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare a learned graph with the true one.

    Example: dagora evaluate data/truth.csv result
    """
    true = read_graph(truth, read_estimate(estimate, threshold).names)
    scores = evaluate(true, read_estimate(estimate, threshold, true.names))
    if as_json:
        print_json(scores)
        return
    table = Table("score", "value")
    table.columns[1].justify = "right"
    for name, value in scores.items():
        table.add_row(name.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else str(value))
    out.print(table)


@app.command("demo")
def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the data, the result and the figure.")] = Path(
        "demo-output"
    ),
    d: Annotated[int, typer.Option("--d", help="Variables.")] = 20,
    n: Annotated[int, typer.Option("--n", help="Rows over all sites.")] = 128,
    sites: Annotated[int, typer.Option(help="Sites.")] = 8,
    seed: Annotated[int, typer.Option(help="Same seed, same data.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Simulate sites, learn with every method, compare, and draw the learned network beside the true one."""
    with watching("Learning", quiet=as_json) as watch:
        rows = run_demo(folder, d=d, n=n, sites=sites, seed=seed, watch=watch)
    if as_json:
        print_json({"methods": rows, "folder": str(folder)})
        return
    out.print(f"{sites} sites, {n} rows in all, {d} variables, {d} true edges", highlight=False, soft_wrap=True)
    out.print()
    table = Table("method", "SHD", "TPR", "FDR", "rounds", "sent by sites", "seconds")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(
            row["method"], str(row["shd"]), f"{row['tpr']:.2f}", f"{row['fdr']:.2f}", str(row["rounds"]),
            in_bytes(row["sent"]), f"{row['seconds']:.2f}",
        )  # fmt: skip
    out.print(table)
    out.print(
        "SHD: edges to add, remove or turn to reach the truth.  Pooled sees all rows in one place: the oracle.",
        highlight=False,
        soft_wrap=True,
    )
    out.print(
        f"wrote the sites' data, the learned network, report.html and graph.png to {folder}",
        highlight=False,
        soft_wrap=True,
    )


@app.command("reproduce")
def reproduce_command(
    names: Annotated[
        list[str], typer.Argument(metavar="FIGURE...", help=choices("Figures, or .toml files of your own", FIGURES))
    ],
    folder: Annotated[Path, typer.Option("--out", help="Folder for tables, figures and the rows of all runs.")] = Path(
        "reproduction"
    ),
    runs: Annotated[int | None, typer.Option(min=1, help="Seeds a setting (30; with --quick 3).")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at work.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help=f"Only settings with up to {QUICK_D} variables.")] = False,
    first_seed: Annotated[int, typer.Option(min=0, help="Seeds count from here.")] = 0,
    plugin: Annotated[
        list[str] | None, typer.Option("--methods", help="A Python file with methods of your own.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Repeat an experiment of the paper: a CSV of all runs, a Markdown table and a figure.

    What is in the folder already is not run again, so that an interrupted run goes on where it stopped.

    Example: dagora reproduce clients-20 --runs 30 --jobs 2
    """
    from dagora.experiments.reproduce import reproduce  # matplotlib is slow to import

    count = runs if runs is not None else QUICK_RUNS if quick else 30
    written: dict[str, list[str]] = {}
    for name in names:
        if quick and len(names) > 1 and not load_figure(name).small:
            err.print(f"dagora: {name} left out: it has no setting with up to {QUICK_D} variables", highlight=False)
            continue
        with counting(name, quiet=as_json) as watch:
            done = reproduce(name, folder, count, jobs, quick, first_seed, tuple(plugin or ()), watch)
        written[name] = [str(path) for path in done.paths]
        if not as_json:
            out.print(Markdown(done.table, hyperlinks=False))
            out.print(f"wrote {', '.join(written[name])}", highlight=False, soft_wrap=True)
    if as_json:
        print_json({"files": written})


def main() -> None:
    """Run a command; bad input gives one line on stderr and exit code 2."""
    if logging.lastResort is not None:  # what prints warnings of the network where no log was set up
        logging.lastResort.setFormatter(Lines())
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResultWarning)
            code = app(standalone_mode=False)
        for warning in caught:
            complain(f"warning: {warning.message}")
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted; nothing was written", 130)
    except typer.TyperException as error:
        _fail(f"{error.format_message()} (see 'dagora --help')", 2)
    except DagoraError as error:
        _fail(str(error), 2)
    except MemoryError as error:
        _fail(_out_of_memory(str(error)), 2)
    sys.exit(code if isinstance(code, int) else 0)


def _out_of_memory(what: str) -> str:
    """numpy says what it wanted: Unable to allocate 2.98 GiB for an array with shape (20000, 20000) and ..."""
    wanted = f" ({what[0].lower()}{what[1:].rstrip('.')})" if what else ""
    return (
        f"the memory of this machine is not enough{wanted}; the need grows with the square of the number of columns: "
        "leave out columns, or use a machine with more memory"
    )


def _fail(text: str, code: int) -> NoReturn:
    complain(text)
    sys.exit(code)
