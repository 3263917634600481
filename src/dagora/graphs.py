"""Directed graphs as (d, d) arrays: entry [i, j] stands for the edge i -> j.

A partially directed graph (PDAG) has 1 for an arrow i -> j and -1, once, at [i, j] with i < j, for an undirected edge.
"""

from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from dagora.arrays import BoolArray, IntArray
from dagora.errors import InputError, NumericalError

ARROW = 1
UNDIRECTED = -1
_FEW = 64  # vertices up to which a d^3 method is quicker


def threshold(weights: npt.ArrayLike, tau: float) -> IntArray:
    """Adjacency (0/1) of the edges with |weight| > tau, strictly; never a self-loop."""
    magnitude = np.abs(np.asarray(weights, dtype=np.float64))
    if not np.isfinite(magnitude).all():
        # A NaN compares false with everything, so it would pass for an absent edge.
        raise NumericalError("The weights are not all finite, so they cannot be thresholded; learn them again.")
    kept = magnitude > tau
    np.fill_diagonal(kept, False)
    return kept.astype(np.int64)


def skeleton(adjacency: npt.ArrayLike) -> IntArray:
    """Symmetric 0/1 array of the vertex pairs joined by an edge of any kind."""
    present = _edges(adjacency)
    joined = present | present.T
    np.fill_diagonal(joined, False)
    return joined.astype(np.int64)


def is_dag(adjacency: npt.ArrayLike) -> bool:
    """Whether the nonzero entries form a directed graph without cycles."""
    present = _edges(adjacency)
    # Without self-loops, a graph is acyclic exactly when each vertex is a strong component of its own.
    return not present.diagonal().any() and len(np.unique(_strong_components(present))) == len(present)


def topological_order(adjacency: npt.ArrayLike) -> list[int]:
    """Vertices with every parent before its children (Kahn's algorithm)."""
    present = _edges(adjacency)
    waiting = present.sum(axis=0)
    order = np.flatnonzero(waiting == 0).tolist()
    for vertex in order:  # grows while it is read: a vertex joins when its last parent has been passed
        waiting[present[vertex]] -= 1
        order.extend(np.flatnonzero(present[vertex] & (waiting == 0)).tolist())
    if len(order) < len(present):
        raise InputError("The graph has a cycle, so it has no topological order; remove it with break_cycles.")
    return order


def break_cycles(
    adjacency: npt.ArrayLike, strength: npt.ArrayLike, kept: BoolArray | None = None
) -> tuple[IntArray, list[tuple[int, int]]]:
    """Remove the weakest edge on any cycle (by |strength|, ties by index) until no cycle is left.

    Returns the DAG and the removed edges, weakest first.  Edges that are to be `kept` count as the strongest: none of
    them goes unless they have a cycle of their own.
    """
    # An edge off all cycles stays off them, so one pass over the edges from weak to strong would do.  When an
    # edge has its turn, all stronger ones are there, and the weaker ones left are on no cycle.  So the edges
    # to remove are the weakest of some cycle: those that close one as edges are added from strong to weak.
    present = _edges(adjacency)
    component = _strong_components(present)
    sources, targets = np.nonzero(present & (component[:, None] == component))
    size = np.abs(np.asarray(strength, dtype=np.float64))[sources, targets]
    weak_first = np.argsort(size if kept is None else np.where(kept[sources, targets], np.inf, size), kind="stable")
    sources, targets = sources[weak_first], targets[weak_first]
    weakest = _closing(sources[::-1], targets[::-1])[::-1]
    removed = list(zip(sources[weakest].tolist(), targets[weakest].tolist(), strict=True))
    dag = present.astype(np.int64)
    dag[sources[weakest], targets[weakest]] = 0
    return dag, removed


def descendants(edges: BoolArray) -> BoolArray:
    """[i, j]: a way leads from i to j, or i = j."""
    reached = edges | np.eye(len(edges), dtype=bool)
    while True:  # ways of twice the length each time
        longer = reached.astype(np.float32)
        further = (longer @ longer) > 0
        if (further == reached).all():
            return reached
        reached = further


