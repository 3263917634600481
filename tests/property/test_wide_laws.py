"""Numbers with twice a double's digits, against exact rational arithmetic, on their own and through every sum."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagora.aggregation import fixed_point, residues
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.encoding import Encoder
from dagora.aggregation.layout import Layout
from dagora.aggregation.registry import AGGREGATIONS
from dagora.arrays import FloatArray
from dagora.federated.message import Message
from dagora.federated.protocol import Summand
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess
from dagora.wide import LOW, Wide, without_low

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False, allow_subnormal=False).filter(lambda v: v == 0.0 or abs(v) > 1e-9)
CLOSE = Fraction(1, 2**100)


def wide(value: float) -> Wide:
    return Wide(np.array([value]), np.zeros(1))


def exact(number: Wide) -> Fraction:
    return Fraction(float(number.high[0])) + Fraction(float(number.low[0]))


def is_close(found: Wide, truth: Fraction, scale: Fraction) -> bool:
    return abs(exact(found) - truth) <= CLOSE * max(scale, Fraction(1, 10**30))


@given(NUMBERS, NUMBERS)
def test_a_product_of_doubles_is_exact(a: float, b: float) -> None:
    assert exact(Wide.product(np.array([a]), np.array([b]))) == Fraction(a) * Fraction(b)


@given(NUMBERS, NUMBERS, NUMBERS, st.integers(1, 10**6))
def test_sums_products_and_quotients(a: float, b: float, c: float, n: int) -> None:
    A, B, C = Fraction(a), Fraction(b), Fraction(c)
    ab = Wide.product(np.array([a]), np.array([b]))
    assert is_close(ab + wide(c), A * B + C, abs(A * B) + abs(C))
    assert is_close(ab - wide(c), A * B - C, abs(A * B) + abs(C))
    assert is_close(ab.times(wide(c)), A * B * C, abs(A * B * C))
    assert is_close(ab.over(n), A * B / n, abs(A * B / n))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6))
def test_encoded_numbers_keep_their_low_digits(pairs: list[tuple[float, float]]) -> None:
    pairs = [(a / 8.0, b / 8.0) for a, b in pairs]  # sums of six products are in range
    encoder, total = Encoder(len(pairs)), np.zeros((2, 2), dtype=np.uint64)
    truth = Fraction(0)
    for a, b in pairs:
        product = Wide.product(np.array([a]), np.array([b]))
        high, low = Fraction(float(product.high[0])), Fraction(float(product.low[0]))
        truth += Fraction(round(high * 2**64), 2**64) + Fraction(round(low * 2**64), 2**64)
        words = encoder.words("run", product.fields("x"))
        assert words is not None
        fixed_point.add_to(*total, *words)
    found = fixed_point.decode_wide(total[:, :1])
    assert is_close(found, truth, abs(truth))
    again = residues.to_wide(residues.of_words(total[:, :1]))
    assert (again.high[0], again.low[0]) == (found.high[0], found.low[0])


def test_what_is_not_finite_stays_so() -> None:
    with np.errstate(all="raise"):
        for value in (1e200, np.inf, np.nan):
            found = Wide.product(np.array([value]), np.array([value]))
            assert not np.isfinite(found.high[0])
            assert found.low[0] == 0.0


class Sums:
    """A site part with a wide field between two that are not."""

    def init(self, data: FloatArray) -> FloatArray:
        return data

    def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
        product = Wide.product(state, state[::-1])
        return state, {"first": state[:1], **product.fields("products"), "last": np.array(1.0)}


@pytest.mark.parametrize("name", ["plain", "masked", "shared", "encrypted"])
def test_a_total_has_all_digits(name: str) -> None:
    sites = ("a", "b", "c")
    data = {site: np.random.default_rng(k).normal(1e5, 1.0, 4) for k, site in enumerate(sites)}
    aggregation = AGGREGATIONS[name](Cohort.simulated(sites), None)
    wire = InProcess([Site(site, Sums(), own, aggregation) for site, own in data.items()])
    total = aggregation.total(wire, {"run": "run", "round": 1})
    assert set(total) == {"first", "products", "products" + LOW, "last"}
    for j in range(4):
        truth = sum(Fraction(float(own[j])) * Fraction(float(own[::-1][j])) for own in data.values())
        found = Fraction(float(total["products"][j])) + Fraction(float(total["products" + LOW][j]))
        assert abs(found - truth) < Fraction(1, 2**60)
    assert total["last"] == 3.0


def test_a_wide_number_is_counted_and_sent_once() -> None:
    summand = Sums().local_update(np.ones(4), {})[1]
    layout = Layout.of(summand)
    assert layout.size == 6
    assert Layout.read(layout.text, "a") == layout
    assert list(without_low(summand)) == ["first", "products", "last"]
