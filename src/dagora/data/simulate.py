"""Random graphs, and rows from them, for experiments whose truth is known."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import pi

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.data.nonlinear import NONLINEAR, Effect, random_weights
from dagora.data.partition import partition
from dagora.errors import InputError
from dagora.graphs import topological_order

UNEQUAL_VARIANCES = (0.5, 2.0)


@dataclass(frozen=True, eq=False)
class Truth:
    """The model behind simulated rows: weights[i, j] is the effect of variable i on variable j.

    Of nonlinear models it is 1 for every edge: a nonlinear effect has no single weight.
    """

    weights: FloatArray
    adjacency: IntArray
    names: tuple[str, ...]
    noise_variances: FloatArray
    lag_weights: FloatArray | None = None  # of time series, (p, d, d): [l - 1, i, j], the effect of i, l steps before

    @property
    def lag_adjacency(self) -> IntArray | None:
        """1 where there is an effect of the past."""
        return None if self.lag_weights is None else (self.lag_weights != 0).astype(np.int64)


def simulate(
    d: int = 20,
    edges: int | None = None,
    n: int = 256,
    sites: int = 8,
    *,
    seed: int = 0,
    model: str = "linear",
    graph: str = "er",
    noise: str = "gaussian",
    noise_scale: float = 1.0,
    weight_range: tuple[float, float] = (0.5, 2.0),
    split: str | Sequence[int] = "even",
) -> tuple[Truth, list[FloatArray]]:
    """A random DAG with exactly `edges` edges (d by default), and n rows of it divided among the sites.

    `model`: "linear", or a nonlinear one of Zheng et al. (2020).  A variable with parents is its noise plus, for "mlp",
    a random network of 100 sigmoid units whose two layers have weights in the weight_range, of either sign; for
    "index", tanh + cos + sin of three combinations of the parents with such weights; for "gp", a function of all
    parents from a Gaussian process with unit variance and length scale, by random features; for "additive-gp", a sum
    of such functions, one a parent (these two have no use for weight_range).  `graph`: "er",
    "scale-free" or "bipartite".  `noise`: "gaussian", "gaussian-unequal" (variances uniform in 0.5 to 2, times
    noise_scale squared), "exponential", "gumbel" (these two not centred, as in NOTEARS) or "uniform"
    (-noise_scale to noise_scale).  `split`: see `partition`.  The number of sites and the split leave the graph
    and the pooled rows as they are: only the cuts between the sites move.

    >>> truth, sites = dagora.simulate(d=5, edges=4, n=100, sites=3, seed=0)
    >>> [rows.shape for rows in sites]
    [(34, 5), (33, 5), (33, 5)]
    >>> truth.names, int(truth.adjacency.sum())
    (('x1', 'x2', 'x3', 'x4', 'x5'), 4)
    """
    check_choice("model", model, MODELS)
    check_choice("graph", graph, GRAPHS)
    check_choice("noise", noise, NOISES)
    _check_numbers(d=d, n=n, seed=seed, noise_scale=noise_scale, weight_range=weight_range)
    graph_rng, weights_rng, scales_rng, noise_rng, split_rng = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(5)
    )
    adjacency = random_dag(d, edges, graph, graph_rng)
    if model == "linear":
        weights, effect = _linear(adjacency, weight_range, weights_rng)
    else:
        weights, effect = adjacency.astype(np.float64), NONLINEAR[model](adjacency, weight_range, weights_rng)
    scales = noise_scales(d, noise, noise_scale, scales_rng)
    draw, unit_variance = NOISES[noise]
    rows = _rows(adjacency, effect, scales * draw(noise_rng, (n, d)))
    names = tuple(f"x{column + 1}" for column in range(d))
    truth = Truth(weights, adjacency, names, noise_variances=unit_variance * scales**2)
    return truth, partition(rows, sites, split, split_rng)


def random_dag(d: int, edges: int | None, graph: str, rng: np.random.Generator) -> IntArray:
    """A DAG with exactly `edges` edges (as many as vertices by default), its vertices in random order."""
    most, draw = GRAPHS[graph]
    edges = min(d, most(d)) if edges is None else edges
    if not 0 <= edges <= most(d):
        raise InputError(f"edges={edges} is not possible; a {graph} graph of d={d} has 0 to {most(d)} edges.")
    shuffled = rng.permutation(d)
    return draw(d, edges, rng)[np.ix_(shuffled, shuffled)]


def _most_pairs(d: int) -> int:
    return d * (d - 1) // 2


def _most_across(d: int) -> int:
    return (d // 2) * (d - d // 2)


def _erdos_renyi(d: int, edges: int, rng: np.random.Generator) -> IntArray:
    """Uniform among the sets of `edges` pairs i < j."""
    return _choose_edges(np.triu(np.ones((d, d), dtype=np.int64), k=1), edges, rng)


def _bipartite(d: int, edges: int, rng: np.random.Generator) -> IntArray:
    """Uniform among the sets of `edges` pairs from the first half of the vertices to the second."""
    candidates = np.zeros((d, d), dtype=np.int64)
    candidates[: d // 2, d // 2 :] = 1
    return _choose_edges(candidates, edges, rng)


def _choose_edges(candidates: IntArray, edges: int, rng: np.random.Generator) -> IntArray:
    chosen = rng.choice(np.flatnonzero(candidates), size=edges, replace=False)
    adjacency = np.zeros_like(candidates)
    adjacency.flat[chosen] = 1
    return adjacency


def _scale_free(d: int, edges: int, rng: np.random.Generator) -> IntArray:
    """Barabási-Albert: each vertex points to earlier ones, drawn in proportion to 1 + their degree."""
    adjacency = np.zeros((d, d), dtype=np.int64)
    attraction = np.ones(d)
    for vertex, out_degree in enumerate(_out_degrees(d, edges, rng)):
        if out_degree == 0:
            continue
        share = attraction[:vertex] / attraction[:vertex].sum()
        targets = rng.choice(vertex, size=out_degree, replace=False, p=share)
        adjacency[vertex, targets] = 1
        attraction[targets] += 1
        attraction[vertex] += out_degree
    return adjacency


def _out_degrees(d: int, edges: int, rng: np.random.Generator) -> IntArray:
    """Edges shared out as equally as the numbers of earlier vertices allow; a random few get one more."""
    earlier = np.arange(d)
    totals = np.cumsum(earlier[:0:-1])  # the edges it takes to give everyone 1, 2, ... as far as they can
    level = np.searchsorted(totals, edges, side="right")
    degrees = np.minimum(earlier, level)
    degrees[rng.choice(np.flatnonzero(earlier > level), size=edges - degrees.sum(), replace=False)] += 1
    return degrees


def _linear(
    adjacency: IntArray, weight_range: tuple[float, float], rng: np.random.Generator
) -> tuple[FloatArray, Effect]:
    weights = np.where(adjacency, random_weights(adjacency.shape, weight_range, rng), 0.0)
    return weights, lambda child, parents: parents @ weights[adjacency[:, child] == 1, child]


def noise_scales(d: int, noise: str, noise_scale: float, rng: np.random.Generator) -> FloatArray:
    """What each variable's noise, drawn with scale 1, is multiplied with."""
    if noise == "gaussian-unequal":
        return noise_scale * np.sqrt(rng.uniform(*UNEQUAL_VARIANCES, size=d))
    return np.full(d, noise_scale)