def order_of(weights: npt.ArrayLike, kept: BoolArray | None = None) -> BoolArray:
    """The entries [i, j] with i before j in an order that all of W's edges follow, weakest cycle edges aside.

    kept: edges that the order follows in any case, whatever their weight.
    """
    present = np.asarray(weights) != 0
    dag, _ = break_cycles(present if kept is None else present | kept, weights, kept)
    place = np.empty(len(dag), dtype=np.int64)
    place[topological_order(dag)] = np.arange(len(dag))
    before: BoolArray = place[:, None] < place
    return before


def dag_to_cpdag(dag: npt.ArrayLike) -> IntArray:
    """The class of a DAG: 1 for a compelled arrow i -> j, -1 at [i, j] with i < j for an undirected edge.

    Chickering (1995), "A transformational characterization of equivalent Bayesian network structures".
    """
    present = _edges(dag)
    order = topological_order(present)
    position = {vertex: place for place, vertex in enumerate(order)}
    parents = [set(np.flatnonzero(column).tolist()) for column in present.T]
    compelled: dict[int, set[int]] = {}
    cpdag = np.zeros(present.shape, dtype=np.int64)
    for child in order:
        compelled[child] = _compelled_parents(child, parents, compelled, position)
        for parent in parents[child]:
            if parent in compelled[child]:
                cpdag[parent, child] = ARROW
            else:
                cpdag[min(parent, child), max(parent, child)] = UNDIRECTED
    return cpdag


def consistent_extension(pdag: npt.ArrayLike) -> IntArray | None:
    """A DAG with the skeleton, all arrows and no v-structures but those of the PDAG; None if there is none.

    Dor and Tarsi (1992), "A simple algorithm to construct a consistent extension of a partially oriented graph".
    """
    dag, consistent = _orient_into_sinks(_Pdag(pdag))
    return dag if consistent else None


def closest_extension(pdag: npt.ArrayLike, strength: npt.ArrayLike, kept: BoolArray | None = None) -> IntArray:
    """A consistent extension if there is one; else a DAG with the skeleton that makes few compromises.

    Cycles of arrows lose their weakest arrow (as in `break_cycles`), whose edge becomes undirected.  All other arrows
    stay.  Where Dor and Tarsi find no sink, the vertex that adds the fewest v-structures is made one.
    """
    marks = np.array(pdag, dtype=np.int64)
    for tail, head in break_cycles(marks == ARROW, strength, kept)[1]:
        marks[tail, head] = 0
        if marks[head, tail] == 0:
            marks[min(tail, head), max(tail, head)] = UNDIRECTED
    return _orient_into_sinks(_Pdag(marks))[0]


def meek(pdag: npt.ArrayLike) -> IntArray:
    """Orient the undirected edges of a PDAG that its arrows and v-structures force, by Meek's rules 1 to 4.

    Meek (1995), "Causal inference and causal explanation with background knowledge".  If the arrows contradict each
    other, the first rule to apply wins, and no rule closes a directed cycle.
    """
    graph = _Pdag(pdag)
    undirected = [(tail, head) for tail in range(graph.d) for head in sorted(graph.lines[tail])]
    changed = True
    while changed:
        changed = False
        for tail, head in undirected:
            # The way back is the rare and dear question, so it comes last.
            if head in graph.lines[tail] and graph.forced(tail, head) and not graph.leads(head, tail):
                graph.orient(tail, head)
                changed = True
        undirected = [(tail, head) for tail, head in undirected if head in graph.lines[tail]]
    return graph.marks()


def restricted_class(cpdag: IntArray, forbidden: BoolArray, required: BoolArray) -> IntArray | None:
    """The members of a class that have all required arrows and no forbidden one, as a PDAG; None if there are none.

    Edges with one forbidden direction take the other, and Meek's rules close the graph (Meek 1995; a maximally oriented
    PDAG).  Its consistent extensions are these members if one of them has the class that we started from.
    """
    joined = skeleton(cpdag) == 1
    if (forbidden & forbidden.T & joined).any() or (required & ~joined).any() or (forbidden & (cpdag == ARROW)).any():
        return None
    known = joined & forbidden.T
    if not (known & (cpdag != ARROW)).any():
        return cpdag  # its arrows say all of it already
    pdag = meek(np.where(known, ARROW, np.where(known.T, 0, cpdag)))
    dag = consistent_extension(pdag)
    return pdag if dag is not None and (dag_to_cpdag(dag) == cpdag).all() else None


