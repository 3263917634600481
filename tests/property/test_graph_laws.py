from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import islice, product
from math import isnan
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagora.arrays import IntArray
from dagora.graphs import (
    ARROW,
    UNDIRECTED,
    break_cycles,
    closest_extension,
    consistent_extension,
    dag_to_cpdag,
    is_dag,
    meek,
    skeleton,
    topological_order,
)
from dagora.metrics import evaluate

laws = settings(deadline=None, max_examples=60)  # no deadline: a busy machine is no broken law


@st.composite
def digraphs(draw: st.DrawFn) -> IntArray:
    d = draw(st.integers(1, 6))
    return np.array(draw(st.lists(st.integers(0, 1), min_size=d * d, max_size=d * d))).reshape(d, d)


@st.composite
def dags(draw: st.DrawFn, count: int, most: int = 6) -> list[IntArray]:
    d = draw(st.integers(2, most))
    graphs = []
    for _ in range(count):
        entries = draw(st.lists(st.integers(0, 1), min_size=d * d, max_size=d * d))
        order = draw(st.permutations(range(d)))
        graphs.append(np.triu(np.array(entries).reshape(d, d), k=1)[np.ix_(order, order)])
    return graphs


def all_dags(d: int) -> list[IntArray]:
    pairs = [(i, j) for i in range(d) for j in range(i)]
    found = []
    for states in product((0, 1, 2), repeat=len(pairs)):
        adjacency = np.zeros((d, d), dtype=np.int64)
        for (i, j), state in zip(pairs, states, strict=True):
            adjacency[i, j], adjacency[j, i] = state == 1, state == 2
        if is_dag(adjacency):
            found.append(adjacency)
    return found


def all_pdags(d: int) -> Iterator[IntArray]:
    pairs = [(i, j) for j in range(d) for i in range(j)]
    for states in product(((0, 0), (UNDIRECTED, 0), (ARROW, 0), (0, ARROW)), repeat=len(pairs)):
        pdag = np.zeros((d, d), dtype=np.int64)
        for (i, j), state in zip(pairs, states, strict=True):
            pdag[i, j], pdag[j, i] = state
        yield pdag


def colliders(graph: IntArray) -> list[tuple[int, int, int]]:
    """i -> k <- j with i and j not joined: the v-structures."""
    d = len(graph)
    triples = ((i, k, j) for i in range(d) for j in range(i) for k in range(d))
    return [(i, k, j) for i, k, j in triples if graph[i, k] == graph[j, k] == 1 and not (graph[i, j] or graph[j, i])]


Pattern = tuple[bytes, tuple[tuple[int, int, int], ...]]


def key(graph: IntArray) -> Pattern:
    """What equivalent DAGs have in common, by definition: the skeleton and the v-structures."""
    return skeleton(graph).tobytes(), tuple(colliders(graph))


@cache
def members_by_pattern(d: int) -> dict[Pattern, list[IntArray]]:
    members = defaultdict(list)
    for dag in all_dags(d):
        members[key(dag)].append(dag)
    return dict(members)


def equivalence_classes(d: int) -> list[list[IntArray]]:
    return list(members_by_pattern(d).values())


def shared_marks(dags: list[IntArray]) -> IntArray:
    """The arrows that all of the DAGs have, and undirected edges for the rest of their skeleton."""
    shared: IntArray = np.logical_and.reduce(dags).astype(np.int64)
    return shared - np.triu(skeleton(dags[0]) & ~(shared | shared.T))


def pattern(dag: IntArray) -> IntArray:
    """Skeleton and v-structures."""
    arrows = np.zeros_like(dag)
    for i, k, j in colliders(dag):
        arrows[[i, j], k] = ARROW
    return arrows - np.triu(skeleton(dag) & ~(arrows | arrows.T))


