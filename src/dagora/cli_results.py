"""A result in the terminal."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from dagora.cli_nonlinear import CURVED
from dagora.errors import InputError
from dagora.result import Result
from dagora.terminal import count, in_bytes, out

Bootstrap = Annotated[
    int | None,
    typer.Option(help="Learn so many times more from rows drawn again, and say how often each edge is found (100)."),
]


def check_report(report: bool, folder: Path | None) -> None:
    """Before the work."""
    if report and folder is None:
        raise InputError("report: name a folder for it with --out")


def write_report(result: Result, folder: Path | None, report: bool) -> list[Path]:
    """report.html, if it is wanted."""
    return [result.report(folder / "report.html")] if report and folder is not None else []


def print_edges(result: Result) -> None:
    """The network, the strongest edge first; what is open is said."""
    edges, undirected = result.edges(), set(result.undirected())
    table = Table("source", "target", "weight", "direction", title=count(len(edges), "edge"))
    table.columns[2].justify = "right"
    for title in () if result.confidence is None else ("edge frequency", "direction frequency"):
        table.add_column(title, justify="right")
    known = {(result.names[i], result.names[j]) for i, j in np.argwhere(result.known_directions).tolist()}
    for source, target, weight in edges:
        open_ = (source, target) in undirected or (target, source) in undirected
        direction = "-> (known)" if (source, target) in known else "either way" if open_ else "->"
        table.add_row(source, target, _signed(result, weight), direction, *_shares(result, source, target))
    out.print(table)
    if result.confidence is not None:
        out.print(
            f"Frequencies are of {count(result.confidence.replicates - result.confidence.failed, 'replicate')}: how "
            "often the two are joined, and how often this way where they are (all pairs in confidence.csv).",
            highlight=False,
            soft_wrap=True,
        )
    if undirected:
        out.print(
            f"The directions of {count(len(undirected), 'edge')} are open: another network of the same class fits as "
            "well (class in result.json).",
            highlight=False,
            soft_wrap=True,
        )
    if edges and result.identified is None and result.settings["model"] == "linear":
        units = "standard deviations" if result.settings.get("standardize") else "the columns' own units"
        out.print(
            f"By least squares: directions rest on noise variances being about equal in {units}. If they are not, use "
            "method covariance with learner boss.",
            highlight=False,
            soft_wrap=True,
        )


def print_cost(result: Result) -> None:
    """Sites, rows, rounds, bytes and time."""
    out.print(
        f"{count(len(result.sites), 'site')}, {_rows(result)}"
        f"{count(result.rounds, 'round')}, "
        f"{in_bytes(result.sent)} left the sites, {result.seconds:.2f} s",
        highlight=False,
        soft_wrap=True,
    )
    if result.removed:
        out.print(
            f"{len(result.removed)} edges were left out because they closed a cycle", highlight=False, soft_wrap=True
        )


def _shares(result: Result, source: str, target: str) -> tuple[str, ...]:
    if result.confidence is None:
        return ()
    i, j = result.names.index(source), result.names.index(target)
    shares = result.confidence.edge[i, j], result.confidence.direction[i, j]
    return tuple("-" if share != share else f"{share:.2f}" for share in shares)


def _rows(result: Result) -> str:
    if result.site_rows:
        return f"{count(sum(result.site_rows.values()), 'row')}, "
    if "epsilon_spent" not in result.settings:
        return ""  # on a network the coordinator sees totals, and rows of all sites together tell nobody much
    spent = f"epsilon {result.settings['epsilon_spent']:.3g} at delta {result.settings['delta']:g} spent"
    return f"{spent}, noisy totals worth {count(result.settings['rows_worth'], 'row')}, "


def _signed(result: Result, weight: float) -> str:
    """A curve has a size, but no sign."""
    return f"{weight:.4g}" if result.settings["model"] in CURVED else f"{weight:+.4g}"
