"""Steps of several sites of one process, taken at once: the bits that each would get alone, and nothing more leaves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.aggregation.plain import Plain
from dagora.algorithms.admm import AdmmSite, Consensus
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import NumericalError
from dagora.federated.message import Message
from dagora.federated.protocol import Summand
from dagora.federated.site import Site, step_together
from dagora.models.linear import LinearModel
from dagora.transport import in_process
from dagora.transport.in_process import InProcess

D, ROWS = 4, (30, 40, 30, 3, 3)
RNG = np.random.default_rng(0)
DATA = [Moments.of_rows(RNG.standard_normal((n, D)) @ RNG.standard_normal((D, D))) for n in ROWS]
PART = AdmmSite(LinearModel(), Consensus(global_mean=True, by_rows=True, memory=3))
MIXES = [[], [1.0], [-0.3, 1.3], [0.2, -0.1, 0.9], [1.0], [0.5, 0.5]]
KEEPS = [0, 1, 2, 0, 1, 2]


def question(k: int, rho: float = 0.5) -> Message:
    W = 0.3 * np.random.default_rng(k).standard_normal((D, D))
    return {
        "run": "r", "round": k + 1, "phase": "consensus", "W": W, "rho": rho, "rescale": 1.0, "keep": KEEPS[k],
        "mix": np.array(MIXES[k]), "mean": np.zeros(D), "metric": np.ones(D), "rows": float(sum(ROWS)), "sites": 5.0,
    }  # fmt: skip


def assert_same(found: Sequence[tuple[Any, Summand]], wanted: Sequence[tuple[Any, Summand]]) -> None:
    for (_, one), (_, other) in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])


def test_steps_at_benches_are_those_of_sites_alone() -> None:
    together, alone = ([PART.init(own) for own in DATA] for _ in range(2))
    for k in range(len(MIXES)):
        found = PART.local_updates(together, question(k))
        wanted = [PART.local_update(state, question(k)) for state in alone]
        assert_same(found, wanted)
        together, alone = [state for state, _ in found], [state for state, _ in wanted]
    benches = {id(state.bench): len(state.bench.weight) for state in together if state.bench is not None}
    assert sorted(benches.values()) == [2, 3]
    assert [state.place for state in together] == [0, 1, 2, 0, 1]


def test_a_step_may_be_taken_again() -> None:
    states = [PART.init(own) for own in DATA]
    for k in range(len(MIXES)):
        first = PART.local_updates(states, question(k))
        kept = [{name: values.copy() for name, values in summand.items()} for _, summand in first]
        again = PART.local_updates(states, question(k))
        assert_same(again, [(None, own) for own in kept])
        states = [state for state, _ in again]


@pytest.mark.parametrize("some", [[1], [2, 0]])
def test_whoever_is_asked_without_the_others_goes_on_alone(some: list[int]) -> None:
    together = [PART.init(own) for own in DATA]
    alone = [PART.init(DATA[k]) for k in some]
    for k in range(len(MIXES)):
        if k < 2:
            together = [state for state, _ in PART.local_updates(together, question(k))]
        else:
            steps = PART.local_updates([together[place] for place in some], question(k))
            for place, (state, _) in zip(some, steps, strict=True):
                together[place] = state
        wanted = [PART.local_update(state, question(k)) for state in alone]
        if k >= 2:
            assert_same(steps, wanted)
        alone = [state for state, _ in wanted]


MODELS: dict[str, dict[str, Any]] = {
    "linear": {},
    "paper": {"preset": "paper"},
    "likelihood": {"score": "likelihood"},
    "refit": {"refit": True},
    "knowledge": {"knowledge": dagora.Knowledge([], [("x1", "x2")], [])},
    "mlp": {"model": "mlp", "hidden": 3},
    "masked": {"model": "masked", "hidden": 2},
}


@pytest.mark.parametrize(("name", "aggregation"), [*((name, "plain") for name in MODELS), ("linear", "masked")])
def test_a_run_is_the_same_bit_for_bit(name: str, aggregation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, sites = dagora.simulate(5, 5, 150, 5, seed=1, split=[30, 30, 40, 20, 30])
    asked: list[int] = []

    def counted(sites: Sequence[Site[Any, Any]], message: Message) -> None:
        asked.append(len(sites))
        step_together(sites, message)

    monkeypatch.setattr(in_process, "step_together", counted)
    one = dagora.learn(sites, aggregation=aggregation, **MODELS[name])
    assert set(asked) == {5}
    monkeypatch.setattr(in_process, "step_together", lambda *_: None)
    other = dagora.learn(sites, aggregation=aggregation, **MODELS[name])
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.adjacency, other.adjacency)
    assert one.rounds == other.rounds


class Counting:
    """Adds a number; together, where nobody is in trouble."""

    def __init__(self) -> None:
        self.together = 0
        self.alone = 0

    def init(self, data: float) -> float:
        return data

    def local_update(self, state: float, message: Message) -> tuple[float, Summand]:
        self.alone += 1
        if state < 0.0:
            raise NumericalError("no negative numbers")
        return state + 1.0, {"sum": np.array(state)}

    def local_updates(self, states: Sequence[float], message: Message) -> list[tuple[float, Summand]]:
        if min(states) < 0.0:
            raise NumericalError("no negative numbers")
        self.together += 1
        return [(state + 1.0, {"sum": np.array(state)}) for state in states]


def total(transport: InProcess, turn: int) -> FloatArray:
    return Plain().total(transport, {"run": "r", "round": turn, "phase": "any"})["sum"]


def test_each_state_moves_once_a_round_however_often_it_is_asked() -> None:
    part = Counting()
    transport = InProcess([Site(str(k), part, float(k), Plain()) for k in range(3)])
    assert total(transport, 1) == 3.0
    assert total(transport, 1) == 3.0
    assert total(transport, 2) == 6.0
    assert (part.together, part.alone) == (2, 0)


def test_one_that_was_asked_before_the_others_is_not_moved_again() -> None:
    part = Counting()
    sites = [Site(str(k), part, float(k), Plain()) for k in range(3)]
    sites[1].reply({"run": "r", "round": 1, "phase": "any"})
    assert total(InProcess(sites), 1) == 3.0
    assert (part.together, part.alone) == (1, 1)


def test_whoever_is_in_trouble_is_named_and_the_others_are_not() -> None:
    part = Counting()
    sites = [Site(name, part, number, Plain()) for name, number in (("a", 1.0), ("b", -1.0), ("c", 2.0))]
    with pytest.raises(NumericalError, match=r"^site 'b': no negative numbers$"):
        total(InProcess(sites), 1)
    assert part.together == 0
    assert total(InProcess([sites[0], sites[2]]), 1) == 3.0  # what a had computed before b was asked still stands


def test_parts_of_different_runs_are_left_alone() -> None:
    parts = [Counting(), Counting()]
    assert total(InProcess([Site(str(k), part, float(k), Plain()) for k, part in enumerate(parts)]), 1) == 1.0
    assert [part.together for part in parts] == [0, 0]
