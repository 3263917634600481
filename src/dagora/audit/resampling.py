"""Rows from the totals of a bootstrap, with and without knowing how often each row was drawn.

**Known counts.**  Replicate r of the covariance method tells sum_i c_ri x_i and sum_i c_ri x_i x_i', over the rows of
all sites: linear equations in the rows and in their products, with the counts as coefficients.  With as many replicates
as rows they are solved, up to one freedom for each two sites: counts of a site always sum to n_k, so that a shift of
all its rows can make up for one of another's.  That products are products of rows settles the shifts, too:

    p_i + E = (x_i + v)(x_i + v)'    is linear in v and in F = v v' - E    given the solutions x_i, p_i of a site

So counts must be unknown to the server: sites draw them by keys of their own (data/resample.py).

**Unknown counts, few rows.**  With z = (1, x), replicate r tells T_r = Z' diag(c_r) Z: all T_r have the directions of
rows in common.  With no more rows in all than z has entries, two mixtures of the T_r give them as eigenvectors, and the
1 in z their lengths.  Other decompositions of tensors go further, but not to as many rows as T_r has different entries:
then rows z z' span all symmetric matrices, and none is told from the others.
"""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linear_sum_assignment

from dagora.algorithms.covariance import folded, unfolded
from dagora.arrays import FloatArray, IntArray
from dagora.audit.finding import SERVER, Finding, blind_error, relative_error
from dagora.audit.transcript import Transcript
from dagora.data.resample import counts
from dagora.federated.protocol import Total


def resampling(transcript: Transcript, believed: Mapping[str, bytes], data: Mapping[str, FloatArray]) -> Finding:
    """The server solves the totals for all rows; `believed`: the keys by which it thinks that sites have drawn."""
    _, sums, squares = _totals(transcript)
    drawn = {site: _counts(key, len(sums), len(data[site])) for site, key in believed.items()}
    found = rows_from_totals(sums, squares, drawn)
    truth, estimate = (np.concatenate([rows[site] for site in data]) for rows in (data, found))
    blind = np.broadcast_to(truth.mean(axis=0), truth.shape)
    detail = f"{len(sums) - 1} replicates, {len(truth)} rows; blind: each is the mean"
    return Finding("resampling", SERVER, "all rows", relative_error(estimate, truth), blind_error(blind, truth), detail)


def few_rows(transcript: Transcript, data: Mapping[str, FloatArray]) -> Finding:
    """The server finds all rows, in no order, without knowing anything of the draws."""
    truth = np.concatenate(list(data.values()))
    found = rows_from_spread(*_totals(transcript))
    estimate = np.resize(found, truth.shape)
    _, order = linear_sum_assignment(((truth[:, None] - estimate[None]) ** 2).sum(axis=2))
    blind = np.broadcast_to(truth.mean(axis=0), truth.shape)
    detail = f"{len(found)} rows found, of {len(truth)}; blind: each is the mean"
    error = relative_error(estimate[order], truth)
    return Finding("few rows", SERVER, "all rows", error, blind_error(blind, truth), detail)


def rows_from_spread(n: FloatArray, sums: FloatArray, squares: FloatArray) -> FloatArray:
    """At most d + 1 rows from the totals of replicates, a row a replicate."""
    d = sums.shape[1]
    T = np.empty((len(n), d + 1, d + 1))
    T[:, 0, 0], T[:, 0, 1:], T[:, 1:, 0] = n, sums, sums
    T[:, 1:, 1:] = [unfolded(triangle, d) for triangle in squares]
    sizes, axes = np.linalg.eigh(T.mean(axis=0))
    inside = sizes > 1e-12 * sizes[-1]  # the rows' space
    half = axes[:, inside] * np.sqrt(sizes[inside])  # half half' = mean of T = Z' diag(mean c) Z
    white = np.linalg.pinv(half)
    mixture = np.tensordot(np.random.default_rng(0).standard_normal(len(T)), T, axes=1)
    z = half @ np.linalg.eigh(white @ mixture @ white.T)[1]
    rows: FloatArray = (z[1:] / z[0]).T
    return rows


def rows_from_totals(sums: FloatArray, squares: FloatArray, drawn: Mapping[str, IntArray]) -> dict[str, FloatArray]:
    """Rows by site from totals (R, d) and (R, d (d + 1) / 2), and the counts (R, n_k) of each site."""
    solved = np.linalg.lstsq(np.hstack(list(drawn.values())).astype(np.float64), np.hstack([sums, squares]))[0]
    d, at, found = sums.shape[1], 0, {}
    for site, own in drawn.items():
        here = solved[at : at + own.shape[1]]
        at += own.shape[1]
        found[site] = here[:, :d] + _shift(here[:, :d], here[:, d:])
    return found


def _shift(x: FloatArray, products: FloatArray) -> FloatArray:
    """The v that makes products of the rows' products."""
    n, d = x.shape
    i, j = np.triu_indices(d)
    A = np.zeros((n, len(i), d + len(i)))
    A[:, np.arange(len(i)), j] += x[:, i]
    A[:, np.arange(len(i)), i] += x[:, j]
    A[:, np.arange(len(i)), d + np.arange(len(i))] = 1.0
    own = np.array([folded(np.outer(row, row)) for row in x])
    v: FloatArray = np.linalg.lstsq(A.reshape(n * len(i), -1), (products - own).ravel())[0][:d]
    return v


def _totals(transcript: Transcript) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows, and sums about zero, a row a replicate: each begins with them."""
    first: dict[object, Total] = {}
    for each in transcript.rounds:
        if each.phase == "moments":
            first.setdefault(each.message["replicate"], each.total)
    rows, sums, squares = (np.array([one[name] for one in first.values()]) for name in ("rows", "sum", "squares"))
    return rows, sums, squares


def _counts(key: bytes, replicates: int, n: int) -> IntArray:
    """Of replicate 0, the rows as they are, and of those that were drawn."""
    ones = np.ones(n, dtype=np.int64)
    return np.array([ones, *(np.concatenate(list(counts(key, r, n))) for r in range(1, replicates))])