def _rows(adjacency: IntArray, effect: Effect, noise: FloatArray) -> FloatArray:
    """Each variable is its parents' effect plus its noise, parents first; a root is noise alone."""
    rows = noise.copy()
    for child in topological_order(adjacency):
        parents = np.flatnonzero(adjacency[:, child])
        if parents.size:
            rows[:, child] += effect(child, rows[:, parents])
    return rows


Shape = tuple[int, int]

GRAPHS: dict[str, tuple[Callable[[int], int], Callable[[int, int, np.random.Generator], IntArray]]] = {
    "er": (_most_pairs, _erdos_renyi),
    "scale-free": (_most_pairs, _scale_free),
    "bipartite": (_most_across, _bipartite),
}

MODELS = ("linear", *NONLINEAR)

# Each: a draw with scale 1, and its variance.
NOISES: dict[str, tuple[Callable[[np.random.Generator, Shape], FloatArray], float]] = {
    "gaussian": (lambda rng, shape: rng.standard_normal(shape), 1.0),
    "gaussian-unequal": (lambda rng, shape: rng.standard_normal(shape), 1.0),
    "exponential": (lambda rng, shape: rng.standard_exponential(shape), 1.0),
    "gumbel": (lambda rng, shape: rng.gumbel(size=shape), pi**2 / 6),
    "uniform": (lambda rng, shape: rng.uniform(-1.0, 1.0, size=shape), 1 / 3),
}


def check_choice(option: str, value: str, available: Collection[str]) -> None:
    """Refuse what is not available, and say what is."""
    if value not in available:
        raise InputError(f"{option}={value!r} is unknown; choose one of {', '.join(available)}.")


def _check_numbers(*, d: int, n: int, seed: int, noise_scale: float, weight_range: tuple[float, float]) -> None:
    for option, value, least in (("d", d, 1), ("n", n, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{option}={value} is too small; give at least {least}.")
    if not 0 < noise_scale < np.inf:
        raise InputError(f"noise_scale={noise_scale} must be positive and finite.")
    low, high = weight_range
    if not 0 < low <= high < np.inf:
        raise InputError(f"weight_range={weight_range} must be (low, high) with 0 < low <= high.")
