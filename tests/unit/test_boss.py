"""Best order score search, part by part: cached growth, the best place of a variable, turned edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagora import simulate
from dagora.data.moments import Moments
from dagora.graphs import is_dag
from dagora.learners.base import LearnerOptions, correlations
from dagora.learners.bic import Bic, Parents
from dagora.learners.boss import Order, OrderSearch, _ancestors, _tuck, as_matrix, boss, first_order
from dagora.learners.grow_shrink import GrowShrinkTree

NEGLIGIBLE = 1e-6  # at the sizes used here
D = 7
laws = settings(deadline=None, max_examples=60)  # no deadline: a busy machine is no broken law


def moments(seed: int, n: int = 80, d: int = D) -> Moments:
    _, (rows,) = simulate(d, 2 * d, n, 1, seed=seed, noise="gaussian-unequal")
    return Moments.of_rows(rows)


def grown_and_shrunk(bic: Bic, child: int, allowed: set[int]) -> tuple[float, Parents]:
    """The same without a tree, without candidates and without updates: whole local scores, anew at every step."""
    parents: Parents = frozenset()
    while len(parents) < bic.most_parents and allowed - parents:
        best = max(allowed - parents, key=lambda x: bic.local(child, parents | {x}))
        if bic.local(child, parents | {best}) <= bic.local(child, parents) + NEGLIGIBLE:
            break
        parents |= {best}
    while parents:
        weakest = max(parents, key=lambda x: bic.local(child, parents - {x}))
        if bic.local(child, parents - {weakest}) <= bic.local(child, parents) + NEGLIGIBLE:
            break
        parents -= {weakest}
    return bic.local(child, parents), parents


def bits(members: set[int]) -> int:
    return sum(1 << x for x in members)


@laws
@given(
    seed=st.integers(0, 20),
    n=st.sampled_from([5, 8, 30, 300]),  # fewer rows than variables, just enough, and many
    penalty=st.sampled_from([0.1, 1.0, 3.0]),  # a low price grows large sets, of which some are shrunk again
    child=st.integers(0, D - 1),
    asked=st.lists(st.sets(st.integers(0, D - 1)), min_size=1, max_size=8),
)
def test_a_tree_answers_as_growing_and_shrinking_anew(
    seed: int, n: int, penalty: float, child: int, asked: list[set[int]]
) -> None:
    bic = Bic(moments(seed, n), penalty)
    tree = GrowShrinkTree(bic, child)
    for allowed in asked:
        score, parents = tree.parents(bits(allowed))
        expected_score, expected = grown_and_shrunk(bic, child, allowed - {child})
        assert parents == expected
        assert score == pytest.approx(expected_score, abs=1e-3 if n <= D else 1e-8)
        assert len(parents) <= bic.most_parents


def test_some_parents_are_shrunk_again() -> None:
    """Else the tests of shrinking would hold without it."""
    shrunk = 0
    for seed in range(30):
        bic = Bic(moments(seed), 1.0)
        for child in range(D):
            parents = GrowShrinkTree(bic, child).parents((1 << D) - 1)[1]
            grown: Parents = frozenset()
            while (gains := bic.gains(child, grown)).max() > NEGLIGIBLE:
                grown |= {int(gains.argmax())}
            shrunk += parents < grown
    assert shrunk > 0


def orders(seed: int, count: int) -> list[Order]:
    rng = np.random.default_rng(seed)
    return [rng.permutation(D).tolist() for _ in range(count)]


@pytest.mark.parametrize("n", [6, 80])
def test_the_best_move_is_the_best_of_all_places(n: int) -> None:
    moved = 0
    for seed in range(6):
        search = OrderSearch(Bic(moments(seed, n), 1.0))
        for order in orders(seed, 4):
            for v in range(D):
                others = [w for w in order if w != v]
                places = [[*others[:p], v, *others[p:]] for p in range(D)]
                scores = np.array([search.dag(place)[0] for place in places])
                found = search.best_move(order, v)
                assert search.dag(found)[0] == pytest.approx(scores.max(), abs=1e-5)
                if scores.max() <= search.dag(order)[0] + NEGLIGIBLE / 2.0:
                    assert found == order
                elif scores.max() > search.dag(order)[0] + 2.0 * NEGLIGIBLE:
                    moved += 1
                    assert found == places[int(np.argmax(scores > scores.max() - NEGLIGIBLE / 2.0))]
    assert moved > 50


def test_the_dag_of_an_order_follows_it() -> None:
    search = OrderSearch(Bic(moments(0), 1.0))
    for order in orders(0, 10):
        score, parents = search.dag(order)
        before: set[int] = set()
        for v in order:
            assert parents[v] <= before
            before.add(v)
        assert score == pytest.approx(sum(Bic(moments(0), 1.0).local(v, parents[v]) for v in range(D)))


def test_climbing_ends_where_no_move_gains_and_turning_edges_never_loses() -> None:
    turned = 0
    for seed in range(10):
        search = OrderSearch(Bic(moments(seed), 1.0))
        (start,) = orders(seed, 1)
        climbed = search.climb(start)
        assert all(search.best_move(climbed, v) == climbed for v in range(D))
        assert search.dag(climbed)[0] >= search.dag(start)[0]
        ended = search.turn_edges(climbed)
        assert sorted(ended) == list(range(D))
        gained = search.dag(ended)[0] - search.dag(climbed)[0]
        assert gained >= 0.0
        turned += gained > NEGLIGIBLE
    assert turned > 0  # moves alone get stuck


def test_a_tuck_puts_the_head_with_its_ancestors_before_the_tail() -> None:
    for seed in range(10):
        search = OrderSearch(Bic(moments(seed), 1.0))
        (order,) = orders(seed, 1)
        edges = as_matrix(search.dag(order)[1]) != 0
        ancestors = _ancestors(order, edges)
        assert np.linalg.matrix_power(edges + np.eye(D), D).T.astype(bool).tolist() == [
            [w in ancestors[v] for w in range(D)] for v in range(D)
        ]
        for tail, head in np.argwhere(edges).tolist():
            tucked = _tuck(order, tail, head, ancestors[head])
            assert sorted(tucked) == list(range(D))
            assert tucked.index(head) + 1 == tucked.index(tail)
            turned = edges.copy()
            turned[tail, head], turned[head, tail] = False, True
            turned[tail] &= ~np.isin(np.arange(D), list(ancestors[head]))  # those that must now come first
            assert all(tucked.index(a) < tucked.index(b) for a, b in np.argwhere(turned))


def test_the_first_order_starts_with_what_others_explain_least() -> None:
    rng = np.random.default_rng(0)
    cause = rng.normal(size=(500, 1))
    effects = cause + 0.3 * rng.normal(size=(500, 3))
    alone = rng.normal(size=(500, 1))
    order = first_order(correlations(Moments.of_rows(np.hstack([effects, cause, alone]))))
    assert order[0] == 4
    assert order[-1] == 3


@pytest.mark.parametrize(("n", "d"), [(1, 4), (2, 4), (4, 4), (3, 8), (8, 8), (9, 8), (5, 1), (5, 2)])
def test_any_number_of_rows_gives_a_dag_with_parents_that_they_can_tell_apart(n: int, d: int) -> None:
    rows = np.random.default_rng(0).normal(size=(n, d))
    learned = boss(Moments.of_rows(rows), LearnerOptions())
    assert is_dag(learned.edges)
    assert np.isfinite(learned.weights).all()
    if n <= d:
        assert learned.edges.sum(axis=0).max() <= max(n - 1, 0) // 2


def test_a_higher_price_buys_fewer_edges() -> None:
    counts = [boss(moments(3), LearnerOptions(penalty=penalty)).edges.sum() for penalty in (0.1, 1.0, 4.0, 1e3)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[1] > counts[3] == 0
