"""All that a lying coordinator heard, searched for a single site's summand.

    1. sums that mean something: of payloads over every group of sites that was told a cohort, at every width of words
       (masked); values at 0 of the polynomials through every group of points (shared); what the key holder opened
       (encrypted); the replies themselves (plain)
    2. candidates: these sums, and the difference of every two of them
    3. for each site: the candidate that comes closest to a summand of that site

Step 3 needs the truth.  A coordinator without it would have the same candidates and recognise the right one by what it
knows of data, so the auditor grants it the choice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from dagora.aggregation import residues
from dagora.aggregation.residues import PRIMES
from dagora.arrays import FloatArray
from dagora.audit.conversation import Conversation, Truth
from dagora.audit.lies import Heard
from dagora.federated.message import Value
from dagora.wide import LOW

RECOVERED = 1e-3  # relative error below which a summand counts as recovered
EXACTLY = 1e-9  # the same where few of its numbers are telling: one of many candidates comes close to them by chance
GUESSED = 1e-2  # a number is telling if the honest total does not give it within this
_TELLING = 4  # numbers from which on chance plays no part

WIDE = 8  # bytes of the high word
_MIXED = 16  # sums of payloads from different attempts, for each group of sites
_KEPT = 32  # sums of which differences are taken
_ORDER = 2.2  # mean number of zeros that end the low words of a sum; 1 in random words
_OPENED = 6  # openings of which all sums are tried
_ALL_GROUPS = 5  # up to so many sites, all groups of them are tried

_Words = npt.NDArray[np.uint64]
_Turn = tuple[object, ...]


@dataclass(frozen=True)
class Recovery:
    """The best that was made of a site's summand, and the best guess from the honest total.

    error, guess: median relative errors over the telling numbers; if there are few, in the Frobenius norm of all.
    telling: how many numbers the honest total does not give.
    """

    site: str
    error: float
    guess: float
    telling: int
    found: FloatArray | None = field(default=None, repr=False)
    truth: Truth | None = field(default=None, repr=False)

    @property
    def recovered(self) -> bool:
        """Whether the coordinator has the summand and could not have guessed it."""
        bound = RECOVERED if self.telling >= _TELLING else EXACTLY
        return self.telling > 0 and self.error < bound and self.guess > GUESSED


def harvest(
    conversations: Sequence[Conversation], rows: Mapping[str, int], more: Sequence[FloatArray] = ()
) -> dict[str, Recovery]:
    """The best recovery of a summand of each site; `more` are candidates that an attack has computed itself."""
    best: dict[str, Recovery] = {}
    for found in recoveries(conversations, rows, more):
        known = best.get(found.site)
        if known is None or (found.recovered, -found.error) > (known.recovered, -known.error):
            best[found.site] = found
    return best


def recoveries(
    conversations: Sequence[Conversation], rows: Mapping[str, int], more: Sequence[FloatArray] = ()
) -> list[Recovery]:
    """The same for every single summand."""
    truths = _distinct(truth for each in conversations for truth in each.truths)
    heard = [one for each in conversations for one in each.heard if one.reply is not None]
    groups = sorted({tuple(view.sites) for each in conversations for view in each.views.values()})
    totals = _honest_totals(truths)
    cache: dict[int, FloatArray] = {}
    result: list[Recovery] = []
    for truth in truths:
        vector = truth.vector
        if not vector.any():
            continue
        if len(vector) not in cache:
            cache[len(vector)] = _candidates(heard, groups, tuple(rows), len(vector), more)
        guesses = _guesses(totals, truth.site, len(vector), rows)
        telling = np.abs(guesses - vector).min(axis=0) > GUESSED * np.abs(vector)
        error, found = _closest(cache[len(vector)], vector, telling)
        guess, _ = _closest(guesses, vector, telling)
        result.append(Recovery(truth.site, error, guess, int(telling.sum()), found, truth))
    return result


def _distinct(truths: Iterable[Truth]) -> list[Truth]:
    """Without repeats: a retry adds the same summand again."""
    found = {(truth.site, truth.asked, truth.vector.tobytes()): truth for truth in truths}
    return list(found.values())


def _honest_totals(truths: Sequence[Truth]) -> list[dict[str, FloatArray]]:
    """Summands of all sites by question, as an honest coordinator would have added them up."""
    asked: dict[tuple[bytes, int], dict[str, FloatArray]] = {}
    for truth in truths:
        for key in ((truth.asked, truth.vector.size), (b"", truth.vector.size)):
            asked.setdefault(key, {})[truth.site] = truth.vector
    return list(asked.values())


def _guesses(totals: Sequence[dict[str, FloatArray]], site: str, size: int, rows: Mapping[str, int]) -> FloatArray:
    """An equal share of the honest total, a share by rows, all of it, and nothing at all."""
    found: list[FloatArray] = []
    for own in totals:
        total = np.sum(list(own.values()), axis=0)
        if site in own and total.size == size and len(own) > 1:
            found += [total / len(own), total * (rows[site] / sum(rows[each] for each in own)), total]
    return np.stack([*found, np.zeros(size)])


def _closest(
    candidates: FloatArray, truth: FloatArray, telling: npt.NDArray[np.bool_]
) -> tuple[float, FloatArray | None]:
    """The least relative error.  The median forgives numbers that are too large for narrow words."""
    if not len(candidates):
        return np.inf, None
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(candidates - truth)
        if telling.sum() >= _TELLING:
            errors = np.median(off[:, telling] / np.abs(truth[telling]), axis=1)
        else:
            errors = np.linalg.norm(off, axis=1) / np.linalg.norm(truth)
    errors = np.where(np.isfinite(errors), errors, np.inf)
    place = int(np.argmin(errors))
    return float(errors[place]), candidates[place]


def _candidates(
    heard: Sequence[Heard],
    groups: Sequence[tuple[str, ...]],
    sites: tuple[str, ...],
    size: int,
    more: Sequence[FloatArray],
) -> FloatArray:
    """All vectors of this size that a coordinator might take for a summand."""
    found = [np.ravel(each)[None, :size] for each in more if np.size(each) >= size]
    words = list(_masked_sums(heard, groups, sites, size))
    for width in range(1, WIDE + 1):
        readable = [signed(low, high, width) for low, high, least in words if width <= least]
        found += _with_differences(np.stack(readable), 2.0 ** (8 * width)) if readable else []
    numbers = [*_interpolated(heard, groups, size), *_opened_sums(heard, size), *_plain(heard, size)]
    found += _with_differences(np.stack(numbers), None) if numbers else []
    return np.concatenate(found) if found else np.zeros((0, size))


def _with_differences(sums: FloatArray, ring: float | None) -> list[FloatArray]:
    """Sums, and differences in both directions; modulo `ring`, if the whole parts are cut off there."""
    _, first = np.unique(sums, axis=0, return_index=True)
    sums = sums[np.sort(first)][:_KEPT]
    one, other = np.triu_indices(len(sums), 1)
    change = sums[one] - sums[other]
    if ring is not None and ring < 2.0**64:
        change = (change + ring / 2.0) % ring - ring / 2.0
    return [sums, change, -change]


# Masked sums.


def words_of(content: Mapping[str, Value]) -> tuple[_Words, _Words, int] | None:
    """Low and high words of a masked payload, and how many bytes of the high words were sent."""
    words, low, high = content.get("words"), content.get("low"), content.get("high")
    if isinstance(words, np.ndarray) and words.dtype == np.uint64 and words.ndim == 2 and len(words) == 2:
        return words[0], words[1], WIDE
    if not (isinstance(low, np.ndarray) and low.dtype == np.uint64 and isinstance(high, np.ndarray)):
        return None
    if high.dtype != np.uint8 or high.ndim != 2 or len(high) != len(low) or not 1 <= high.shape[1] <= WIDE:
        return None
    columns = np.zeros((len(low), WIDE), np.uint8)
    columns[:, : high.shape[1]] = high
    return low, columns.view("<u8").ravel().astype(np.uint64), high.shape[1]


def signed(low: _Words, high: _Words, width: int) -> FloatArray:
    """Numbers modulo 2^(64 + 8 width), with the sign in the highest bit; the fraction is in the low word."""
    rest = np.uint64(8 * (WIDE - width))
    whole = (high << rest).view(np.int64) >> rest.astype(np.int64)
    numbers: FloatArray = whole.astype(np.float64) + low.astype(np.float64) / 2.0**64
    return numbers


def _masked_sums(
    heard: Sequence[Heard], groups: Sequence[tuple[str, ...]], sites: tuple[str, ...], size: int
) -> list[tuple[_Words, _Words, int]]:
    """Sums whose masks have cancelled, as far as that shows: the low words of random numbers do not end in zeros."""
    payloads: dict[str, list[tuple[_Turn, _Words, _Words, int]]] = {}
    for each in heard:
        read = words_of(each.content)
        if read is not None and len(read[0]) >= size:
            low, high, width = read
            payloads.setdefault(each.site, []).append((_turn(each), low[:size], high[:size], width))
    if not payloads:
        return []
    zero = np.zeros(size, np.uint64)
    index: dict[str, list[int]] = {}
    table: list[tuple[_Turn, _Words, _Words, int]] = [((), zero, zero, WIDE)]  # row 0: a site that is left out
    for site, own in payloads.items():
        index[site] = list(range(len(table), len(table) + len(own)))
        table += own
    chosen = np.array(list(_choices(index, table, groups, sites)), dtype=np.int64)
    lows, highs = np.stack([row[1] for row in table]), np.stack([row[2] for row in table])
    low, high = np.zeros((2, len(chosen), size), np.uint64)
    for column in chosen.T:
        low += lows[column]
        high += highs[column] + (low < lows[column])
    least = np.array([row[3] for row in table])[chosen].min(axis=1)
    lowest = low & (~low + np.uint64(1))
    zeros = np.log2(np.where(lowest == 0, np.uint64(1 << 32), lowest).astype(np.float64)).clip(max=32.0).mean(axis=1)
    order = [int(place) for place in np.argsort(-zeros, kind="stable")[:_KEPT] if zeros[place] > _ORDER]
    return [(low[place], high[place], int(least[place])) for place in order]


def _choices(
    index: Mapping[str, list[int]],
    table: Sequence[tuple[_Turn, _Words, _Words, int]],
    groups: Sequence[tuple[str, ...]],
    sites: tuple[str, ...],
) -> Iterator[tuple[int, ...]]:
    """For each group of sites one payload of each: all of one attempt, then some from different ones."""
    tried = {frozenset(group) for group in groups} | {frozenset([site]) for site in sites}
    tried |= {frozenset(sites) - group for group in tried}
    if len(sites) <= _ALL_GROUPS:
        tried |= {frozenset(group) for count in range(1, len(sites) + 1) for group in combinations(sites, count)}
    turns = list(dict.fromkeys(row[0] for row in table[1:]))
    random = np.random.default_rng(0)
    for group in sorted(tried, key=sorted):
        if not group or not group <= index.keys():
            continue
        for turn in turns:
            own = [[i for i in index[site] if table[i][0] == turn][:4] if site in group else [0] for site in sites]
            yield from product(*own)
        if len(turns) > 1 and len(group) > 1:
            for drawn in random.integers(0, 1 << 30, (_MIXED, len(sites))).tolist():
                rows = zip(sites, drawn, strict=True)
                yield tuple(index[site][i % len(index[site])] if site in group else 0 for site, i in rows)


def _turn(each: Heard) -> _Turn:
    return tuple(each.question.get(name) for name in ("run", "round", "secure.attempt"))


# Shared sums.


def at_zero(points: Mapping[int, residues.Residues]) -> residues.Residues:
    """Lagrange interpolation at 0 through these points, by abscissa."""
    weights = _weights(tuple(points))
    total = np.zeros_like(next(iter(points.values())))
    for column, values in enumerate(points.values()):
        total = (total + values * weights[:, column, None]) % residues.MODULI
    return total


@lru_cache(maxsize=4096)
def _weights(xs: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    rows = [[1] * len(xs) for _ in PRIMES]
    for row, prime in zip(rows, PRIMES, strict=True):
        for i, x in enumerate(xs):
            for other in xs:
                if other != x:
                    row[i] = row[i] * other * pow(other - x, -1, prime) % prime
    return np.array(rows, dtype=np.uint64)


def _interpolated(heard: Sequence[Heard], groups: Sequence[tuple[str, ...]], size: int) -> Iterator[FloatArray]:
    points: dict[_Turn, dict[str, residues.Residues]] = {}
    for each in heard:
        value = each.content.get("point")
        if isinstance(value, np.ndarray) and value.ndim == 2 and len(value) == len(PRIMES) and value.shape[1] >= size:
            points.setdefault(_turn(each), {})[each.site] = value[:, :size].astype(np.uint64)
    found = []
    for own in points.values():
        for order in groups:
            here = [site for site in order if site in own]
            for count in range(1, len(here) + 1):
                for group in combinations(here, count):
                    found.append(at_zero({order.index(site) + 1: own[site] for site in group}))
    yield from _small(found)


def _small(found: Sequence[residues.Residues]) -> Iterator[FloatArray]:
    """Those that are not random: most numbers of random residues are near the largest that there are."""
    if not found:
        return
    size = found[0].shape[1]
    numbers = residues.to_floats(np.concatenate(found, axis=1)).reshape(len(found), size)
    yield from numbers[np.median(np.abs(numbers), axis=1) < 2.0**50]


# Encrypted and plain sums.


def _opened_sums(heard: Sequence[Heard], size: int) -> Iterator[FloatArray]:
    """What the key holder opened, and sums of it: single ciphertexts may hold masked numbers."""
    opened = []
    for each in heard:
        value = each.content.get("residues")
        if isinstance(value, np.ndarray) and value.ndim == 2 and len(value) == len(PRIMES) and value.shape[1] >= size:
            opened.append(value[:, :size].astype(np.uint64))
    groups = [group for count in range(1, len(opened[:_OPENED]) + 1) for group in combinations(opened[:_OPENED], count)]
    groups += [(value,) for value in opened[_OPENED:]]
    yield from _small([np.sum(group, axis=0) % residues.MODULI for group in groups])


def _plain(heard: Sequence[Heard], size: int) -> Iterator[FloatArray]:
    for each in heard:
        fields = {name: value for name, value in each.content.items() if not name.endswith(LOW)}
        arrays = [np.ravel(value) for value in fields.values() if isinstance(value, np.ndarray)]
        if arrays and all(array.dtype == np.float64 for array in arrays) and sum(map(np.size, arrays)) == size:
            yield np.concatenate(arrays)
