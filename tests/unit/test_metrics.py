from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from math import isnan

import numpy as np
import pytest

from dagora.adjustment import structural_intervention_distance
from dagora.arrays import FloatArray, IntArray
from dagora.errors import InputError
from dagora.graphs import dag_to_cpdag, is_dag
from dagora.metrics import evaluate


@dataclass(frozen=True, eq=False)
class Named:
    adjacency: IntArray
    names: tuple[str, ...]


def graph(d: int, *edges: tuple[int, int]) -> IntArray:
    adjacency = np.zeros((d, d), dtype=np.int64)
    for i, j in edges:
        adjacency[i, j] = 1
    return adjacency


def random_dag(d: int, probability: float, rng: np.random.Generator) -> IntArray:
    order = rng.permutation(d)
    upper = np.triu(rng.random((d, d)) < probability, k=1)
    return upper[np.ix_(order, order)].astype(np.int64)


CHAIN = graph(4, (0, 1), (1, 2), (2, 3))


def test_a_reversed_a_missing_and_an_extra_edge() -> None:
    # Estimate: 0 -> 1 (right), 2 -> 1 (reversed), 0 -> 3 (extra); 2 -> 3 is missing.
    # SHD = 1 extra + 1 missing + 1 reversed.  Wrong: 2 of 3 edges; non-edges: 6 pairs - 3 = 3.
    # Skeletons share {0,1} and {1,2} of 3 pairs each.
    # CPDAGs: 0 - 1 - 2 - 3 for the truth; the collider 0 -> 1 <- 2 and 0 - 3 for the estimate.
    # The pairs 01, 12, 23 and 03 differ: 4.
    scores = evaluate(CHAIN, graph(4, (0, 1), (2, 1), (0, 3)))
    assert scores.pop("sid") == 6  # derived in test_sid_by_hand
    assert scores == pytest.approx(
        {
            "shd": 3,
            "tpr": 1 / 3,
            "fdr": 2 / 3,
            "fpr": 2 / 3,
            "precision": 1 / 3,
            "recall": 1 / 3,
            "f1": 1 / 3,
            "skeleton_precision": 2 / 3,
            "skeleton_recall": 2 / 3,
            "skeleton_f1": 2 / 3,
            "cpdag_shd": 4,
            "edges": 3,
            "true_edges": 3,
        }
    )


def test_the_truth_itself_is_perfect() -> None:
    scores = evaluate(CHAIN, CHAIN)
    assert [scores[key] for key in ("shd", "fdr", "fpr", "cpdag_shd", "sid")] == [0] * 5
    assert [scores[key] for key in ("tpr", "precision", "recall", "f1", "skeleton_f1")] == [1] * 5


def test_an_empty_estimate_divides_by_nothing() -> None:
    scores = evaluate(CHAIN, graph(4))
    assert scores["shd"] == 3
    assert [scores[key] for key in ("tpr", "fdr", "fpr", "precision", "f1")] == [0] * 5


def test_a_complete_truth_leaves_no_pair_for_false_positives() -> None:
    # The one pair of d = 2 is joined: the denominator of FPR, 1 - 1 = 0, is taken as 1.  The edge is wrong.
    scores = evaluate(graph(2, (0, 1)), graph(2, (1, 0)))
    assert (scores["shd"], scores["fpr"], scores["fdr"], scores["tpr"]) == (1, 1, 1, 0)


def test_undirected_edges_count_as_true_for_tpr_but_are_no_arrows() -> None:
    # Undirected 0 - 1 and 1 - 2 are true in one direction, 1 - 3 in none; the arrow 2 -> 3 is right.
    # SHD = 1 extra; TPR 3/3; FDR 1/4; FPR 1/(6 - 3); arrows: 1 of 1 right, 1 of 3 found, F1 = 2/(1 + 3).
    # True CPDAG: 0 - 1 - 2 - 3; the estimate differs in 13 (none) and 23 (undirected).
    estimate = graph(4, (2, 3)) - graph(4, (0, 1), (2, 1), (1, 3))
    scores = evaluate(CHAIN, estimate)
    assert (scores["shd"], scores["tpr"], scores["fdr"]) == (1, 1, 1 / 4)
    assert scores["fpr"] == pytest.approx(1 / 3)
    assert (scores["precision"], scores["recall"], scores["f1"]) == pytest.approx((1, 1 / 3, 1 / 2))
    assert (scores["cpdag_shd"], scores["edges"]) == (2, 4)
    assert isnan(scores["sid"])


