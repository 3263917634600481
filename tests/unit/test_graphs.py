import numpy as np
import pytest

from dagora import graphs
from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.errors import InputError, NumericalError
from dagora.graphs import (
    break_cycles,
    closest_extension,
    consistent_extension,
    dag_to_cpdag,
    descendants,
    is_dag,
    meek,
    skeleton,
    threshold,
    topological_order,
)


def graph(d: int, *edges: tuple[int, int]) -> IntArray:
    adjacency = np.zeros((d, d), dtype=np.int64)
    for i, j in edges:
        adjacency[i, j] = 1
    return adjacency


def test_threshold_is_strict_on_magnitude_and_drops_the_diagonal() -> None:
    weights = np.array([[9.0, 0.3, -0.31], [0.0, -9.0, 0.3001], [-0.3, 0.1, 9.0]])
    kept = threshold(weights, 0.3)
    np.testing.assert_array_equal(kept, graph(3, (0, 2), (1, 2)))
    assert kept.dtype == np.int64
    assert weights[0, 0] == 9.0


def test_threshold_refuses_weights_that_are_not_finite() -> None:
    with pytest.raises(NumericalError, match="finite"):
        threshold([[0.0, np.nan], [0.0, 0.0]], 0.3)


def test_skeleton_joins_pairs_whatever_the_mark() -> None:
    marked = np.array([[0, 1, 0], [0, 0, -1], [0, 0, 0]])
    np.testing.assert_array_equal(skeleton(marked), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(
    ("adjacency", "acyclic"),
    [
        (graph(1), True),
        (graph(4), True),
        (graph(3, (2, 1), (1, 0), (2, 0)), True),
        (graph(1, (0, 0)), False),
        (graph(2, (0, 1), (1, 0)), False),
        (graph(4, (0, 1), (1, 2), (2, 3), (3, 1)), False),
    ],
)
def test_is_dag(adjacency: IntArray, acyclic: bool) -> None:
    assert is_dag(adjacency) is acyclic


def test_topological_order_puts_parents_first() -> None:
    # 3 -> 1 -> 0 and 3 -> 2 -> 0: 3 is the only source, 0 the only sink.
    order = topological_order(graph(4, (3, 1), (3, 2), (1, 0), (2, 0)))
    assert order == [3, 1, 2, 0]


def test_topological_order_of_a_cycle_is_refused() -> None:
    with pytest.raises(InputError, match="cycle"):
        topological_order(graph(3, (0, 1), (1, 2), (2, 1)))


def test_a_graph_must_be_square() -> None:
    with pytest.raises(InputError, match="square"):
        is_dag(np.zeros((2, 3)))


def test_break_cycles_removes_the_weakest_edge_of_the_cycle_only() -> None:
    # The cycle 0 -> 1 -> 2 -> 0 loses 1 -> 2 (strength |-2|); 2 -> 3 is weaker, but on no cycle.
    strength = np.zeros((4, 4))
    strength[[0, 1, 2, 2], [1, 2, 0, 3]] = [3.0, -2.0, 4.0, 0.1]
    dag, removed = break_cycles(strength != 0, strength)
    assert removed == [(1, 2)]
    np.testing.assert_array_equal(dag, graph(4, (0, 1), (2, 0), (2, 3)))


def test_break_cycles_takes_the_weakest_first_though_a_shared_edge_would_do() -> None:
    # 0 <-> 1 and 0 -> 1 -> 2 -> 0 share 0 -> 1 (5).  The weakest on a cycle is 1 -> 0 (1), then 2 -> 0 (2).
    strength = np.zeros((3, 3))
    strength[[0, 1, 1, 2], [1, 0, 2, 0]] = [5.0, 1.0, 3.0, 2.0]
    dag, removed = break_cycles(strength != 0, strength)
    assert removed == [(1, 0), (2, 0)]
    np.testing.assert_array_equal(dag, graph(3, (0, 1), (1, 2)))


def test_break_cycles_settles_ties_by_index_and_drops_self_loops() -> None:
    adjacency = graph(3, (0, 1), (1, 0), (2, 2))
    dag, removed = break_cycles(adjacency, np.ones((3, 3)))
    assert removed == [(0, 1), (2, 2)]
    np.testing.assert_array_equal(dag, graph(3, (1, 0)))


def cut_one_by_one(present: BoolArray, strength: FloatArray, kept: BoolArray) -> list[tuple[int, int]]:
    """By definition: the weakest of all edges i -> j with a way from j to i goes, until there is none."""
    present, size = present.copy(), np.where(kept, np.inf, np.abs(strength))
    removed: list[tuple[int, int]] = []
    while True:
        on_cycle = [(size[i, j], i, j) for i, j in np.argwhere(present & descendants(present).T).tolist()]
        if not on_cycle:
            return removed
        _, i, j = min(on_cycle)
        present[i, j] = False
        removed.append((i, j))


@pytest.mark.parametrize("few", [1, 4, 64])
def test_break_cycles_is_what_cutting_one_by_one_gives(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by bisection alone, which small graphs else do without; with ties, self-loops and edges to be kept."""
    monkeypatch.setattr(graphs, "_FEW", few)
    random = np.random.default_rng(few)
    for trial in range(25):
        d = int(random.integers(2, 14))
        present = random.random((d, d)) < random.uniform(0.05, 0.5)
        strength = np.round(random.normal(size=(d, d)), trial % 2 * 8 + 1)
        kept = (random.random((d, d)) < 0.1 * (trial % 3)) & present
        dag, removed = break_cycles(present, strength, kept)
        assert removed == cut_one_by_one(present, strength, kept)
        assert is_dag(dag)
        assert (dag.sum() + len(removed)) == present.sum()


def test_break_cycles_of_a_large_graph_is_quick_and_keeps_what_it_must() -> None:
    # A ring of 1500 strong edges, one of them weaker, in a random order, and weak chords back along it.
    d, random = 1500, np.random.default_rng(0)
    ring = random.permutation(d)
    strength = np.zeros((d, d))
    strength[ring, np.roll(ring, -1)] = 2.0
    later, earlier = np.sort(random.integers(0, d, (2, 3000)), axis=0)[::-1]
    back = later > earlier
    strength[ring[later[back]], ring[earlier[back]]] = 0.1
    strength[ring[-1], ring[0]] = 1.0
    dag, _ = break_cycles(strength != 0, strength)
    expected = np.zeros((d, d), dtype=np.int64)
    expected[ring[:-1], ring[1:]] = 1
    np.testing.assert_array_equal(dag, expected)


def cpdag(d: int, arrows: list[tuple[int, int]], undirected: list[tuple[int, int]]) -> IntArray:
    return graph(d, *arrows) - graph(d, *undirected)


@pytest.mark.parametrize(
    ("dag", "expected"),
    [
        # A chain has no collider: all undirected, written with i < j though the arrows run 2 -> 1 -> 0.
        (graph(3, (2, 1), (1, 0)), cpdag(3, [], [(0, 1), (1, 2)])),
        # A collider is compelled.
        (graph(3, (0, 2), (1, 2)), cpdag(3, [(0, 2), (1, 2)], [])),
        # A married collider is not: every ordering of a complete graph is equivalent.
        (graph(3, (0, 2), (1, 2), (0, 1)), cpdag(3, [], [(0, 1), (0, 2), (1, 2)])),
        # Meek's rule 1: below a collider, 2 -> 3 is compelled, as 3 -> 2 would make another one.
        (graph(4, (0, 2), (1, 2), (2, 3)), cpdag(4, [(0, 2), (1, 2), (2, 3)], [])),
        # Rule 2: 0 -> 2 <- 1 is a collider, 2 -> 3 by rule 1 (over 1); so 0 -> 3, lest 0 -> 2 -> 3 -> 0.
        (
            graph(4, (0, 2), (1, 2), (2, 3), (0, 3)),
            cpdag(4, [(0, 2), (1, 2), (2, 3), (0, 3)], []),
        ),
        # Two colliders 0 -> 2 <- 1 and 0 -> 3 <- 1 leave the edge between 2 and 3 free.
        (
            graph(4, (0, 2), (1, 2), (0, 3), (1, 3), (3, 2)),
            cpdag(4, [(0, 2), (1, 2), (0, 3), (1, 3)], [(2, 3)]),
        ),
        # Rule 3: 1 -> 3 <- 2 is a collider; 3 -> 0 would force 1 -> 0 <- 2, which is a new one.
        (
            graph(4, (0, 1), (0, 2), (0, 3), (1, 3), (2, 3)),
            cpdag(4, [(0, 3), (1, 3), (2, 3)], [(0, 1), (0, 2)]),
        ),
    ],
)
def test_dag_to_cpdag(dag: IntArray, expected: IntArray) -> None:
    np.testing.assert_array_equal(dag_to_cpdag(dag), expected)


def test_dag_to_cpdag_refuses_a_cycle() -> None:
    with pytest.raises(InputError, match="cycle"):
        dag_to_cpdag(graph(2, (0, 1), (1, 0)))


@pytest.mark.parametrize(
    ("pdag", "expected"),
    [
        # Rule 1: 2 -> 1 would be a v-structure 0 -> 1 <- 2.
        (cpdag(3, [(0, 1)], [(1, 2)]), cpdag(3, [(0, 1), (1, 2)], [])),
        # Rule 2: 2 -> 0 would close 0 -> 1 -> 2 -> 0.
        (cpdag(3, [(0, 1), (1, 2)], [(0, 2)]), cpdag(3, [(0, 1), (1, 2), (0, 2)], [])),
        # Rule 3: 3 -> 0 would force 1 -> 0 <- 2 (rule 2 twice), which is a v-structure.
        (
            cpdag(4, [(1, 3), (2, 3)], [(0, 1), (0, 2), (0, 3)]),
            cpdag(4, [(1, 3), (2, 3), (0, 3)], [(0, 1), (0, 2)]),
        ),
        # Rule 4: 3 -> 0 would force 0 -> 1 (rule 1), and 1 -> 2 -> 3 -> 0 -> 1 is a cycle.
        (
            cpdag(4, [(1, 2), (2, 3)], [(0, 1), (0, 2), (0, 3)]),
            cpdag(4, [(1, 2), (2, 3), (0, 3)], [(0, 1), (0, 2)]),
        ),
    ],
)
def test_meek_has_each_of_the_four_rules(pdag: IntArray, expected: IntArray) -> None:
    """In each example the premises of one rule hold, and of no other."""
    given = pdag.copy()
    np.testing.assert_array_equal(meek(pdag), expected)
    np.testing.assert_array_equal(pdag, given)


def test_meek_goes_on_from_its_own_arrows() -> None:
    chain = cpdag(5, [(4, 3)], [(0, 1), (1, 2), (2, 3)])
    np.testing.assert_array_equal(meek(chain), graph(5, (4, 3), (3, 2), (2, 1), (1, 0)))


def test_meek_takes_the_first_of_two_contradictory_conclusions() -> None:
    # 0 -> 1 - 2 <- 3: rule 1 asks for 1 -> 2 and for 2 -> 1.
    np.testing.assert_array_equal(meek(cpdag(4, [(0, 1), (3, 2)], [(1, 2)])), cpdag(4, [(0, 1), (3, 2), (1, 2)], []))


def test_meek_closes_no_cycle() -> None:
    # Rule 1 asks for 3 -> 0 over 4 -> 3, and 0 -> 1 -> 2 -> 3 for the contrary.
    pdag = cpdag(5, [(0, 1), (1, 2), (2, 3), (4, 3)], [(0, 3)])
    np.testing.assert_array_equal(meek(pdag), pdag)


def test_consistent_extension_makes_the_lowest_index_the_first_sink() -> None:
    dag = consistent_extension(cpdag(3, [], [(0, 1), (1, 2)]))
    np.testing.assert_array_equal(dag, graph(3, (1, 0), (2, 1)))


@pytest.mark.parametrize(
    "pdag",
    [
        cpdag(4, [], [(0, 1), (1, 2), (2, 3), (0, 3)]),  # a square without a diagonal: some corner is a collider
        cpdag(4, [(0, 1), (3, 2)], [(1, 2)]),  # 1 -> 2 and 2 -> 1 are both colliders
        graph(3, (0, 1), (1, 2), (2, 0)),
        graph(2, (0, 1), (1, 0)),
    ],
)
def test_a_contradictory_pdag_has_no_consistent_extension(pdag: IntArray) -> None:
    assert consistent_extension(pdag) is None


def test_closest_extension_undoes_the_weakest_arrow_of_a_cycle_only() -> None:
    # 2 -> 0 is the weakest on the cycle; 2 -> 3 is weaker, but on none.
    strength = np.zeros((4, 4))
    strength[[0, 1, 2, 2], [1, 2, 0, 3]] = [3.0, -2.0, 1.0, 0.1]
    dag = closest_extension(strength != 0, strength)
    np.testing.assert_array_equal(dag, graph(4, (0, 1), (1, 2), (0, 2), (2, 3)))


def test_closest_extension_adds_no_more_v_structures_than_needed() -> None:
    # The square needs a collider (here 0); the path 4 - 5 - 6 needs none, whatever the order of its vertices.
    dag = closest_extension(cpdag(7, [], [(0, 1), (1, 2), (2, 3), (0, 3), (4, 5), (5, 6)]), np.zeros((7, 7)))
    np.testing.assert_array_equal(dag, graph(7, (1, 0), (3, 0), (2, 1), (3, 2), (5, 4), (6, 5)))


def test_extensions_of_a_large_sparse_class_are_quick() -> None:
    random = np.random.default_rng(0)
    dag = np.triu(random.random((500, 500)) < 0.008, k=1)
    extended = consistent_extension(dag_to_cpdag(dag))
    assert extended is not None
    np.testing.assert_array_equal(dag_to_cpdag(extended), dag_to_cpdag(dag))
