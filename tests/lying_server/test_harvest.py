"""The kit itself: an honest script gives the totals, and planted leaks are found in every kind of reply."""

from collections.abc import Sequence

import numpy as np
import pytest

from dagora.aggregation import fixed_point, residues
from dagora.aggregation.registry import AGGREGATIONS
from dagora.arrays import FloatArray
from dagora.audit.conversation import Conversation, Truth, converse
from dagora.audit.harvest import harvest
from dagora.audit.lies import Heard, Lie, Script, View
from dagora.federated.message import Message
from tests.lying_server.kit import echo_stage, numbers

NAMES = ("ann", "bob", "cleo", "dan")
DATA = numbers(4, seed=3)
TOTAL = np.sum(list(DATA.values()), axis=0)
RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_an_honest_script_gives_the_totals(aggregation: str) -> None:
    pytest.importorskip({"encrypted": "tenseal", "gaussian": "opendp"}.get(aggregation, "numpy"))
    stage = echo_stage(aggregation, DATA, [{"shift": 0.0}, {"shift": 1.0}])
    heard = converse(stage, Script(tries=2))
    assert heard.failures == heard.crashes == ()
    expected = [TOTAL, TOTAL, TOTAL + 4.0, TOTAL + 4.0]
    noise = 50.0 if aggregation == "gaussian" else 1e-9
    for total, sums in zip(heard.totals, expected, strict=True):
        np.testing.assert_allclose(total["value"], sums, atol=noise)
    found = harvest([heard], stage.rows)
    assert {site for site, one in found.items() if one.recovered} == (set(NAMES) if aggregation == "plain" else set())


def test_a_lie_that_is_no_lie_changes_nothing() -> None:
    same = tuple((site, View(NAMES)) for site in NAMES)
    heard = converse(echo_stage("masked", DATA), Script((Lie("change", "no such field", 1.0),), views=same))
    np.testing.assert_allclose(heard.totals[0]["value"], TOTAL)


def planted(replies: Sequence[tuple[str, int, Message]]) -> tuple[str, ...]:
    """Who is recovered from these replies, by site and attempt."""
    truths = tuple(Truth(site, b"", {"value": values}) for site, values in DATA.items())
    views = {site: View(NAMES) for site in NAMES}
    heard = tuple(Heard(site, {"run": "r", "round": 1, "secure.attempt": n}, reply) for site, n, reply in replies)
    found = harvest([Conversation(Script(), heard, truths, views, (), (), ())], dict.fromkeys(NAMES, 100))
    return tuple(site for site, one in found.items() if one.recovered)


def masks(count: int, size: int) -> list[fixed_point.Words]:
    """Random words that add up to nothing."""
    drawn = [RANDOM.integers(0, 2**64, (2, size), dtype=np.uint64) for _ in range(count - 1)]
    last = np.zeros((2, size), np.uint64)
    for each in drawn:
        last = fixed_point.add(last, each)
    return [*drawn, fixed_point.negative(last)]


def masked(values: Sequence[FloatArray]) -> list[fixed_point.Words]:
    return [
        fixed_point.add(fixed_point.encode(own), mask) for own, mask in zip(values, masks(len(values), 6), strict=True)
    ]


def test_masked_words() -> None:
    whole = [(site, 0, {"words": words}) for site, words in zip(NAMES, masked(list(DATA.values())), strict=True)]
    assert planted(whole) == ()
    assert planted([*whole, ("ann", 1, {"words": fixed_point.encode(DATA["ann"])})]) == ("ann",)
    others = [values if site != "bob" else np.zeros(6) for site, values in DATA.items()]
    without = [(site, 1, {"words": words}) for site, words in zip(NAMES, masked(others), strict=True)]
    assert planted(without) == ()
    assert planted([*whole, *without]) == ("bob",)
    part = [(site, 1, {"words": words}) for site, words in zip(NAMES[1:], masked(others[1:]), strict=True)]
    assert planted(part) == ()


def test_words_that_cancel_in_their_low_bytes_only() -> None:
    whole = [(site, 0, {"words": words}) for site, words in zip(NAMES, masked(list(DATA.values())), strict=True)]
    others = [values if site != "bob" else np.zeros(6) for site, values in DATA.items()]
    broken: list[tuple[str, int, Message]] = []
    for site, words in zip(NAMES, masked(others), strict=True):
        torn = words.copy()
        torn[1] += RANDOM.integers(0, 2**48, 6, dtype=np.uint64) << np.uint64(16)
        broken.append((site, 1, {"words": torn}))
    assert planted([*whole, *broken]) == ("bob",)


def test_points_of_polynomials() -> None:
    def points(values: FloatArray, attempt: int) -> list[tuple[str, int, Message]]:
        secret = residues.of_words(fixed_point.encode(values))
        slope = RANDOM.integers(0, 2**31, secret.shape).astype(np.uint64)
        at = [(secret + slope * np.uint64(x)) % residues.MODULI for x in range(1, 5)]
        return [(site, attempt, {"point": point}) for site, point in zip(NAMES, at, strict=True)]

    assert planted(points(TOTAL, 0)) == ()
    assert planted(points(DATA["cleo"], 0)[1:]) == ("cleo",)
    assert planted([*points(TOTAL, 0), *points(TOTAL - DATA["dan"], 1)]) == ("dan",)


def test_opened_residues() -> None:
    def opened(words: fixed_point.Words, attempt: int) -> tuple[str, int, Message]:
        return "ann", attempt, {"residues": residues.of_words(words)}

    total = opened(fixed_point.encode(TOTAL), 0)
    assert planted([total]) == ()
    assert planted([total, opened(fixed_point.encode(DATA["bob"]), 1)]) == ("bob",)
    assert planted([total, opened(fixed_point.encode(TOTAL - DATA["bob"]), 1)]) == ("bob",)
