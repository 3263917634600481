"""Networks against oracles: NOTEARS-MLP on all rows in one place, other divisions of the rows, what is said of them."""

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import dagora
import dagora.algorithms
from dagora.arrays import FloatArray
from dagora.errors import ConvergenceWarning, InputError
from dagora.graphs import is_dag
from dagora.learners.notears_mlp import solve
from dagora.models.network import Architecture
from tests.networks import outputs_of

CASES = pytest.mark.parametrize(("d", "seed"), [(4, 0), (5, 2), (6, 1)])
WIDTH, LAM, RIDGE = 10, 0.01, 0.01  # the defaults


@cache
def sites_of(d: int, seed: int, sites: int) -> list[FloatArray]:
    """The same 240 rows, divided."""
    return dagora.simulate(d, d, 240, sites, seed=seed, model="mlp")[1]


@cache
def learned(d: int, seed: int, sites: int, **options: Any) -> dagora.Result:
    return dagora.learn(sites_of(d, seed, sites), model="mlp", **options)


def objective(result: dagora.Result) -> float:
    return float(result.extras["objective"])


def left(result: dagora.Result, rows: FloatArray) -> FloatArray:
    """What the functions leave of each variable, as a mean square."""
    assert result.functions is not None
    squares: FloatArray = ((rows - result.functions.predict(rows)) ** 2).mean(axis=0)
    return squares


@CASES
def test_the_objective_is_close_to_that_of_notears_mlp_on_pooled_rows(d: int, seed: int) -> None:
    published = learned(d, seed, 4, method="pooled", preset="paper")
    found = learned(d, seed, 4)
    assert objective(found) <= 1.03 * objective(published)
    assert objective(found) >= 0.9 * objective(published)  # both are values of the same problem
    assert is_dag(found.adjacency)
    assert is_dag(published.adjacency)
    assert found.removed == ()  # no cycle had to be broken


@CASES
def test_one_site_and_four_end_at_about_the_same_objective(d: int, seed: int) -> None:
    assert objective(learned(d, seed, 1)) == pytest.approx(objective(learned(d, seed, 4)), rel=0.01)


@CASES
def test_the_graph_explains_more_than_no_graph(d: int, seed: int) -> None:
    rows = np.vstack(sites_of(d, seed, 4))
    empty = 0.5 * float(rows.var(axis=0).sum())
    assert objective(learned(d, seed, 4)) < 0.9 * empty


def test_the_published_solver_ends_near_a_dag_and_tells_what_its_networks_cost() -> None:
    """Squares, l1 on the first layers and the ridge on all, written out."""
    rows, architecture = np.vstack(sites_of(4, 0, 4)), Architecture(4, (5,))
    X = rows - rows.mean(axis=0)
    found = solve(X, architecture, architecture.start(0), LAM, RIDGE)
    first, later = found.theta[:, : 4 * 5], found.theta[:, 5 * 5 : 6 * 5]  # between them, and last, biases
    squares = 0.5 * float(((outputs_of((5,), found.theta, X) - X.T) ** 2).mean(axis=1).sum())
    weights = float((first**2).sum() + (later**2).sum())
    expected = squares + LAM * float(np.abs(first).sum()) + 0.5 * RIDGE * weights
    assert found.objective == pytest.approx(expected, rel=1e-9)
    norms = np.linalg.norm(first.reshape(4, 5, 4), axis=1).T
    np.testing.assert_allclose(found.weights, norms, atol=1e-12)
    h = float(np.trace(scipy.linalg.expm(norms**2))) - 4.0
    assert found.h == pytest.approx(h, abs=1e-12)
    assert h <= 1e-8


def test_noise_variances_are_what_the_functions_leave() -> None:
    result, rows = learned(5, 2, 4), np.vstack(sites_of(5, 2, 4))
    np.testing.assert_allclose(result.extras["noise_variances"], left(result, rows), rtol=1e-8)


