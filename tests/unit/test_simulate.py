import hashlib
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dagora.arrays import FloatArray
from dagora.cli import main
from dagora.data.partition import partition
from dagora.data.simulate import random_dag, simulate
from dagora.errors import InputError
from dagora.graphs import is_dag
from dagora.interchange.registry import read_graph
from dagora.metrics import evaluate

EULER_GAMMA = 0.5772156649


def test_the_public_contract() -> None:
    truth, sites = simulate(d=20, edges=20, n=256, sites=8, seed=0, model="linear")
    assert [site.shape for site in sites] == [(32, 20)] * 8
    assert {site.dtype for site in sites} == {np.dtype(np.float64)}
    assert truth.names[0] == "x1"
    assert truth.names[-1] == "x20"
    np.testing.assert_array_equal(truth.adjacency, truth.weights != 0)
    assert evaluate(truth, truth)["shd"] == 0


@pytest.mark.parametrize(
    ("graph", "d", "edges"),
    [
        *[("er", 7, edges) for edges in (0, 1, 13, 21)],
        *[("scale-free", 7, edges) for edges in (0, 3, 6, 7, 13, 20, 21)],
        *[("bipartite", 7, edges) for edges in (0, 5, 12)],
        *[(graph, 1, 0) for graph in ("er", "scale-free", "bipartite")],
    ],
)
def test_graphs_are_acyclic_with_exactly_the_edges_asked_for(graph: str, d: int, edges: int) -> None:
    for seed in range(10):
        dag = random_dag(d, edges, graph, np.random.default_rng(seed))
        assert is_dag(dag)
        assert dag.sum() == edges


def test_as_many_edges_as_vertices_by_default() -> None:
    assert simulate(d=9, n=10, sites=2)[0].adjacency.sum() == 9
    assert simulate(d=2, n=10, sites=2)[0].adjacency.sum() == 1  # there is room for no more


def test_er_is_uniform_over_the_arrows() -> None:
    # One edge on three vertices: each of the 6 arrows has probability 1/6.  Within five standard deviations.
    rng = np.random.default_rng(0)
    counts = np.sum([random_dag(3, 1, "er", rng) for _ in range(1200)], axis=0)
    np.testing.assert_allclose(counts[~np.eye(3, dtype=np.bool_)], 200, atol=5 * np.sqrt(1200 * 5 / 36))


def test_scale_free_graphs_have_hubs_that_others_point_to() -> None:
    rng = np.random.default_rng(0)
    hub, busiest, ordinary = np.mean(
        [
            (
                (scale_free := random_dag(60, 118, "scale-free", rng)).sum(axis=0).max(),
                scale_free.sum(axis=1).max(),
                random_dag(60, 118, "er", rng).sum(axis=0).max(),
            )
            for _ in range(20)
        ],
        axis=0,
    )
    assert busiest <= 3  # out-degrees are equal, but for one edge
    assert hub > 1.5 * ordinary


def test_bipartite_edges_lead_from_one_half_to_the_other() -> None:
    dag = random_dag(9, 20, "bipartite", np.random.default_rng(0))  # all of the 4 x 5 pairs
    np.testing.assert_array_equal(np.sort(dag.sum(axis=1)), [0] * 5 + [5] * 4)
    np.testing.assert_array_equal(np.sort(dag.sum(axis=0)), [0] * 4 + [4] * 5)


