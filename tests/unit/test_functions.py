"""Fitted functions: predictions against least squares by numpy, effects, what is refused, and curves drawn."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dagora
from dagora.arrays import FloatArray
from dagora.errors import InputError
from dagora.models.additive import FUNCTIONS, Basis, Curves
from dagora.models.network import Architecture, Networks
from dagora.report.effects import MOST, draw_effects
from tests.networks import outputs_of

NAMES = ("a", "b", "c", "d")
D = len(NAMES)
SHIFT = np.array([3.0, -1.0, 0.0, 10.0])
MODELS = pytest.mark.parametrize("model", ["additive", "mlp", "masked"])


@cache
def rows() -> FloatArray:
    """a -> b -> d and a -> d by curves, c alone; off the origin."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((240, D))
    X[:, 0] *= 1.3
    X[:, 1] = 2.0 * np.tanh(1.5 * X[:, 0]) + 0.4 * X[:, 1]
    X[:, 3] = np.sin(1.5 * X[:, 1]) + 0.5 * X[:, 0] ** 2 + 0.3 * X[:, 3]
    shifted: FloatArray = X + SHIFT
    return shifted


def table(X: FloatArray, order: tuple[str, ...] = NAMES) -> pa.Table:
    return pa.table({name: X[:, NAMES.index(name)] for name in order})


@cache
def learned(model: str, **options: Any) -> dagora.Result:
    X = rows()
    method = {"method": "covariance"} if model == "additive" else {"method": "admm", "hidden": 4}
    result = dagora.learn([table(X[:70]), table(X[70:150]), table(X[150:])], model=model, **(method | options))
    assert result.adjacency.any()
    return result


def parents(result: dagora.Result, j: int) -> list[int]:
    return np.flatnonzero(result.adjacency[:, j]).tolist()


# Predictions


def test_additive_predictions_are_least_squares_on_the_functions_of_the_parents() -> None:
    X, result = rows(), learned("additive")
    expanded = Basis(X.mean(axis=0), X.std(axis=0)).expand(X).reshape(len(X), D, FUNCTIONS)
    found = result.predict(X)
    assert max(len(parents(result, j)) for j in range(D)) >= 2
    for j in range(D):
        design = np.column_stack([np.ones(len(X)), *(expanded[:, i] for i in parents(result, j))])
        expected = design @ np.linalg.lstsq(design, X[:, j], rcond=None)[0]
        np.testing.assert_allclose(found[:, j], expected, atol=1e-6)


def test_additive_weights_are_deviations_of_the_parents_curves() -> None:
    X, result = rows(), learned("additive")
    expanded = Basis(X.mean(axis=0), X.std(axis=0)).expand(X).reshape(len(X), D, FUNCTIONS)
    for j in range(D):
        own = parents(result, j)
        design = np.column_stack([np.ones(len(X)), *(expanded[:, i] for i in own)])
        coefficients = np.linalg.lstsq(design, X[:, j], rcond=None)[0][1:].reshape(len(own), FUNCTIONS)
        for i, curve in zip(own, coefficients, strict=True):
            assert result.weights[i, j] == pytest.approx((expanded[:, i] @ curve).std(), abs=1e-6)


