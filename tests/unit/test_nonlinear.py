"""Nonlinear simulation: index models and Gaussian processes (the MLP is in test_simulate.py)."""

import numpy as np
import pytest

import dagora
from dagora.arrays import FloatArray
from dagora.data import nonlinear
from dagora.data.nonlinear import NONLINEAR, _Process

PROCESSES = ("gp", "additive-gp")


def streams(seed: int) -> list[np.random.Generator]:
    return [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(5)]


def test_index_rows_follow_the_formula() -> None:
    # Zheng et al. (2020), Section 5: tanh(X_pa a) + cos(X_pa b) + sin(X_pa c) + noise.
    d, n, seed = 6, 30, 3
    truth, sites = dagora.simulate(d, 9, n, 2, seed=seed, model="index")
    rows, noise, rng = np.vstack(sites), streams(seed)[3].standard_normal((n, d)), streams(seed)[1]
    for child in range(d):
        parents = np.flatnonzero(truth.adjacency[:, child])
        w = rng.uniform(0.5, 2.0, (len(parents), 3)) * rng.choice([-1.0, 1.0], (len(parents), 3))
        a, b, c = (sum((rows[:, p] * w[i, k] for i, p in enumerate(parents)), np.zeros(n)) for k in range(3))
        added = np.tanh(a) + np.cos(b) + np.sin(c) if len(parents) else 0.0
        np.testing.assert_allclose(rows[:, child], noise[:, child] + added, atol=1e-12)


def test_a_process_has_the_covariance_of_its_kernel() -> None:
    # Cov(f(x), f(y)) = exp(-|x - y|^2 / 2).  Over 3000 draws a product has an error of at most sqrt(2 / 3000) = 0.026.
    rng = np.random.default_rng(0)
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    values = np.array([_Process.draw(2, rng)(points) for _ in range(3000)])
    squares = ((points[:, None] - points) ** 2).sum(axis=2)
    np.testing.assert_allclose(values.T @ values / 3000, np.exp(-squares / 2.0), atol=4 * 0.026)
    np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=4 / np.sqrt(3000))


def effect(model: str, parents: int, points: FloatArray) -> FloatArray:
    adjacency = np.zeros((parents + 1, parents + 1), dtype=np.int64)
    adjacency[1:, 0] = 1
    return NONLINEAR[model](adjacency, (0.5, 2.0), np.random.default_rng(0))(0, points)


def test_effects_add_up_in_additive_gp_and_not_in_gp() -> None:
    # Of additive effects, mixed differences vanish: f(a, b) - f(a, 0) - f(0, b) + f(0, 0) = 0.
    points = np.array([[1.0, 1.5], [1.0, 0.0], [0.0, 1.5], [0.0, 0.0]])
    signs = np.array([1.0, -1.0, -1.0, 1.0])
    assert abs(signs @ effect("additive-gp", 2, points)) < 1e-12
    assert abs(signs @ effect("gp", 2, points)) > 0.1


@pytest.mark.parametrize("model", PROCESSES)
def test_functions_do_not_depend_on_the_number_of_rows(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (np.vstack(dagora.simulate(5, 6, n, 2, seed=4, model=model)[1]) for n in (40, 300))
    np.testing.assert_allclose(few, many[:40], atol=1e-10)
    monkeypatch.setattr(nonlinear, "_BLOCK", 7)
    blocks = np.vstack(dagora.simulate(5, 6, 300, 2, seed=4, model=model)[1])
    np.testing.assert_allclose(blocks, many, atol=1e-10)


@pytest.mark.parametrize("model", NONLINEAR)
def test_every_model_has_the_graph_and_roots_of_the_linear_one(model: str) -> None:
    truth, sites = dagora.simulate(8, 6, 50, 2, seed=1, model=model)
    linear, straight = dagora.simulate(8, 6, 50, 2, seed=1)
    np.testing.assert_array_equal(truth.adjacency, linear.adjacency)
    np.testing.assert_array_equal(truth.weights, truth.adjacency)
    unmoved = (np.vstack(sites) == np.vstack(straight)).all(axis=0)
    np.testing.assert_array_equal(unmoved, truth.adjacency.sum(axis=0) == 0)
    again = dagora.simulate(8, 6, 50, 7, seed=1, model=model)[1]
    np.testing.assert_array_equal(np.vstack(sites), np.vstack(again))
    other = dagora.simulate(8, 6, 50, 2, seed=2, model=model)[1]
    assert not np.array_equal(np.vstack(sites), np.vstack(other))
