"""A server relays what an administrator has signed, and nothing else; a data set's budget outlives runs and kits."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagora.aggregation.ledger import ADMITTED, INTRODUCED, WITNESSED, Noted, Sent
from dagora.errors import DagoraError, InputError, MessageError
from dagora.federated.message import decode, encode
from dagora.federated.policy import Job, Policy, PolicyError
from dagora.federation.coordinator import coordinate, say_goodbye
from dagora.federation.kits import SERVER, Kit
from dagora.federation.member import Member
from dagora.federation.order import Order
from dagora.federation.provision import Federation, provision
from dagora.federation.schema import schema_hash
from dagora.federation.site import home_of_ledgers, ledger_of
from dagora.federation.texts import boxed
from tests.federations import (
    ADMINISTRATOR,
    RUN,
    SITES,
    SPARE,
    Hall,
    Step,
    Wire,
    administrator,
    plan_for,
    without_waiting,
    written_sites,
)
from tests.federations import ordered as signed

COVARIANCE = {"method": "covariance"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written_sites(tmp_path_factory.mktemp("tables"), sites=(*SITES, SPARE))


@pytest.fixture
def hall(data: dict[str, Path], tmp_path: Path) -> Iterator[Hall]:
    with Hall(tmp_path, {site: data[site] for site in SITES}) as made:
        yield made


def left(hall: Hall) -> list[str]:
    """Sites from which a number has left."""
    return [
        site
        for site, one in hall.members.items()
        if any(isinstance(entry.what, Sent) and entry.what.fields for entry in one.ledger.entries)
    ]


def ordered(run: str = RUN, **keys: Any) -> Order:
    return signed(run, plan_for(**{**COVARIANCE, **keys}).to_json())


# What a server might make up.


@pytest.mark.parametrize(
    "forge",
    [
        lambda order: replace(order, plan=plan_for(**COVARIANCE, aggregation="plain").to_json()),
        lambda order: replace(order, plan=plan_for(SITES[:2], **COVARIANCE).to_json()),
        lambda order: replace(order, plan=plan_for(SITES[::-1], **COVARIANCE).to_json()),
        lambda order: replace(order, plan=order.plan + " "),
        lambda order: replace(order, run="another run"),
        lambda order: replace(order, federation="other"),
        lambda order: replace(order, signature=bytes(64)),
        lambda order: replace(order, signature=b""),
    ],
)
def test_an_order_that_was_changed_is_refused_by_every_site(forge: Callable[[Order], Order], hall: Hall) -> None:
    order = forge(ordered())
    for site, one in hall.members.items():
        with pytest.raises(MessageError, match=f"is not what administrator {ADMINISTRATOR} has signed"):
            one.answer("introduce", encode({**order.fields(), "start": 0}))
        with pytest.raises(DagoraError):
            coordinate(hall.kits[SERVER], order, hall.kept(), Wire(hall))
        assert any("has signed" in note for note in hall.notes(site))
    assert left(hall) == []


def test_whoever_is_no_administrator_orders_nothing(hall: Hall, tmp_path: Path) -> None:
    by_site = Order.signed(hall.kits["south"], RUN, plan_for(**COVARIANCE))
    with pytest.raises(InputError, match="the run was signed by 'south', who is none; stop the server"):
        coordinate(hall.kits[SERVER], by_site, hall.kept(), Wire(hall))
    provision(Federation("trial", "localhost", 8002, SITES, (ADMINISTRATOR,), "127.0.0.1"), tmp_path / "other")
    stranger = Order.signed(Kit.read(tmp_path / "other" / ADMINISTRATOR, "admin"), RUN, plan_for(**COVARIANCE))
    with pytest.raises(InputError, match="administrator: the signing certificate is not good in this federation"):
        coordinate(hall.kits[SERVER], stranger, hall.kept(), Wire(hall))
    without = {name: value for name, value in ordered().fields().items() if name != "signature"}
    with pytest.raises(MessageError, match="no administrator has signed the run"):
        hall.members["north"].answer("introduce", encode({**without, "start": 0}))
    assert left(hall) == []


def test_a_finished_run_is_not_played_again(hall: Hall) -> None:
    order = ordered()
    coordinate(hall.kits[SERVER], order, hall.kept(), Wire(hall))
    say_goodbye(RUN, "done", SITES, Wire(hall))
    with pytest.raises(PolicyError, match="this run was joined here before"):
        coordinate(hall.kits[SERVER], order, hall.kept("again"), Wire(hall))


class Splitting(Wire):
    """Tells one site something else when it joins."""

    def __init__(self, hall: Hall, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__(hall)
        self._change = change

    def _reply(self, site: str, topic: str, request: bytes) -> bytes:
        if (site, topic) == ("south", "join"):
            request = encode(self._change(dict(decode(request))))
        return super()._reply(site, topic, request)


def other_plan(message: dict[str, Any]) -> dict[str, Any]:
    """An administrator's order, too, but of another run's noise."""
    return {**message, **ordered(penalty=3.0).fields()}


def other_columns(message: dict[str, Any]) -> dict[str, Any]:
    from dagora.federation.schema import schema_hash

    names = tuple(json.loads(message["columns"].tobytes()))[::-1]
    return {**message, "columns": boxed(json.dumps(names)), "schema": schema_hash(names)}


@pytest.mark.parametrize("change", [other_plan, other_columns])
def test_sites_that_are_told_different_things_find_out_before_a_number_leaves(
    change: Callable[[dict[str, Any]], dict[str, Any]], hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagora.federation.coordinator.schema_hash", lambda names: Anything())
    with pytest.raises(DagoraError, match="told other terms of the run"):
        coordinate(hall.kits[SERVER], ordered(), hall.kept(), Splitting(hall, change))
    assert left(hall) == []


class Anything:
    """Equal to whatever a site says: the server that lies does not check."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_certificates_of_other_sites_make_another_cohort(hall: Hall) -> None:
    def swapped(message: dict[str, Any]) -> dict[str, Any]:
        shown = json.loads(message["certificates"].tobytes())
        return {**message, "certificates": boxed(json.dumps([*shown[1:], shown[0]]))}

    with pytest.raises(InputError, match="showed a signing certificate that is not its own"):
        coordinate(hall.kits[SERVER], ordered(), hall.kept(), Splitting(hall, swapped))
    assert left(hall) == []


