"""Edges of networks turned around."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dagora.algorithms.reversals import Fitted, Reversals, Turn, in_order
from dagora.arrays import BoolArray, FloatArray
from dagora.graphs import is_dag
from dagora.models.network import Architecture
from dagora.solvers.levenberg import Descent, Quadratic, Seen
from tests.refits import (
    FORWARDS,
    Refit,
    added,
    chain,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("curve", "close"),
    [
        (lambda x: 2.0 * np.tanh(2.0 * x), 0.02),
        # J'J of before the turn is far from that of a parabola: the rounds are over when 4 percent are left to gain.
        (lambda x: x + x**2, 0.05),
    ],
    ids=["tanh", "square"],
)
def test_an_edge_that_was_fitted_backwards_is_turned_round(
    curve: Callable[[FloatArray], FloatArray], close: float
) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(240)
    X = np.column_stack([x, curve(x) + 0.4 * rng.standard_normal(240)])
    backwards, forwards = np.eye(2, k=-1, dtype=bool), np.eye(2, k=1, dtype=bool)
    kept, turned = Refit([X], backwards), Refit([X], backwards, searches=4)
    as_it_was = kept.server.estimate(kept.passes()[-1])
    found = turned.server.estimate(turned.passes()[-1])
    assert (as_it_was.edges <= backwards).all()
    np.testing.assert_array_equal(found.edges, forwards)
    right = Refit([X], forwards)
    best = float(right.server.estimate(right.passes()[-1]).extras["objective"])
    assert float(found.extras["objective"]) == pytest.approx(best, rel=close)
    assert best < 0.9 * float(as_it_was.extras["objective"])


@pytest.mark.parametrize("seed", range(5))
def test_turns_lower_the_objective_whatever_the_order_before(seed: int) -> None:
    place = np.random.default_rng(seed).permutation(3)
    allowed = place[:, None] < place
    values = []
    for searches in (0, 4):
        at = Refit([chain()], allowed, searches)
        found = at.server.estimate(at.passes()[-1])
        assert is_dag(found.edges)
        values.append(float(found.extras["objective"]))
    assert values[1] <= values[0] * (1.0 + 1e-9)


def test_edges_that_are_right_stay() -> None:
    at = Refit([chain()], FORWARDS, searches=4)
    seen = at.passes()
    assert any(state.stage == "reversals" for state in seen)
    assert not any(state.stage == "settle" for state in seen)  # nothing was turned
    np.testing.assert_array_equal(at.server.estimate(seen[-1]).edges, np.eye(3, k=1, dtype=bool))


def test_no_turn_is_tried_twice_among_the_same_parents() -> None:
    at = Refit([chain()], FORWARDS[::-1, ::-1], searches=4)
    state, tried = at.first, []
    while (message := at.server.broadcast(state)) is not None:
        total = added([at.site.local_update(own, message)[1] for own in at.states])
        before, state = state, at.server.global_update(state, total)
        if (state.stage, state.rounds) != ("reversals", 0):
            continue
        new = state.turns - before.turns
        assert [own.variable for own in state.trying[::2]] == [turn.target for turn in sorted(new)]
        assert [own.variable for own in state.trying[1::2]] == [turn.source for turn in sorted(new)]
        tried.append(new)
        # The same once more, with all turns but one tried already; and with all.
        first = min(new)
        one_left = at.server.global_update(replace(before, turns=state.turns - {first}), total)
        assert [own.variable for own in one_left.trying] == [first.target, first.source]
        assert one_left.turns == state.turns
        assert at.server.global_update(replace(before, turns=state.turns), total).stage == "graph"
    assert len(tried) >= 2
    assert all(new for new in tried)
    assert all(not one & other for one, other in itertools.combinations(tried, 2))


def test_a_turn_is_another_among_other_strong_parents() -> None:
    architecture = Architecture(3, (2,))
    theta = 10.0 * architecture.start(1)
    search = Reversals(architecture, architecture.start(0))
    in_a_row, all_ahead = (in_order(architecture, theta, graph) for graph in (np.eye(3, k=1, dtype=bool), FORWARDS))
    assert search.turns(in_a_row) == (Turn(0, 1, ((), (0,))), Turn(1, 2, ((0,), (1,))))
    assert search.turns(all_ahead) == (
        Turn(0, 1, ((), (0,))), Turn(0, 2, ((), (0, 1))), Turn(1, 2, ((0,), (0, 1)))
    )  # fmt: skip
    weak = theta.copy()
    architecture.first_layer(weak)[2, :, 0] *= 1e-3
    assert search.turns(in_order(architecture, weak, FORWARDS)) == search.turns(in_a_row)


def test_a_network_with_other_inputs_goes_on_with_its_model() -> None:
    architecture, rng = Architecture(3, (2,)), np.random.default_rng(0)
    both, one = np.array([True, True, False]), np.array([True, False, False])
    new = Fitted.at(architecture, 2, rng.standard_normal(architecture.size), both)
    assert new.descent.lacks_model
    using = architecture.using(both)
    A = rng.standard_normal((30, int(using.sum())))
    seen = Seen(1.0, rng.standard_normal(architecture.size) * using, using, A.T @ A)
    model = Quadratic.at(seen)
    fewer = replace(new, descent=replace(new.descent, model=model)).allowing(architecture, one)
    assert not fewer.descent.lacks_model
    assert fewer.descent.prior is model
    assert (fewer.variable, fewer.descent.value) == (2, np.inf)
    np.testing.assert_array_equal(fewer.descent.x, new.descent.x * architecture.using(one))
    np.testing.assert_array_equal(fewer.used, one)
    np.testing.assert_array_equal(fewer.allowed, one)


def fitted(architecture: Architecture, variable: int, parents: BoolArray, value: float) -> Fitted:
    """A network with these parents and this objective."""
    theta = np.where(architecture.using(parents), 1.0, 0.0)
    return Fitted(variable, parents, parents, Descent(theta, theta, value))


@pytest.mark.parametrize("seed", range(30))
def test_turns_close_no_cycle_and_touch_no_variable_twice(seed: int) -> None:
    d, rng = 6, np.random.default_rng(seed)
    architecture = Architecture(d, (2,))
    place = rng.permutation(d)
    graph = (place[:, None] < place) & (rng.random((d, d)) < 0.6)
    networks = tuple(fitted(architecture, j, graph[:, j], 1.0) for j in range(d))
    pairs = []
    for i, j in np.argwhere(graph).tolist():
        # What the tried networks took in need not go well with other turns, nor with one another.
        of_j, of_i = (rng.random(d) < 0.4, rng.random(d) < 0.4)
        of_j[[i, j]], of_i[i], of_i[j] = False, False, True
        gains = rng.uniform(-0.3, 0.3, 2)
        pairs.append((fitted(architecture, j, of_j, 1.0 + gains[0]), fitted(architecture, i, of_i, 1.0 + gains[1])))
    found, turned = Reversals(architecture, architecture.start(0)).made(networks, tuple(f for p in pairs for f in p))
    assert [own.variable for own in found] == list(range(d))
    made = [pair for pair in pairs if found[pair[0].variable] is pair[0] or found[pair[1].variable] is pair[1]]
    assert len(made) == turned
    touched = [own.variable for pair in made for own in pair]
    assert len(set(touched)) == len(touched)
    for of_child, of_parent in made:  # both or neither
        assert found[of_child.variable] is of_child
        assert found[of_parent.variable] is of_parent
        assert of_child.descent.value + of_parent.descent.value < 2.0 * (1.0 - 1e-3)
    for j in set(range(d)) - set(touched):
        assert found[j] is networks[j]
    after = np.stack([architecture.inputs(own.descent.x) for own in found], axis=1)
    assert is_dag(after)


def test_some_turns_are_made_some_left_for_a_cycle_some_for_a_variable() -> None:
    """1 -> 2 -> 3 with 1 -> 3: only the best of the two turns at 2 is made, and none that closes a cycle."""
    architecture = Architecture(3, (2,))
    networks = tuple(fitted(architecture, j, FORWARDS[:, j], 1.0) for j in range(3))

    def turn(i: int, j: int, gain: float, of_j: list[int], of_i: list[int]) -> tuple[Fitted, Fitted]:
        inputs = [np.isin(np.arange(3), own) for own in (of_j, of_i)]
        return fitted(architecture, j, inputs[0], 1.0 - gain), fitted(architecture, i, inputs[1], 1.0)

    cycle = turn(0, 2, 0.5, [], [2])  # 3 -> 1 -> 2: no cycle, for 3 loses both inputs
    kept = turn(0, 2, 0.9, [1], [2])  # 1 -> 2 -> 3 -> 1
    search = Reversals(architecture, architecture.start(0))
    assert search.made(networks, kept) == (networks, 0)
    assert search.made(networks, (*kept, *cycle))[1] == 1
    one, other = turn(0, 1, 0.3, [], [1]), turn(1, 2, 0.4, [0], [2])
    found, turned = search.made(networks, (*one, *other))
    assert turned == 1
    assert (found[2], found[1], found[0]) == (other[0], other[1], networks[0])
    assert search.made(networks, turn(0, 1, 1e-4, [], [1])) == (networks, 0)  # too little is gained


def test_what_is_tried_follows_an_order_with_the_edge_turned() -> None:
    """1 -> 2 -> 3 -> 4: to turn 2 -> 3, variable 3 may use what descends from neither, that is 1, and 2 also 3."""
    architecture = Architecture(4, (2,))
    graph = np.eye(4, k=1, dtype=bool)
    theta = architecture.start(1) * np.stack([architecture.using(graph[:, j]) for j in range(4)])
    theta[:, architecture.first()] *= 10.0
    networks = in_order(architecture, theta, graph)
    search = Reversals(architecture, architecture.start(0))
    turns = search.turns(networks)
    assert [(turn.source, turn.target) for turn in turns] == [(0, 1), (1, 2), (2, 3)]
    tried = search.tried(networks, turns)
    assert [own.variable for own in tried] == [1, 0, 2, 1, 3, 2]
    assert [own.variable for own in search.tried(networks, turns[1:2])] == [2, 1]
    of_three, of_two = tried[2:4]
    assert of_three.allowed.tolist() == [True, False, False, False]
    assert of_two.allowed.tolist() == [True, False, True, False]
    assert of_two.used.tolist() == [True, False, True, False]  # it starts with weights for 3 that are not zero
    assert (of_three.descent.x[~architecture.using(of_three.allowed)] == 0.0).all()


def test_a_network_that_took_nothing_in_starts_at_random() -> None:
    # With all weights zero, those of an input that joins would not move.
    architecture = Architecture(2, (2,))
    theta = architecture.start(1)
    theta[:, architecture.first()] *= 10.0
    theta[0, architecture.weights()] = 0.0
    search = Reversals(architecture, architecture.start(0))
    networks = in_order(architecture, theta, np.array([[False, True], [False, False]]))
    _, of_parent = search.tried(networks, search.turns(networks))
    assert of_parent.variable == 0
    later = architecture.weights() & ~architecture.first()
    np.testing.assert_array_equal(of_parent.descent.x[later], architecture.start(0)[0, later])
    assert of_parent.used.tolist() == [False, True]


def test_turns_that_are_far_off_rest() -> None:
    architecture = Architecture(3, (2,))
    networks = tuple(fitted(architecture, j, FORWARDS[:, j], 1.0) for j in range(3))
    none = np.zeros(3, dtype=bool)
    near = [fitted(architecture, 1, none, 1.04), fitted(architecture, 0, none, 1.04)]
    far = [fitted(architecture, 2, none, 1.2), fitted(architecture, 0, none, 1.0)]
    kept = Reversals(architecture, architecture.start(0)).promising(networks, (*near, *far))
    assert [own.descent.ended for own in kept] == [False, False, True, True]