def test_weights_fill_their_range_with_both_signs() -> None:
    truth, _ = simulate(d=40, edges=780, n=8, weight_range=(0.1, 0.4))
    weights = truth.weights[truth.adjacency == 1]
    magnitudes = np.abs(weights)
    assert 0.1 <= magnitudes.min() < 0.11
    assert 0.39 < magnitudes.max() <= 0.4
    # Five standard deviations of a fair coin tossed 780 times, and of a uniform mean.
    assert abs((weights > 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(780)
    assert abs(magnitudes.mean() - 0.25) < 5 * 0.3 / np.sqrt(12 * 780)


@pytest.mark.parametrize("noise", ["gaussian", "gaussian-unequal", "exponential", "gumbel", "uniform"])
def test_regression_on_the_parents_recovers_the_weights(noise: str) -> None:
    truth, sites = simulate(d=8, edges=14, n=20_000, sites=3, seed=4, noise=noise)
    rows = np.concatenate(sites)
    rows -= rows.mean(axis=0)
    for child in range(8):
        parents = np.flatnonzero(truth.adjacency[:, child])
        design = rows[:, parents]
        coefficients = np.linalg.lstsq(design, rows[:, child], rcond=None)[0]
        errors = np.sqrt(truth.noise_variances[child] * np.diag(np.linalg.inv(design.T @ design)))
        assert (np.abs(coefficients - truth.weights[parents, child]) < 5 * errors).all()


# Mean in units of the scale, variance in its square, excess kurtosis (for the error of a variance).
@pytest.mark.parametrize(
    ("noise", "mean", "variance", "kurtosis"),
    [
        ("gaussian", 0.0, 1.0, 0.0),
        ("exponential", 1.0, 1.0, 6.0),
        ("gumbel", EULER_GAMMA, np.pi**2 / 6, 2.4),
        ("uniform", 0.0, 1 / 3, -1.2),
    ],
)
def test_noise_moments(noise: str, mean: float, variance: float, kurtosis: float) -> None:
    n, scale = 20_000, 1.5
    truth, sites = simulate(d=5, edges=6, n=n, sites=1, seed=1, noise=noise, noise_scale=scale)
    np.testing.assert_allclose(truth.noise_variances, variance * scale**2)
    residuals = sites[0] - sites[0] @ truth.weights
    np.testing.assert_allclose(residuals.mean(axis=0), mean * scale, atol=5 * scale * np.sqrt(variance / n))
    np.testing.assert_allclose(residuals.var(axis=0), truth.noise_variances, rtol=5 * np.sqrt((kurtosis + 2) / n))


def test_unequal_variances_lie_in_their_range_and_are_the_noise_s_own() -> None:
    truth, sites = simulate(d=30, n=20_000, sites=1, noise="gaussian-unequal", noise_scale=2.0)
    assert truth.noise_variances.min() >= 0.5 * 4
    assert truth.noise_variances.max() <= 2.0 * 4
    assert truth.noise_variances.std() > 1
    residuals = sites[0] - sites[0] @ truth.weights
    np.testing.assert_allclose(residuals.var(axis=0), truth.noise_variances, rtol=5 * np.sqrt(2 / 20_000))


def test_the_same_seed_gives_the_same_data_and_another_does_not() -> None:
    truth, sites = simulate(d=6, n=20, sites=2, seed=3)
    again, sites_again = simulate(d=6, n=20, sites=2, seed=3)
    other, _ = simulate(d=6, n=20, sites=2, seed=4)
    np.testing.assert_array_equal(truth.weights, again.weights)
    np.testing.assert_array_equal(np.concatenate(sites), np.concatenate(sites_again))
    assert not np.array_equal(truth.weights, other.weights)


@pytest.mark.parametrize(("sites", "split"), [(1, "even"), (7, "uneven"), (16, "few"), (2, (19, 61))])
def test_sites_and_split_leave_graph_and_pooled_rows_alone(sites: int, split: Any) -> None:
    truth, rows = simulate(d=10, n=80, sites=8, seed=5)
    same_truth, same_rows = simulate(d=10, n=80, sites=sites, seed=5, split=split)
    assert len(same_rows) == sites
    np.testing.assert_array_equal(truth.weights, same_truth.weights)
    np.testing.assert_array_equal(np.concatenate(rows), np.concatenate(same_rows))


def test_linear_data_of_a_seed_are_those_of_version_0_1() -> None:
    # The hash is from 0.1.0 (commit f7ddf8b), by these very lines.  No vertex of this graph has two parents, so each
    # cell is one product and one sum, and no BLAS can round it otherwise.
    truth, sites = simulate(d=12, edges=6, n=40, sites=3, seed=12, noise="gaussian-unequal", split="uneven")
    arrays = (truth.adjacency, truth.weights, truth.noise_variances, *sites)
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    assert digest == "fb0ed80ebfcabf102823e6fd90f9f98e8165f722c7ecd21715707cc7cd10da2a"
    assert truth.adjacency.sum(axis=0).max() == 1
    assert (truth.adjacency @ truth.adjacency).any()  # chains, so that the order of the variables counts


def test_the_noise_leaves_the_graph_and_weights_alone() -> None:
    unequal, _ = simulate(n=8, noise="gaussian-unequal", seed=2)
    uniform, _ = simulate(n=8, noise="uniform", seed=2)
    np.testing.assert_array_equal(unequal.weights, uniform.weights)


# Nonlinear data


def noise_of(seed: int, n: int, d: int) -> FloatArray:
    """Standard Gaussian noise from the fourth of simulate's five streams."""
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(5)[3]).standard_normal((n, d))


def test_mlp_rows_follow_the_formula() -> None:
    # Zheng et al. (2020), Section 5: X_j = sigmoid(X_pa W1) w2 + noise, written out unit by unit.
    d, n, seed = 6, 30, 3
    truth, sites = simulate(d=d, edges=9, n=n, sites=2, seed=seed, model="mlp", weight_range=(0.5, 2.0))
    rows, noise = np.concatenate(sites), noise_of(seed, n, d)
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(5)[1])
    for child in range(d):
        parents = np.flatnonzero(truth.adjacency[:, child])
        W1 = rng.uniform(0.5, 2.0, (len(parents), 100)) * rng.choice([-1.0, 1.0], (len(parents), 100))
        w2 = rng.uniform(0.5, 2.0, 100) * rng.choice([-1.0, 1.0], 100)
        expected = noise[:, child]
        if len(parents):
            for unit in range(100):
                activation = sum(rows[:, parent] * W1[i, unit] for i, parent in enumerate(parents))
                expected = expected + w2[unit] / (1 + np.exp(-activation))
        np.testing.assert_allclose(rows[:, child], expected, rtol=1e-12, atol=1e-12)


