"""Random nonlinear effects of parents on a child: the families of Zheng et al. (2020), Section 5.

Each takes a graph, weight_range and a generator, and gives `effect(child, parents' rows)`.  Functions are drawn before
any row is: the same for any number of rows.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from dagora.arrays import FloatArray, IntArray

HIDDEN_UNITS = 100
FEATURES = 1000
_BLOCK = 4096  # rows at a time, so that features of many rows fit in memory

Effect = Callable[[int, FloatArray], FloatArray]  # what the parents' rows add to a child (by its index)


def mlp(adjacency: IntArray, weight_range: tuple[float, float], rng: np.random.Generator) -> Effect:
    """One hidden layer of sigmoid units a child, without bias terms: sigmoid(X_pa W1) w2."""
    layers = [
        (random_weights((parents, HIDDEN_UNITS), weight_range, rng), random_weights(HIDDEN_UNITS, weight_range, rng))
        for parents in adjacency.sum(axis=0)
    ]

    def effect(child: int, parents: FloatArray) -> FloatArray:
        W1, w2 = layers[child]
        added: FloatArray = expit(parents @ W1) @ w2
        return added

    return effect


def index(adjacency: IntArray, weight_range: tuple[float, float], rng: np.random.Generator) -> Effect:
    """Multiple index model: tanh(X_pa a) + cos(X_pa b) + sin(X_pa c)."""
    weights = [random_weights((parents, 3), weight_range, rng) for parents in adjacency.sum(axis=0)]

    def effect(child: int, parents: FloatArray) -> FloatArray:
        a, b, c = (parents @ weights[child]).T
        added: FloatArray = np.tanh(a) + np.cos(b) + np.sin(c)
        return added

    return effect


def gp(adjacency: IntArray, weight_range: tuple[float, float], rng: np.random.Generator) -> Effect:
    """One function of all parents from a Gaussian process."""
    functions = [_Process.draw(parents, rng) for parents in adjacency.sum(axis=0)]
    return lambda child, parents: functions[child](parents)


def additive_gp(adjacency: IntArray, weight_range: tuple[float, float], rng: np.random.Generator) -> Effect:
    """A function of each parent from a Gaussian process, added up."""
    functions = [[_Process.draw(1, rng) for _ in range(parents)] for parents in adjacency.sum(axis=0)]

    def effect(child: int, parents: FloatArray) -> FloatArray:
        added: FloatArray = sum(
            (f(parents[:, [i]]) for i, f in enumerate(functions[child])), start=np.zeros(len(parents))
        )
        return added

    return effect


class _Process:
    """A draw from the Gaussian process with covariance exp(-|x - y|^2 / 2), by random features (Rahimi, Recht 2007).

    f(x) = sqrt(2 / M) sum_m a_m cos(<w_m, x> + b_m), all a, w standard normal, b uniform on the circle.  Its values'
    covariance is that of the process up to about 1 / sqrt(M) = 3%, at a cost of M operations a row; an exact draw at n
    points needs n x n covariances.
    """

    def __init__(self, frequencies: FloatArray, phases: FloatArray, weights: FloatArray) -> None:
        self._w, self._b, self._a = frequencies, phases, weights * np.sqrt(2.0 / FEATURES)

    @classmethod
    def draw(cls, inputs: int, rng: np.random.Generator) -> "_Process":
        frequencies = rng.standard_normal((inputs, FEATURES))
        return cls(frequencies, rng.uniform(0.0, 2.0 * np.pi, FEATURES), rng.standard_normal(FEATURES))

    def __call__(self, points: FloatArray) -> FloatArray:
        blocks = (points[start : start + _BLOCK] for start in range(0, len(points), _BLOCK))
        return np.concatenate([np.cos(block @ self._w + self._b) @ self._a for block in blocks])


def random_weights(
    shape: int | tuple[int, ...], weight_range: tuple[float, float], rng: np.random.Generator
) -> FloatArray:
    """Magnitudes uniform in the range, signs by a fair coin."""
    magnitudes = rng.uniform(*weight_range, size=shape)
    signs = rng.choice([-1.0, 1.0], size=shape)
    return signs * magnitudes


NONLINEAR: dict[str, Callable[[IntArray, tuple[float, float], np.random.Generator], Effect]] = {
    "mlp": mlp,
    "index": index,
    "gp": gp,
    "additive-gp": additive_gp,
}