def test_the_cpdag_of_the_truth_is_at_distance_zero() -> None:
    scores = evaluate(CHAIN, dag_to_cpdag(CHAIN))
    assert (scores["shd"], scores["cpdag_shd"], scores["tpr"], scores["fdr"]) == (0, 0, 1, 0)


def test_cyclic_estimates_are_scored_as_notears_does() -> None:
    # 0 <-> 1: one arrow right, one reversed.  0 <-> 2: two false arrows, one extra in the skeleton.
    # SHD = 1 extra + 2 missing (12, 23) + 1 reversed; FDR = (1 + 2)/4; FPR = 3/3.
    scores = evaluate(CHAIN, graph(4, (0, 1), (1, 0), (0, 2), (2, 0)))
    assert (scores["shd"], scores["fdr"], scores["fpr"], scores["tpr"]) == (4, 3 / 4, 1, 1 / 3)
    assert isnan(scores["cpdag_shd"])
    assert isnan(scores["sid"])


def test_a_self_loop_is_an_extra_edge() -> None:
    scores = evaluate(graph(2, (0, 1)), graph(2, (0, 1), (1, 1)))
    assert (scores["shd"], scores["fdr"]) == (1, 1 / 2)


def test_scores_are_plain_numbers() -> None:
    assert {type(score) for score in evaluate(CHAIN, CHAIN).values()} == {int, float}


def test_graphs_with_names_are_matched_by_name() -> None:
    order = [2, 0, 3, 1]
    names = ("a", "b", "c", "d")
    moved = Named(CHAIN[np.ix_(order, order)], tuple(names[place] for place in order))
    assert evaluate(Named(CHAIN, names), moved)["shd"] == 0
    assert evaluate(CHAIN, moved)["shd"] > 0  # without names on both sides, by position