def test_mlp_truth_has_a_one_for_every_edge_and_the_graph_of_the_linear_model() -> None:
    truth, sites = simulate(d=7, edges=8, n=20, sites=4, seed=2, model="mlp")
    linear, _ = simulate(d=7, edges=8, n=20, sites=4, seed=2)
    assert [site.shape for site in sites] == [(5, 7)] * 4
    assert truth.weights.dtype == np.float64
    np.testing.assert_array_equal(truth.weights, truth.adjacency)
    np.testing.assert_array_equal(truth.adjacency, linear.adjacency)


def test_mlp_data_depend_on_the_seed_alone() -> None:
    def pooled(sites: int, split: str, seed: int) -> FloatArray:
        return np.concatenate(simulate(d=8, n=60, sites=sites, seed=seed, model="mlp", split=split)[1])

    np.testing.assert_array_equal(pooled(4, "even", 5), pooled(4, "even", 5))
    np.testing.assert_array_equal(pooled(4, "even", 5), pooled(7, "uneven", 5))
    assert not np.array_equal(pooled(4, "even", 5), pooled(4, "even", 6))


def test_mlp_roots_are_noise_alone() -> None:
    truth, sites = simulate(d=8, edges=6, n=50, sites=1, seed=1, model="mlp")
    roots = truth.adjacency.sum(axis=0) == 0
    unmoved = (sites[0] == noise_of(1, 50, 8)).all(axis=0)
    np.testing.assert_array_equal(unmoved, roots)


def test_a_parent_s_square_tells_of_an_mlp_child_and_of_no_linear_one() -> None:
    # Sigmoids are odd about their value at 0, so a symmetric parent would hide their curvature: exponential noise.
    assert square_s_t_values("mlp").max() > 10
    assert square_s_t_values("linear").max() < 5


def square_s_t_values(model: str) -> FloatArray:
    """For each only child of a root: the t value of the root's square in a regression on root and square."""
    values = []
    for seed in range(8):
        truth, sites = simulate(d=2, edges=1, n=2000, sites=1, seed=seed, model=model, noise="exponential")
        parent, child = np.argwhere(truth.adjacency)[0]
        x, y = sites[0][:, parent], sites[0][:, child]
        design = np.column_stack([np.ones_like(x), x, x**2])
        coefficients, *_ = np.linalg.lstsq(design, y, rcond=None)
        variance = np.var(y - design @ coefficients) * np.linalg.inv(design.T @ design)[2, 2]
        values.append(abs(coefficients[2]) / np.sqrt(variance))
    return np.array(values)


