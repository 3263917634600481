"""Rows from the totals of a bootstrap, by a server that knows how often each row was drawn.

Replicate r of the covariance method tells sum_i c_ri x_i and sum_i c_ri x_i x_i', over the rows of all sites: linear
equations in the rows and in their products, with the counts as coefficients.  With as many replicates as rows they are
solved, up to one freedom for each two sites: counts of a site always sum to n_k, so that a shift of all its rows can
make up for one of another's.  That products are products of rows settles the shifts, too:

    p_i + E = (x_i + v)(x_i + v)'    is linear in v and in F = v v' - E    given the solutions x_i, p_i of a site

So counts must be unknown to the server: sites draw them by keys of their own (data/resample.py).
"""

from collections.abc import Mapping

import numpy as np

from dagora.algorithms.covariance import folded
from dagora.arrays import FloatArray, IntArray
from dagora.audit.finding import SERVER, Finding, blind_error, relative_error
from dagora.audit.transcript import Transcript
from dagora.data.resample import counts
from dagora.federated.protocol import Total


def resampling(transcript: Transcript, believed: Mapping[str, bytes], data: Mapping[str, FloatArray]) -> Finding:
    """The server solves the totals for all rows; `believed`: the keys by which it thinks that sites have drawn."""
    sums, squares = _totals(transcript)
    drawn = {site: _counts(key, len(sums), len(data[site])) for site, key in believed.items()}
    found = rows_from_totals(sums, squares, drawn)
    truth, estimate = (np.concatenate([rows[site] for site in data]) for rows in (data, found))
    blind = np.broadcast_to(truth.mean(axis=0), truth.shape)
    detail = f"{len(sums) - 1} replicates, {len(truth)} rows; blind: each is the mean"
    return Finding("resampling", SERVER, "all rows", relative_error(estimate, truth), blind_error(blind, truth), detail)


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


def _totals(transcript: Transcript) -> tuple[FloatArray, FloatArray]:
    """Sums about zero, a row a replicate: each begins with them."""
    first: dict[object, Total] = {}
    for each in transcript.rounds:
        if each.phase == "moments":
            first.setdefault(each.message["replicate"], each.total)
    return np.array([one["sum"] for one in first.values()]), np.array([one["squares"] for one in first.values()])


def _counts(key: bytes, replicates: int, n: int) -> IntArray:
    """Of replicate 0, the rows as they are, and of those that were drawn."""
    ones = np.ones(n, dtype=np.int64)
    return np.array([ones, *(np.concatenate(list(counts(key, r, n))) for r in range(1, replicates))])
