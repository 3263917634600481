"""The ledger: what it holds, that any change of it is seen, and that a crash loses nothing unseen."""

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagora.aggregation.ledger import (
    INTRODUCED,
    REFUSED_BY_ROWS,
    START,
    Entry,
    Ledger,
    LedgerError,
    Sent,
    now,
    read,
    spent,
    verify,
)
from dagora.federated.policy import Job, Spent

JOB = Job("run-1", "admm", "gaussian", ("north", "south", "east"), 0.1, 1e-6)
FIELDS = {"n": (), "cross": (3, 3)}


def ticking() -> Callable[[], str]:
    ticks = count()
    return lambda: f"2026-01-01T00:00:{next(ticks):02}.000+00:00"


def filled(path: Path | None = None, replies: int = 4) -> Ledger:
    ledger = Ledger("north", path, clock=ticking())
    ledger.opened(JOB)
    for k in range(replies):
        ledger.record("run-1", k + 1, "round", FIELDS, b"reply %d" % k, "gaussian")
    return ledger


LINES = [entry.line() for entry in filled().entries]


def broken(lines: Sequence[bytes], folder: Path) -> str:
    path = folder / "ledger.jsonl"
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError) as caught:
        verify(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_an_entry_says_what_left_and_no_more() -> None:
    entry = filled().entries[2]
    assert entry.what == Sent("run-1", 2, "round", FIELDS, 7, hashlib.sha256(b"reply 1").hexdigest(), "gaussian")
    assert (entry.site, entry.time) == ("north", "2026-01-01T00:00:02.000+00:00")
    assert b"reply 1" not in entry.line()


def test_the_chain_is_as_the_module_says() -> None:
    previous = START
    for line in LINES:
        values = json.loads(line)
        assert values["previous"] == previous
        bare = re.sub(rb',"hash":"[0-9a-f]{64}"}\n$', b"}", line)
        assert values["hash"] == hashlib.sha256(bare).hexdigest()
        previous = values["hash"]
    assert filled().head == previous


def test_the_time_is_utc() -> None:
    assert Ledger("north").opened(JOB).time.endswith("+00:00")


def test_memory_and_file_hold_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with filled(path) as ledger:
        assert path.read_bytes() == b"".join(LINES)
        assert tuple(read(path)) == ledger.entries
        assert verify(path) == verify(ledger.entries) == verify(path, ledger.head) == ledger.head


def test_every_entry_is_on_the_disk_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    folder = tmp_path.stat().st_ino
    of: list[int] = []

    def sync(file: int) -> None:
        of.append(os.fstat(file).st_ino)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", sync)
    filled(tmp_path / "ledger.jsonl", replies=2).close()
    assert of[0] == folder  # a new file's name, too
    assert synced[1:] == [sum(map(len, LINES[:k])) for k in (1, 2, 3)]


def test_an_empty_ledger_has_a_head(tmp_path: Path) -> None:
    with Ledger("north", tmp_path / "ledger.jsonl") as ledger:
        assert ledger.head == START == verify(tmp_path / "ledger.jsonl")


def test_a_ledger_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with filled(path, replies=1) as first:
        pass
    with Ledger("north", path) as second:
        entry = second.record("run-1", 2, "round", FIELDS, b"later", "gaussian")
        assert entry.previous == first.head
        assert second.entries == (*first.entries, entry)
    assert verify(path, first.head) == entry.hash  # an earlier head is still in the chain


# What is done to the chain, and seen.


@given(st.data())
def test_any_change_of_a_byte_is_seen(data: st.DataObject) -> None:
    whole = bytearray(b"".join(LINES))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    with TemporaryDirectory() as folder:
        broken([bytes(whole)], Path(folder))


@pytest.mark.parametrize("k", range(len(LINES) - 1))
def test_a_removed_line_is_seen(k: int, tmp_path: Path) -> None:
    assert f"line {k + 1} does not follow" in broken(LINES[:k] + LINES[k + 1 :], tmp_path)


@pytest.mark.parametrize("k", range(len(LINES) - 1))
def test_moved_lines_are_seen(k: int, tmp_path: Path) -> None:
    moved = [*LINES[:k], LINES[k + 1], LINES[k], *LINES[k + 2 :]]
    assert f"line {k + 1} does not follow" in broken(moved, tmp_path)


@pytest.mark.parametrize("k", range(len(LINES)))
def test_an_inserted_line_is_seen(k: int, tmp_path: Path) -> None:
    inserted = [*LINES[: k + 1], LINES[k], *LINES[k + 1 :]]
    assert f"line {k + 2} does not follow line {k + 1}" in broken(inserted, tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"bytes":7', b'"bytes":8'), (b'"bytes":7', b'"bytes": 7'), (b"\n", b"\r\n"), (b'"round":2', b'"round":2.0')],
)
def test_an_edited_line_is_named(old: bytes, new: bytes, tmp_path: Path) -> None:
    assert old in LINES[2]
    assert "line 3 was changed" in broken([*LINES[:2], LINES[2].replace(old, new), *LINES[3:]], tmp_path)


def sealed(text: bytes) -> bytes:
    return text[:-1] + b',"hash":"%s"}\n' % hashlib.sha256(text).hexdigest().encode()


@pytest.mark.parametrize("text", [b"{}", b'{"kind":"sent"}', b'{"fields":3,"kind":"sent"}'])
def test_a_line_with_a_right_hash_that_is_no_entry_is_refused(text: bytes, tmp_path: Path) -> None:
    assert "line 1 was changed" in broken([sealed(text)], tmp_path)


def test_a_run_that_would_give_back_budget_is_refused_even_with_a_right_hash(tmp_path: Path) -> None:
    bare = re.sub(rb',"hash":"[0-9a-f]{64}"}\n$', b"}", LINES[0])
    assert sealed(bare) == LINES[0]
    assert "line 1 was changed" in broken([sealed(bare.replace(b'"epsilon":0.1', b'"epsilon":-9.0'))], tmp_path)


def test_lines_cut_off_at_the_end_need_a_noted_head(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(LINES[:-1]))
    verify(path)
    with pytest.raises(LedgerError, match="cut off"):
        verify(path, filled().head)


def test_a_rewritten_chain_needs_a_noted_head() -> None:
    ledger = filled()
    other = filled(replies=0)
    other.record("run-1", 1, "round", FIELDS, b"another", "gaussian")
    verify(other.entries)
    with pytest.raises(LedgerError, match="rewritten"):
        verify(other.entries, ledger.entries[1].hash)


def test_changed_entries_in_memory_are_seen() -> None:
    entries = list(filled().entries)
    entries[1] = replace(entries[1], site="south")
    with pytest.raises(LedgerError, match="line 2 was changed"):
        verify(entries)


# What can go wrong with the file.


@pytest.mark.parametrize("lost", [1, 2, 40])
def test_a_half_written_line_is_reported_and_kept(lost: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    torn = b"".join(LINES)[:-lost]
    path.write_bytes(torn)
    with pytest.raises(LedgerError, match=f"line {len(LINES)} is half-written.*delete that line"):
        Ledger("north", path)
    assert path.read_bytes() == torn


def test_a_broken_ledger_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(LINES[1:]))
    with pytest.raises(LedgerError, match="line 1 does not follow the start"):
        Ledger("north", path)


def test_the_ledger_of_another_site_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "ledger.jsonl").close()
    with pytest.raises(LedgerError, match="is of 'north', not of 'south'"):
        Ledger("south", tmp_path / "ledger.jsonl")