def without_known_cycles(
    pdag: IntArray, strength: npt.ArrayLike, known: BoolArray, kept: BoolArray
) -> tuple[IntArray, list[tuple[int, int]]]:
    """The PDAG without the weakest edges on cycles of arrows that nobody may turn (`known`), and these edges."""
    _, removed = break_cycles(known, strength, kept)
    marks = pdag.copy()
    for tail, head in removed:
        marks[tail, head] = 0
    return marks, removed


def strong_components(present: BoolArray) -> list[IntArray]:
    """The vertices of each strong component, in an order that the edges between components follow."""
    labels = _strong_components(present)
    parts = [np.flatnonzero(labels == label) for label in range(labels.max(initial=-1) + 1)]
    between = np.zeros((len(parts), len(parts)), dtype=bool)
    between[labels[present.nonzero()[0]], labels[present.nonzero()[1]]] = True
    np.fill_diagonal(between, False)
    return [parts[label] for label in topological_order(between)]


class _Pdag:
    """Neighbour sets of a PDAG, by vertex: what the algorithms on sparse graphs need."""

    def __init__(self, pdag: npt.ArrayLike) -> None:
        marks = np.asarray(pdag)
        arrows, lines = _edges(marks == ARROW), marks == UNDIRECTED
        self.d = len(marks)
        self.parents = _neighbours(arrows.T)
        self.children = _neighbours(arrows)
        self.lines = _neighbours(lines | lines.T)

    def adjacent(self, vertex: int) -> set[int]:
        """Vertices joined with this one by an edge of any kind."""
        return self.parents[vertex] | self.children[vertex] | self.lines[vertex]

    def orient(self, tail: int, head: int) -> None:
        """Make an arrow of an undirected edge."""
        self.lines[tail].remove(head)
        self.lines[head].remove(tail)
        self.children[tail].add(head)
        self.parents[head].add(tail)

    def forced(self, tail: int, head: int) -> bool:
        """Whether one of Meek's rules makes the undirected edge an arrow into `head`."""
        into_head, near_head = self.parents[head], self.adjacent(head)
        if self.parents[tail] - near_head:  # rule 1: w -> tail, w and head not joined; else a new v-structure
            return True
        if self.children[tail] & into_head:  # rule 2: tail -> w -> head; else a cycle
            return True
        # In rules 3 and 4 the arrow head -> tail would give rise, by rules 1 and 2, to a v-structure or a cycle.
        pairs = combinations(sorted(self.lines[tail] & into_head), 2)
        if any(w not in self.adjacent(v) for v, w in pairs):  # rule 3: tail - v -> head <- w - tail, v and w not joined
            return True
        # Rule 4: tail - v -> w -> head, tail and w joined, v and head not joined.
        between = self.adjacent(tail) & into_head
        return any((self.parents[w] & self.lines[tail]) - near_head for w in between)

    def leads(self, start: int, end: int) -> bool:
        """Whether arrows lead from one vertex to another."""
        seen, ahead = {start}, [start]
        while ahead:
            new = self.children[ahead.pop()] - seen
            seen |= new
            ahead.extend(new)
        return end in seen

    def marks(self) -> IntArray:
        """The (d, d) array of arrows and undirected edges."""
        pdag = np.zeros((self.d, self.d), dtype=np.int64)
        for vertex in range(self.d):
            pdag[vertex, list(self.children[vertex])] = ARROW
            pdag[vertex, [other for other in self.lines[vertex] if other > vertex]] = UNDIRECTED
        return pdag


def _orient_into_sinks(graph: _Pdag) -> tuple[IntArray, bool]:
    """Make sinks one by one (lowest index first), each the head of its undirected edges, and set them aside.

    Returns the directed graph, and whether it has no new v-structure and no cycle.
    """
    dag = np.zeros((graph.d, graph.d), dtype=np.int64)
    near = [graph.adjacent(vertex) for vertex in range(graph.d)]  # among the vertices not yet set aside
    below = [set(children) for children in graph.children]

    def price(vertex: int) -> tuple[bool, int, int]:
        """False and 0 for a sink; else whether it has children left, and the v-structures that it would add."""
        colliders = (near[vertex] - near[other] - {other} for other in graph.lines[vertex] & near[vertex])
        return bool(below[vertex]), sum(map(len, colliders)), vertex

    prices = {vertex: price(vertex) for vertex in range(graph.d)}
    consistent = True
    while prices:
        has_children, added, sink = min(prices.values())
        consistent &= not has_children and added == 0
        del prices[sink]
        dag[list(near[sink]), sink] = ARROW
        for other in near[sink]:
            near[other].remove(sink)
            below[other].discard(sink)
        # Only after all sets are up to date; and for no other vertex has anything changed.
        prices.update({other: price(other) for other in near[sink]})
    return dag, consistent