def test_no_column_is_named_twice(hall: Hall) -> None:
    def doubled(message: dict[str, Any]) -> dict[str, Any]:
        columns = json.loads(message["columns"].tobytes())
        columns.append(columns[0])
        return {**message, "columns": boxed(json.dumps(columns)), "schema": schema_hash(tuple(columns))}

    with pytest.raises(MessageError, match="it names a column twice"):
        coordinate(hall.kits[SERVER], ordered(), hall.kept(), Splitting(hall, doubled))
    assert left(hall) == []


def test_the_administrator_is_written_down(hall: Hall) -> None:
    coordinate(hall.kits[SERVER], ordered(), hall.kept(), Wire(hall))
    for one in hall.members.values():
        jobs = [entry.what for entry in one.ledger.entries if isinstance(entry.what, Job)]
        assert [job.by for job in jobs] == [ADMINISTRATOR]


@pytest.mark.parametrize("days", [-31, 3])
def test_an_order_is_good_for_a_month(days: int, hall: Hall) -> None:
    when = datetime.now(UTC) + timedelta(days=days)
    old = Order.signed(administrator(), RUN, plan_for(**COVARIANCE), when)
    with pytest.raises(InputError, match="an order is good for 30 days"):
        coordinate(hall.kits[SERVER], old, hall.kept(), Wire(hall))
    with pytest.raises(MessageError, match="has signed"):  # nor can it be made to look new
        coordinate(hall.kits[SERVER], replace(old, time=ordered().time), hall.kept(), Wire(hall))
    coordinate(hall.kits[SERVER], ordered("in time"), hall.kept("in time"), Wire(hall))


# Heads of ledgers.


