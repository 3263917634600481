"""Random structural vector autoregressions, and time series from them (as in DYNOTEARS, Pamfil et al. 2020).

x_t = x_t W + x_(t-1) A_1 + ... + x_(t-p) A_p + e_t          rows; W a random DAG, A_l random, smaller with the lag
"""

from collections.abc import Sequence

import numpy as np

from dagora.arrays import FloatArray
from dagora.data.nonlinear import random_weights
from dagora.data.partition import partition
from dagora.data.simulate import GRAPHS, NOISES, Truth, check_choice, noise_scales, random_dag
from dagora.errors import InputError

RADIUS = 0.95  # of the companion matrix, at most: below 1 the process is stationary, near 1 it hardly forgets
BURN_IN = 200  # steps before the first row that is kept: 0.95^200 = 4e-5 of the start is left
_DRAWS = 1000


def simulate_series(
    d: int = 10,
    edges: int | None = None,
    series: int = 20,
    length: int = 50,
    sites: int = 4,
    *,
    lags: int = 1,
    lag_edges: int | None = None,
    seed: int = 0,
    graph: str = "er",
    noise: str = "gaussian",
    weight_range: tuple[float, float] = (0.5, 2.0),
    lag_weight_range: tuple[float, float] = (0.3, 0.5),
    decay: float = 1.5,
    split: str | Sequence[int] = "even",
) -> tuple[Truth, list[list[FloatArray]]]:
    """A random model, and for each site a list of series: (length, d) arrays, realisations independent of each other.

    `edges` within a time step (d by default) as in `simulate`; `lag_edges` a lag (d), among all d^2 pairs, with
    weights in lag_weight_range divided by decay^(lag - 1), of either sign.  Weights are drawn again until the process
    is stationary.  Every series starts BURN_IN steps into its process.  `split` is of the series among the sites.

    >>> truth, sites = dagora.simulate_series(d=4, series=6, length=50, sites=3, lags=2, seed=0)
    >>> [len(series) for series in sites], sites[0][0].shape
    ([2, 2, 2], (50, 4))
    >>> truth.weights.shape, truth.lag_weights.shape
    ((4, 4), (2, 4, 4))
    """
    check_choice("graph", graph, GRAPHS)
    check_choice("noise", noise, NOISES)
    counts = {"d": (d, 2), "series": (series, 1), "length": (length, 1), "lags": (lags, 0), "seed": (seed, 0)}
    for option, (value, least) in counts.items():
        if value < least:
            raise InputError(f"{option}={value} is too small; give at least {least}.")
    lag_edges = d if lag_edges is None else lag_edges
    if not 0 <= lag_edges <= d * d:
        raise InputError(f"lag_edges={lag_edges} is not possible; a lag of d={d} has 0 to {d * d} edges.")
    for option, (low, high) in {"weight_range": weight_range, "lag_weight_range": lag_weight_range}.items():
        if not 0 < low <= high < np.inf:
            raise InputError(f"{option}={(low, high)} must be (low, high) with 0 < low <= high.")
    if not 1.0 <= decay < np.inf:
        raise InputError(f"decay={decay} is not possible; give 1 (no decay) or more.")
    graph_rng, weights_rng, scales_rng, noise_rng, split_rng = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(5)
    )
    adjacency = random_dag(d, edges, graph, graph_rng)
    lag_graphs = [_lag_graph(d, lag_edges, graph_rng) for _ in range(lags)]
    for _ in range(_DRAWS):
        W = np.where(adjacency, random_weights((d, d), weight_range, weights_rng), 0.0)
        A = np.zeros((lags, d, d))
        for lag, present in enumerate(lag_graphs):
            A[lag] = np.where(present, random_weights((d, d), lag_weight_range, weights_rng) / decay**lag, 0.0)
        if spectral_radius(W, A) <= RADIUS:
            break
    else:
        raise InputError(
            f"no stationary process in {_DRAWS} draws; give fewer lag_edges, smaller weights or a larger decay"
        )
    scales = noise_scales(d, noise, 1.0, scales_rng)
    draw, unit_variance = NOISES[noise]
    names = tuple(f"x{column + 1}" for column in range(d))
    truth = Truth(W, adjacency, names, unit_variance * scales**2, A)
    realisations = [_realise(W, A, scales * draw(noise_rng, (BURN_IN + length, d))) for _ in range(series)]
    shares = partition(np.arange(series, dtype=np.float64)[:, None], sites, split, split_rng)
    return truth, [[realisations[int(number)] for number in share[:, 0]] for share in shares]


def spectral_radius(W: FloatArray, A: FloatArray) -> float:
    """Of the companion matrix of the process; it is stationary exactly when this is below 1."""
    lags, d, _ = A.shape
    if lags == 0:
        return 0.0
    companion = np.eye(lags * d, k=d)
    companion[:, :d] = (A @ np.linalg.inv(np.eye(d) - W)).reshape(lags * d, d)
    return float(np.abs(np.linalg.eigvals(companion)).max())


def _lag_graph(d: int, edges: int, rng: np.random.Generator) -> FloatArray:
    """Uniform among the sets of so many pairs (i, j), i = j included: a variable may act on its own future."""
    present = np.zeros((d, d))
    present.flat[rng.choice(d * d, size=edges, replace=False)] = 1.0
    return present


def _realise(W: FloatArray, A: FloatArray, noise: FloatArray) -> FloatArray:
    """One series, its start forgotten."""
    solve = np.linalg.inv(np.eye(len(W)) - W)
    effects = A @ solve
    rows = noise @ solve
    for t in range(1, len(rows)):
        for lag in range(min(len(A), t)):
            rows[t] += rows[t - lag - 1] @ effects[lag]
    return rows[BURN_IN:]
