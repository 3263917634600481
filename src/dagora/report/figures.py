"""Figures of learned networks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import networkx as nx
import numpy as np
import numpy.typing as npt

from dagora.graphs import topological_order

matplotlib.use("Agg", force=False)

_FOUND, _REVERSED, _EXTRA, _MISSED = "#0072B2", "#E69F00", "#D55E00", "#999999"  # Okabe and Ito: safe for all eyes
_KINDS = {"found": _FOUND, "reversed": _REVERSED, "not in the truth": _EXTRA, "missed": _MISSED}


def draw_beside_truth(
    truth: npt.ArrayLike, learned: npt.ArrayLike, names: tuple[str, ...], path: Path, title: str
) -> None:
    """Draw the true graph and a learned one with the same layout; the learned one's edges tell right from wrong."""
    from matplotlib.figure import Figure

    true, found = np.asarray(truth) != 0, np.asarray(learned) != 0
    places = _layers(true, names)
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


def _layers(true: npt.NDArray[np.bool_], names: tuple[str, ...]) -> Mapping[str, tuple[float, float]]:
    """Causes above effects: a vertex's layer is the length of the longest way to it; lone vertices go to the foot."""
    depth = np.zeros(len(names), dtype=np.int64)
    for vertex in topological_order(true):
        depth[true[vertex]] = np.maximum(depth[true[vertex]], depth[vertex] + 1)
    lone = ~(true.any(axis=0) | true.any(axis=1))
    depth[lone] = depth.max() + 1
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, layer in zip(names, depth.tolist(), strict=True):
        graph.add_node(name, layer=layer)
    graph.add_edges_from((names[i], names[j]) for i, j in zip(*true.nonzero(), strict=True))
    widest = int(np.bincount(depth).max())
    # Within a layer, a vertex stands near the mean of its parents.
    places: dict[str, tuple[float, float]] = {}
    for layer in range(int(depth.max()) + 1):
        members = [names[v] for v in np.flatnonzero(depth == layer)]
        wish = {m: np.mean([places[p][0] for p in graph.predecessors(m)] or [0.0]) for m in members}
        for position, member in enumerate(sorted(members, key=lambda m: (wish[m], names.index(m)))):
            # A slight stagger keeps long edges from running through the vertices between their ends.
            stagger = 0.18 * (position % 2)
            places[member] = ((position - (len(members) - 1) / 2) * widest / len(members), -layer - stagger)
    return places


def _edges(
    which: npt.NDArray[np.bool_], names: tuple[str, ...], colour: str, dashed: bool = False
) -> list[tuple[str, str, str, str]]:
    style = "--" if dashed else "-"
    return [(names[i], names[j], colour, style) for i, j in zip(*which.nonzero(), strict=True)]


def _draw(
    axes: Any, edges: list[tuple[str, str, str, str]], places: Mapping[str, tuple[float, float]], title: str
) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(places)
    size = max(140, 520 - 9 * len(places))
    nx.draw_networkx_nodes(graph, places, ax=axes, node_size=size, node_color="white", edgecolors="#444444")
    nx.draw_networkx_labels(graph, places, ax=axes, font_size=max(4, 8 - len(places) // 15))
    for source, target, colour, style in edges:
        # A long edge bends out of the way of the vertices between its ends.
        bend = 0.08 if abs(places[source][1] - places[target][1]) < 1.5 else 0.3
        nx.draw_networkx_edges(
            graph,
            places,
            edgelist=[(source, target)],
            ax=axes,
            node_size=size,
            edge_color=colour,
            style=style,
            width=1.4,
            arrowsize=11,
            connectionstyle=f"arc3,rad={bend}",
        )
    axes.set_title(title, fontsize=11)
    axes.set_axis_off()
    axes.margins(0.08)
