"""Best order score search (Andrews et al. 2023): the DAG of best BIC, sought over orders of the variables.

    1. An order gives a DAG: each variable picks parents among those before it (grow_shrink.py).
    2. A move takes one variable out of the order and puts it back where the DAG scores best.
    3. Moves go round the variables until none gains.
    4. To leave a local optimum, an edge is turned: its head and the ancestors of it that come later than the tail are
       put before the tail (a tuck; Lam, Andrews and Ramsey 2022), and the variables around are moved.  If that gains,
       the search goes on at 3; when no edge's turn gains, it ends.
    5. Small problems, where it costs little, are searched from other orders as well, and the best DAG is taken.
    6. Edges whose deletion gains go, as in the second phase of GES: with that the answer is right in the limit.

Scores have no units and equivalent DAGs have equal scores, so the answer is an equivalence class, whatever the units.

With knowledge, orders that put a required parent after its child have no DAG.  Where it settles all directions between
blocks of variables (tiers), every block has an order of its own, and all earlier blocks come before it.  Where it
forbids single edges, a search that heeds them all ends in poor local optima, for the ways between equivalent DAGs are
barred.  So a search without these comes first, up to step 3, and one that heeds them starts from a DAG near its end.
"""

from collections.abc import Iterator

import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.graphs import dag_to_cpdag, topological_order
from dagora.knowledge import Constraints
from dagora.learners.base import Learned, LearnerOptions, learned_class
from dagora.learners.bic import Bic, Parents
from dagora.learners.ges import backward
from dagora.learners.grow_shrink import GrowShrinkTree, LocalScore

Order = list[int]


def boss(moments: Moments, options: LearnerOptions) -> Learned:
    """The class of the best DAG found, and a DAG of it.  Heeds `penalty`."""
    bic, known = Bic(moments, options.penalty), options.constraints
    relaxed = None if known is None else known.relaxed
    again = known is not None and relaxed is not None and bool((known.forbidden != relaxed.forbidden).any())
    dag = best_dag(bic, list(starts(bic.R)), relaxed, turn=not again)
    if known is not None and again:
        near = known.member(dag_to_cpdag(dag), bic.R)
        dag = best_dag(bic, [topological_order(near)], known)
    return learned_class(moments, backward(bic, dag_to_cpdag(dag), known), known)


def best_dag(bic: Bic, orders: list[Order], known: Constraints | None, turn: bool = True) -> IntArray:
    """The best DAG that searches from these orders lead to, block by block; without step 4 unless `turn`."""
    dag: list[Parents] = [frozenset()] * bic.d
    for search in searches(bic, known):
        own = [search.valid(order) for order in orders[: len(orders) if len(search.block) > 1 else 1]]
        ends = [search.turn_edges(search.climb(order)) if turn else search.climb(order) for order in own]
        best = max((search.dag(order) for order in ends), key=lambda scored: scored[0])[1]
        for v in search.block:
            dag[v] = best[v]
    return as_matrix(dag)


def searches(score: LocalScore, known: Constraints | None) -> Iterator["OrderSearch"]:
    """One for all variables, or one for each block whose place among the others is known."""
    blocks = [np.arange(score.d)] if known is None else known.blocks
    before = 0
    for block in blocks:
        yield OrderSearch(score, known, block.tolist(), before)
        before |= sum(1 << v for v in block.tolist())


