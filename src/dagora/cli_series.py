"""Commands and options for time series."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from dagora.aggregation.registry import AGGREGATIONS
from dagora.data.dynamic_simulation import simulate_series
from dagora.data.simulation_files import write_series_simulation
from dagora.errors import InputError
from dagora.files import make_folder
from dagora.lag_order import select_lags
from dagora.result import Result
from dagora.terminal import JsonFlag, choices, count, out, print_json

DRAWINGS = (".png", ".pdf", ".svg")

SeriesColumn = Annotated[
    str | None, typer.Option("--series", help="dynamic: the column of series ids (none: one series a file).")
]
TimeColumn = Annotated[str | None, typer.Option("--time", help="dynamic: the column of times, in equal steps.")]
Lags = Annotated[int | None, typer.Option(help="dynamic: how many steps back effects reach (1; see dagora lags).")]
LagLam = Annotated[float | None, typer.Option(help="dynamic: weight of the l1 penalty on effects of the past (0.05).")]
LagThreshold = Annotated[
    float | None, typer.Option(help="dynamic: an effect of the past needs a larger |weight| (0.1).")
]
Drawing = Annotated[Path | None, typer.Option(help="dynamic: a PNG, PDF or SVG of the network over time.")]
SimulatedLags = Annotated[int | None, typer.Option(help="dynamic: how many steps back effects reach (1).")]
SimulatedSeries = Annotated[int | None, typer.Option("--series", help="dynamic: time series over all sites (20).")]
Length = Annotated[int | None, typer.Option(help="dynamic: rows a series (50).")]


def lags_command(
    files: Annotated[list[Path], typer.Argument(help="One CSV or Parquet file a site: a long table.")],
    series: SeriesColumn = None,
    time: TimeColumn = None,
    most: Annotated[int, typer.Option(min=1, help="The largest number of lags to consider.")] = 4,
    aggregation: Annotated[str, typer.Option(help=choices("How summands are added", AGGREGATIONS))] = "plain",
    as_json: JsonFlag = False,
) -> None:
    """How many lags time series need, by the BIC, from one total over the sites.

    Example: dagora lags north.csv south.csv --series id --time t --most 4
    """
    found = select_lags(files, most, series=series, time=time, aggregation=aggregation)
    if as_json:
        print_json({"lags": found.lags, "bic": list(found.bic), "rows": found.rows})
        return
    table = Table("lags", "BIC", "", title=count(found.rows, "row"))
    table.columns[1].justify = "right"
    for lags, bic in enumerate(found.bic):
        table.add_row(str(lags), f"{bic:.1f}", "<- least" if lags == found.lags else "")
    out.print(table)


def simulate_series_files(folder: Path, given: dict[str, Any], as_json: bool) -> None:
    """Time series at several sites as long tables; options that were not given (None) have their defaults."""
    if given.pop("n") is not None:
        raise InputError("n: model 'dynamic' has no use for it; give series and length")
    truth, sites = simulate_series(**{name: value for name, value in given.items() if value is not None})
    written = write_series_simulation(folder, truth, sites)
    assert truth.lag_adjacency is not None
    if as_json:
        print_json({"files": [str(path) for path in written], "rows": [sum(map(len, own)) for own in sites]})
        return
    out.print(
        f"wrote {count(len(sites), 'site')} with {count(sum(map(len, sites)), 'series').removesuffix('s')} in all, and "
        f"truth.csv with {int(truth.adjacency.sum())} edges within a step and {int(truth.lag_adjacency.sum())} of the "
        f"past, to {folder}",
        highlight=False,
        soft_wrap=True,
    )


def print_lagged_edges(result: Result) -> None:
    """A second table, for effects of earlier times."""
    if result.lag_weights is None:
        return
    edges = result.lagged_edges()
    table = Table("source", "target", "lag", "weight", title=f"{count(len(edges), 'effect')} of the past")
    known = None if result.confidence is None else result.confidence.lagged
    if known is not None:
        table.add_column("frequency")
    for column in table.columns[2:]:
        column.justify = "right"
    for source, target, lag, weight in edges:
        i, j = result.names.index(source), result.names.index(target)
        share = () if known is None else (f"{known[lag - 1, i, j]:.2f}",)
        table.add_row(source, target, str(lag), f"{weight:+.4g}", *share)
    out.print(table)


def check_drawing(model: str, path: Path | None) -> None:
    """Refuse what could not be drawn before anything is learned."""
    if path is not None and model != "dynamic":
        raise InputError("drawing: it shows time series; leave it out, or give --model dynamic")
    if path is not None and path.suffix.lower() not in DRAWINGS:
        raise InputError(f"drawing: name a file that ends with {', '.join(DRAWINGS)}")


def draw(result: Result, path: Path | None) -> None:
    """The network over time, if it is wanted."""
    if path is None:
        return
    from dagora.report.unrolled import draw_unrolled  # matplotlib is slow to import

    make_folder(path.parent)
    draw_unrolled(result, path)