def test_sites_note_where_the_ledgers_of_the_others_end(hall: Hall) -> None:
    heads: dict[str, str] = {}

    def note(step: Step) -> None:
        if step.topic == "join":
            heads[step.site] = hall.members[step.site].ledger.head

    coordinate(hall.kits[SERVER], ordered(), hall.kept(), Wire(hall, after=note))
    for site, one in hall.members.items():
        seen = {w.who: w.detail for e in one.ledger.entries if isinstance(w := e.what, Noted) and w.event == WITNESSED}
        assert seen == {other: head for other, head in heads.items() if other != site}


@pytest.mark.parametrize("what", ["heads", "signatures"])
def test_a_head_that_was_made_up_is_refused(what: str, hall: Hall) -> None:
    class Forging(Wire):
        def _reply(self, site: str, topic: str, request: bytes) -> bytes:
            message = dict(decode(request))
            if (site, topic) == ("south", "witness"):
                if what == "heads":
                    message["heads"] = boxed(json.dumps(["0" * 64] * len(SITES)))
                else:
                    message["signatures"] = np.zeros(64 * len(SITES), np.uint8)
            return super()._reply(site, topic, encode(message))

    with pytest.raises(InputError, match="the head of its ledger is not signed by its key"):
        coordinate(hall.kits[SERVER], ordered(), hall.kept(), Forging(hall))
    assert left(hall) == []


def test_a_server_that_shows_no_heads_gets_no_number(hall: Hall) -> None:
    class Skipping(Wire):
        def ask(self, topic: str, requests: Mapping[str, bytes], enough: int | None = None) -> dict[str, bytes]:
            return {} if topic == "witness" else super().ask(topic, requests, enough)

    with pytest.raises(MessageError, match="was not shown the heads of the other sites' ledgers"):
        coordinate(hall.kits[SERVER], ordered(), hall.kept(), Skipping(hall))
    assert left(hall) == []


# Policies over the life of the data.


def test_two_runs_that_differ_by_a_site_are_not_both_answered(data: dict[str, Path], tmp_path: Path) -> None:
    # Their totals would differ by that site's summand.
    with Hall(tmp_path, data, Policy(parameters_per_row=9.0)) as hall:
        coordinate(hall.kits[SERVER], ordered("run-1", sites=[*SITES, SPARE]), hall.kept("run-1"), Wire(hall))
        say_goodbye("run-1", "done", (*SITES, SPARE), Wire(hall))
        part = Hall.__new__(Hall)
        part.__dict__.update(hall.__dict__, members={site: hall.members[site] for site in SITES})
        for turn, sites in enumerate((SITES, SITES[::-1])):
            with pytest.raises(PolicyError, match=r"earlier runs on these data had other sites.*\(same_cohort\)"):
                coordinate(hall.kits[SERVER], ordered(f"run-2-{turn}", sites=list(sites)), hall.kept("two"), Wire(part))
        coordinate(hall.kits[SERVER], ordered("run-3", sites=[*SITES, SPARE]), hall.kept("run-3"), Wire(hall))


def test_a_new_kit_and_new_rows_go_on_with_the_budget(data: dict[str, Path], tmp_path: Path) -> None:
    policy = Policy(runs=2, parameters_per_row=9.0)
    for turn in (1, 2, 3):
        with Hall(tmp_path / str(turn), {site: data[site] for site in SITES}, policy) as hall:
            if turn > 1:  # the kits are new; the owners keep their records
                for site in SITES:
                    hall.members[site].ledger.close()
                    shutil.copy(tmp_path / str(turn - 1) / "ledgers" / f"{site}.jsonl", hall.ledger(site))
                    hall.members[site] = hall._member(site)
            order = ordered(f"run-{turn}")
            if turn < 3:
                coordinate(hall.kits[SERVER], order, hall.kept(), Wire(hall))
            else:
                with pytest.raises(PolicyError, match=r"one more run after 2 is not allowed here \(runs: 2\)"):
                    coordinate(hall.kits[SERVER], order, hall.kept(), Wire(hall))


