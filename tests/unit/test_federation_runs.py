"""Runs of a federation, in memory: the weights are those of `learn`, bit for bit, and sites keep what they must."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.aggregation.ledger import Noted, Sent, verify
from dagora.errors import InputError
from dagora.federated.policy import Job
from dagora.federation import member
from dagora.federation.coordinator import coordinate, say_goodbye
from dagora.federation.kits import SERVER, Kit
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from tests.federations import (
    ADMINISTRATOR,
    RUN,
    SITES,
    Hall,
    Step,
    Wire,
    administrator,
    learned,
    plan_for,
    without_waiting,
    written_series,
    written_sites,
)

METHODS = ("admm", "covariance", "voting", "average")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written_sites(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written_series(tmp_path_factory.mktemp("series"))


def run(folder: Path, data: Mapping[str, Path], **keys: Any) -> dagora.Result:
    with Hall(folder, data) as hall:
        return hall.run(plan_for(data, **keys))


def same(found: dagora.Result, expected: dagora.Result) -> None:
    assert np.array_equal(found.weights, expected.weights)
    assert np.array_equal(found.adjacency, expected.adjacency)
    assert np.array_equal(found.cpdag, expected.cpdag)
    assert (found.names, found.sites, found.warnings) == (expected.names, expected.sites, expected.warnings)
    assert found.settings == expected.settings
    assert found.rounds == expected.rounds + 1  # one more, for the inspection


@pytest.mark.parametrize("aggregation", ["plain", "masked", "shared"])
@pytest.mark.parametrize("method", METHODS)
def test_a_federation_learns_what_one_process_does(
    method: str, aggregation: str, data: dict[str, Path], tmp_path: Path
) -> None:
    options = {"method": method, "aggregation": aggregation}
    same(run(tmp_path, data, **options), learned(data, **options))


def test_encrypted_sums_give_the_same_network(data: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    options = {"method": "covariance", "aggregation": "encrypted"}
    same(run(tmp_path, data, **options), learned(data, **options))


@pytest.mark.parametrize(
    "options",
    [
        {"model": "additive", "method": "covariance"},
        {"model": "additive", "method": "voting"},
        {"method": "admm", "polish": False, "lam": 0.05},
        {"method": "covariance", "learner": "notears"},
        {"method": "covariance", "learner": "pc", "alpha": 0.01},
    ],
)
def test_other_models_learners_and_presets(options: dict[str, Any], data: dict[str, Path], tmp_path: Path) -> None:
    same(run(tmp_path, data, **options), learned(data, aggregation="masked", **options))


def test_networks_give_the_same_network(data: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options: dict[str, Any] = {"model": "mlp", "method": "voting", "hidden": [2], "seed": 3}
    found, expected = run(tmp_path, data, **options), learned(data, aggregation="masked", **options)
    assert np.array_equal(found.weights, expected.weights)
    assert expected.weights.any()


@pytest.mark.parametrize("method", ["covariance", "admm"])
def test_time_series_give_the_same_network(method: str, series: dict[str, Path], tmp_path: Path) -> None:
    options = {"model": "dynamic", "method": method, "series": "series", "time": "time", "aggregation": "masked"}
    found, expected = run(tmp_path, series, **options), learned(series, **options)
    same(found, expected)
    for one, other in ((found.lag_weights, expected.lag_weights), (found.lag_adjacency, expected.lag_adjacency)):
        assert one is not None
        assert other is not None
        assert np.array_equal(one, other)
        assert one.any()


def test_columns_may_come_in_another_order(data: dict[str, Path], tmp_path: Path) -> None:
    swapped = tmp_path / "swapped.csv"
    rows = [line.split(",") for line in data["south"].read_text().splitlines()]
    swapped.write_text("".join(",".join(row[::-1]) + "\n" for row in rows))
    assert swapped.read_text().startswith("x4,x3")
    same(run(tmp_path, {**data, "south": swapped}), learned(data, aggregation="masked"))


def test_one_site_may_learn_alone_in_the_open(data: dict[str, Path], tmp_path: Path) -> None:
    alone = {"south": data["south"]}
    same(run(tmp_path, alone, aggregation="plain"), learned(alone, aggregation="plain"))


def test_one_site_cannot_hide(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, {"south": data["south"]}) as hall:
        wire = Wire(hall)
        with pytest.raises(InputError, match="'masked' hides nothing with one site"):
            hall.run(plan_for(["south"]), wire)
        assert wire.steps == []


def test_sums_are_masked_by_default(data: dict[str, Path], tmp_path: Path) -> None:
    assert plan_for().aggregation == Plan.of({}).aggregation == Plan({}).aggregation == "masked"
    with Hall(tmp_path, data) as hall:
        hall.run(plan_for(method="covariance"))
        entries = hall.members["south"].ledger.entries
    assert {entry.what.protection for entry in entries if isinstance(entry.what, Sent)} == {"masked"}


def test_noise_is_stated_as_it_is_in_one_process(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    options = {"method": "covariance", "aggregation": "gaussian", "epsilon": 2.0}
    data = written_sites(tmp_path / "data", 3, 6000)
    found, expected = run(tmp_path, data, **options), learned(data, **options)
    told = {"rows_worth": found.settings["rows_worth"]}  # of noisy counts: it differs from run to run
    assert found.settings == {**expected.settings, **told}


def test_the_server_knows_what_the_sites_know_that_left(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        wire = Wire(hall)
        result = hall.run(plan_for(), wire)
        sent = {
            site: sum(entry.what.bytes for entry in one.ledger.entries if isinstance(entry.what, Sent))
            for site, one in hall.members.items()
        }
    assert result.sent == sum(sent.values())
    assert result.received == sum(len(step.request) for step in wire.steps if step.topic == "round")
    assert sum(entry.rounds for entry in result.ledger) == result.rounds
    for site, count in sent.items():
        assert count > 0
        verify(hall.ledger(site))


def test_no_number_is_asked_for_before_all_have_joined(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        wire = Wire(hall)
        hall.run(plan_for(method="covariance"), wire)
    asked = [(step.topic, step.site) for step in wire.steps]
    assert asked[:9] == [(topic, site) for topic in ("introduce", "join", "witness") for site in SITES]
    assert {topic for topic, _ in asked[9:]} == {"round"}


def test_a_run_is_written_down_once_at_each_site(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        hall.run(plan_for(method="covariance"))
        for one in hall.members.values():
            jobs = [entry.what for entry in one.ledger.entries if isinstance(entry.what, Job)]
            assert jobs == [Job(RUN, "covariance", "masked", SITES, by=ADMINISTRATOR)]


def test_every_round_is_watched(data: dict[str, Path], tmp_path: Path) -> None:
    seen: list[float] = []
    with Hall(tmp_path, data) as hall:
        order = Order.signed(administrator(), RUN, plan_for())
        result = coordinate(
            hall.kits[SERVER], order, hall.kept(), Wire(hall), lambda figures: seen.append(figures["round"])
        )
    assert seen == list(range(1, result.rounds + 1))


# Who cannot take part.


def test_columns_that_differ_are_named_before_anybody_joins(data: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(data["east"].read_text().replace("x2", "age", 1))
    with Hall(tmp_path, {**data, "east": other}) as hall:
        wire = Wire(hall)
        with pytest.raises(InputError, match="site 'east': lacks column 'x2' and adds column 'age'"):
            hall.run(plan_for(), wire)
        assert {step.topic for step in wire.steps} == {"introduce"}
        assert all(
            isinstance(entry.what, Noted) and entry.what.event in ("introduced", "admitted")
            for one in hall.members.values()
            for entry in one.ledger.entries
        )


@pytest.mark.parametrize("topic", ["introduce", "join"])
def test_a_site_with_another_version_is_named(
    topic: str, data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def update(step: Step) -> None:
        if (step.topic, step.site) == (topic, "east"):
            monkeypatch.setattr(member, "__version__", "0.0.9")

    with Hall(tmp_path, data) as hall, pytest.raises(InputError, match=r"site 'east': has Dagora 0\.0\.9"):
        hall.run(plan_for(), Wire(hall, before=update))


def test_a_certificate_of_another_site_is_refused(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        stolen = tmp_path / "east" / "startup"
        for name in ("signing.crt", "signing.key"):
            (tmp_path / "south" / "startup" / name).write_bytes((stolen / name).read_bytes())
        with pytest.raises(InputError, match="site 'south': showed a signing certificate that is not its own"):
            hall.run(plan_for())
        assert not any(isinstance(e.what, Sent) for one in hall.members.values() for e in one.ledger.entries)


def test_a_reply_signed_with_another_key_is_not_used(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hall(tmp_path, data) as hall:
        impostor, real = hall.kits["east"].signing_key, {ADMINISTRATOR: administrator().signing_key}
        monkeypatch.setattr(Kit, "signing_key", property(lambda kit: real.get(kit.name, impostor)))
        with pytest.raises(dagora.DagoraError, match="is not signed by"):
            hall.run(plan_for(method="covariance"))


# The end.


def state(hall: Hall, site: str) -> list[str]:
    folder = hall.folder / site / "state"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_goodbye_deletes_what_was_kept_for_the_run_and_is_noted(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        hall.run(plan_for(method="covariance"))
        assert {"join", "requests"} < set(state(hall, "south"))
        assert any(name.endswith(".secret") for name in state(hall, "south"))
        hall.crash("south")  # one that has forgotten the run by then is told, too
        say_goodbye(RUN, "done", SITES, Wire(hall))
        say_goodbye(RUN, "done", SITES, Wire(hall))  # an answer that was lost is asked for again
        for site in SITES:
            assert state(hall, site) == ["joined"]  # names of runs, as hashes
            assert hall.notes(site, "ended") == ["done"]


def test_goodbye_to_another_run_changes_nothing(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        hall.run(plan_for(method="covariance"))
        before = state(hall, "south")
        say_goodbye("another run", "aborted", SITES, Wire(hall))
        hall.crash("south")
        say_goodbye("another run", "aborted", SITES, Wire(hall))
        assert state(hall, "south") == before
        assert hall.notes("south", "ended") == []


def test_one_run_after_the_other(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        first = hall.run(plan_for())
        say_goodbye(RUN, "done", SITES, Wire(hall))
        second = hall.run(plan_for(), run="run-2")
    assert np.array_equal(first.weights, second.weights)
