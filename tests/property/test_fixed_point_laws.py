"""Laws of the encodings that private sums rest on, against exact rational arithmetic."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagora
from dagora.aggregation import fixed_point, residues
from dagora.aggregation.encoding import Encoder, check_witness
from dagora.aggregation.fixed_point import LARGEST, Words

pytestmark = pytest.mark.soak

NUMBERS = st.floats(min_value=-1e16, max_value=1e16, allow_nan=False)
SUMMANDS = st.lists(NUMBERS, min_size=1, max_size=12)


def words(values: list[float], parties: int = 1) -> Words:
    return fixed_point.encode(np.array(values))


def integers(encoded: Words) -> list[int]:
    """What words (2, n) stand for, times 2^64."""
    unsigned = [(int(high) << 64) | int(low) for low, high in encoded.T]
    return [value - (1 << 128) if value >> 127 else value for value in unsigned]


@given(SUMMANDS)
def test_encoding_rounds_to_the_nearest_multiple(values: list[float]) -> None:
    assert integers(words(values)) == [round(Fraction(value) * 2**64) for value in values]


@given(st.lists(st.integers(-(2**126), 2**126), min_size=1, max_size=12))
def test_decoding_rounds_once(values: list[int]) -> None:
    unsigned = [value % 2**128 for value in values]
    encoded = np.array([[v % 2**64 for v in unsigned], [v >> 64 for v in unsigned]], dtype=np.uint64)
    assert fixed_point.decode(encoded).tolist() == [float(Fraction(value, 2**64)) for value in values]


@given(SUMMANDS)
def test_a_sum_is_exact(values: list[float]) -> None:
    encoded = words(values, len(values))
    total = np.zeros((2, 1), dtype=np.uint64)
    for k in range(len(values)):
        fixed_point.add_to(*total, *encoded[:, k : k + 1])
    exact = sum(round(Fraction(value) * 2**64) for value in values)
    assert integers(total) == [exact]
    assert fixed_point.decode(total)[0] == float(Fraction(exact, 2**64))


@given(st.lists(NUMBERS, min_size=3, max_size=3))
def test_the_order_of_sites_changes_no_bit(values: list[float]) -> None:
    totals = set()
    for order in permutations(values):
        a, b, c = (words([value], 3) for value in order)
        totals.add(fixed_point.add(fixed_point.add(a, b), c).tobytes())
    assert len(totals) == 1


@given(SUMMANDS, st.binary(min_size=16, max_size=16))
def test_a_mask_that_is_added_and_subtracted_leaves_nothing(values: list[float], random: bytes) -> None:
    encoded = words(values)
    masked, mask = encoded.copy(), np.tile(np.frombuffer(random, np.uint64)[:, None], len(values))
    fixed_point.add_to(*masked, *mask)
    assert integers(masked) == [
        (value + (1 << 127) + integers(mask)[0]) % (1 << 128) - (1 << 127) for value in integers(encoded)
    ]
    fixed_point.subtract_from(*masked, *mask)
    np.testing.assert_array_equal(masked, encoded)


@given(SUMMANDS)
def test_a_negative_adds_up_to_zero(values: list[float]) -> None:
    encoded = words(values)
    assert not fixed_point.add(encoded, fixed_point.negative(encoded)).any()


@given(st.integers(1, 1000))
def test_the_largest_summands_do_not_wrap_around(parties: int) -> None:
    largest = np.nextafter(LARGEST / parties, 0.0)
    for sign in (1.0, -1.0):
        encoded, total = words([sign * largest], parties), np.zeros((2, 1), dtype=np.uint64)
        for _ in range(parties):
            fixed_point.add_to(*total, *encoded)
        assert fixed_point.decode(total)[0] == pytest.approx(sign * largest * parties)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, LARGEST, -LARGEST, 1e300])
def test_of_values_out_of_range_there_are_no_words_until_the_run_ends(value: float) -> None:
    encoder = Encoder(1)
    summand = {"rows": np.array(1.0), "squares": np.array([0.0, value])}
    fine = {"rows": np.array(1.0), "squares": np.zeros(2)}
    first = encoder.words("run", fine)
    assert first is not None
    assert fixed_point.decode(first).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert encoder.words("run", summand) is None
    assert encoder.words("run", fine) is None
    assert encoder.words("another", fine) is not None
    assert Encoder(4).words("run", {"a": np.array([LARGEST / 4])}) is None


def test_the_witness_is_the_number_of_sites() -> None:
    check_witness(4.0, 4)
    for witness in (0.0, 3.0, 5.0, 4.0 + 1e-9, -4.0, 1e30):
        with pytest.raises(dagora.NumericalError, match=r"the total of 4 sites is noise.*2\^62 / 4"):
            check_witness(witness, 4)


@given(SUMMANDS)
def test_residues_add_up_to_the_same_total(values: list[float]) -> None:
    encoded = words(values, len(values))
    parts = residues.of_words(encoded)
    assert parts.tolist() == [[value % prime for value in integers(encoded)] for prime in residues.PRIMES]
    total = np.zeros((2, 1), dtype=np.uint64)
    for k in range(len(values)):
        fixed_point.add_to(*total, *encoded[:, k : k + 1])
    summed = parts.sum(axis=1, keepdims=True) % residues.MODULI  # at most 12 numbers below 2^32
    assert residues.to_floats(summed).tobytes() == fixed_point.decode(total).tobytes()


def test_the_moduli_are_primes_that_hold_every_total() -> None:
    for prime in residues.PRIMES:
        assert prime < 2**32
        assert prime % 2**14 == 1
        assert all(prime % divisor for divisor in range(2, 65536))
    assert np.prod([int(p) for p in residues.PRIMES], dtype=object) > 2 * 2**126


def test_uniform_residues_are_uniform() -> None:
    draw = np.random.default_rng(0).bytes(residues.bytes_for(20000))
    values = residues.uniform((20000,), draw) / residues.MODULI
    counts = np.stack([np.histogram(row, 16, (0.0, 1.0))[0] for row in values])
    chi_square = ((counts - 1250.0) ** 2 / 1250.0).sum(axis=1)
    assert (chi_square < 50.0).all()  # 15 degrees of freedom: exceeded once in 1e5 draws