def test_the_record_of_a_data_set_is_not_in_a_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert home_of_ledgers() == tmp_path / "state" / "dagora" / "ledgers"
    with ledger_of("lung-2026") as ledger:
        assert ledger.path == tmp_path / "state" / "dagora" / "ledgers" / "lung-2026.jsonl"
        with pytest.raises(DagoraError, match="in use by another run or process"):
            ledger_of("lung-2026")
    for name in ("", "../out", "a/b", ".hidden", "x" * 101):
        with pytest.raises(InputError, match=r"data-set: .* is no name"):
            ledger_of(name)


def test_the_number_of_rows_cannot_be_found_by_asking(data: dict[str, Path], tmp_path: Path) -> None:
    # A refusal that depends on the rows is one bit of their number.  Each costs a run, and there are few of them.
    policy = Policy(replicates=10_000, replicates_per_row=1.0, runs=4, parameters_per_row=9.0)
    with Hall(tmp_path, {site: data[site] for site in SITES}, policy) as hall:
        one = hall.members["north"]
        low, high = 1, 1000
        refusals: list[str] = []
        while low < high and not any("one more run after 4" in refusal for refusal in refusals):
            middle = (low + high + 1) // 2
            order = ordered(f"probe-{low}-{high}", bootstrap=middle)
            try:
                one.answer("introduce", encode({**order.fields(), "start": 0}))
                low = middle
            except PolicyError as error:
                refusals.append(str(error))
                high = middle - 1
        assert high - low > 10
        assert sum("too few rows" in refusal for refusal in refusals) == 4


def test_runs_that_are_joined_side_by_side_have_the_same_cohort_too(data: dict[str, Path], tmp_path: Path) -> None:
    # All three are joined before a number leaves; then the first and the third are played.
    plans = {"one": (*SITES, SPARE), "two": (*SITES, SPARE), "three": SITES}
    with Hall(tmp_path, data, Policy(parameters_per_row=9.0)) as hall:

        class Stopping(Wire):
            def exchange(self, *_: Any) -> dict[str, Any]:
                raise InterruptedError

        orders = {run: ordered(run, sites=list(sites)) for run, sites in plans.items()}
        for run, order in orders.items():
            with pytest.raises(InterruptedError):
                coordinate(hall.kits[SERVER], order, hall.kept(run), Stopping(hall))
        coordinate(hall.kits[SERVER], orders["one"], hall.kept("one"), Wire(hall))
        with pytest.raises(PolicyError, match=r"had other sites.*\(same_cohort\)"):
            coordinate(hall.kits[SERVER], orders["three"], hall.kept("three"), Wire(hall))


def test_the_number_of_rows_cannot_be_found_by_errors(data: dict[str, Path], tmp_path: Path) -> None:
    # ADMM's first round names the number of all rows; a site that has more refuses.  It does so once.
    with Hall(tmp_path, {site: data[site] for site in SITES}, Policy(parameters_per_row=9.0)) as hall:
        asked: list[Step] = []

        class Probing(Wire):
            def exchange(self, message: Any, *more: Any) -> dict[str, Any]:
                if message.get("phase") == "consensus":
                    message = {**message, "rows": 1.0}
                return super().exchange(message, *more)

        wire = Probing(hall, before=asked.append)
        with pytest.raises(DagoraError, match="no run that this site is part of has such rows"):
            coordinate(hall.kits[SERVER], ordered(method="admm"), hall.kept(), wire)
        last = asked[-1]
        for rows in (10.0, 1000.0):
            again = encode({**last.message, "rows": rows, "secure.attempt": int(rows)})
            with pytest.raises(MessageError, match="of a run that this site has not joined"):
                hall.members[last.site].answer("round", again)
        assert hall.notes(last.site, "given up")