def _neighbours(present: BoolArray) -> list[set[int]]:
    return [set(np.flatnonzero(row).tolist()) for row in present]


def _compelled_parents(
    child: int, parents: list[set[int]], compelled: dict[int, set[int]], position: dict[int, int]
) -> set[int]:
    """The parents whose arrow into `child` all equivalent DAGs share, given those of earlier vertices.

    Chickering's Label-Edges: in his order of edges, the last parent settles all arrows into `child`.
    """
    if not parents[child]:
        return set()
    last = max(parents[child], key=position.__getitem__)
    chain = not compelled[last] <= parents[child]  # w -> last -> child, w and child not joined
    collider = not parents[child] - {last} <= parents[last]  # last -> child <- z, last and z not joined
    return parents[child] if chain or collider else compelled[last]


def _edges(adjacency: npt.ArrayLike) -> BoolArray:
    present: BoolArray = np.asarray(adjacency) != 0
    if present.ndim != 2 or present.shape[0] != present.shape[1]:
        raise InputError(f"A graph must be a square array, not one of shape {present.shape}.")
    return present


def _strong_components(present: BoolArray) -> npt.NDArray[np.int32]:
    labels: npt.NDArray[np.int32] = connected_components(present.astype(np.int8), connection="strong")[1]
    return labels


def _closing(sources: IntArray, targets: IntArray) -> BoolArray:
    """Of edges that are added one by one, those that close a cycle: their ends are then in one strong component.

    Bisection over the time of adding.  An edge within a component of the first half closes a cycle, if it does, among
    the edges of that component; to all others these components are single vertices.  So every edge goes on in one half
    only, and the cost is E log E up to the sorting of vertices.
    """
    closes = np.zeros(len(sources), dtype=bool)
    parts = [(0, len(sources), np.arange(len(sources)), sources, targets)]
    while parts:
        start, end, edges, tails, heads = parts.pop()  # which edges of times start to end do? earlier ones do not
        if len(edges) == 0 or edges[-1] < start:
            continue
        vertices, ends = np.unique(np.concatenate([tails, heads]), return_inverse=True)
        tails, heads = ends.reshape(2, -1)
        if len(vertices) <= _FEW:
            closes[edges[_closing_few(tails, heads, len(vertices))]] = True
            continue
        middle = (start + end + 1) // 2
        there = edges < middle
        component = _components_of(tails[there], heads[there], len(vertices))
        inside = there & (component[tails] == component[heads])
        if end - start == 1:
            closes[edges[inside & (edges == start)]] = True
            continue
        parts.append((start, middle, edges[inside], tails[inside], heads[inside]))
        parts.append((middle, end, edges[~inside], component[tails[~inside]], component[heads[~inside]]))
    return closes


def _closing_few(tails: IntArray, heads: IntArray, d: int) -> BoolArray:
    """The same for few vertices: edges with a way back over earlier ones only (Floyd and Warshall)."""
    rank = np.arange(len(tails), 0, -1)
    widest = np.zeros((d, d), dtype=np.int64)  # the highest rank r such that edges of rank r or more lead there
    np.maximum.at(widest, (tails, heads), rank)
    np.fill_diagonal(widest, len(rank) + 1)  # one is already there: a self-loop is a cycle of its own
    for middle in range(d):
        np.maximum(widest, np.minimum(widest[:, middle, None], widest[middle]), out=widest)
    closes: BoolArray = rank < widest[heads, tails]
    return closes


def _components_of(tails: IntArray, heads: IntArray, d: int) -> IntArray:
    graph = csr_array((np.ones(len(tails), dtype=np.int8), (tails, heads)), shape=(d, d))
    component: IntArray = connected_components(graph, connection="strong")[1].astype(np.int64)
    return component
