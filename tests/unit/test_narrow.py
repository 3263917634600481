"""Masked words without the bytes that totals do not need: the same sums, to the bit."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagora.aggregation import fixed_point
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.masked import Masked
from dagora.aggregation.narrow import WIDE, Widths, high_bytes, packed, room, signed, unpacked
from dagora.arrays import FloatArray
from dagora.errors import MessageError
from dagora.federated.message import Message
from dagora.federated.protocol import Summand
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess


class Says:
    """A site part that answers with its next number."""

    def init(self, data: list[FloatArray]) -> list[FloatArray]:
        return data

    def local_update(self, state: list[FloatArray], message: Message) -> tuple[list[FloatArray], Summand]:
        return state[1:], {"value": state[0]}


class Noting(InProcess):
    """Keeps what was asked and answered."""

    def __init__(self, sites: list[Site[list[FloatArray], list[FloatArray]]]) -> None:
        super().__init__(sites)
        self.asked: list[int] = []

    def exchange(self, message, own=None, enough=None):  # type: ignore[no-untyped-def]
        if message.get("secure.step") == "sum":
            self.asked.append(int(message["secure.high"]))
        return super().exchange(message, own, enough)


def masked_sums(rounds: list[list[FloatArray]], phase: str = "path") -> tuple[list[FloatArray], Noting]:
    """rounds[r][k]: what site k says in round r; the totals, and the wire."""
    names = tuple(f"site-{k}" for k in range(len(rounds[0])))
    masked = Masked(Cohort.simulated(names))
    sites = [Site(name, Says(), [row[k] for row in rounds], masked) for k, name in enumerate(names)]
    wire, totals = Noting(sites), []
    for turn in range(1, len(rounds) + 1):
        totals.append(masked.total(wire, {"run": "r", "round": turn, "phase": phase})["value"])
    return totals, wire


@given(
    st.lists(st.lists(st.floats(-30, 30), min_size=5, max_size=5), min_size=1, max_size=4),
    st.sampled_from([1, 2, 3, WIDE]),
)
def test_narrow_sums_are_the_wide_ones(rows: list[list[float]], high: int) -> None:
    values = [np.array(row) for row in rows]
    words = [fixed_point.encode(value) for value in values]
    wide = reduce(fixed_point.add, words)
    parts = [unpacked(packed(word, high), high, 5) for word in words]
    assert all(part is not None for part in parts)
    narrow = reduce(fixed_point.add, [part for part in parts if part is not None])
    assert np.array_equal(signed(narrow, high), wide)


def test_numbers_at_the_edge_fit_and_those_beyond_do_not() -> None:
    def verdict(**summand: FloatArray) -> float:
        return float(fixed_point.decode(fixed_point.encode_summand(summand, 4, room(1)))[-1])

    assert verdict(a=np.array([31.99, -31.99])) == 0.0
    assert verdict(a=np.array([0.0]), b=np.array([[32.0]])) == 1.0
    assert verdict(a=np.array([np.nan])) == 1.0
    four = [fixed_point.encode_summand({"a": np.array([-31.9])}, 4, room(1))] * 4
    parts = [unpacked(packed(word, 1), 1, 2) for word in four]
    total = reduce(fixed_point.add, [part for part in parts if part is not None])
    assert fixed_point.decode(signed(total, 1)) == pytest.approx([-127.6, 0.0])


def test_after_a_first_round_fewer_bytes_are_sent_and_totals_are_exact() -> None:
    rng = np.random.default_rng(0)
    rounds = [[rng.standard_normal((20, 20)) for _ in range(3)] for _ in range(4)]
    totals, wire = masked_sums(rounds)
    assert wire.asked == [WIDE, 1, 1, 1]
    for total, row in zip(totals, rounds, strict=True):
        words = reduce(fixed_point.add, [fixed_point.encode(value) for value in row])
        assert np.array_equal(total, fixed_point.decode(words))
    assert wire.sent < 4 * 3 * 400 * 8 * 1.6


def test_a_number_that_needs_more_is_asked_for_again_and_nothing_is_lost() -> None:
    small, large = np.array([1.0, -2.0]), np.array([5e9, -7.25])
    totals, wire = masked_sums([[small, small], [small, small], [large, small], [small, small]])
    assert wire.asked == [WIDE, 1, 1, WIDE, WIDE]  # and wide to the end
    assert np.array_equal(totals[2], large + small)
    assert np.array_equal(totals[3], small + small)


def test_no_answer_of_a_single_site_tells_whether_its_numbers_are_small() -> None:
    """A server that narrows words until a site's numbers do not fit would find them by bisection, were it told."""
    cohort = Cohort.simulated(("ann", "bob"))
    masked = Masked(cohort)
    numbers = [np.array([value]) for value in (0.5, 1e6, 0.5, 1e6)]
    wire = InProcess([Site(name, Says(), numbers, masked) for name in cohort.sites])
    masked.total(wire, {"run": "r", "round": 1})
    shapes, flags = set(), []
    for turn in (2, 3, 4):
        asked: Message = {"run": "r", "round": turn, "secure.attempt": 0, "secure.step": "sum", "secure.high": 1}
        content = cohort.open("ann", Question.of(asked), wire.exchange(asked)["ann"])
        low, high = np.asarray(content["low"]), np.asarray(content["high"])
        shapes.add((tuple(sorted(content)), low.shape, high.shape))
        words = unpacked(content, 1, 2)
        assert words is not None
        flags.append(float(fixed_point.decode(signed(words, 1))[-1]))
    assert len(shapes) == 1  # large or small, the same fields of the same sizes
    assert all(flag not in (0.0, 1.0) for flag in flags)  # and the verdict is under a mask


def test_without_masks_the_verdict_would_be_there_to_read() -> None:
    words = fixed_point.encode_summand({"a": np.array([1e6])}, 2, room(1))
    assert fixed_point.decode(words).tolist() == [0.0, 1.0]


def test_each_phase_has_a_width_of_its_own() -> None:
    widths = Widths(2)
    assert widths.of({"run": "r", "phase": "a"}) == WIDE
    widths.learn({"run": "r", "phase": "a"}, np.array([1e12]))
    widths.learn({"run": "r", "phase": "b"}, np.array([3.0]))
    assert widths.of({"run": "r", "phase": "a"}) == 6
    assert widths.of({"run": "r", "phase": "b"}) == 1
    assert widths.of({"run": "r", "phase": "c"}) == WIDE
    assert widths.of({"run": "other", "phase": "b"}) == WIDE


@pytest.mark.parametrize("high", [0, 9, -1, 1.5, "1", True])
def test_a_width_that_is_none_is_refused(high: int) -> None:
    with pytest.raises(MessageError, match="no width"):
        high_bytes({"secure.high": high})


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"low": np.zeros(2, np.uint64)},
        {"low": np.zeros(2, np.uint64), "high": np.zeros((2, 2), np.uint8)},
        {"low": np.zeros(2, np.uint64), "high": np.zeros((3, 1), np.uint8)},
        {"low": np.zeros(2), "high": np.zeros((2, 1), np.uint8)},
        {"words": np.zeros((2, 2), np.uint64)},
    ],
)
def test_other_fields_are_no_words(content: Message) -> None:
    assert unpacked(content, 1, 2) is None
    assert unpacked({"words": np.zeros((2, 3), np.uint64)}, WIDE, 2) is None