def test_curves_are_a_sum_over_functions_about_their_means() -> None:
    rng = np.random.default_rng(0)
    basis, X = Basis(rng.standard_normal(2), rng.uniform(0.5, 2.0, 2)), rng.standard_normal((30, 2))
    means, coefficients = rng.standard_normal(2 * FUNCTIONS), rng.standard_normal((2 * FUNCTIONS, 2))
    curves = Curves(basis, means, coefficients)
    assert (curves.centre is basis.centre, curves.scale is basis.scale) == (True, True)
    for j, found in enumerate(curves.predict(X).T):
        expected = np.full(len(X), basis.centre[j])
        for own, values, mean in zip(coefficients[:, j], basis.expand(X).T, means, strict=True):
            expected += own * (values - mean)
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("hidden", [(3,), (3, 2)], ids=str)
def test_networks_take_rows_about_the_centre_and_give_values_about_it(hidden: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    architecture, X, centre = Architecture(3, hidden), rng.standard_normal((20, 3)), rng.standard_normal(3)
    theta = rng.standard_normal((3, architecture.size))
    found = Networks(architecture, theta, centre, np.ones(3)).predict(X)
    np.testing.assert_allclose(found, outputs_of(hidden, theta, X - centre).T + centre, atol=1e-12)


@pytest.mark.parametrize("model", ["mlp", "masked"])
def test_predictions_leave_the_noise_variances_that_were_told(model: str) -> None:
    X, result = rows(), learned(model)
    left = ((X - result.predict(X)) ** 2).mean(axis=0)
    np.testing.assert_allclose(left, result.extras["noise_variances"], rtol=1e-6)
    children = result.adjacency.any(axis=0)
    assert (left[children] < 0.5 * X.var(axis=0)[children]).all()  # they explain the data


@MODELS
def test_roots_are_predicted_by_their_mean(model: str) -> None:
    X, result = rows(), learned(model)
    roots = ~result.adjacency.any(axis=0)
    assert roots.any()
    expected = np.broadcast_to(X.mean(axis=0)[roots], (len(X), int(roots.sum())))
    np.testing.assert_allclose(result.predict(X)[:, roots], expected, atol=1e-2 if model != "additive" else 1e-9)
    assert (np.ptp(result.predict(X)[:, roots], axis=0) < 1e-9).all()  # whatever the row


@MODELS
def test_predictions_depend_on_parents_and_on_nothing_else(model: str) -> None:
    X, result = rows(), learned(model)
    before = result.predict(X)
    for i in range(D):
        moved = X.copy()
        moved[:, i] += 0.7
        changed = np.abs(result.predict(moved) - before).max(axis=0) > 1e-9
        np.testing.assert_array_equal(changed, result.adjacency[i] == 1)


@MODELS
def test_columns_are_found_by_name_and_arrays_go_by_position(model: str, tmp_path: Path) -> None:
    X, result = rows(), learned(model)
    by_position = result.predict(X)
    np.testing.assert_array_equal(result.predict(table(X, ("d", "b", "a", "c"))), by_position)
    np.testing.assert_array_equal(result.predict(pa.Table.to_pandas(table(X, NAMES[::-1]))), by_position)
    lines = [",".join(NAMES), *(",".join(repr(float(value)) for value in row) for row in X)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    np.testing.assert_array_equal(result.predict(tmp_path / "rows.csv"), by_position)


# Effects


@MODELS
def test_an_effect_is_a_prediction_with_all_else_at_its_mean(model: str) -> None:
    X, result = rows(), learned(model)
    for source, target, _ in result.edges():
        i, j = NAMES.index(source), NAMES.index(target)
        effect = result.effect(source, target)
        mean, deviation = X[:, i].mean(), X[:, i].std()
        np.testing.assert_allclose(effect.values, np.linspace(mean - 2.0 * deviation, mean + 2.0 * deviation, 101))
        at_means = np.tile(X.mean(axis=0), (101, 1))
        at_means[:, i] = effect.values
        np.testing.assert_allclose(effect.expected, result.predict(at_means)[:, j], atol=1e-9)
        assert np.ptp(effect.expected) > 0.1
        some = result.effect(source, target, [0.0, 1.0, 2.5])
        np.testing.assert_array_equal(some.values, [0.0, 1.0, 2.5])
        at_means = np.tile(X.mean(axis=0), (3, 1))
        at_means[:, i] = some.values
        np.testing.assert_allclose(some.expected, result.predict(at_means)[:, j], atol=1e-9)


# What is refused


def refused(call: Any, *args: Any) -> str:
    with pytest.raises(InputError) as told:
        call(*args)
    assert "\n" not in str(told.value)
    return str(told.value)


def test_effects_of_variables_or_edges_that_are_not_there_are_refused() -> None:
    result = learned("additive")
    assert "'z'" in refused(result.effect, "z", "a")
    assert "'z'" in refused(result.effect, "a", "z")
    source, target, _ = result.edges()[0]
    assert f"{target!r} -> {source!r}" in refused(result.effect, target, source)
    assert "'c' -> 'c'" in refused(result.effect, "c", "c")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "mlp", "method": "voting", "hidden": 2},
        {"model": "additive", "method": "voting"},
        {"model": "mlp", "preset": "paper", "hidden": 2},
        {"model": "mlp", "preset": "paper", "method": "pooled", "hidden": 2},
    ],
    ids=str,
)
def test_a_result_without_functions_says_which_have_them(options: dict[str, Any]) -> None:
    result = dagora.learn([rows()[:120], rows()[120:]], **options)
    assert "no fitted functions" in refused(result.predict, rows())
    assert "no fitted functions" in refused(result.effect, "x1", "x2")


@MODELS
def test_rows_that_do_not_fit_are_refused(model: str) -> None:
    X, result = rows(), learned(model)
    missing = X.copy()
    missing[5, 1] = np.nan
    for wrong in (X[:, :3], np.column_stack([X, X[:, 0]]), X[0], missing, np.full_like(X, np.inf)):
        refused(result.predict, wrong)
    assert "'b'" in refused(result.predict, table(X, ("a", "c", "d")))


# Curves drawn


@dataclass(frozen=True)
class Waves:
    """Functions of many variables."""

    centre: FloatArray
    scale: FloatArray

    def predict(self, rows: FloatArray) -> FloatArray:
        total: FloatArray = np.sin(rows).sum(axis=1, keepdims=True) - np.sin(rows)
        return total


def with_edges(edges: int) -> dagora.Result:
    d = 8
    upper = np.argwhere(np.triu(np.ones((d, d)), 1))[:edges]
    adjacency, names = np.zeros((d, d), dtype=np.int64), tuple(f"v{j}" for j in range(d))
    adjacency[upper[:, 0], upper[:, 1]] = 1
    weights = adjacency * np.random.default_rng(0).uniform(1.0, 2.0, (d, d))
    functions = Waves(np.zeros(d), np.ones(d))
    return replace(learned("additive"), weights=weights, adjacency=adjacency, names=names, functions=functions)


@pytest.mark.parametrize(("edges", "left_out"), [(1, 0), (5, 0), (MOST, 0), (MOST + 4, 4)])
def test_curves_are_drawn_for_as_many_edges_as_there_is_room_for(edges: int, left_out: int, tmp_path: Path) -> None:
    assert draw_effects(with_edges(edges), tmp_path / "curves.png") == left_out
    picture = (tmp_path / "curves.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 5000


def test_curves_of_learned_networks_are_drawn(tmp_path: Path) -> None:
    assert draw_effects(learned("mlp"), tmp_path / "curves.svg") == 0
    drawn = (tmp_path / "curves.svg").read_text()
    assert drawn.count('<g id="axes_') == len(learned("mlp").edges())


def test_without_edges_there_is_nothing_to_draw(tmp_path: Path) -> None:
    assert "no edges" in refused(draw_effects, with_edges(0), tmp_path / "curves.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("values", [1.0, [], [[1.0, 2.0]], ["x"], [np.nan], [np.inf]], ids=str)
def test_effects_at_values_that_are_no_list_of_numbers_are_refused(values: Any) -> None:
    source, target, _ = learned("additive").edges()[0]
    assert refused(learned("additive").effect, source, target, values) == "values: must be a list of finite numbers"