def test_functions_depend_on_parents_alone() -> None:
    result, rows = learned(5, 2, 4), np.vstack(sites_of(5, 2, 4))
    assert result.functions is not None
    before = result.functions.predict(rows)
    for i in range(5):
        moved = rows.copy()
        moved[:, i] += 1.0
        changed = np.abs(result.functions.predict(moved) - before).max(axis=0) > 1e-9
        np.testing.assert_array_equal(changed, result.adjacency[i] == 1)


def test_edges_are_norms_above_the_threshold() -> None:
    result = learned(5, 2, 4)
    assert (result.weights >= 0.0).all()
    np.testing.assert_array_equal(result.adjacency == 1, result.weights > 0.5)
    higher = dagora.learn(sites_of(5, 2, 4), model="mlp", threshold=1.0)
    np.testing.assert_array_equal(higher.weights, result.weights)
    np.testing.assert_array_equal(higher.adjacency == 1, result.weights > 1.0)


def test_pooled_rows_are_those_of_one_site() -> None:
    pooled, alone = learned(4, 0, 4, method="pooled"), learned(4, 0, 1)
    np.testing.assert_array_equal(pooled.weights, alone.weights)
    np.testing.assert_array_equal(pooled.adjacency, alone.adjacency)


def test_the_order_of_sites_is_irrelevant() -> None:
    turned = dagora.learn(sites_of(4, 0, 4)[::-1], model="mlp")
    np.testing.assert_array_equal(turned.adjacency, learned(4, 0, 4).adjacency)
    assert objective(turned) == pytest.approx(objective(learned(4, 0, 4)), rel=1e-3)


def test_equal_seeds_give_equal_bits_and_other_seeds_other_networks() -> None:
    again = dagora.learn(sites_of(4, 0, 4), model="mlp", seed=0)
    np.testing.assert_array_equal(again.weights, learned(4, 0, 4).weights)
    other = dagora.learn(sites_of(4, 0, 4), model="mlp", seed=1)
    assert (other.weights != again.weights).any()
    assert objective(other) == pytest.approx(objective(again), rel=0.03)


def test_without_polish_there_are_fewer_rounds_and_no_lower_objective() -> None:
    plain, polished = learned(4, 0, 4, polish=False), learned(4, 0, 4)
    assert plain.rounds < polished.rounds
    assert objective(polished) <= objective(plain) * (1.0 + 1e-6)
    assert is_dag(plain.adjacency)


def test_two_hidden_layers_fit_about_as_well_as_one() -> None:
    result = learned(5, 2, 4, hidden=(4, 3))
    assert result.settings["hidden"] == (4, 3)
    assert is_dag(result.adjacency)
    rows = np.vstack(sites_of(5, 2, 4))
    assert left(result, rows).sum() < 1.2 * left(learned(5, 2, 4), rows).sum()


def test_a_number_for_hidden_is_one_layer() -> None:
    assert learned(4, 0, 4, hidden=3).settings["hidden"] == (3,)
    np.testing.assert_array_equal(learned(4, 0, 4, hidden=3).weights, learned(4, 0, 4, hidden=(3,)).weights)


def test_the_papers_preset_ends_within_its_rounds_near_a_dag() -> None:
    result = learned(4, 0, 4, preset="paper")
    assert 10 < result.rounds <= 201  # one counts rows
    assert {entry.phase for entry in result.ledger} == {"count", "consensus"}
    assert is_dag(result.adjacency)
    assert result.adjacency.any()
    assert result.history[-1]["h"] < 1e-3


@cache
def learned_alone() -> list[dagora.Result]:
    return [dagora.learn([rows], model="mlp", polish=False) for rows in sites_of(4, 0, 4)]


@pytest.mark.parametrize("method", ["voting", "average"])
def test_sites_that_learn_alone_are_combined(method: str) -> None:
    alone = learned_alone()
    result = learned(4, 0, 4, method=method)
    assert result.rounds == 1
    if method == "voting":
        votes = np.sum([own.adjacency for own in alone], axis=0)
        np.testing.assert_array_equal(result.adjacency == 1, votes > 2)  # with no cycle to be broken
        assert (votes > 2).any()
    else:
        mean = np.mean([own.weights for own in alone], axis=0)
        np.testing.assert_allclose(result.weights, mean, atol=1e-12)
        assert ((result.adjacency == 1) <= (mean > 0.5)).all()