def test_what_is_wrong_with_the_data_is_not_told_again_and_again(data: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text(data["north"].read_text().replace("\n", "\n,,,\n", 1))
    allowed = Policy(introductions=2)
    with Hall(tmp_path, {**{site: data[site] for site in SITES}, "north": broken}, allowed) as hall:
        one, found = hall.members["north"], []
        for turn in range(4):
            with pytest.raises(DagoraError) as caught:
                one.answer("introduce", encode({**ordered(f"run-{turn}").fields(), "start": 0}))
            found.append("row 1" in str(caught.value))
        assert found == [True, True, False, False]
        with pytest.raises(PolicyError, match="introductions"):  # and what a policy forbids is refused unread
            one.answer("introduce", encode({**ordered("run-5", method="admm").fields(), "start": 0}))


def test_a_join_reads_no_data_before_introduction_and_policy(data: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text(data["north"].read_text().replace("\n", "\n,,,\n", 1))
    with Hall(tmp_path, {site: data[site] for site in SITES}) as hall:
        steps: list[Step] = []
        coordinate(hall.kits[SERVER], ordered(), hall.kept(), Wire(hall, before=steps.append))
    join = next(step for step in steps if step.topic == "join").message
    with Hall(tmp_path / "other", {"north": broken}, Policy(methods=("admm",))) as hall:
        one = hall.members["north"]
        with pytest.raises(MessageError, match="was not introduced to the run"):
            one.answer("join", encode(join))
        one.ledger.note(INTRODUCED, SERVER, RUN)  # one that came to nothing
        with pytest.raises(MessageError, match="was not introduced to the run"):
            one.answer("join", encode(join))
        one.ledger.note(ADMITTED, SERVER, RUN)
        with pytest.raises(PolicyError, match="method 'covariance' is not allowed here"):
            one.answer("join", encode(join))


def test_an_order_is_not_used_again_on_another_data_set(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, {site: data[site] for site in SITES}) as hall:
        coordinate(hall.kits[SERVER], ordered(), hall.kept(), Wire(hall))
        say_goodbye(RUN, "done", SITES, Wire(hall))
        for site in SITES:  # the owners begin new records
            hall.crash(site)
            hall.members[site].ledger.close()
            hall.ledger(site).unlink()
            hall.members[site] = hall._member(site)
        with pytest.raises(PolicyError, match="this run was joined here before, with other data"):
            coordinate(hall.kits[SERVER], ordered(), hall.kept("again"), Wire(hall))
        coordinate(hall.kits[SERVER], ordered("another"), hall.kept("another"), Wire(hall))


def test_refusals_are_noted_a_hundred_times_an_hour(hall: Hall) -> None:
    for _ in range(150):
        with pytest.raises(MessageError):
            hall.members["north"].answer("round", b"garbage")
    assert len(hall.notes("north")) == 100


def test_a_site_that_balks_sends_the_same_noise_again_after_a_restart(data: dict[str, Path], tmp_path: Path) -> None:
    # All that others send is the same when it is sent again: noise that was drawn anew would show which site balks.
    large = tmp_path / "large.csv"
    large.write_text(data["south"].read_text().replace("\n", "e17\n").replace("e17", "", 1))
    with Hall(tmp_path, {"north": data["north"], "south": large, "east": data["east"]}) as hall:
        replies: dict[str, list[bytes]] = {site: [] for site in SITES}

        def again(step: Step) -> None:
            if step.message.get("secure.step") == "sum" and step.round == 2:
                replies[step.site].append(hall.members[step.site].answer("round", step.request))
                hall.crash(step.site)
                replies[step.site].append(hall.members[step.site].answer("round", step.request))

        with pytest.raises(DagoraError, match="is noise"):
            coordinate(hall.kits[SERVER], ordered(), hall.kept(), Wire(hall, after=again))
        assert all(len(own) == 2 for own in replies.values())
        assert all(len(set(own)) == 1 for own in replies.values())


def test_introductions_are_limited(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, {site: data[site] for site in SITES}, Policy(introductions=3)) as hall:
        one = hall.members["north"]
        for turn in range(3):
            one.answer("introduce", encode({**ordered(f"run-{turn}").fields(), "start": 0}))
        with pytest.raises(PolicyError, match=r"3 introductions in 24 hours are enough here \(introductions: 3\)"):
            one.answer("introduce", encode({**ordered("run-3").fields(), "start": 0}))


def test_a_member_needs_its_ledger_to_itself(hall: Hall, tmp_path: Path) -> None:
    with pytest.raises(DagoraError, match="in use by another run or process"):
        Member(hall.kits["north"], tmp_path / "x.csv", None, ledger_of("north", hall.ledger("north").parent))
