"""Where vertices stand: causes above effects (Sugiyama, Tagawa and Toda 1981).

    1. a vertex's layer is the length of the longest way to it, then as low as its children let it
    2. an edge over several layers gets a bend in each of them
    3. within layers, vertices and bends are sorted by the mean place of their neighbours, down and up, and the order
       with the fewest crossings is kept
    4. places along a layer follow neighbours as far as order and room permit

Components stand side by side, vertices without edges in rows below.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from dagora.arrays import BoolArray, FloatArray
from dagora.graphs import topological_order

_SWEEPS = 12
_MOVES = 40  # rounds of step 4
_BEND = 0.3  # room for a bend; a vertex has 1
_LONE_ROW = 12  # vertices without edges in a row, at most (or as many as the widest layer has)

Node = tuple[int, int]  # a vertex and -1, or an edge's number and a layer that it crosses


@dataclass(frozen=True)
class Layout:
    """Places (d, 2) of vertices, a unit apart at least, y down; and the bends of edges by (source, target)."""

    places: FloatArray
    bends: dict[tuple[int, int], tuple[tuple[float, float], ...]]


def layered(adjacency: npt.ArrayLike) -> Layout:
    """The layout of a DAG; the same graph is always drawn the same."""
    edges = np.asarray(adjacency) != 0
    count, component = connected_components(edges, directed=False)
    sizes = np.bincount(component, minlength=count)
    places, bends = np.zeros((len(edges), 2)), {}
    right = depth = 0.0
    for which in np.argsort(-sizes, kind="stable"):  # the largest first, others to its right
        if sizes[which] > 1:
            members = np.flatnonzero(component == which)
            part = _connected(edges[np.ix_(members, members)])
            ends = [part.places[:, 0], *(np.array(way)[:, 0] for way in part.bends.values() if way)]
            shift = right - min(float(x.min()) for x in ends)
            right = max(float(x.max()) for x in ends) + shift + 1.0
            depth = max(depth, float(part.places[:, 1].max()) + 1.0)
            places[members] = part.places + np.array([shift, 0.0])
            for (i, j), way in part.bends.items():
                bends[int(members[i]), int(members[j])] = tuple((x + shift, y) for x, y in way)
    _place_lone(places, np.flatnonzero(sizes[component] == 1), right, depth)
    return Layout(places, bends)


def _connected(edges: BoolArray) -> Layout:
    """One component."""
    layer = _layers(edges)
    ranks, above, below = _with_bends(edges, layer)
    ranks = _uncrossed(ranks, above, below)
    x = _places(ranks, above, below)
    places = np.array([(x[vertex, -1], float(layer[vertex])) for vertex in range(len(edges))])
    bends = {
        (i, j): tuple((x[number, rank], float(rank)) for rank in range(layer[i] + 1, layer[j]))
        for number, (i, j) in enumerate(np.argwhere(edges).tolist())
    }
    return Layout(places, bends)


def _layers(edges: BoolArray) -> npt.NDArray[np.int64]:
    order = topological_order(edges)
    layer = np.zeros(len(edges), dtype=np.int64)
    for vertex in order:
        layer[edges[vertex]] = np.maximum(layer[edges[vertex]], layer[vertex] + 1)
    for vertex in reversed(order):  # a cause stands just above the first of its effects
        if edges[vertex].any():
            layer[vertex] = layer[edges[vertex]].min() - 1
    return layer


def _with_bends(
    edges: BoolArray, layer: npt.NDArray[np.int64]
) -> tuple[list[list[Node]], dict[Node, list[Node]], dict[Node, list[Node]]]:
    """Layers of vertices and bends, and each one's neighbours in the layers above and below."""
    ranks: list[list[Node]] = [[] for _ in range(int(layer.max()) + 1)]
    for vertex in range(len(edges)):
        ranks[layer[vertex]].append((vertex, -1))
    above: dict[Node, list[Node]] = defaultdict(list)
    below: dict[Node, list[Node]] = defaultdict(list)
    for number, (i, j) in enumerate(np.argwhere(edges).tolist()):
        chain: list[Node] = [(i, -1), *((number, rank) for rank in range(layer[i] + 1, layer[j])), (j, -1)]
        for rank in range(layer[i] + 1, layer[j]):
            ranks[rank].append((number, rank))
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    return ranks, above, below


def _uncrossed(
    ranks: list[list[Node]], above: dict[Node, list[Node]], below: dict[Node, list[Node]]
) -> list[list[Node]]:
    best, fewest = ranks, _crossings(ranks, below)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        ranks = [list(nodes) for nodes in ranks]
        for rank in range(1, len(ranks)) if down else range(len(ranks) - 2, -1, -1):
            near, beside = (above, ranks[rank - 1]) if down else (below, ranks[rank + 1])
            place = {node: position for position, node in enumerate(beside)}
            wish = {
                node: np.mean([place[other] for other in near[node]]) if near[node] else position
                for position, node in enumerate(ranks[rank])
            }
            ranks[rank].sort(key=wish.__getitem__)
        if (count := _crossings(ranks, below)) < fewest:
            best, fewest = ranks, count
    return best


def _crossings(ranks: list[list[Node]], below: dict[Node, list[Node]]) -> int:
    """Pairs of edges between neighbouring layers whose ends are in opposite orders."""
    count = 0
    for upper, lower in pairwise(ranks):
        place = {node: position for position, node in enumerate(lower)}
        ends = np.array([place[other] for node in upper for other in sorted(below[node], key=place.__getitem__)])
        # Edges of one vertex come in the order of their ends, so that they never count as crossed.
        count += int(np.triu(ends[:, None] > ends, k=1).sum()) if len(ends) else 0
    return count


def _places(ranks: list[list[Node]], above: dict[Node, list[Node]], below: dict[Node, list[Node]]) -> dict[Node, float]:
    x = {node: position - (len(nodes) - 1) / 2 for nodes in ranks for position, node in enumerate(nodes)}
    for move in range(_MOVES):
        for nodes in ranks if move % 2 == 0 else reversed(ranks):
            wishes = np.array(
                [
                    np.mean([x[other] for other in above[node] + below[node]]) if above[node] + below[node] else x[node]
                    for node in nodes
                ]
            )
            room = np.array([1.0 if node[1] < 0 else _BEND for node in nodes])
            for node, place in zip(nodes, _apart(wishes, room), strict=True):
                x[node] = place
    return x


def _apart(wishes: FloatArray, room: FloatArray) -> list[float]:
    """The places nearest to the wishes (least squares) that keep their order, with room for each."""
    offsets = np.cumsum(room) - 0.5 * room
    # With room taken out it is isotonic regression: neighbours out of order share their mean.
    blocks: list[list[float]] = []  # sum, count
    for wish in wishes - offsets:
        blocks.append([wish, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    means = [total / count for total, count in blocks for _ in range(int(count))]
    return [mean + float(offset) for offset, mean in zip(offsets, means, strict=True)]


def _place_lone(places: FloatArray, lone: npt.NDArray[np.int64], right: float, depth: float) -> None:
    width = max(_LONE_ROW, round(right))
    for position, vertex in enumerate(lone.tolist()):
        row, column = divmod(position, width)
        in_row = min(width, len(lone) - row * width)
        places[vertex] = (right - 1.0) / 2 + column - (in_row - 1) / 2, depth + row