# Numbers of labelled DAGs (OEIS A003024) and of their equivalence classes (Gillispie & Perlman 2001).
@pytest.mark.parametrize(("d", "number", "classes"), [(1, 1, 1), (2, 3, 2), (3, 25, 11), (4, 543, 185)])
def test_cpdag_is_the_equivalence_class(d: int, number: int, classes: int) -> None:
    members = equivalence_classes(d)
    assert (sum(map(len, members)), len(members)) == (number, classes)
    for equivalent in members:
        for dag in equivalent:
            np.testing.assert_array_equal(dag_to_cpdag(dag), shared_marks(equivalent))


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_a_class_extends_to_a_member(d: int) -> None:
    for equivalent in equivalence_classes(d):
        dag = consistent_extension(shared_marks(equivalent))
        assert any(np.array_equal(dag, member) for member in equivalent if dag is not None)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_meek_completes_the_v_structures_to_the_class(d: int) -> None:
    for equivalent in equivalence_classes(d):
        np.testing.assert_array_equal(meek(pattern(equivalent[0])), shared_marks(equivalent))


@pytest.mark.parametrize("d", [2, 3, 4])
def test_meek_draws_all_conclusions_from_one_more_arrow(d: int) -> None:
    for equivalent in equivalence_classes(d):
        cpdag = shared_marks(equivalent)
        for edge in np.argwhere(cpdag == UNDIRECTED):
            for tail, head in (edge, edge[::-1]):
                known = cpdag.copy()
                known[edge[0], edge[1]] = 0
                known[tail, head] = ARROW
                members = [dag for dag in equivalent if dag[tail, head]]
                np.testing.assert_array_equal(meek(known), shared_marks(members))


@pytest.mark.parametrize("d", [2, 3, 4])
def test_a_pdag_has_the_extension_that_brute_force_finds_or_none(d: int) -> None:
    for pdag in islice(all_pdags(d), 0, None, 7 if d == 4 else 1):  # all 4096 hold, but take a while
        arrows = pdag == ARROW
        extensions = [dag for dag in members_by_pattern(d).get(key(pdag), []) if dag[arrows].all()]
        found, closest = consistent_extension(pdag), closest_extension(pdag, np.ones(pdag.shape))
        assert (found is None) == (not extensions)
        assert found is None or any(np.array_equal(found, dag) for dag in extensions)
        assert found is None or np.array_equal(found, closest)
        assert is_dag(closest)
        assert np.array_equal(skeleton(closest), skeleton(pdag))
        assert closest[arrows].all() or not is_dag(arrows)


@laws
@given(dags(1, most=8))
def test_a_class_survives_extension(graphs: list[IntArray]) -> None:
    cpdag = dag_to_cpdag(graphs[0])
    dag = consistent_extension(cpdag)
    assert dag is not None
    assert is_dag(dag)
    np.testing.assert_array_equal(dag_to_cpdag(dag), cpdag)
    np.testing.assert_array_equal(meek(pattern(graphs[0])), cpdag)


@laws
@given(digraphs(), st.integers(0, 99))
def test_meek_turns_no_arrow_and_closes_no_cycle(adjacency: IntArray, seed: int) -> None:
    """Whatever the PDAG, consistent or not; what is left undirected does not change any more."""
    arrows = np.triu(adjacency, k=1) | np.tril(adjacency & ~adjacency.T, k=-1)
    free = np.random.default_rng(seed).integers(0, 2, size=arrows.shape) * skeleton(arrows)
    arrows[(free | free.T) == 1] = 0
    pdag = arrows - np.triu(free | free.T)
    closed = meek(pdag)
    assert closed[pdag == ARROW].all()
    np.testing.assert_array_equal(skeleton(closed), skeleton(pdag))
    np.testing.assert_array_equal(meek(closed), closed)
    assert is_dag(closed == ARROW) == is_dag(arrows)


@laws
@given(digraphs())
def test_is_dag_agrees_with_networkx(adjacency: IntArray) -> None:
    assert is_dag(adjacency) == nx.is_directed_acyclic_graph(nx.from_numpy_array(adjacency, create_using=nx.DiGraph))


