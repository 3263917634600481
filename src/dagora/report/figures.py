"""Figures of learned networks."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt

from dagora.report.layout import layered

if TYPE_CHECKING:
    from dagora.result import Result

_FOUND, _REVERSED, _EXTRA, _MISSED = "#0072B2", "#E69F00", "#D55E00", "#999999"  # Okabe and Ito: safe for all eyes
_PLUS, _MINUS = _FOUND, _EXTRA
_KINDS = {"found": _FOUND, "reversed": _REVERSED, "not in the truth": _EXTRA, "missed": _MISSED}


class Placed(NamedTuple):
    """Where vertices stand, by name, and where edges of the layout bend."""

    vertices: Mapping[str, tuple[float, float]]
    bends: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]


class Edge(NamedTuple):
    """An edge as it is drawn."""

    source: str
    target: str
    colour: str
    style: str
    width: float = 1.4
    headed: bool = True


def draw_beside_truth(
    truth: npt.ArrayLike, learned: npt.ArrayLike, names: tuple[str, ...], path: Path, title: str
) -> None:
    """Draw the true graph and a learned one with the same layout; the learned one's edges tell right from wrong."""
    from matplotlib.figure import Figure

    true, found = np.asarray(truth) != 0, np.asarray(learned) != 0
    places = _places(true, names)
    side = 3.2 + 0.09 * len(names)
    figure = Figure(figsize=(2 * side, side + 0.5), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw(left, _edges(true, names, _FOUND), places, "true network")
    kinds = {
        "found": found & true,
        "reversed": found & true.T & ~true,
        "not in the truth": found & ~true & ~true.T,
        "missed": true & ~found & ~found.T,
    }
    edges = [edge for kind, which in kinds.items() for edge in _edges(which, names, _KINDS[kind], kind == "missed")]
    _draw(right, edges, places, title)
    for kind, colour in _KINDS.items():
        count = int(kinds[kind].sum())
        right.plot([], [], color=colour, linestyle="--" if kind == "missed" else "-", label=f"{kind} ({count})")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path)


def draw_network(result: "Result", axes: Any = None) -> Any:
    """The network: width by |weight|, colour by sign, lines without heads where the direction is open."""
    from matplotlib.figure import Figure
    from matplotlib.pyplot import subplots

    places = _places(result.adjacency != 0, result.names)
    if axes is None:
        side = 3.2 + 0.14 * len(result.names)
        axes = subplots(figsize=(1.4 * side, side), layout="constrained")[1]
    assert isinstance(axes.figure, Figure)
    largest = max((abs(weight) for _, _, weight in result.edges()), default=1.0)
    open_ = {frozenset(pair) for pair in result.undirected()}
    edges = [
        Edge(source, target, _PLUS if weight >= 0 else _MINUS, "-", 0.8 + 2.2 * abs(weight) / largest,
             frozenset((source, target)) not in open_)
        for source, target, weight in result.edges()
    ]  # fmt: skip
    _draw(axes, edges, places, "")
    return axes


def _places(present: npt.NDArray[np.bool_], names: tuple[str, ...]) -> Placed:
    """Causes above effects, as on the page."""
    layout = layered(present)
    vertices = {name: (x, -y) for name, (x, y) in zip(names, layout.places.tolist(), strict=True)}
    bends = {(names[i], names[j]): tuple((x, -y) for x, y in way) for (i, j), way in layout.bends.items()}
    return Placed(vertices, bends)


def _edges(which: npt.NDArray[np.bool_], names: tuple[str, ...], colour: str, dashed: bool = False) -> list[Edge]:
    style = "--" if dashed else "-"
    return [Edge(names[i], names[j], colour, style) for i, j in zip(*which.nonzero(), strict=True)]


def _draw(axes: Any, edges: list[Edge], placed: Placed, title: str) -> None:
    from matplotlib.patches import FancyArrowPatch

    places = placed.vertices
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(places)
    size = max(140, 520 - 9 * len(places))
    nx.draw_networkx_nodes(graph, places, ax=axes, node_size=size, node_color="white", edgecolors="#444444")
    nx.draw_networkx_labels(graph, places, ax=axes, font_size=max(4, 8 - len(places) // 15))
    for edge in edges:
        # An edge that is not in the layout may run over vertices between its ends, and bows out of their way.
        way = placed.bends.get((edge.source, edge.target))
        bow = 0.25 if way is None else 0.0
        *before, last = (places[edge.source], *(way or ()))
        if before:  # under the vertices, in a smooth line down to the last bend
            axes.plot(*_smooth([*before, last]), edge.style, color=edge.colour, linewidth=edge.width, zorder=1)
        axes.add_patch(
            FancyArrowPatch(
                last,
                places[edge.target],
                arrowstyle="-|>" if edge.headed else "-",
                connectionstyle=f"arc3,rad={bow}",
                color=edge.colour,
                linestyle=edge.style,
                linewidth=edge.width,
                mutation_scale=11,
                shrinkA=0.0,
                shrinkB=0.5 * float(np.sqrt(size)) + 1.0,
                zorder=1,
            )
        )
    axes.set_title(title, fontsize=11)
    axes.set_axis_off()
    axes.margins(0.08)


def _smooth(points: list[tuple[float, float]]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """A line through points that is upright at each of them."""
    t = np.linspace(0.0, 1.0, 20)
    ease = t * t * (3.0 - 2.0 * t)
    x = np.concatenate([a[0] + (b[0] - a[0]) * ease for a, b in pairwise(points)])
    y = np.concatenate([a[1] + (b[1] - a[1]) * t for a, b in pairwise(points)])
    return x, y
