"""Words without the bytes that no total needs.

A word pair of fixed_point.py has 64 bits of fraction and 64 of whole part.  Modulo 2^(64 + 8 h), the low word and the
lowest h bytes of the high one, sums are exact as long as totals stay below 2^(8 h - 1).  How many bytes are enough is
the server's guess from a total that it knows; whether they are, sites say in the verdicts of their summands, which are
added up with all else (fixed_point.py).
"""

from collections.abc import Mapping

import numpy as np

from dagora.aggregation.fixed_point import LARGEST, Words
from dagora.arrays import FloatArray
from dagora.errors import MessageError
from dagora.federated.message import Message, Value

WIDE = 8  # bytes of the high word: all of them

_ROOM = 16.0  # times the mean summand, or 1 if that is less


class Widths:
    """The server's side: how many bytes of the high word to ask for, phase by phase."""

    def __init__(self, sites: int) -> None:
        self._sites = sites
        self._run: object = None
        self._known: dict[object, int] = {}
        self._wide = False

    def of(self, message: Message) -> int:
        """All of them in a phase's first round, and after a site has said that it needs them."""
        if message.get("run") != self._run:
            self._run, self._known, self._wide = message.get("run"), {}, False
        return WIDE if self._wide else self._known.get(message.get("phase"), WIDE)

    def learn(self, message: Message, total: FloatArray) -> None:
        """Enough for sixteen times the mean summand of this total."""
        mean = float(np.abs(total).max(initial=0.0)) / self._sites
        room = _ROOM * max(mean, 1.0) * self._sites
        self._known[message.get("phase")] = next((high for high in range(1, WIDE) if _limit(high) >= room), WIDE)

    def give_up(self, message: Message) -> None:
        """For the rest of the run."""
        self._wide = True


def high_bytes(message: Message) -> int:
    """What a site is asked for; all, if nothing is said."""
    high = message.get("secure.high", WIDE)
    if type(high) is not int or not 1 <= high <= WIDE:
        raise MessageError("message refused: it asks for words of no width")
    return high


def room(high: int) -> float:
    """What a total must stay below to fit into that many bytes."""
    return LARGEST if high == WIDE else _limit(high)


def packed(words: Words, high: int) -> Message:
    """Fields of a reply."""
    if high == WIDE:
        return {"words": words}
    columns = words[1].astype("<u8").view(np.uint8).reshape(-1, WIDE)
    return {"low": words[0], "high": np.ascontiguousarray(columns[:, :high])}


def unpacked(content: Mapping[str, Value], high: int, size: int) -> Words | None:
    """Words again; None if the fields are not such."""
    if high == WIDE:
        words = content.get("words")
        whole = isinstance(words, np.ndarray) and words.dtype == np.uint64 and words.shape == (2, size)
        return words if whole and isinstance(words, np.ndarray) else None
    low, upper = content.get("low"), content.get("high")
    if not isinstance(low, np.ndarray) or low.dtype != np.uint64 or low.shape != (size,):
        return None
    if not isinstance(upper, np.ndarray) or upper.dtype != np.uint8 or upper.shape != (size, high):
        return None
    columns = np.zeros((size, WIDE), dtype=np.uint8)
    columns[:, :high] = upper
    return np.stack([low, columns.view("<u8").ravel().astype(np.uint64)])


def signed(total: Words, high: int) -> Words:
    """A sum modulo 2^(64 + 8 high) as a number of 128 bits: its sign is in the highest bit that was sent."""
    if high == WIDE:
        return total
    rest = np.uint64(64 - 8 * high)
    upper = (total[1] << rest).view(np.int64) >> rest.astype(np.int64)  # an arithmetic shift carries the sign down
    return np.stack([total[0], upper.view(np.uint64)])


def _limit(high: int) -> float:
    return float(2.0 ** (8 * high - 1))