def test_two_writers_do_not_share_a_ledger(tmp_path: Path) -> None:
    # Each would count only its own runs, and both would end within a budget that holds for one.
    path = tmp_path / "ledger.jsonl"
    with Ledger("north", path) as first:
        first.opened(JOB)
        with pytest.raises(LedgerError, match="in use by another run or process"):
            Ledger("north", path)
        first.opened(JOB)
    with Ledger("north", path) as second:
        second.opened(JOB)
    assert len(read(path)) == 3


def test_a_ledger_that_is_written_past_its_lock_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger("north", path) as first:
        first.opened(JOB)
        path.write_bytes(path.read_bytes() * 2)
        with pytest.raises(LedgerError, match="another process"):
            first.opened(JOB)


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_leaves_no_half_line(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    write = os.write

    def fail(file: int, *line: bytes) -> int:
        if line:
            return write(file, line[0][:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with filled(path) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(LedgerError, match="No space left on device; nothing leaves"):
                ledger.opened(JOB)
        assert verify(path) == ledger.head
        ledger.opened(JOB)  # and goes on when there is space again
        assert verify(path) == ledger.head


@pytest.mark.parametrize("act", [lambda path: Ledger("north", path / "a" / "b"), lambda path: read(path / "none")])
def test_a_path_that_cannot_be_used_is_named(act: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=re.escape(str(tmp_path))):
        act(tmp_path)


def test_a_closed_ledger_takes_nothing(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger.jsonl")
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.opened(JOB)
    assert len(ledger.entries) == len(LINES)


# What the policy reads off it.


COHORT = frozenset(JOB.sites)


def entries_of(*jobs: Job) -> tuple[Entry, ...]:
    ledger = Ledger("north")
    for job in jobs:
        ledger.opened(job)
        ledger.record(job.run, 1, "round", FIELDS, b"reply", job.aggregation)
    return ledger.entries


def test_spending_adds_up_over_runs() -> None:
    assert spent(()) == Spent(0.0, 0.0, 0)
    assert spent(entries_of(*[JOB] * 10))[:3] == pytest.approx((1.0, 1e-5, 10))


def test_the_same_run_joined_again_counts_again() -> None:
    assert spent(entries_of(JOB, JOB)).runs == 2  # a coordinator names runs: a name must not save budget


def test_a_run_without_privacy_has_no_bound() -> None:
    plain = replace(JOB, aggregation="masked", epsilon=None, delta=None)
    assert spent(entries_of(JOB, plain)) == Spent(math.inf, 1e-6, 2, COHORT)


def test_the_cohort_is_that_of_the_last_run_in_which_something_left() -> None:
    ledger = Ledger("north")
    ledger.opened(JOB)
    assert spent(ledger.entries).cohort == frozenset()
    ledger.record(JOB.run, 0, "keys", {}, b"reply", JOB.aggregation)
    assert spent(ledger.entries).cohort == frozenset()
    ledger.record(JOB.run, 1, "round", FIELDS, b"reply", JOB.aggregation)
    assert spent(ledger.entries).cohort == COHORT
    ledger.opened(replace(JOB, run="run-2", sites=("north", "west")))
    assert spent(ledger.entries).cohort == COHORT


def test_the_cohort_is_known_however_many_runs_were_joined_before_something_left() -> None:
    # A server may have a site join several runs first, and ask for their rounds in turns.
    ledger = Ledger("north")
    for run in ("run-1", "run-2", "run-3"):
        ledger.opened(replace(JOB, run=run, sites=("north", run)))
    ledger.record("run-1", 1, "round", FIELDS, b"reply", JOB.aggregation)
    assert spent(ledger.entries).cohort == {"north", "run-1"}
    ledger.record("run-3", 1, "round", FIELDS, b"reply", JOB.aggregation)
    assert spent(ledger.entries).cohort == {"north", "run-3"}


def test_refusals_by_rows_count_as_runs_and_introductions_are_counted_for_a_day() -> None:
    times = iter(["2020-01-01T00:00:00.000+00:00", now(), now()])
    ledger = Ledger("north", clock=lambda: next(times))
    ledger.note(INTRODUCED, "server")
    ledger.note(INTRODUCED, "server")
    ledger.note(REFUSED_BY_ROWS, "server")
    assert spent(ledger.entries) == Spent(0.0, 0.0, 1, frozenset(), 1)


def test_spending_survives_the_file(tmp_path: Path) -> None:
    with filled(tmp_path / "ledger.jsonl") as ledger:
        assert spent(read(tmp_path / "ledger.jsonl")) == spent(ledger.entries) == Spent(0.1, 1e-6, 1, COHORT)