def test_masked_sums_give_the_same_graph() -> None:
    masked = dagora.learn(sites_of(4, 0, 4), model="mlp", aggregation="masked")
    np.testing.assert_array_equal(masked.adjacency, learned(4, 0, 4).adjacency)
    assert objective(masked) == pytest.approx(objective(learned(4, 0, 4)), rel=0.01)


def test_what_leaves_the_sites_is_what_the_docstrings_say() -> None:
    d, size = 4, (4 + 1) * WIDTH + WIDTH + 1
    fields = {entry.phase: dict(entry.fields) for entry in learned(4, 0, 4).ledger}
    assert set(fields) == {"count", "spread", "curvature", "consensus", "fit"}
    assert fields["count"] == {"rows": (), "sites": (), "sum": (d,)}
    assert fields["spread"] == {"squares": (d,)}
    assert fields["curvature"] == {"curvature": (d, size)}
    assert fields["consensus"] == {"position": (d, size), "products": (1,)}
    assert set(fields["fit"]) == {"squares", "gradient", "products"}


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_wild_columns_are_named(factor: float) -> None:
    with pytest.warns(ConvergenceWarning, match=r"columns 'age': deviations far from 1.*rescale"):
        result = dagora.learn(_with_ages_times(factor), model="mlp")
    assert is_dag(result.adjacency)


@pytest.mark.parametrize("factor", [1e-7, 1e6])
def test_columns_beyond_all_bounds_are_refused_by_name(factor: float) -> None:
    with pytest.raises(InputError, match=r"columns 'age': deviations too far from 1.*rescale"):
        dagora.learn(_with_ages_times(factor), model="mlp")


def _with_ages_times(factor: float) -> list[Any]:
    names = ["height", "weight", "age", "income"]
    sites = [rows * np.array([1.0, 1.0, factor, 1.0]) for rows in sites_of(4, 0, 4)]
    return [_named(rows, names) for rows in sites]


def _named(rows: FloatArray, names: list[str]) -> Any:
    pandas: Any = pytest.importorskip("pandas")
    return pandas.DataFrame(rows, columns=names)


def test_columns_near_one_raise_no_warning() -> None:
    assert learned(4, 0, 4).warnings == ()


def test_a_device_that_torch_cannot_use_is_told_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^device: torch cannot use 'nonsense' here") as told:
        dagora.learn(sites_of(4, 0, 4), model="mlp", device="nonsense")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hidden": 0}, "hidden: "),
        ({"hidden": ()}, "hidden: "),
        ({"hidden": (3, -1)}, "hidden: "),
        ({"hidden": "10"}, "hidden: "),
        ({"seed": -1}, "seed: "),
        ({"seed": True}, "seed: "),
        ({"ridge": -1.0}, "ridge: "),
        ({"device": 0}, "device: "),
        ({"method": "covariance"}, "method: 'covariance' does not fit model 'mlp'"),
        ({"learner": "boss"}, "learner: "),
        ({"penalty": 1.0}, "penalty: "),
        ({"preset": "paper", "ridge": 0.1}, "ridge: "),
        ({"preset": "paper", "polish": True}, "polish: "),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}"):
        dagora.learn(sites_of(4, 0, 4), model="mlp", **options)


def test_without_torch_it_says_in_one_line_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not there
    for name in ("dagora.algorithms.networks", "dagora.models.network", "dagora.models.mlp"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(dagora.algorithms, "networks", raising=False)
    with pytest.raises(InputError, match=r"^model: 'mlp' needs torch; install it .*dagora\[nonlinear\]'$"):
        dagora.learn(sites_of(4, 0, 4), model="mlp")
    assert dagora.learn(sites_of(4, 0, 4)).rounds > 1  # other models do without
