"""Crashes in memory, at every round: a run that goes on gives the weights of the undisturbed one, bit for bit."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.aggregation.ledger import Entry, Ledger, Noted, Sent, spent, verify
from dagora.aggregation.turns import STARTS
from dagora.errors import DagoraError, InputError, MessageError, MissingSiteError
from dagora.federated.message import decode, encode
from dagora.federated.policy import Policy, PolicyError
from dagora.federated.protocol import Total
from dagora.federated.run import Kept
from dagora.federation.coordinator import RoundsOnDisk, say_goodbye
from dagora.federation.member import Member
from dagora.federation.plan import Plan
from dagora.federation.store import Records, StoreError
from dagora.federation.texts import boxed
from tests.effort import effort
from tests.federations import (
    RUN,
    SITES,
    SPARE,
    Hall,
    KilledError,
    Step,
    Wire,
    kill,
    learned,
    nothing,
    plan_for,
    without_waiting,
)
from tests.federations import written_sites as written

MOMENTS = ("before", "lost", "after")
AGGREGATIONS = ("plain", "masked", "shared")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)


@dataclass(frozen=True)
class Stage:
    """Halls by the hundred over the same data, and what an undisturbed run of a plan gives."""

    folder: Path
    data: dict[str, Path]
    known: dict[str, tuple[dagora.Result, list[Step]]]

    def hall(self, policy: Policy | None = None) -> Hall:
        number = len(list(self.folder.iterdir()))
        return Hall(self.folder / str(number), self.data, policy)

    def undisturbed(self, plan: Plan) -> tuple[dagora.Result, list[Step]]:
        """The result, and all requests on the way to it."""
        if plan.to_json() not in self.known:
            with self.hall() as hall:
                wire = Wire(hall)
                self.known[plan.to_json()] = hall.run(plan, wire), wire.steps
        return self.known[plan.to_json()]

    def steps_in_turn(self, plan: Plan) -> list[Step]:
        """Of every exchange with all sites the request to one of them: each site's turn comes again and again."""
        _, steps = self.undisturbed(plan)
        return [step for step in steps if step.site == SITES[(step.number - 1) // len(SITES) % len(SITES)]]

    def same(self, plan: Plan, result: dagora.Result) -> bool:
        expected, _ = self.undisturbed(plan)
        return np.array_equal(result.weights, expected.weights) and result.history == expected.history


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    data = written(tmp_path_factory.mktemp("data"), rows=90)
    return Stage(tmp_path_factory.mktemp("halls"), data, {})


def crashing(hall: Hall, number: int, moment: str) -> Wire:
    """A wire on which one site crashes: before a request reaches it, or after; with its answer, which is lost."""

    def crash(step: Step) -> None:
        if step.number == number:
            hall.crash(step.site)

    wire = Wire(hall, before=crash) if moment == "before" else Wire(hall, after=crash)
    wire.loses = lambda step: moment == "lost" and step.number == number
    return wire


def outcome(stage: Stage, plan: Plan, hall: Hall, wire: Wire | None = None) -> str:
    """What is wrong with a run that should go on as if nothing had happened."""
    try:
        return "" if stage.same(plan, hall.run(plan, wire)) else "other weights"
    except (DagoraError, ArithmeticError, TypeError, RuntimeWarning) as error:  # the last three from garbage
        return f"{type(error).__name__}: {error}"


def survives_crashes_of_a_site(stage: Stage, plan: Plan, moment: str, steps: list[Step]) -> None:
    assert steps
    found = {}
    for step in steps:
        with stage.hall() as hall:
            wrong = outcome(stage, plan, hall, crashing(hall, step.number, moment))
            found[step.number, step.topic, step.round, step.site] = wrong
    assert failures(found) == {}


def failures(found: dict[Any, str]) -> dict[Any, str]:
    return {where: wrong for where, wrong in found.items() if wrong}


# A site crashes.


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_site_may_crash_at_any_round_of_masked_admm(moment: str, stage: Stage) -> None:
    plan = plan_for()
    steps = effort(stage.steps_in_turn(plan), stage.undisturbed(plan)[1])
    result, _ = stage.undisturbed(plan)
    assert {step.round for step in steps} == set(range(result.rounds + 1))
    assert {step.site for step in steps} == set(SITES)
    survives_crashes_of_a_site(stage, plan, moment, steps)


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("aggregation", ["plain", "shared"])
def test_a_site_may_crash_in_other_sums_of_admm(aggregation: str, moment: str, stage: Stage) -> None:
    plan = plan_for(aggregation=aggregation)
    steps = effort(stage.steps_in_turn(plan)[::5], stage.undisturbed(plan)[1])
    survives_crashes_of_a_site(stage, plan, moment, steps)


@pytest.mark.parametrize("moment", MOMENTS)
def test_any_site_may_crash_at_any_step_of_shared_sums(moment: str, stage: Stage) -> None:
    plan = plan_for(aggregation="shared", method="covariance")
    survives_crashes_of_a_site(stage, plan, moment, stage.undisturbed(plan)[1])


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_any_site_may_crash_at_any_step_of_encrypted_sums(moment: str, stage: Stage) -> None:
    pytest.importorskip("tenseal")
    plan = plan_for(aggregation="encrypted", method="covariance")
    sites = effort({"north", "south"}, set(SITES))  # one that holds the keys, and one that does not
    steps = [step for step in stage.undisturbed(plan)[1] if step.topic == "round" and step.site in sites]
    assert {step.site for step in steps} == sites
    survives_crashes_of_a_site(stage, plan, moment, steps)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_site_may_crash_after_every_one_of_its_answers(aggregation: str, stage: Stage) -> None:
    plan = plan_for(aggregation=aggregation)
    with stage.hall() as hall:
        wire = Wire(hall, after=lambda step: hall.crash(step.site) if step.site == "south" else None)
        assert outcome(stage, plan, hall, wire) == ""


def killed_while_writing(monkeypatch: pytest.MonkeyPatch, number: int, written: float) -> None:
    """Of the record of some request only a part is on the disk when its site is killed: the reply has not left."""
    append, count = Records.append, iter(range(1, 10**6))

    def torn(self: Records, record: bytes) -> None:
        if self._path.name != "requests" or next(count) != number:
            return append(self, record)
        start = self._path.stat().st_size if self._path.exists() else 0
        append(self, record)
        with self._path.open("r+b") as file:
            file.truncate(start + int(written * (self._path.stat().st_size - start)))
        raise KilledError

    monkeypatch.setattr(Records, "append", torn)


@pytest.mark.soak
@pytest.mark.parametrize("written", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_site_may_be_killed_after_its_ledger_and_before_its_reply_leaves(
    aggregation: str, written: float, stage: Stage
) -> None:
    plan = plan_for(aggregation=aggregation)
    rounds = [step for step in stage.undisturbed(plan)[1] if step.topic == "round"]
    found = {}
    stride = effort(7, 1)  # 7 and 3 sites have no common divisor: every site has its turn
    for number in range(1, len(rounds) + 1, stride):
        with stage.hall() as hall, pytest.MonkeyPatch.context() as patch:
            killed_while_writing(patch, number, written)
            found[number] = outcome(stage, plan, hall)
            verify(hall.ledger("south"))
    assert failures(found) == {}


def test_what_leaves_is_in_the_ledger_before_it_is_in_the_requests(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage.hall() as hall:
        monkeypatch.setattr(Records, "append", kill)
        with pytest.raises(KilledError):
            hall.run(plan_for(aggregation="plain"))
        first, *_ = [e.what for e in hall.members["north"].ledger.entries if isinstance(e.what, Sent)]
        assert (first.round, first.phase) == (1, "inspect")
        assert not list((hall.folder / "north" / "state" / "runs").glob("*/requests"))


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("part", [(Records, "append"), (Ledger, "_write")])
def test_a_disk_that_was_full_for_a_while_does_not_end_the_run(
    part: tuple[type, str], crash: bool, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, write, count = plan_for(), getattr(*part), iter(range(10**6))

    def full(self: Any, line: bytes) -> None:
        if self._path.name != "rounds" and next(count) == 40:
            raise StoreError("No space left on device")
        write(self, line)

    with stage.hall() as hall:
        with monkeypatch.context() as patch:
            patch.setattr(*part, full)
            with pytest.raises(DagoraError, match="No space left on device"):
                hall.run(plan)
        interrupted(hall, plan, before=in_round(16))
        for site in SITES if crash else ():
            hall.crash(site)
        assert outcome(stage, plan, hall) == ""


def test_a_crash_of_all_sites_before_they_have_answered_anything(stage: Stage) -> None:
    plan = plan_for()

    def crash(step: Step) -> None:
        if step.round == 0 and step.topic == "round":
            for site in SITES:
                hall.crash(site)

    with stage.hall() as hall:
        assert stage.same(plan, hall.run(plan, Wire(hall, before=crash)))


def departures(one: Member) -> list[Entry]:
    """Runs joined and replies: all but notes."""
    return [entry for entry in one.ledger.entries if not isinstance(entry.what, Noted)]


def test_a_site_that_starts_again_lets_nothing_leave_and_writes_nothing_down(stage: Stage) -> None:
    plan = plan_for()
    with stage.hall() as hall:
        hall.run(plan)
        before = [departures(one) for one in hall.members.values()]
        for site in SITES:
            hall.crash(site)
        hall.run(plan)
        assert all(one._joined is not None for one in hall.members.values())
        assert [departures(one) for one in hall.members.values()] == before


def test_a_site_that_joins_again_counts_the_run_once(stage: Stage) -> None:
    plan = plan_for(method="covariance")
    with stage.hall(Policy(runs=1, parameters_per_row=1.0)) as hall:
        wire = Wire(hall, after=lambda step: hall.crash(step.site))
        hall.run(plan, wire)
        assert {spent(one.ledger.entries).runs for one in hall.members.values()} == {1}
        with pytest.raises(PolicyError, match=r"one more run after 1 is not allowed here \(runs: 1\)"):
            hall.run(plan, run="run-2")


# The server crashes.


Test = Callable[[Step], bool]


def never(step: Step) -> bool:
    return False


def numbered(number: int) -> Test:
    return lambda step: step.number == number


def in_round(number: int, site: str = "north") -> Test:
    return lambda step: step.round == number and step.site == site


def interrupted(hall: Hall, plan: Plan, before: Test = never, after: Test = never) -> Wire:
    """Start the server, and kill it."""
    wire = Wire(hall, lambda step: kill() if before(step) else None, lambda step: kill() if after(step) else None)
    with pytest.raises(KilledError):
        hall.run(plan, wire)
    return wire


def starts(hall: Hall) -> int:
    return int((hall.kept() / "starts").read_text())


@pytest.mark.soak
@pytest.mark.parametrize(
    ("moment", "stride"), [("before any site", 1), ("between sites", effort(3, 1)), ("after all sites", 1)]
)
def test_the_server_may_crash_at_any_round_of_masked_admm(moment: str, stride: int, stage: Stage) -> None:
    plan = plan_for()
    site = {"before any site": "north", "between sites": "south", "after all sites": "east"}[moment]
    steps = [step for step in stage.undisturbed(plan)[1] if step.site == site][::stride]
    assert len(steps) >= stage.undisturbed(plan)[0].rounds // stride
    found = {}
    for step in steps:
        with stage.hall() as hall:
            if moment == "after all sites":
                interrupted(hall, plan, after=numbered(step.number))
            else:
                interrupted(hall, plan, before=numbered(step.number))
            found[step.number, step.round] = outcome(stage, plan, hall)
            assert starts(hall) == 1
    assert failures(found) == {}


@pytest.mark.soak
@pytest.mark.parametrize("aggregation", ["plain", "shared", "encrypted"])
def test_the_server_may_crash_in_any_exchange_of_other_sums(aggregation: str, stage: Stage) -> None:
    if aggregation == "encrypted":
        pytest.importorskip("tenseal")
    plan = plan_for(aggregation=aggregation, method="covariance")
    found = {}
    for step in stage.undisturbed(plan)[1][:: effort(4, 1) if aggregation == "encrypted" else 1]:
        with stage.hall() as hall:
            interrupted(hall, plan, after=numbered(step.number))
            found[step.number] = outcome(stage, plan, hall)
    assert failures(found) == {}


@pytest.mark.soak
@pytest.mark.parametrize(("aggregation", "stride"), [("plain", effort(3, 1)), ("masked", 1), ("shared", effort(3, 1))])
def test_all_may_crash_at_every_round(aggregation: str, stride: int, stage: Stage) -> None:
    plan = plan_for(aggregation=aggregation)
    result, _ = stage.undisturbed(plan)
    with stage.hall() as hall:
        for already, number in enumerate(range(1, result.rounds + 1, stride)):
            interrupted(hall, plan, after=in_round(number, "east"))
            for site in SITES:
                hall.crash(site)
            assert starts(hall) == already
        assert outcome(stage, plan, hall) == ""


def test_no_attempt_has_the_number_of_another(stage: Stage) -> None:
    """Masks are streams under keys that are made of round and attempt: two payloads under one would give their sum."""
    plan = plan_for()
    with stage.hall() as hall:
        wires = [interrupted(hall, plan, after=in_round(number)) for number in (3, 3, 4, 4, 4, 9)]
        wires.append(Wire(hall))
        hall.run(plan, wires[-1])
    asked = [
        (step.round, step.message["secure.attempt"])
        for wire in wires
        for step in wire.steps
        if step.site == "north" and step.round > 0
    ]
    assert len(set(asked)) == len(asked)
    again = [attempt for turn, attempt in asked if turn == 4]
    assert again == [2 * STARTS, 3 * STARTS, 4 * STARTS, 5 * STARTS]


def test_rounds_that_are_over_are_not_asked_for_again(stage: Stage) -> None:
    plan = plan_for()
    with stage.hall() as hall:
        interrupted(hall, plan, before=in_round(8))
        assert len(list(Records(hall.kept() / "rounds"))) == 7
        wire = Wire(hall)
        result = hall.run(plan, wire)
        assert {step.round for step in wire.steps if step.round} == set(range(8, result.rounds + 1))
        assert stage.same(plan, result)
        expected, _ = stage.undisturbed(plan)
        told = [(entry.phase, entry.fields, entry.rounds) for entry in result.ledger]
        assert told == [(entry.phase, entry.fields, entry.rounds) for entry in expected.ledger]
        finished = Wire(hall)
        assert stage.same(plan, hall.run(plan, finished))  # the result was lost, and all rounds are there
        assert {step.topic for step in finished.steps} == {"introduce", "join", "witness"}
        assert starts(hall) == 2


def test_a_round_that_is_half_written_is_asked_for_again(stage: Stage) -> None:
    plan = plan_for()
    with stage.hall() as hall:
        interrupted(hall, plan, before=in_round(8))
        with (hall.kept() / "rounds").open("r+b") as file:
            file.truncate((hall.kept() / "rounds").stat().st_size - 5)
        wire = Wire(hall)
        assert stage.same(plan, hall.run(plan, wire))
        assert min(step.round for step in wire.steps if step.round) == 7


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_site_that_is_away_stops_the_run_until_it_is_back(aggregation: str, stage: Stage) -> None:
    plan = plan_for(aggregation=aggregation)
    with stage.hall() as hall:
        wire = Wire(hall)

        def leave(step: Step) -> None:
            wire.away = ("east",) if step.round >= 10 else ()

        wire = Wire(hall, before=leave)
        with pytest.raises(MissingSiteError, match="'east'"):
            hall.run(plan, wire)
        done = len(list(Records(hall.kept() / "rounds")))
        assert done in (9, 10)
        again = Wire(hall)
        assert stage.same(plan, hall.run(plan, again))
        assert min(step.round for step in again.steps if step.round) == done + 1


@pytest.mark.parametrize("step", ["deal", "agree"])
def test_a_shared_sum_survives_a_site_that_leaves_once_it_has_dealt(step: str, tmp_path: Path) -> None:
    sites = (*SITES, SPARE)  # of four sites one may go
    plan, data = plan_for(sites, aggregation="shared", method="covariance"), written(tmp_path / "data", sites=sites)
    left: list[Step] = []

    def leave(asked: Step) -> None:
        if asked.message.get("secure.step") == step and asked.site == SPARE:
            left.append(asked)
            wire.away = (SPARE,)
        elif asked.message.get("secure.step") == "combine":
            wire.away = ()

    with Hall(tmp_path, data) as hall:
        wire = Wire(hall, after=leave)
        result = hall.run(plan, wire)
    assert len(left) == result.rounds
    assert np.array_equal(result.weights, learned(data, method="covariance", aggregation="masked").weights)


@pytest.mark.parametrize("step", ["deal", "agree", "combine"])
def test_a_server_that_dies_in_a_shared_sum_goes_on_with_the_same_shares(stage: Stage, step: str) -> None:
    plan = plan_for(aggregation="shared", method="covariance")
    expected, _ = stage.undisturbed(plan)
    with stage.hall() as hall:
        seen: dict[str, set[bytes]] = {site: set() for site in SITES}

        def die(asked: Step) -> None:
            if asked.message.get("secure.step") == "deal":
                seen[asked.site].add(hall.members[asked.site].answer("round", asked.request))
            if asked.message.get("secure.step") == step and asked.site == "south" and not died:
                died.append(asked)
                raise KilledError

        died: list[Step] = []
        with pytest.raises(KilledError):
            hall.run(plan, Wire(hall, after=die))
        result = hall.run(plan, Wire(hall, after=die))
        assert np.array_equal(result.weights, expected.weights)
        assert len(seen["north"]) == result.rounds  # however often it was asked: one set of shares a round


# What comes twice, late, broken or from elsewhere.


class Twice(Wire):
    """Every request reaches its site twice."""

    forgetful = False

    def _insist(self, step: Step) -> bytes:
        reply = super()._insist(step)
        one = self._hall.members[step.site]
        moved = one._joined and one._joined.site.fingerprint
        if one._joined is not None and self.forgetful:
            one._joined.replies.clear()
        assert super()._insist(step) == reply
        assert (one._joined and one._joined.site.fingerprint) == moved
        return reply


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_request_that_comes_twice_is_answered_with_the_same_bytes(aggregation: str, stage: Stage) -> None:
    plan = plan_for(aggregation=aggregation)
    with stage.hall() as hall:
        assert stage.same(plan, hall.run(plan, Twice(hall)))
        sent = [e.what for e in hall.members["south"].ledger.entries if isinstance(e.what, Sent)]
    _, steps = stage.undisturbed(plan)
    assert len(sent) == sum(step.topic == "round" and step.site == "south" for step in steps)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_request_that_comes_again_after_a_crash_is_answered_with_the_same_bytes(
    aggregation: str, stage: Stage
) -> None:
    """Two replies under one key would tell more than one: keys are made of what is asked."""
    replies: dict[int, list[bytes]] = {}

    def ask(step: Step) -> None:
        if step.topic == "round" and step.site == "south":
            replies[step.number] = [hall.members["south"].answer("round", step.request)]
            hall.crash("south")
            replies[step.number].append(hall.members["south"].answer("round", step.request))

    with stage.hall() as hall:
        hall.run(plan_for(aggregation=aggregation, method="covariance"), Wire(hall, after=ask))
    assert len(replies) >= 2
    assert [number for number, (one, other) in replies.items() if one != other] == []


def test_a_plain_round_moves_the_state_once_even_if_its_reply_is_forgotten(stage: Stage) -> None:
    plan = plan_for(aggregation="plain")
    with stage.hall() as hall:
        wire = Twice(hall)
        wire.forgetful = True
        assert stage.same(plan, hall.run(plan, wire))


def refused(hall: Hall, site: str, topic: str, request: bytes) -> str:
    """The error, which must be in the ledger, too."""
    noted = len(hall.notes(site))
    with pytest.raises(DagoraError) as caught:
        hall.members[site].answer(topic, request)
    text = str(caught.value)
    assert hall.notes(site)[noted:] == [text[:200]] or noted >= 100  # so many an hour are noted
    assert "\n" not in text
    return text


@pytest.fixture
def finished(stage: Stage) -> Iterator[tuple[Hall, list[Step]]]:
    """A plain run that is over, but has not been ended; and what the south was asked."""
    with stage.hall() as hall:
        wire = Wire(hall)
        hall.run(plan_for(aggregation="plain"), wire)
        yield hall, [step for step in wire.steps if step.site == "south"]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_an_old_round_is_refused_and_harms_nothing(aggregation: str, stage: Stage) -> None:
    plan = plan_for(aggregation=aggregation)
    _, steps = stage.undisturbed(plan)
    old: list[Step] = []

    def late(step: Step) -> None:
        if step.site == "south" and step.round == 2:
            old.append(step)
        if step.site == "south" and step.round == 12:
            assert refused(hall, "south", "round", old[0].request)
            hall.crash("south")
            assert refused(hall, "south", "round", old[0].request)

    with stage.hall() as hall:
        assert outcome(stage, plan, hall, Wire(hall, before=late)) == ""
    assert len(old) == sum(step.site == "south" and step.round == 2 for step in steps)


def test_an_old_round_says_that_it_is_over(finished: tuple[Hall, list[Step]]) -> None:
    hall, steps = finished
    first = next(step for step in steps if step.round == 1)
    assert "round 1 of this run is over" in refused(hall, "south", "round", first.request)


def test_an_asked_round_with_another_question_is_refused(finished: tuple[Hall, list[Step]]) -> None:
    hall, steps = finished
    other = encode({**steps[-1].message, "rescale": 7.0})
    assert "asked before with another question" in refused(hall, "south", "round", other)


def test_a_foreign_run_is_refused(finished: tuple[Hall, list[Step]]) -> None:
    hall, steps = finished
    for run in ("run-0", 3, ""):
        request = encode({**steps[-1].message, "run": run})
        assert "of a run that this site has not joined" in refused(hall, "south", "round", request)
    hall.crash("south")
    assert "not joined" in refused(hall, "south", "round", encode({**steps[-1].message, "run": "run-0"}))


def test_a_round_before_any_run_is_refused(stage: Stage, finished: tuple[Hall, list[Step]]) -> None:
    _, steps = finished
    with stage.hall() as hall:
        assert "not joined" in refused(hall, "south", "round", steps[-1].request)


@pytest.mark.soak
def test_truncated_messages_are_refused(finished: tuple[Hall, list[Step]]) -> None:
    hall, steps = finished
    for topic in ("introduce", "join", "witness", "round"):
        request = next(step.request for step in steps if step.topic == topic)
        for end in range(0, len(request), effort(37, 1)):
            assert "message refused" in refused(hall, "south", topic, request[:end])
        assert "message refused" in refused(hall, "south", topic, request + b"\0")


@pytest.mark.soak
@pytest.mark.parametrize("topic", ["introduce", "join", "witness", "round", "end"])
def test_garbage_is_refused(topic: str, finished: tuple[Hall, list[Step]]) -> None:
    hall, _ = finished
    rng = np.random.default_rng(0)
    for _ in range(effort(1, 1000)):
        assert "message refused" in refused(hall, "south", topic, rng.bytes(500))
    assert "message refused" in refused(hall, "south", topic, encode({}))


@pytest.mark.parametrize("topic", ["", "collect", "introduce ", "exec", "__init__"])
def test_an_unknown_topic_is_refused(topic: str, finished: tuple[Hall, list[Step]]) -> None:
    hall, steps = finished
    assert "nothing that a site answers" in refused(hall, "south", topic, steps[-1].request)


@pytest.mark.parametrize(
    "change",
    [
        {"federation": "other"},
        {"federation": 3},
        {"administrator": boxed("nonsense")},
        {"administrator": boxed("")},
        {"signature": np.zeros(64, np.uint8)},
        {"signature": np.zeros(3, np.uint8)},
        {"signature": "none"},
        {"certificates": boxed("nonsense")},
        {"certificates": boxed("[]")},
        {"certificates": boxed("{}")},
        {"certificates": boxed('["north", "south"]')},
        {"certificates": boxed('["north", "south", "east"]')},
        {"certificates": boxed('{"north": 1, "south": 2, "east": 3}')},
        {"columns": boxed("[" * 10**5)},
        {"columns": boxed("[]")},
        {"columns": boxed('["x1"]')},
        {"plan": boxed("[" * 10**5)},
        {"plan": boxed("[]")},
        {"plan": boxed('{"device": "cuda"}')},
        {"plan": np.frombuffer(b"\xff\xfe", np.uint8)},
        {"version": 7},
        {"run": "x" * 201},
        {"run": 7},
        {"schema": "0"},
    ],
)
def test_a_broken_invitation_is_refused(change: dict[str, Any], finished: tuple[Hall, list[Step]]) -> None:
    hall, steps = finished
    join = next(step for step in steps if step.topic == "join")
    refused(hall, "south", "join", encode({**join.message, **change}))


def test_messages_that_are_refused_harm_nothing(stage: Stage) -> None:
    plan = plan_for()

    def attack(step: Step) -> None:
        if step.round == 5:
            one = hall.members[step.site]
            for topic, request in (
                ("round", step.request[:-1]),
                ("round", b"garbage"),
                ("round", encode({**step.message, "run": "run-0"})),
                ("round", encode({**step.message, "secure.step": "none"})),
                ("round", encode({**step.message, "round": 0})),
                ("exec", step.request),
                ("join", b""),
                ("end", encode({"run": "run-0", "how": "done"})),
            ):
                try:
                    assert one.answer(topic, request) == encode({})
                except DagoraError:
                    continue

    with stage.hall() as hall:
        assert stage.same(plan, hall.run(plan, Wire(hall, before=attack)))


def test_an_invitation_that_is_refused_leaves_the_run_as_it_is(stage: Stage) -> None:
    plan, other = plan_for(), plan_for(method="covariance")
    with stage.hall(Policy(methods=("admm",), parameters_per_row=10.0)) as hall:
        interrupted(hall, plan, before=in_round(8))
        with pytest.raises(PolicyError, match="method 'covariance' is not allowed here"):
            hall.run(other, run="run-2")
        for site in SITES:
            hall.crash(site)
        assert outcome(stage, plan, hall) == ""


def test_an_error_names_its_site_once(finished: tuple[Hall, list[Step]], stage: Stage) -> None:
    hall, steps = finished
    first = next(step for step in steps if step.round == 1)
    assert refused(hall, "south", "round", first.request).count("site 'south'") == 1
    with stage.hall(Policy()) as strict:
        with pytest.raises(PolicyError) as caught:
            strict.run(plan_for(aggregation="plain"))
        assert str(caught.value).count("site 'north'") == 1


# What is not as it was.


def test_changed_data_stop_the_run_until_they_are_put_back(stage: Stage, tmp_path: Path) -> None:
    plan = plan_for()
    for site, path in stage.data.items():
        shutil.copy(path, tmp_path / f"{site}.csv")
    with Hall(tmp_path / "hall", {site: tmp_path / f"{site}.csv" for site in SITES}) as hall:
        interrupted(hall, plan, before=in_round(8))
        original = hall.data["south"].read_text()
        header, first, *rest = original.splitlines()
        moved = ",".join(repr(float(value) + 1e-9) for value in first.split(","))
        hall.data["south"].write_text("\n".join([header, moved, *rest]) + "\n")
        hall.crash("south")
        for _ in range(2):
            with pytest.raises(InputError, match="site 'south': its data, software or machine is not what it was"):
                hall.run(plan)
        assert len(hall.notes("south")) == 2
        assert len(list(Records(hall.kept() / "rounds"))) == 7
        hall.data["south"].write_text(original)
        hall.crash("south")
        assert stage.same(plan, hall.run(plan))


@pytest.mark.soak
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_site_that_has_lost_its_state_gives_no_other_weights(aggregation: str, stage: Stage) -> None:
    plan = plan_for(aggregation=aggregation)
    rounds = stage.undisturbed(plan)[0].rounds
    for number in effort((2, 4, 9, 20), tuple(range(1, rounds + 1))):
        with stage.hall() as hall:
            interrupted(hall, plan, before=in_round(number))
            shutil.rmtree(hall.folder / "south" / "state" / "runs")
            hall.crash("south")
            assert re.fullmatch(r"|\w+Error: site 'south'.*", outcome(stage, plan, hall))


# Noise.

GAUSSIAN: dict[str, Any] = {"method": "covariance", "aggregation": "gaussian", "epsilon": 4.0}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Rows enough for noise."""
    pytest.importorskip("opendp")
    pytest.importorskip("dp_accounting")
    data = written(tmp_path_factory.mktemp("many"), 3, 6000)
    return Stage(tmp_path_factory.mktemp("noisy"), data, {})


def equal(one: Total, other: Total) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def kept_until(monkeypatch: pytest.MonkeyPatch, number: int, totals: list[Total]) -> None:
    """The server is killed when it has the total of a round and has not written it down."""
    keep = RoundsOnDisk.keep

    def watched(self: RoundsOnDisk, round: int, kept: Kept) -> None:
        if round != number:
            return keep(self, round, kept)
        totals.append(kept.total)
        raise KilledError

    monkeypatch.setattr(RoundsOnDisk, "keep", watched)


def noisy_rounds(stage: Stage) -> int:
    with stage.hall() as hall:
        return hall.run(plan_for(**GAUSSIAN)).rounds


def test_noise_is_drawn_once_a_round_whoever_crashes(many: Stage) -> None:
    plan, rounds, firsts = plan_for(**GAUSSIAN), noisy_rounds(many), []
    assert rounds >= 2
    for number in range(1, rounds + 1):
        totals: list[Total] = []
        with many.hall() as hall, pytest.MonkeyPatch.context() as patch:
            kept_until(patch, number, totals)
            for crashed in ((), ("south",), SITES):
                for site in crashed:
                    hall.crash(site)
                with pytest.raises(KilledError):
                    hall.run(plan)
        assert len(totals) == 3
        assert equal(totals[0], totals[1])
        assert equal(totals[0], totals[2])
        firsts.append(totals[0])
    with many.hall() as hall:
        hall.run(plan)
        (other, *_) = [decode(record) for record in Records(hall.kept() / "rounds")]
    assert not any(np.array_equal(np.asarray(other[f"total.{name}"]), values) for name, values in firsts[0].items())


@pytest.mark.parametrize("written", [0.0, 1.0])
def test_noise_is_drawn_once_by_a_site_that_is_killed_before_its_reply_leaves(written: float, many: Stage) -> None:
    plan = plan_for(**GAUSSIAN)
    totals: list[Total] = []
    with many.hall() as hall, pytest.MonkeyPatch.context() as patch:
        kept_until(patch, 1, totals)
        with pytest.raises(KilledError):
            hall.run(plan)
        killed_while_writing(patch, 8, written)  # keys and confirmations of three, then a summand of the south
        with pytest.raises(KilledError):
            hall.run(plan)
    assert equal(*totals)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_noisy_reply_that_is_asked_for_again_is_the_very_same(moment: str, many: Stage) -> None:
    replies: list[bytes] = []
    with many.hall() as hall:

        def ask(step: Step) -> None:
            if step.round == 1 and step.site == "south":
                replies.append(hall.members["south"].answer("round", step.request))
                if moment != "lost":
                    hall.crash("south")
                replies.append(hall.members["south"].answer("round", step.request))

        hall.run(plan_for(**GAUSSIAN), Wire(hall, before=ask if moment == "before" else nothing, after=ask))
    assert len(replies) == (4 if moment == "before" else 2)
    assert len(set(replies)) == 1


def another_release(hall: Hall, plan: Plan, first: dagora.Result) -> bool:
    """Whether a run of the same name gives other noise, though a policy allows one run."""
    shutil.rmtree(hall.kept())
    try:
        again = hall.run(plan)
    except DagoraError:
        return False
    runs = {spent(one.ledger.entries).runs for one in hall.members.values()}
    return runs == {1} and not np.array_equal(again.weights, first.weights)


BUDGET = Policy(aggregations=("gaussian",), methods=("covariance",), epsilon=4.0, delta=1e-5)


def test_a_run_that_has_ended_gives_no_second_release_under_its_name(many: Stage) -> None:
    with many.hall(BUDGET) as hall:
        first = hall.run(plan_for(**GAUSSIAN))
        say_goodbye(RUN, "done", SITES, Wire(hall))
        assert not another_release(hall, plan_for(**GAUSSIAN), first)


def test_another_plan_gives_no_second_release_under_the_name_of_a_run(many: Stage) -> None:
    with many.hall(BUDGET) as hall:
        first = hall.run(plan_for(**GAUSSIAN))
        assert not another_release(hall, plan_for(**GAUSSIAN, deadline=599.0), first)


def test_a_run_of_another_name_is_over_the_budget(many: Stage) -> None:
    with many.hall(BUDGET) as hall:
        hall.run(plan_for(**GAUSSIAN))
        with pytest.raises(PolicyError, match=r"epsilon 4\.0 is not allowed here after 4\.0"):
            hall.run(plan_for(**GAUSSIAN), run="run-2")


def test_a_question_of_an_old_attempt_is_not_answered(stage: Stage) -> None:
    plan = plan_for(method="covariance")
    with stage.hall() as hall:
        wire = Wire(hall)
        hall.run(plan, wire)
        asked = [step for step in wire.steps if step.site == "south"][-1].message
        attempt = asked["secure.attempt"]
        assert isinstance(attempt, int)
        with pytest.raises(MessageError, match="an answer is given once"):
            hall.members["south"].answer("round", encode({**asked, "secure.attempt": attempt - 1}))