def starts(R: FloatArray) -> Iterator[Order]:
    """The first order, and for up to 50 variables others at random, the more the fewer variables (always the same)."""
    yield first_order(R)
    rng = np.random.default_rng(0)
    for _ in range(100 // len(R) - 1):
        yield rng.permutation(len(R)).tolist()


def first_order(R: FloatArray) -> Order:
    """Variables that the others explain least come first: causes of others rather than their effects."""
    # A ridge keeps the inverse where rows are few; it leaves the order as it is where they are many.
    ridge = 1e-6 * np.eye(len(R))
    order: Order = np.argsort(np.diag(np.linalg.inv(R + ridge)), kind="stable").tolist()
    return order


class OrderSearch:
    """Orders and the DAGs that they give.

    block: the variables that are put in order (None: all); before: as bits, those that come before all of these.
    """

    def __init__(
        self, score: LocalScore, known: Constraints | None = None, block: list[int] | None = None, before: int = 0
    ) -> None:
        self.d, self._negligible, self._before = score.d, score.negligible, before
        self.block = list(range(score.d)) if block is None else block
        self._trees = {child: GrowShrinkTree(score, child, known) for child in self.block}
        self._known = Constraints.none(score.d) if known is None else known
        self._inside = np.isin(np.arange(score.d), self.block)

    def valid(self, order: Order) -> Order:
        """The order of the block's variables with required parents before their children, all others as they are."""
        required, left, found = self._known.required, [v for v in order if self._inside[v]], []
        if not required.any():
            return left
        while left:
            following = next(v for v in left if not required[left, v].any())
            left.remove(following)
            found.append(following)
        return found

    def dag(self, order: Order) -> tuple[float, list[Parents]]:
        """Score and parents of each variable; minus infinity for an order that is not valid."""
        allowed, total = self._before, 0.0
        parents: list[Parents] = [frozenset()] * self.d
        for v in order:
            score, parents[v] = self._trees[v].parents(allowed)
            total += score
            allowed |= 1 << v
        return total, parents

    def climb(self, order: Order) -> Order:
        """Move variables until no move gains."""
        while True:
            start = order
            for v in start:
                order = self.best_move(order, v)
            if order == start:
                return order

    def best_move(self, order: Order, v: int) -> Order:
        """The order with v where the score is best; the same order when no place gains."""
        trees, bit = self._trees, 1 << v
        others = [w for w in order if w != v]
        # At place p, v sees the first p others; those before p do not see v, those from p on do.
        own, unseen, seen = np.empty(len(order)), np.zeros(len(order)), np.zeros(len(order))
        allowed = self._before
        for p, w in enumerate(others):
            own[p] = trees[v].parents(allowed)[0]
            unseen[p + 1] = trees[w].parents(allowed)[0]
            seen[p] = trees[w].parents(allowed | bit)[0]
            allowed |= 1 << w
        own[-1] = trees[v].parents(allowed)[0]
        scores = own + np.cumsum(unseen) + np.cumsum(seen[::-1])[::-1]
        best = float(scores.max())
        if best <= scores[order.index(v)] + self._negligible:
            return order
        # The first of equals, so that rounding does not choose.
        place = int(np.argmax(scores > best - self._negligible))
        return [*others[:place], v, *others[place:]]

    def turn_edges(self, order: Order) -> Order:
        """Turn edges, one at a time, as long as one of the turns gains."""
        best, parents = self.dag(order)
        while True:
            for candidate in self._turns(order, as_matrix(parents) != 0):
                if self.dag(candidate)[0] > best + self._negligible:
                    break
            else:
                return order
            order = self.climb(candidate)
            best, parents = self.dag(order)

    def _turns(self, order: Order, edges: BoolArray) -> Iterator[Order]:
        ancestors = _ancestors(order, edges)
        joined = edges | edges.T
        for head in order:
            for tail in np.flatnonzero(edges[:, head] & self._known.permitted[head] & self._inside).tolist():
                turned = _tuck(order, tail, head, ancestors[head])
                for v in [head, tail, *np.flatnonzero(joined[head] | joined[tail]).tolist()]:
                    turned = self.best_move(turned, v) if v in self._trees else turned
                yield turned


def as_matrix(parents: list[Parents]) -> IntArray:
    """Adjacency of a DAG given by the parents of each variable."""
    dag = np.zeros((len(parents), len(parents)), dtype=np.int64)
    for child, chosen in enumerate(parents):
        dag[list(chosen), child] = 1
    return dag


def _ancestors(order: Order, edges: BoolArray) -> list[set[int]]:
    """Of each variable, itself included."""
    found: list[set[int]] = [{v} for v in range(len(edges))]
    for v in order:
        found[v] = {v}.union(*(found[p] for p in np.flatnonzero(edges[:, v])))
    return found


def _tuck(order: Order, tail: int, head: int, ancestors: set[int]) -> Order:
    """Put the head, and the ancestors of it that lie between, before the tail."""
    first, last = order.index(tail), order.index(head)
    between = order[first + 1 : last + 1]
    forward = [v for v in between if v in ancestors]
    rest = [v for v in between if v not in ancestors]
    return [*order[:first], *forward, tail, *rest, *order[last + 1 :]]
