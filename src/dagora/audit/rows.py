"""Rows of a tiny site from its sums: n, sum x and sum x x' of n rows leave only a rotation of n dimensions open.

Let A hold the columns that are known row by row: a column of ones, and every 0/1 column once it has been pieced
together.  0/1 columns betray themselves (their sum of squares is their sum, a whole number), and their products are
counts of rows, so that a search over how many rows of each kind have the next column finds them all.  For the other
columns Y, A'Y is known.  Then Y is determined if A has rank n, and up to one sign if it has rank n - 1.

One row is its own sum; two rows need no 0/1 columns at all, for the sign only swaps them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

import numpy as np
from scipy.optimize import linear_sum_assignment

from dagora.arrays import FloatArray, IntArray
from dagora.audit.finding import SERVER, Finding, blind_error, relative_error
from dagora.audit.inversion import answers_read, recover_bounded
from dagora.audit.recovery import centre_of
from dagora.audit.transcript import Transcript
from dagora.data.moments import Moments

MOST_ROWS = 8
_MOST_CANDIDATES = 2000
_CLOSE = 1e-5  # of sums that are counts, relative to them: inversion leaves 1e-10, chance rarely less than 1e-2


def rows(transcript: Transcript, site: str, moments: Mapping[str, Moments], truth: FloatArray) -> Finding:
    """The server solves a site's replies for its moments, and those for its rows.  The rows' order is lost.

    Rows are measured from the run's centre, or from the site's own mean where that is never sent.
    """
    found = recover_bounded(transcript, answers_read(transcript, site), moments)
    centre = centre_of(transcript.messages, truth.shape[1])
    deviations = truth - (truth.mean(axis=0) if centre is None else centre)
    total = np.zeros(truth.shape[1]) if centre is None or found.mean is None else found.n * (found.mean - centre)
    most = found.n * np.sqrt(np.diag(found.second).clip(0.0)) * (1.0 + 1e-9)  # a mean square bounds a mean
    total = total.clip(-most, most)
    estimate, how = reconstruct(round(found.n), total, found.n * found.second, centre)
    if len(estimate) != len(truth):  # a count that was read off noise
        estimate = np.resize(estimate, truth.shape)
    _, order = linear_sum_assignment(((deviations[:, None] - estimate[None]) ** 2).sum(axis=2))
    error = relative_error(estimate[order], deviations)
    detail = f"{how}; as deviations from the {'own mean' if centre is None else 'centre'}; blind: none deviates"
    return Finding("rows", SERVER, f"rows of {site}", error, blind_error(np.zeros_like(truth), deviations), detail)


def reconstruct(n: int, total: FloatArray, squares: FloatArray, origin: FloatArray | None) -> tuple[FloatArray, str]:
    """Rows X (n, d) with sum_i x_i = total and X'X = squares, measured from `origin` (None: unknown), and how."""
    if not 1 <= n <= MOST_ROWS:
        return np.zeros((max(n, 1), len(total))), "too many rows"
    binary: IntArray = np.zeros(0, dtype=np.int64) if origin is None else _binary(n, total, squares, origin)
    if origin is None or len(binary) == 0:
        return _fit(np.ones((n, 1)), total[None], squares)[:2]
    rest = np.setdiff1d(np.arange(len(total)), binary)
    raw_total = total + n * origin
    raw = squares + np.outer(total, origin) + np.outer(origin, raw_total)
    counts = np.rint(raw[np.ix_(binary, binary)]).astype(np.int64)
    best, how, least = np.zeros((n, len(total))), "no 0/1 columns fit the counts", np.inf
    for Z in islice(_columns(n, counts), _MOST_CANDIDATES):
        A = np.hstack([np.ones((n, 1)), Z])
        known = np.vstack([raw_total[rest], raw[np.ix_(binary, rest)]])
        Y, text, misfit = _fit(A, known, raw[np.ix_(rest, rest)])
        if misfit < least:
            X = np.empty((n, len(total)))
            X[:, binary], X[:, rest] = Z, Y
            best, how, least = X - origin, f"{len(binary)} columns of 0 and 1 pieced together, {text}", misfit
        if least < _CLOSE:
            break
    return best, how


def _binary(n: int, total: FloatArray, squares: FloatArray, origin: FloatArray) -> IntArray:
    """Columns of 0 and 1: sum of squares = sum = a whole number, neither 0 nor n."""
    raw = total + n * origin
    raw_squares = np.diag(squares) + 2.0 * origin * total + n * origin**2
    whole = np.rint(raw)
    fits = (np.abs(raw - whole) < _CLOSE * n) & (np.abs(raw_squares - whole) < _CLOSE * n)
    return np.flatnonzero(fits & (whole > 0) & (whole < n))


def _columns(n: int, counts: IntArray) -> Iterator[FloatArray]:
    """All 0/1 matrices, up to the order of rows, whose columns have these counts in common."""

    def extend(kinds: Sequence[tuple[tuple[int, ...], int]], j: int) -> Iterator[FloatArray]:
        if j == len(counts):
            yield np.array([kind for kind, size in kinds for _ in range(size)], dtype=np.float64)
            return
        for chosen in product(*(range(size + 1) for _, size in kinds)):
            pairs = list(zip(kinds, chosen, strict=True))
            shared = [sum(c for (kind, _), c in pairs if kind[i]) for i in range(j)]
            if sum(chosen) == counts[j, j] and shared == counts[j, :j].tolist():
                ones = [((*kind, 1), c) for (kind, _), c in pairs if c > 0]
                zeros = [((*kind, 0), size - c) for (kind, size), c in pairs if size > c]
                yield from extend(ones + zeros, j + 1)

    yield from extend([((), n)], 0)


def _fit(A: FloatArray, known: FloatArray, squares: FloatArray) -> tuple[FloatArray, str, float]:
    """Y with A'Y = known and Y'Y = squares, as far as that determines it; and how badly it misses the latter."""
    n = len(A)
    U, values, Vt = np.linalg.svd(A)
    rank = int((values > 1e-9 * values[0]).sum())
    Y = (U[:, :rank] / values[:rank]) @ (Vt[:rank] @ known)
    size = max(float(np.linalg.norm(squares)), 1e-300)
    left = squares - Y.T @ Y
    if rank == n:
        return Y, "which determine all rows", float(np.linalg.norm(left)) / size
    eigenvalues, Q = np.linalg.eigh((left + left.T) / 2.0)
    if rank == n - 1 and len(squares) > 0:
        Y = Y + np.outer(U[:, -1], np.sqrt(max(eigenvalues[-1], 0.0)) * Q[:, -1])
        sign = "the order of the two" if n == 2 else "one sign"
        return Y, f"determined up to {sign}", float(np.linalg.norm(squares - Y.T @ Y)) / size
    wrong = np.concatenate([np.minimum(eigenvalues, 0.0), eigenvalues[: max(len(eigenvalues) - (n - rank), 0)]])
    return Y, f"a rotation of {n - rank} dimensions stays open", float(np.linalg.norm(wrong)) / size
