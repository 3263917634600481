"""A result as one page: the graph to explore, numbers to trust it by, and what left the sites.

The page is a file of its own: style, script and data are in it, and a policy in its head forbids it to fetch anything.
"""

import json
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dagora.arrays import IntArray
from dagora.files import plain, write_text
from dagora.graphs import ARROW
from dagora.report.layout import layered
from dagora.report.words import departures
from dagora.result import Result
from dagora.terminal import count

_CURVES = {
    "objective": "objective: loss and penalty",
    "h": "h: how far from a DAG",
    "residual": "residual: how far sites are from the consensus",
    "rho1": "rho1: penalty of cycles",
    "rho2": "rho2: penalty of disagreement",
}
_SPARE = 10  # edges below the threshold, for each variable, that the slider can show
_DIRECTIONS = {
    "compelled": "direction compelled: all equivalent networks share it",
    "open": "direction open: either way fits as well",
    "time": "direction given by time",
    "known": "direction given by prior knowledge",
}
_ASSUMED = {
    "linear": "direction rests on noise variances being about equal",
    "dynamic": "direction rests on noise variances being about equal",
}


def write_report(result: Result, path: str | os.PathLike[str], title: str = "Learned network") -> Path:
    """Write the page, whole or not at all."""
    return write_text(path, page(result, title))