@laws
@given(dags(1))
def test_topological_order_makes_the_adjacency_upper_triangular(graphs: list[IntArray]) -> None:
    order = topological_order(graphs[0])
    ordered = graphs[0][np.ix_(order, order)]
    assert sorted(order) == list(range(len(order)))
    assert not np.tril(ordered).any()


@laws
@given(dags(1), st.integers(0, 99))
def test_break_cycles_leaves_a_dag_alone(graphs: list[IntArray], seed: int) -> None:
    dag, removed = break_cycles(graphs[0], np.random.default_rng(seed).normal(size=graphs[0].shape))
    assert removed == []
    np.testing.assert_array_equal(dag, graphs[0])


@laws
@given(digraphs(), st.integers(0, 99))
def test_break_cycles_is_the_edge_by_edge_procedure(adjacency: IntArray, seed: int) -> None:
    strength = np.random.default_rng(seed).integers(1, 6, size=adjacency.shape)  # few values: many ties
    graph = nx.from_numpy_array(adjacency, create_using=nx.DiGraph)
    expected = []
    while not nx.is_directed_acyclic_graph(graph):
        component = {v: k for k, part in enumerate(nx.strongly_connected_components(graph)) for v in part}
        on_cycle = [(i, j) for i, j in graph.edges if component[i] == component[j]]
        weakest = min(on_cycle, key=lambda edge: (strength[edge], edge))
        graph.remove_edge(*weakest)
        expected.append(weakest)
    dag, removed = break_cycles(adjacency, strength)
    assert is_dag(dag)
    assert removed == expected
    np.testing.assert_array_equal(dag, nx.to_numpy_array(graph))


@laws
@given(dags(2))
def test_shd_counts_the_pairs_that_differ(graphs: list[IntArray]) -> None:
    first, second = graphs
    pairs = np.triu((first != second) | (first != second).T)
    shd = evaluate(first, second)["shd"]
    assert shd == evaluate(second, first)["shd"] == np.count_nonzero(pairs)
    assert (shd == 0) == np.array_equal(first, second)


@laws
@given(dags(3))
def test_shd_satisfies_the_triangle_inequality(graphs: list[IntArray]) -> None:
    a, b, c = graphs
    assert evaluate(a, c)["shd"] <= evaluate(a, b)["shd"] + evaluate(b, c)["shd"]


@laws
@given(dags(2), st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_labels(graphs: list[IntArray], random: Random) -> None:
    order = list(range(len(graphs[0])))
    random.shuffle(order)
    moved = [graph[np.ix_(order, order)] for graph in graphs]
    assert evaluate(*moved) == evaluate(*graphs)


@laws
@given(dags(2))
def test_equivalence_class_distance(graphs: list[IntArray]) -> None:
    first, second = graphs
    scores = evaluate(first, second)
    same = np.array_equal(skeleton(first), skeleton(second)) and colliders(first) == colliders(second)
    assert (scores["cpdag_shd"] == 0) == same
    assert scores["cpdag_shd"] == evaluate(first, dag_to_cpdag(second))["cpdag_shd"]
    assert scores["cpdag_shd"] == evaluate(second, first)["cpdag_shd"]


@laws
@given(dags(1), st.data())
def test_a_supergraph_has_no_wrong_intervention(graphs: list[IntArray], data: st.DataObject) -> None:
    order = topological_order(graphs[0])
    complete = np.zeros_like(graphs[0])
    complete[np.ix_(order, order)] = np.triu(np.ones_like(complete), k=1)
    extra = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 2, size=complete.shape)
    assert evaluate(graphs[0], graphs[0] | (complete & extra))["sid"] == 0


@laws
@given(digraphs())
def test_any_digraph_is_scored(adjacency: IntArray) -> None:
    scores = evaluate(np.zeros_like(adjacency), adjacency)
    assert scores["shd"] == np.count_nonzero(np.tril(adjacency | adjacency.T))
    assert isnan(scores["sid"]) == isnan(scores["cpdag_shd"]) == (not is_dag(adjacency))
