"""Greedy equivalence search (Chickering 2002) with the BIC: forward by insertions, then backward by deletions.

The state is a CPDAG.  An operator inserts or deletes one edge between x and y in some members of the class:

    Insert(x, y, C): x, y not joined; C a clique of y's neighbours that contains those joined to x; every semi-directed
        way from y to x passes through C.                     Gain: s(y | Pa + C + x) - s(y | Pa + C)
    Delete(x, y, C): x - y or x -> y; C a clique of y's neighbours that are joined to x.
                                                              Gain: s(y | Pa + C - x) - s(y | (Pa + C) + x)

(C is NA + T, or NA - H, in Chickering's notation.)  For one y and one clique C all x are scored at once.  Where every
variable is joined to all, a vertex has 2^d cliques; the search then looks at the MOST_CLIQUES that add or leave out
the fewest.

With knowledge the search starts at the class of the required edges, and an operator must leave a class with a member
that keeps to it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import combinations, islice

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.errors import NumericalError
from dagora.graphs import ARROW, UNDIRECTED, consistent_extension, dag_to_cpdag
from dagora.knowledge import Constraints
from dagora.learners.base import Learned, LearnerOptions, learned_class
from dagora.learners.bic import Bic, Parents

Operator = tuple[float, int, int, Parents]  # gain, x, y, C

MOST_CLIQUES = 256  # of the neighbours of one vertex (insertion) or of one pair (deletion)


def ges(moments: Moments, options: LearnerOptions) -> Learned:
    """The CPDAG at which neither phase gains, and a DAG of it.  Heeds `penalty`."""
    known = options.constraints
    start = np.zeros((len(moments.mean),) * 2) if known is None else known.required
    bic = Bic(moments, options.penalty)
    state = climb(bic, Pattern(dag_to_cpdag(start)), insertions, insert, known)
    return learned_class(moments, backward(bic, state.cpdag, known), known)


def backward(bic: Bic, cpdag: IntArray, known: Constraints | None = None) -> IntArray:
    """The second phase alone: delete edges of a class while that gains."""
    return climb(bic, Pattern(cpdag), deletions, delete, known).cpdag


class Pattern:
    """A CPDAG with the neighbourhoods that operators ask for."""

    def __init__(self, cpdag: IntArray) -> None:
        self.cpdag = cpdag
        arrows, lines = cpdag == ARROW, cpdag == UNDIRECTED
        lines = lines | lines.T
        self.joined: BoolArray = arrows | arrows.T | lines
        self.parents = [frozenset(np.flatnonzero(column).tolist()) for column in arrows.T]
        self.children = [frozenset(np.flatnonzero(row).tolist()) for row in arrows]
        self.neighbours = [frozenset(np.flatnonzero(row).tolist()) for row in lines]

    def cliques(self, among: Parents) -> Iterator[Parents]:
        """Cliques of the given vertices, the empty one first, small ones before large ones; at most MOST_CLIQUES."""
        waiting: deque[tuple[Parents, list[int]]] = deque([(frozenset(), sorted(among))])  # clique, who could join it
        for _ in range(MOST_CLIQUES):
            if not waiting:
                return
            clique, others = waiting.popleft()
            yield clique
            for place, v in enumerate(others):
                waiting.append((clique | {v}, [w for w in others[place + 1 :] if self.joined[v, w]]))

    def cliques_but_few(self, among: Parents) -> Iterator[Parents]:
        """The same, but of a clique its largest parts first: all but none, all but one, ..."""
        if not all(self.joined[a, b] for a, b in combinations(among, 2)):
            return self.cliques(among)
        left_out = (without for size in range(len(among) + 1) for without in combinations(sorted(among), size))
        return (among - frozenset(without) for without in islice(left_out, MOST_CLIQUES))

    def way(self, start: int, goal: int, blocked: Parents) -> bool:
        """Whether a semi-directed way (along arrows and lines) leads from start to goal outside `blocked`."""
        seen, waiting = {start, *blocked}, [start]
        while waiting:
            vertex = waiting.pop()
            for following in self.children[vertex] | self.neighbours[vertex]:
                if following == goal:
                    return True
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return False

    def changed_since(self, earlier: "Pattern") -> set[int]:
        """Vertices whose operators have to be scored again: those with another edge, and their neighbours."""
        moved = np.flatnonzero((self.cpdag != earlier.cpdag).any(axis=0) | (self.cpdag != earlier.cpdag).any(axis=1))
        touched = set(moved.tolist())
        return touched.union(*(self.neighbours[v] | earlier.neighbours[v] for v in touched))


Operators = Callable[[Bic, Pattern, int], list[Operator]]
Apply = Callable[[Pattern, Operator], IntArray | None]


def climb(bic: Bic, state: Pattern, operators: Operators, apply: Apply, known: Constraints | None = None) -> Pattern:
    """Apply the best valid operator until none gains."""

    def offered(y: int) -> list[Operator]:
        found = operators(bic, state, y)
        if known is None:
            return found
        if apply is delete:
            return [o for o in found if not (known.required[o[1], y] or known.required[y, o[1]])]
        return [o for o in found if not known.forbidden[o[1], y]]

    waiting = [offered(y) for y in range(bic.d)]
    while True:
        following = _best_step(waiting, state, apply, known)
        if following is None:
            return state
        changed, state = following.changed_since(state), following
        for y in changed:
            waiting[y] = offered(y)


def _best_step(
    waiting: list[list[Operator]], state: Pattern, apply: Apply, known: Constraints | None
) -> Pattern | None:
    # A way between distant vertices can open or close at any step, so validity is asked last, best gain first.
    for operator in sorted((o for some in waiting for o in some), key=lambda o: (-o[0], o[1], o[2], sorted(o[3]))):
        cpdag = apply(state, operator)
        if cpdag is not None and (known is None or known.of_class(cpdag) is not None):
            return Pattern(cpdag)
    return None


def insertions(bic: Bic, state: Pattern, y: int) -> list[Operator]:
    """Insertions of an edge into y that gain, cliques checked, ways not yet."""
    neighbours = state.neighbours[y]
    near = sorted(neighbours)
    found: list[Operator] = []
    for clique in state.cliques(neighbours):
        gains: FloatArray = bic.gains(y, state.parents[y] | clique)
        left_out = [v for v in near if v not in clique]
        fits = (gains > bic.negligible) & ~state.joined[y] & ~state.joined[left_out].any(axis=0)
        found += [(float(gains[x]), int(x), y, clique) for x in np.flatnonzero(fits)]
    return found


def insert(state: Pattern, operator: Operator) -> IntArray | None:
    """The class after an insertion, or None if a way from y to x is open."""
    _, x, y, clique = operator
    if state.way(y, x, clique):
        return None
    pdag = state.cpdag.copy()
    pdag[x, y] = ARROW
    for t in clique:
        if not state.joined[t, x]:
            _orient(pdag, t, y)
    return _class_of(pdag)


def deletions(bic: Bic, state: Pattern, y: int) -> list[Operator]:
    """Deletions of an edge into y, or of a line at y, that gain."""
    found: list[Operator] = []
    for x in state.neighbours[y] | state.parents[y]:
        shared = frozenset(v for v in state.neighbours[y] if state.joined[v, x])
        for clique in state.cliques_but_few(shared):
            others = (state.parents[y] | clique) - {x}
            gain = bic.local(y, others) - bic.local(y, others | {x})
            if gain > bic.negligible:
                found.append((gain, x, y, clique))
    return found


def delete(state: Pattern, operator: Operator) -> IntArray | None:
    """The class after a deletion; always valid, since the clique was checked."""
    _, x, y, clique = operator
    pdag = state.cpdag.copy()
    pdag[x, y] = pdag[y, x] = 0
    for h in state.neighbours[y] - clique:
        if state.joined[h, x]:
            _orient(pdag, y, h)
            if h in state.neighbours[x]:
                _orient(pdag, x, h)
    return _class_of(pdag)


def _orient(pdag: IntArray, source: int, target: int) -> None:
    pdag[source, target], pdag[target, source] = ARROW, 0


def _class_of(pdag: IntArray) -> IntArray:
    dag = consistent_extension(pdag)
    if dag is None:
        raise NumericalError("a valid operator has left no DAG")
    return dag_to_cpdag(dag)