def page(result: Result, title: str = "Learned network") -> str:
    """The page as text."""
    parts = {
        name: (files("dagora.report") / "page" / f"page.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    # No end tag can be within a JSON text whose every < is escaped.
    about = json.dumps(plain(contents(result, title)), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return (
        parts["html"].replace("/*STYLE*/", parts["css"]).replace("/*SCRIPT*/", parts["js"]).replace("/*DATA*/", about)
    )


def contents(result: Result, title: str) -> dict[str, Any]:
    """All that the page shows."""
    names, adjacency, lag_edges = _unrolled(result)
    layout = layered(adjacency)
    edges = [*_edges(result), *lag_edges]
    for edge in edges:
        bends = layout.bends.get((edge["source"], edge["target"]), ())
        edge["bends"] = [[round(x, 3), y] for x, y in bends] if edge["learned"] else []
    model = str(result.settings["model"])
    return {
        "title": title,
        "summary": _summary(result),
        "warnings": list(result.warnings),
        "names": names,
        "places": np.round(layout.places, 3).tolist(),
        "edges": edges,
        "threshold": float(result.settings.get("threshold", 0.0)),
        "signed": model in ("linear", "dynamic"),
        "directions": _words_for_directions(result),
        "curves": _curves(result),
        "resamples": _resamples(result),
        "sites": [{"name": site, "rows": result.site_rows.get(site)} for site in result.sites],
        "siteText": _site_text(result),
        "ledger": departures(result),
        "settings": [
            [name, str(result.knowledge) if name == "knowledge" else _shown(value)]
            for name, value in {**result.settings, **_scale(result)}.items()
        ],
    }


def _words_for_directions(result: Result) -> dict[str, str]:
    assumed = _ASSUMED.get(str(result.settings["model"]), "direction rests on the form of the effects")
    words = {**_DIRECTIONS, "assumed": assumed}
    if result.knowledge is not None:
        words["compelled"] = "direction compelled, given prior knowledge"
    return words


def _edges(result: Result) -> Iterator[dict[str, Any]]:
    """Those of the network, and the strongest of the rest that the method left."""
    size = np.abs(result.weights)
    rest = np.where(result.adjacency != 0, 0.0, size)
    spare = np.argsort(-rest, axis=None, kind="stable")[: _SPARE * len(result.names)]
    chosen = [(i, j) for i, j in np.argwhere(result.adjacency).tolist()]
    chosen += [(i, j) for i, j in zip(*np.unravel_index(spare, rest.shape), strict=True) if rest[i, j] > 0.0]
    directions = _directions(result)
    for i, j in chosen:
        learned = bool(result.adjacency[i, j])
        edge: dict[str, Any] = {
            "source": int(i),
            "target": int(j),
            "weight": float(result.weights[i, j]),
            "learned": learned,
        }
        edge["direction"] = directions[i][j] if learned else "open"
        if learned and result.network is not None:
            edge["coefficient"] = float(result.network.coefficients[i, j])
        if (sure := result.confidence) is not None:
            shares = (sure.edge[i, j], sure.arrow[i, j], sure.arrow[j, i], sure.undirected[i, j])
            edge["shares"] = [round(float(share), 4) for share in shares]
        yield edge


def _directions(result: Result) -> list[list[str]]:
    """Whether an arrow was known, or the class compels it; if not, whether the learner left it open or has reasons."""
    otherwise = "open" if result.identified is not None else "assumed"
    found = np.where(result.cpdag == ARROW, "compelled", otherwise)
    told: list[list[str]] = np.where(result.known_directions, "known", found).tolist()
    return told


def _unrolled(result: Result) -> tuple[list[str], IntArray, list[dict[str, Any]]]:
    """Names and edges; of time series, with a vertex for every variable of the past that has an effect."""
    names, adjacency = list(result.names), result.adjacency
    if result.lag_weights is None or result.lag_adjacency is None:
        return names, adjacency, []
    d = len(names)
    edges: list[dict[str, Any]] = []
    index: dict[tuple[int, int], int] = {}
    for lag, i, j in np.argwhere(result.lag_adjacency).tolist():
        source = index.setdefault((lag, i), d + len(index))
        weight = float(result.lag_weights[lag, i, j])
        edge: dict[str, Any] = {"source": source, "target": j, "weight": weight, "learned": True, "direction": "time"}
        if result.confidence is not None and result.confidence.lagged is not None:
            share = round(float(result.confidence.lagged[lag, i, j]), 4)
            edge["shares"] = [share, share, 0.0, 0.0]
        edges.append(edge)
    wider = np.zeros((d + len(index),) * 2, dtype=np.int64)
    wider[:d, :d] = adjacency
    for edge in edges:
        wider[edge["source"], edge["target"]] = 1
    return names + [f"{names[i]}, {lag + 1} before" for lag, i in index], wider, edges


def _curves(result: Result) -> list[dict[str, Any]]:
    curves = []
    for name, title in _CURVES.items():
        first = [entry for entry in result.history if entry.get("replicate", 0) == 0]  # the others are of rows drawn
        values = [float(entry[name]) if name in entry else None for entry in first]
        known = [value for value in values if value is not None and np.isfinite(value)]
        if len(known) > 1:
            positive = [value for value in known if value > 0.0]
            steep = bool(positive) and max(positive) > 100.0 * min(positive)
            curves.append({"title": title, "log": steep, "values": values})
    return curves


def _scale(result: Result) -> dict[str, float]:
    """How far directions follow the columns' variances, and how well the others explain them."""
    names = {"variance": "varsortability", "r2": "R2-sortability"}
    return {names[kind]: round(value, 3) for kind, value in result.sortability.items()}


def _resamples(result: Result) -> str:
    if result.confidence is None:
        return ""
    asked, failed = result.confidence.replicates, result.confidence.failed
    without = f", of which {failed} gave no graph" if failed else ""
    return (
        f"Frequencies are of {count(asked, 'bootstrap replicate')}{without}: the share in which two variables are "
        "joined, and of these the share in which the arrow goes this way."
    )


def _summary(result: Result) -> str:
    rows = f", {count(sum(result.site_rows.values()), 'row')}" if result.site_rows else ""
    how = f"model {result.settings['model']}, method {result.settings['method']}, sums {result.settings['aggregation']}"
    found = f"{count(len(result.names), 'variable')}, {count(len(result.edges()), 'edge')}"
    return f"{found} from {count(len(result.sites), 'site')}{rows}; {count(result.rounds, 'round')}; {how}."


def _site_text(result: Result) -> str:
    if result.site_rows:
        return f"Rows at each site; all sites together had {sum(result.site_rows.values())}."
    return "How many rows single sites had was not shown to the coordinator."


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
