"""Fixed-point numbers modulo four primes: secret sharing and homomorphic encryption compute in fields, not in Z_2^128.

The primes' product is above 2^127, so a signed total below 2^126 comes back exactly (Chinese remainders).  They are
just below 2^32, so that products fit in 64 bits, and leave 1 modulo 2^14, as batching in BFV wants them.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dagora.aggregation.fixed_point import FRACTION_BITS, Words
from dagora.arrays import FloatArray
from dagora.wide import Wide

PRIMES = (4294475777, 4293918721, 4293836801, 4293230593)

Residues: TypeAlias = npt.NDArray[np.uint64]  # (len(PRIMES), ...)

MODULI: Residues = np.array(PRIMES, dtype=np.uint64)[:, None]
_BIG = np.prod([int(p) for p in PRIMES], dtype=object)


def of_words(words: Words) -> Residues:
    """Residues (4, n) of the signed numbers that words (2, n) stand for."""
    word = np.array([pow(2, 64, p) for p in PRIMES], dtype=np.uint64)[:, None]
    wrap = np.array([pow(2, 128, p) for p in PRIMES], dtype=np.uint64)[:, None]
    unsigned = (words[1] % MODULI * word % MODULI + words[0] % MODULI) % MODULI
    negative = words[1] >> np.uint64(63)  # two's complement: such a number stands for itself less 2^128
    signed: Residues = (unsigned + (MODULI - wrap) * negative) % MODULI
    return signed


def to_floats(residues: Residues) -> FloatArray:
    """Numbers with |v| < 2^62 from the residues of their fixed-point form."""
    return _rounded(_signed(residues))


def to_wide(residues: Residues) -> Wide:
    """The same with all their digits."""
    signed = _signed(residues)
    rounded = np.array([int(float(value)) for value in signed], dtype=object)
    return Wide(_rounded(signed), _rounded(signed - rounded))


def _signed(residues: Residues) -> npt.NDArray[np.object_]:
    total = np.zeros(residues.shape[1], dtype=object)
    for prime, row in zip(PRIMES, residues, strict=True):
        rest = _BIG // prime
        total += row.astype(object) * (rest * pow(rest, -1, prime))
    total %= _BIG
    signed: npt.NDArray[np.object_] = np.where(total > _BIG // 2, total - _BIG, total)
    return signed


def _rounded(numbers: npt.NDArray[np.object_]) -> FloatArray:
    return np.array([float(value) for value in numbers], dtype=np.float64) / 2.0**FRACTION_BITS


def uniform(shape: tuple[int, ...], random: bytes) -> Residues:
    """Residues (4, *shape) from 16 random bytes each: within 2^-96 of uniform."""
    high, low = np.frombuffer(random, np.uint64).reshape(2, len(PRIMES), -1)
    word = np.array([pow(2, 64, p) for p in PRIMES], dtype=np.uint64)[:, None]
    return ((high % MODULI * word % MODULI + low % MODULI) % MODULI).reshape(len(PRIMES), *shape)


def bytes_for(count: int) -> int:
    """How many random bytes `uniform` needs for `count` numbers."""
    return 16 * len(PRIMES) * count