@pytest.mark.parametrize(
    ("truth", "estimate", "message"),
    [
        (Named(graph(2), ("a", "b")), Named(graph(2), ("b", "c")), "variables a, c"),
        (Named(graph(2), ("a", "b")), Named(graph(3), ("a", "b", "b")), "names b are not unique"),
        (graph(2), graph(3), "2 variables, the estimate 3"),
        (graph(2, (0, 1), (1, 0)), graph(2), "true graph has a cycle"),
        (graph(2), np.array([[0, 0.7], [0, 0]]), "threshold"),
        (-graph(2, (0, 1)), graph(2), "truth may hold only 0, 1"),
        (graph(2), -graph(2, (0, 1), (1, 0)), "once"),
        (graph(2), np.zeros(4), "square"),
    ],
)
def test_bad_graphs_are_refused(truth: IntArray, estimate: IntArray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(truth, estimate)


# Structural intervention distance


@pytest.mark.parametrize(
    ("truth", "estimate", "distance"),
    [
        # 0 -> 1, estimated empty: the effect of 1 on 0 is confounded, as 1 <- 0 is open.
        (graph(2, (0, 1)), graph(2), 1),
        # Reversed: also (0, 1), as 1, a descendant, is taken to be unaffected.
        (graph(2, (0, 1)), graph(2, (1, 0)), 2),
        # Too many edges do no harm while the order is right.
        (graph(2), graph(2, (0, 1)), 0),
        (graph(3, (0, 1), (1, 2)), graph(3, (0, 1), (1, 2), (0, 2)), 0),
        # A chain backward: (0,1) and (1,2) parents that are descendants, (0,2) adjusts for 1 on the path,
        # (1,0), (2,1) and (2,0) are open backward.
        (graph(3, (0, 1), (1, 2)), graph(3, (2, 1), (1, 0)), 6),
        # As in the paper: 0 -> 1, both -> 2, 3, 4.  One more edge among the latter changes nothing...
        (
            graph(5, (0, 1), *product((0, 1), (2, 3, 4))),
            graph(5, (0, 1), *product((0, 1), (2, 3, 4)), (2, 3)),
            0,
        ),
        # ...but 1 -> 0 instead, at the same SHD of 1, makes 8 wrong: 0 adjusts for 1, so (0,1) and (0,2..4);
        # 1 does not adjust for 0, so (1,0) and (1,2..4).
        (
            graph(5, (0, 1), *product((0, 1), (2, 3, 4))),
            graph(5, (1, 0), *product((0, 1), (2, 3, 4))),
            8,
        ),
        # Chain 0 -> 1 -> 2 -> 3, estimate 0 -> 1 <- 2, 0 -> 3.  0: no parents, none needed: 0 wrong.
        # 1 adjusts for {0, 2}: (1,2) a descendant, (1,3) has 2 on the path: 2 wrong; (1,0) is right.
        # 2 adjusts for none: (2,0) and (2,1) are open backward: 2 wrong; (2,3) has no other path: right.
        # 3 adjusts for {0}: (3,1) and (3,2) are open backward: 2 wrong; (3,0) is right.
        (CHAIN, graph(4, (0, 1), (2, 1), (0, 3)), 6),
    ],
)
def test_sid_by_hand(truth: IntArray, estimate: IntArray, distance: int) -> None:
    assert structural_intervention_distance(truth, estimate) == distance


def simple_paths(joined: IntArray, path: list[int], end: int) -> Iterator[list[int]]:
    if path[-1] == end:
        yield path
        return
    for following in np.flatnonzero(joined[path[-1]]).tolist():
        if following not in path:
            yield from simple_paths(joined, [*path, following], end)


def descendants(dag: IntArray, vertex: int) -> set[int]:
    found = {vertex}
    for child in np.flatnonzero(dag[vertex]).tolist():
        found |= descendants(dag, child)
    return found


def is_open(dag: IntArray, path: list[int], adjusted: set[int]) -> bool:
    for before, middle, after in zip(path, path[1:], path[2:], strict=False):
        collider = dag[before, middle] and dag[after, middle]
        if bool(collider) != bool(descendants(dag, middle) & adjusted if collider else middle in adjusted):
            return False
    return True


def sid_by_paths(truth: IntArray, estimate: IntArray) -> int:
    """The paper's criterion, word for word, over all paths."""
    wrong = 0
    for i, j in product(range(len(truth)), repeat=2):
        adjusted = set(np.flatnonzero(estimate[:, i]).tolist())
        if i == j:
            continue
        if j in adjusted:
            wrong += j in descendants(truth, i)
            continue
        for path in simple_paths(truth + truth.T, [i], j):
            if all(truth[before, after] for before, after in pairwise(path)):
                harm = any(descendants(truth, middle) & adjusted for middle in path[1:])
            else:
                harm = is_open(truth, path, adjusted)
            if harm:
                wrong += 1
                break
    return wrong


def sid_by_regression(truth: IntArray, estimate: IntArray, weights: FloatArray, variances: FloatArray) -> int:
    """With generic weights, an effect is right when the exact regression coefficient is the total effect."""
    d = len(truth)
    effects = np.linalg.inv(np.eye(d) - weights)
    covariance = effects.T @ np.diag(variances) @ effects
    wrong = 0
    for i in range(d):
        adjusted = np.flatnonzero(estimate[:, i])
        regressors = [i, *adjusted]
        coefficients = np.linalg.solve(covariance[np.ix_(regressors, regressors)], covariance[regressors])[0]
        coefficients[adjusted] = 0.0
        wrong += int(np.sum(np.abs(coefficients - effects[i])[np.arange(d) != i] > 1e-8))
    return wrong


def dags_of_three() -> list[IntArray]:
    arrays = (np.array(bits).reshape(3, 3) for bits in product((0, 1), repeat=9))
    return [array for array in arrays if is_dag(array)]


def test_sid_is_the_paper_s_criterion_on_all_pairs_of_three_vertices() -> None:
    for truth, estimate in product(dags_of_three(), repeat=2):
        assert structural_intervention_distance(truth, estimate) == sid_by_paths(truth, estimate)


@pytest.mark.parametrize("seed", range(40))
def test_sid_is_the_paper_s_criterion(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, estimate = random_dag(5, 0.5, rng), random_dag(5, rng.choice([0.2, 0.5, 0.8]), rng)
    assert structural_intervention_distance(truth, estimate) == sid_by_paths(truth, estimate)


@pytest.mark.parametrize("seed", range(60))
def test_sid_counts_the_regressions_that_miss_the_effect(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 7))
    truth, estimate = (
        random_dag(d, rng.choice([0.3, 0.6]), rng),
        random_dag(d, rng.choice([0.2, 0.5, 0.8]), rng),
    )
    weights = truth * rng.uniform(0.5, 1.5, (d, d)) * rng.choice([-1, 1], (d, d))
    expected = sid_by_regression(truth, estimate, weights, rng.uniform(0.5, 2.0, d))
    assert structural_intervention_distance(truth, estimate) == expected


@pytest.mark.parametrize("seed", range(5))
def test_sid_of_many_variables_takes_products_by_edges_to_the_same_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    one, other = (np.triu(rng.random((12, 12)) < 0.25, 1).astype(np.int64) for _ in range(2))
    dense = structural_intervention_distance(one, other)
    monkeypatch.setattr("dagora.adjustment._MANY", 0)
    assert structural_intervention_distance(one, other) == dense > 0
