"""Real numbers as elements of a finite ring, so that masks can hide them perfectly and sums are exact.

A number v is round(v 2^64) in Z_2^128, negative numbers as two's complement, kept as two words of Z_2^64: low (the
fraction) and high (the whole part).  One word is not enough for raw data: the squares of a column in the thousands
and those of one in the thousandths have 40 binary digits between them before their own digits begin.

    a double  ->  words   rounds to the nearest multiple of 2^-64; doubles of 2^-12 and more are kept exactly
    sums of words         are exact and do not depend on the order of the sites
    words  ->  a double   rounds once more

Sums wrap around unless |v| < 2^62 / K for all summands, K the number of sites; encoding.py says what a site does with
numbers that are not such.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dagora.arrays import FloatArray
from dagora.wide import Wide

Word: TypeAlias = npt.NDArray[np.uint64]
Words: TypeAlias = npt.NDArray[np.uint64]  # (2, ...): low and high words

FRACTION_BITS = 64
LARGEST = 2.0**62  # of a total

_UNIT = 2.0**FRACTION_BITS
_SIGN, _NONE, _ONES = np.uint64(1 << 63), np.uint64(0), np.uint64(2**64 - 1)


def encode(values: FloatArray) -> Words:
    """Words of numbers, each below 2^62 in size."""
    magnitude = np.abs(values)
    whole = np.floor(magnitude)
    words = np.empty((2, *magnitude.shape), dtype=np.uint64)
    # Both parts are exact, and the fraction is at most 1 - 2^-53: rounding cannot carry into the whole part.
    words[0] = np.rint((magnitude - whole) * _UNIT)
    words[1] = whole
    below = np.signbit(values)
    words ^= np.where(below, _ONES, _NONE)  # two's complement: all digits turned, and one added
    words[0] += below
    words[1] += below & (words[0] == 0)
    return words


def decode(words: Words) -> FloatArray:
    """The numbers that words stand for, rounded once, to the nearest double."""
    below = words[1] >= _SIGN
    low, high = np.where(below, negative(words), words)
    # The 64 leading digits, and as the last of them whether anything but zeros follows: enough to round correctly.
    cut = np.frexp(high.astype(np.float64))[1]
    shift = cut.astype(np.uint64)
    rest = low & ((np.uint64(1) << shift) - np.uint64(1))
    leading = (high << (np.uint64(64) - shift)) | (low >> shift) | (rest != 0)
    magnitude = np.ldexp(leading.astype(np.float64), cut - FRACTION_BITS)
    signed: FloatArray = np.where(below, -magnitude, magnitude)
    return signed


def decode_wide(words: Words) -> Wide:
    """The same with all their digits."""
    high = decode(words)
    return Wide(high, decode(add(words, negative(encode(high)))))


def add(a: Words, b: Words) -> Words:
    """Sum in Z_2^128."""
    low = a[0] + b[0]
    return np.stack([low, a[1] + b[1] + (low < b[0])])


def negative(a: Words) -> Words:
    """The number that adds up to zero with `a`."""
    low = ~a[0] + np.uint64(1)
    return np.stack([low, ~a[1] + (low == 0)])


def add_to(low: Word, high: Word, other_low: Word, other_high: Word) -> None:
    """A sum in place, for loops over masks."""
    low += other_low
    high += other_high
    high += low < other_low


def subtract_from(low: Word, high: Word, other_low: Word, other_high: Word) -> None:
    """A difference in place."""
    high -= low < other_low
    low -= other_low
    high -= other_high