@pytest.mark.parametrize("noise", ["gaussian", "gaussian-unequal", "exponential", "gumbel", "uniform"])
def test_mlp_noise_is_of_the_kind_asked_for(noise: str) -> None:
    # The streams are separate, so the roots, which are noise alone, are those of the linear model.
    truth, mlp = simulate(d=9, edges=6, n=40, sites=1, seed=1, model="mlp", noise=noise, noise_scale=0.7)
    same, linear = simulate(d=9, edges=6, n=40, sites=1, seed=1, noise=noise, noise_scale=0.7)
    roots = truth.adjacency.sum(axis=0) == 0
    np.testing.assert_array_equal(mlp[0][:, roots], linear[0][:, roots])
    np.testing.assert_array_equal(truth.noise_variances, same.noise_variances)


def test_mlp_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["dagora", "simulate", "--model", "mlp", "--d", "5", "--n", "20", "--sites", "2", "--out", str(tmp_path)]
    with patch.object(sys, "argv", command), pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0, capsys.readouterr().err
    truth, sites = simulate(d=5, n=20, sites=2, model="mlp")
    np.testing.assert_array_equal(read_graph(tmp_path / "truth.csv", truth.names).weights, truth.weights)
    written = np.loadtxt(tmp_path / "site-02.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(written, sites[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "cubic"}, "model='cubic' is unknown; choose one of linear, mlp"),
        ({"graph": "ring"}, "er, scale-free, bipartite"),
        ({"noise": "pink"}, "gaussian, gaussian-unequal, exponential, gumbel, uniform"),
        ({"split": "half"}, "even, uneven, few"),
        ({"d": 5, "edges": 11}, "0 to 10 edges"),
        ({"d": 5, "edges": 7, "graph": "bipartite"}, "0 to 6 edges"),
        ({"edges": -1}, "edges=-1"),
        ({"d": 0}, "d=0"),
        ({"n": 0}, "n=0"),
        ({"seed": -1}, "seed=-1"),
        ({"sites": 0}, "sites=0"),
        ({"n": 7}, "7 rows are too few for 8 sites"),
        ({"noise_scale": 0.0}, "noise_scale"),
        ({"weight_range": (0.0, 1.0)}, "weight_range"),
        ({"weight_range": (2.0, 1.0)}, "weight_range"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(**options)


# Partition


@pytest.mark.parametrize("split", ["even", "uneven", "few"])
@pytest.mark.parametrize(("n", "sites"), [(1, 1), (5, 5), (9, 5), (10, 5), (23, 5), (200, 5)])
def test_every_row_goes_to_one_site(n: int, sites: int, split: str) -> None:
    rows = np.arange(2.0 * n).reshape(n, 2)
    for seed in range(10):
        blocks = partition(rows, sites, split, np.random.default_rng(seed))
        assert len(blocks) == sites
        assert min(len(block) for block in blocks) >= min(2, n // sites)
        np.testing.assert_array_equal(np.concatenate(blocks), rows)


def sizes(n: int, sites: int, split: Any, seed: int = 0) -> list[int]:
    return [len(block) for block in partition(np.zeros((n, 1)), sites, split, np.random.default_rng(seed))]


def test_even_sizes_differ_by_at_most_one() -> None:
    assert sizes(23, 5, "even") == [5, 5, 5, 4, 4]


def test_uneven_sizes_follow_dirichlet_proportions() -> None:
    # The largest of K uniform Dirichlet proportions has mean (1 + 1/2 + ... + 1/K)/K: 0.52 for K = 4.
    largest = [max(sizes(10_008, 4, "uneven", seed)) / 10_008 for seed in range(200)]
    assert np.mean(largest) == pytest.approx(25 / 48, abs=0.05)


def test_few_leaves_the_bulk_to_the_first_site() -> None:
    for seed in range(10):
        first, *small = sizes(100, 8, "few", seed)
        assert first >= 100 - 7 * 5
        assert set(small) <= {2, 3, 4, 5}


def test_sizes_can_be_given() -> None:
    assert sizes(10, 3, [7, 1, 2]) == [7, 1, 2]


@pytest.mark.parametrize("split", [[5, 5], [5, 4, 2], [10, 0, 0], []])
def test_sizes_that_do_not_fit_are_refused(split: list[int]) -> None:
    with pytest.raises(InputError, match="3 sizes of at least 1 that sum to 10"):
        sizes(10, 3, split)


def test_sites_do_not_share_memory_with_the_rows() -> None:
    rows = np.ones((4, 2))
    partition(rows, 2, "even", np.random.default_rng(0))[0][:] = 0.0
    assert rows.all()
