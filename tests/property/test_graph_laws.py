from collections import defaultdict
from itertools import product
from math import isnan
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagora.arrays import IntArray
from dagora.graphs import break_cycles, dag_to_cpdag, is_dag, skeleton, topological_order
from dagora.metrics import evaluate

laws = settings(deadline=None, max_examples=60)  # no deadline: a busy machine is no broken law


@st.composite
def digraphs(draw: st.DrawFn) -> IntArray:
    d = draw(st.integers(1, 6))
    return np.array(draw(st.lists(st.integers(0, 1), min_size=d * d, max_size=d * d))).reshape(d, d)


@st.composite
def dags(draw: st.DrawFn, count: int) -> list[IntArray]:
    d = draw(st.integers(2, 6))
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


def colliders(dag: IntArray) -> list[tuple[int, int, int]]:
    """i -> k <- j with i and j not joined: the v-structures."""
    d = len(dag)
    triples = ((i, k, j) for i in range(d) for j in range(i) for k in range(d))
    return [(i, k, j) for i, k, j in triples if dag[i, k] and dag[j, k] and not (dag[i, j] or dag[j, i])]


# Numbers of labelled DAGs (OEIS A003024) and of their equivalence classes (Gillispie & Perlman 2001).
@pytest.mark.parametrize(("d", "number", "classes"), [(1, 1, 1), (2, 3, 2), (3, 25, 11), (4, 543, 185)])
def test_cpdag_is_the_equivalence_class(d: int, number: int, classes: int) -> None:
    members = defaultdict(list)
    dags = all_dags(d)
    for dag in dags:
        members[(skeleton(dag).tobytes(), tuple(colliders(dag)))].append(dag)
    assert (len(dags), len(members)) == (number, classes)
    for equivalent in members.values():
        compelled = np.logical_and.reduce(equivalent)
        expected = compelled - np.triu(skeleton(equivalent[0]) & ~(compelled | compelled.T))
        for dag in equivalent:
            np.testing.assert_array_equal(dag_to_cpdag(dag), expected)


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
