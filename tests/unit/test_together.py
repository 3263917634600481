"""Steps of several sites of one process, taken at once: the bits that each would get alone, and nothing more leaves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.aggregation.plain import Plain
from dagora.algorithms.admm import AdmmSite, Consensus, SiteState
from dagora.algorithms.local import LocalSite
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import NumericalError
from dagora.federated.message import Message, decode, encode
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


def assert_same(found: Sequence[tuple[Any, Message]], wanted: Sequence[tuple[Any, Message]]) -> None:
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


def test_who_comes_later_is_given_a_place_and_the_others_keep_theirs() -> None:
    early = [state for state, _ in PART.local_updates([PART.init(own) for own in DATA[:3]], question(0))]
    late = [PART.init(own) for own in DATA[3:]]
    after = [state for state, _ in PART.local_updates([*early, *late], question(0))]
    assert [state.bench.turn for state in after if state.bench is not None] == [2, 2, 2, 1, 1]


def test_sites_asked_again_one_by_one_give_the_totals_of_sites_alone() -> None:
    together, alone = ([Site(str(k), PART, own, Plain()) for k, own in enumerate(DATA)] for _ in range(2))
    transport = InProcess(together)
    for k in range(len(MIXES)):
        message = question(k)
        if k in (2, 3):  # one has answered before, to an attempt that failed
            together[k - 1].handle(encode(message))
        wanted = [decode(site.handle(encode(message))) for site in alone]
        replies = transport.exchange(message)
        assert_same([(None, replies[str(j)]) for j in range(len(DATA))], [(None, own) for own in wanted])


MODELS: dict[str, dict[str, Any]] = {
    "linear": {},
    "paper": {"preset": "paper"},
    "likelihood": {"score": "likelihood"},
    "refit": {"refit": True},
    "bootstrap": {"bootstrap": 2},
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


@pytest.mark.parametrize("name", ["linear", "refit", "bootstrap", "mlp"])
def test_rounds_are_taken_together_and_nothing_else_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, int]] = []
    taken = AdmmSite.at_benches

    def counted(
        part: AdmmSite[Any], states: Sequence[SiteState[Any]], message: Message, step: Any
    ) -> list[tuple[SiteState[Any], Summand]]:
        asked.append((message["phase"], len(states)))
        return taken(part, states, message, step)

    monkeypatch.setattr(AdmmSite, "at_benches", counted)
    _, sites = dagora.simulate(4, 4, 90, 3, seed=1)
    dagora.learn(sites, **MODELS[name])
    assert {phase for phase, _ in asked} == ({"consensus", "curvature"} if name == "mlp" else {"consensus"})
    assert {count for _, count in asked} == {3}
    assert len(asked) > 10 * (1 + MODELS[name].get("bootstrap", 0))


@pytest.mark.parametrize("aggregation", ["plain", "masked", "shared"])
def test_a_question_that_the_aggregation_answers_costs_no_site_its_learning(
    aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    learned = LocalSite.local_update

    def counted(part: LocalSite, state: Moments, message: Message) -> tuple[Moments, Summand]:
        asked.append(message.get("phase"))
        return learned(part, state, message)

    monkeypatch.setattr(LocalSite, "local_update", counted)
    _, sites = dagora.simulate(4, 4, 90, 3, seed=1)
    dagora.learn(sites, method="voting", refit=True, aggregation=aggregation)
    assert asked == ["learn"] * 3


class Counting:
    """Adds a number; together, where nobody is in trouble."""

    def __init__(self, error: type[Exception] = NumericalError) -> None:
        self.error = error
        self.together = 0
        self.alone = 0

    def init(self, data: float) -> float:
        return data

    def local_update(self, state: float, message: Message) -> tuple[float, Summand]:
        self.alone += 1
        if state < 0.0:
            raise self.error("no negative numbers")
        return state + 1.0, {"sum": np.array(state)}

    def joint(self, message: Message) -> bool:
        return message.get("phase") == "any"

    def local_updates(self, states: Sequence[float], message: Message) -> list[tuple[float, Summand]]:
        if min(states) < 0.0:
            raise self.error("no negative numbers")
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


@pytest.mark.parametrize("error", [NumericalError, np.linalg.LinAlgError])
def test_whoever_is_in_trouble_is_named_and_the_others_are_not(error: type[Exception]) -> None:
    part, name = Counting(error), "site 'b': " if error is NumericalError else ""
    sites = [Site(name, part, number, Plain()) for name, number in (("a", 1.0), ("b", -1.0), ("c", 2.0))]
    with pytest.raises(error, match=f"^{name}no negative numbers$"):
        total(InProcess(sites), 1)
    assert part.together == 0
    assert total(InProcess([sites[0], sites[2]]), 1) == 3.0  # what a had computed before b was asked still stands


def test_parts_of_different_runs_are_left_alone() -> None:
    parts = [Counting(), Counting()]
    assert total(InProcess([Site(str(k), part, float(k), Plain()) for k, part in enumerate(parts)]), 1) == 1.0
    assert [part.together for part in parts] == [0, 0]
