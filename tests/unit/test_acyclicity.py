"""h(W) against hand computation, series, finite differences, and the graphs it should tell apart."""

from collections.abc import Callable
from math import cosh, factorial, inf, log

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dagora.acyclicity import log_determinant, trace_exponential, walk_weights
from dagora.arrays import FloatArray
from tests.helpers import finite_differences

Measure = Callable[[FloatArray], tuple[float, FloatArray]]
BOTH = pytest.mark.parametrize("h", [trace_exponential, log_determinant])


def cycle(*weights: float) -> FloatArray:
    """The cycle 0 -> 1 -> ... -> 0 with these weights."""
    d = len(weights)
    W = np.zeros((d, d))
    W[np.arange(d), (np.arange(d) + 1) % d] = weights
    return W


def test_two_cycle_by_hand() -> None:
    # (W o W)^2 = a^2 b^2 I, so exp has cosh(|a b|) on its diagonal, and det(I - W o W) = 1 - a^2 b^2.
    a, b = 0.7, -1.1
    assert trace_exponential(cycle(a, b))[0] == pytest.approx(2 * cosh(a * b) - 2, rel=1e-12)
    assert log_determinant(cycle(a, b))[0] == pytest.approx(-log(1 - (a * b) ** 2), rel=1e-12)


def test_three_cycle_by_hand() -> None:
    # (W o W)^3 = g I with the gain g: tr exp = sum over m of 3 g^m / (3 m)!, and det = 1 - g.
    gain = (0.9 * -0.8 * 1.2) ** 2
    series = sum(3 * gain**m / factorial(3 * m) for m in range(1, 8))
    W = cycle(0.9, -0.8, 1.2)
    assert trace_exponential(W)[0] == pytest.approx(series, rel=1e-12)
    assert log_determinant(W)[0] == pytest.approx(-log(1 - gain), rel=1e-12)


def test_values_are_the_series_of_closed_walks() -> None:
    # tr exp(A) - d = sum tr(A^m) / m!, and -log det(I - A) = sum tr(A^m) / m where A's spectral radius is below 1.
    W = 0.35 * np.random.default_rng(0).standard_normal((5, 5))
    powers, A = [np.eye(5)], W * W
    for _ in range(200):
        powers.append(powers[-1] @ A)
    traces = [float(np.trace(power)) for power in powers]
    exponential = sum(traces[m] / factorial(m) for m in range(1, 60))
    assert trace_exponential(W)[0] == pytest.approx(exponential, rel=1e-12)
    assert log_determinant(W)[0] == pytest.approx(sum(traces[m] / m for m in range(1, 200)), rel=1e-9)
    np.testing.assert_allclose(walk_weights(W)[0], sum(powers), atol=1e-12)


@BOTH
@pytest.mark.parametrize("seed", range(5))
def test_gradient_is_that_of_finite_differences(h: Measure, seed: int) -> None:
    W = 0.3 * np.random.default_rng(seed).standard_normal((5, 5))
    np.testing.assert_allclose(h(W)[1], finite_differences(lambda V: h(V)[0], W), atol=1e-8)


@pytest.mark.parametrize(
    "weights", [(1.0, 1.0), (2.0, 0.5), (1.5, 1.5), (1.0, -1.0, 1.0), (30.0, 2.0, 1.0), (2e5, 2e5)]
)
def test_log_determinant_is_infinite_where_a_gain_reaches_one(weights: tuple[float, ...]) -> None:
    assert log_determinant(cycle(*weights))[0] == inf
    assert np.isfinite(log_determinant(cycle(*weights) * 0.999 / np.abs(np.prod(weights)) ** (1 / len(weights)))[0])


def test_log_determinant_is_infinite_where_two_bad_cycles_make_a_positive_determinant() -> None:
    W = scipy.linalg.block_diag(cycle(1.5, 1.5), cycle(1.2, 1.1))
    assert np.linalg.det(np.eye(4) - W * W) > 0.0
    assert log_determinant(W)[0] == inf


@given(arrays(np.float64, (4, 4), elements=st.floats(-1.5, 1.5)))
def test_the_domain_is_a_spectral_radius_below_one(W: FloatArray) -> None:
    radius = float(np.abs(np.linalg.eigvals(W * W)).max())
    if abs(radius - 1.0) > 1e-6:
        assert np.isfinite(log_determinant(W)[0]) == (radius < 1.0)


# Weights in [0.4, 1]: a cycle of 4 has gain 0.16^4 = 7e-4 or more, and h is at least 4 gain / 4! of the exponential.
EDGES = arrays(np.float64, (4, 4), elements=st.just(0.0) | st.floats(0.4, 1.0) | st.floats(-1.0, -0.4))


@BOTH
@given(W=EDGES)
def test_zero_exactly_for_acyclic(h: Measure, W: FloatArray) -> None:
    acyclic = nx.is_directed_acyclic_graph(nx.from_numpy_array(W, create_using=nx.DiGraph))
    value, gradient = h(W)
    if acyclic:
        assert abs(value) < 1e-12
        assert np.abs(gradient).max() < 1e-12  # an edge of a DAG closes no walk
    else:
        assert value > 1e-5


@BOTH
@given(W=arrays(np.float64, (4, 4), elements=st.floats(-0.45, 0.45)), seed=st.integers(0, 2**32))
def test_units_do_not_matter(h: Measure, W: FloatArray, seed: int) -> None:
    # D^-1 W D has the same closed walks as W: h does not see the variables' units.
    D = np.exp(np.random.default_rng(seed).uniform(-1.0, 1.0, 4))
    assert h(W / D[:, None] * D)[0] == pytest.approx(h(W)[0], rel=1e-9, abs=1e-12)


def test_log_determinant_of_a_dag_is_finite_in_units_far_apart() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        order = rng.permutation(20)
        W = np.triu(rng.standard_normal((20, 20)) * (rng.random((20, 20)) < 0.3), 1)[np.ix_(order, order)]
        D = 10.0 ** rng.uniform(-3.0, 3.0, 20)
        assert log_determinant(W / D[:, None] * D)[0] == pytest.approx(0.0, abs=1e-9)


def test_log_determinant_is_infinite_far_outside_its_domain() -> None:
    W = scipy.linalg.block_diag(cycle(1.2e5, 1.2e5), cycle(1.2e5, 1.2e5))
    assert log_determinant(W)[0] == inf
