"""Learning from one total: it is that of the pooled rows, learners need nothing else, and refusals name the culprit."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.aggregation.plain import Plain
from dagora.algorithms.covariance import CovarianceServer, CovarianceSite
from dagora.algorithms.options import METHODS
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import InputError
from dagora.federated.run import run
from dagora.federated.site import Site
from dagora.graphs import UNDIRECTED, dag_to_cpdag, is_dag, skeleton
from dagora.learners.base import Learned, LearnerOptions
from dagora.learners.notears import notears_path
from dagora.learners.registry import LEARNERS
from dagora.transport.in_process import InProcess
from tests.helpers import CLASS_LEARNERS, covariance, penalised_loss, small_sites

LEARNER = pytest.mark.parametrize("learner", LEARNERS)


def moments_at_the_server(sites: Sequence[FloatArray]) -> tuple[Moments, int]:
    """What the learner is given, and after how many rounds."""
    given: list[Moments] = []
    d = sites[0].shape[1]

    def learn(moments: Moments) -> Learned:
        given.append(moments)
        return Learned(np.zeros((d, d)), np.zeros((d, d), dtype=np.bool_))

    parts = [Site(str(k), CovarianceSite(), Moments.of_rows(rows), Plain()) for k, rows in enumerate(sites)]
    outcome = run(CovarianceServer(d, learn), Plain(), InProcess(parts))
    (moments,) = given
    assert outcome.history[-1]["done"] == 1.0
    return moments, len(outcome.history)


def pooled(sites: Sequence[FloatArray]) -> tuple[int, FloatArray, FloatArray]:
    """Number, mean and scatter of all rows, in longer floats."""
    X = np.vstack(sites).astype(np.longdouble)
    mean = X.mean(axis=0)
    return len(X), mean.astype(np.float64), ((X - mean).T @ (X - mean)).astype(np.float64)


RNG = np.random.default_rng(0)
SITES: dict[str, tuple[list[FloatArray], int]] = {
    "even": (small_sites(), 1),
    "uneven": (small_sites(rows=(500, 3, 41)), 1),
    "one row each": ([RNG.normal(size=(1, 4)) for _ in range(9)], 1),
    "one site": ([RNG.normal(size=(50, 4))], 1),
    "a site of constant rows": ([RNG.normal(size=(50, 4)), np.tile(RNG.normal(size=4), (20, 1))], 1),
    "means of their own": ([RNG.normal(size=(50, 4)) + 20.0 * k for k in range(3)], 1),
    "means of 50 spreads": ([RNG.normal(size=(50, 4)) + 50.0 for _ in range(3)], 1),
    "means of 1000 spreads": ([RNG.normal(size=(50, 4)) + 1e3 for _ in range(3)], 1),
    "means of 1e6 spreads": ([RNG.normal(size=(50, 4)) + np.array([1e6, -1e6, 0.0, 1e6]) for _ in range(3)], 1),
    "one mean of 1e6 spreads": ([RNG.normal(size=(n, 4)) + np.array([0.0, 0.0, 0.0, 1e6]) for n in (1, 30, 7)], 1),
    "small units": ([1e-9 * RNG.normal(size=(50, 4)) for _ in range(3)], 1),
}


@pytest.mark.parametrize("case", SITES)
def test_the_total_is_that_of_the_pooled_rows(case: str) -> None:
    sites, rounds = SITES[case]
    moments, asked = moments_at_the_server(sites)
    n, mean, scatter = pooled(sites)
    spread = np.sqrt(np.diag(scatter))
    assert asked == rounds
    assert moments.n == n
    np.testing.assert_allclose((moments.mean - mean) / (spread / np.sqrt(n)), 0.0, atol=1e-9)
    np.testing.assert_allclose((moments.scatter - scatter) / np.outer(spread, spread), 0.0, atol=1e-9)
    np.testing.assert_array_equal(moments.scatter, moments.scatter.T)


@LEARNER
@pytest.mark.parametrize(("n", "d"), [(60, 5), (9, 1), (9, 2)])
def test_learners_need_moments_only(learner: str, n: int, d: int) -> None:
    A = np.random.default_rng(0).normal(size=(d, d + 3))
    options = LearnerOptions(**LEARNERS[learner].defaults)
    learned = LEARNERS[learner].learner(Moments(n, np.full(d, 5.0), A @ A.T), options)
    assert learned.edges.shape == learned.weights.shape == (d, d)
    assert is_dag(learned.edges)
    assert np.isfinite(learned.weights).all()
    assert (learned.cpdag is not None) == (learner in CLASS_LEARNERS)
    if d == 1:
        assert not learned.edges.any()


def test_learners_import_nothing_that_has_rows_or_sites() -> None:
    files = sorted((Path(dagora.__file__).parent / "learners").glob("*.py"))
    assert len(files) > len(LEARNERS)
    imported: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert "dagora.data.moments.Moments" in imported
    barred = [f"dagora.{name}" for name in ("federated", "transport", "aggregation", "algorithms", "learn.")]
    barred += [f"dagora.data.{name}" for name in ("tables", "csv_files", "arrow_tables", "summary", "partition")]
    assert [name for name in sorted(imported) if name.startswith(tuple(barred))] == []


@pytest.mark.parametrize(("learner", "close"), [("notears", 1e-3), *((learner, 1e-10) for learner in CLASS_LEARNERS)])
def test_totals_give_what_pooled_rows_give(learner: str, close: float) -> None:
    """NOTEARS stops within its tolerance, after more or fewer steps by rounding: up to 2.4e-4 between its weights."""
    for seed in range(4):
        _, sites = dagora.simulate(8, 12, 200, 4, seed=seed, split=[150, 30, 19, 1])
        total, rows = (dagora.learn(sites, method=method, learner=learner) for method in ("covariance", "pooled"))
        np.testing.assert_array_equal(total.adjacency, rows.adjacency)
        np.testing.assert_array_equal(total.cpdag, rows.cpdag)
        np.testing.assert_allclose(total.weights, rows.weights, rtol=0, atol=close)
        assert total.rounds == 1


@pytest.mark.parametrize("method", ["covariance", "voting", "pooled"])
@pytest.mark.parametrize("learner", CLASS_LEARNERS)
def test_a_class_is_told_in_the_same_way_everywhere(method: str, learner: str) -> None:
    _, sites = dagora.simulate(8, 9, 600, 3, seed=17, noise="gaussian-unequal")
    result = dagora.learn(sites, method=method, learner=learner)
    open_ = {frozenset(pair) for pair in result.undirected()}
    marks = {frozenset((result.names[i], result.names[j])) for i, j in np.argwhere(result.cpdag == UNDIRECTED)}
    assert open_ == marks
    assert 0 < len(open_) < len(result.edges())
    assert result.summary()["undirected"] == [list(pair) for pair in result.undirected()]
    np.testing.assert_array_equal(skeleton(result.cpdag), skeleton(result.adjacency))
    assert result.adjacency[result.cpdag == 1].all()  # no arrow of the class is turned in the DAG
    np.testing.assert_array_equal(result.cpdag, dag_to_cpdag(result.adjacency))
    assert all(weight != 0.0 for _, _, weight in result.edges())


def test_learners_of_weights_leave_no_direction_open() -> None:
    _, sites = dagora.simulate(8, 9, 600, 3, seed=5)
    result = dagora.learn(sites, method="covariance", learner="notears")
    assert result.undirected() == result.summary()["undirected"] == []
    np.testing.assert_array_equal(result.cpdag, dag_to_cpdag(result.adjacency))
    assert (result.cpdag == UNDIRECTED).any()  # its class has such edges, but the learner claims them all


def collinear(seed: int = 0) -> FloatArray:
    """x4 is determined by x1 and x2."""
    rows = np.random.default_rng(seed).normal(size=(60, 5))
    rows[:, 3] = 2.0 * rows[:, 0] - rows[:, 1]
    return rows


REFUSING: list[dict[str, Any]] = [
    *({"learner": learner} for learner in CLASS_LEARNERS),
    {"learner": "golem"},
    {"learner": "golem", "score": "likelihood"},
]
RELATION = re.escape(
    "columns 'x1', 'x2', 'x4' determine each other by a linear relation (to 1e-9 of the variance); remove one"
)


@pytest.mark.parametrize("chosen", REFUSING, ids=str)
def test_collinear_columns_are_named(chosen: dict[str, Any]) -> None:
    rows = collinear()
    for method in ("covariance", "pooled"):
        with pytest.raises(InputError, match=f"^{RELATION}$"):
            dagora.learn([rows[:4], rows[4:]], method=method, **chosen)
    with pytest.raises(InputError, match=f"^site 'south': {RELATION}$"):
        dagora.learn({"north": rows + RNG.normal(size=(60, 5)), "south": rows}, method="voting", **chosen)


@pytest.mark.parametrize("method", ["covariance", "voting", "average", "pooled"])
def test_notears_takes_collinear_columns(method: str) -> None:
    rows = collinear()
    result = dagora.learn([rows[:30], rows[30:]], method=method, learner="notears")
    assert {edge[:2] for edge in result.edges()} >= {("x1", "x4")}
    assert np.isfinite(result.weights).all()


@pytest.mark.filterwarnings("ignore::dagora.ConvergenceWarning")  # three rows: solvers may stop short, and say so
@pytest.mark.parametrize("learner", [*CLASS_LEARNERS, "notears"])
@pytest.mark.parametrize("method", ["covariance", "voting", "pooled"])
def test_fewer_rows_than_columns_give_a_graph(method: str, learner: str) -> None:
    for seed in range(5):
        _, sites = dagora.simulate(8, 8, 6, 2, seed=seed)
        result = dagora.learn(sites, method=method, learner=learner)
        assert is_dag(result.adjacency)
        assert np.isfinite(result.weights).all()
        np.testing.assert_array_equal(skeleton(result.cpdag), skeleton(result.adjacency))


def test_golem_refuses_fewer_rows_than_columns() -> None:
    _, sites = dagora.simulate(8, 8, 6, 2, seed=0)
    advice = "learner 'golem' needs more rows than variables; use 'notears' or 'boss'"
    with pytest.raises(InputError, match=f"^{advice}$"):
        dagora.learn(sites, method="covariance", learner="golem")
    with pytest.raises(InputError, match=f"^site 'site-01': {advice}$"):
        dagora.learn(sites, method="voting", learner="golem")


def test_a_single_column_is_refused_by_every_method_and_learner() -> None:
    rows = RNG.normal(size=(30, 1))
    choices: list[dict[str, Any]] = [{"method": "admm"}, {"method": "admm", "preset": "paper"}]
    choices += [{"method": method, "learner": "notears"} for method in METHODS if method != "admm"]
    choices += [{"method": method, "learner": name} for method in ("covariance", "voting") for name in LEARNERS]
    for chosen in choices:
        with pytest.raises(InputError, match=r"^site 'site-01', column 'x1': the only column; two or more are needed$"):
            dagora.learn([rows], **chosen)


UNHEEDED: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"{option} with {learner}": ({"method": "covariance", "learner": learner, option: value}, learner)
        for option, value, learners in (
            ("lam", 0.1, ("boss", "ges", "exact", "pc")),
            ("threshold", 0.3, ("boss", "ges", "exact", "pc")),
            ("penalty", 1.0, ("pc", "notears", "golem")),
            ("alpha", 0.05, ("boss", "ges", "exact", "notears", "golem")),
            ("score", "likelihood", ("boss", "ges", "exact", "pc", "notears")),
            ("polish", True, ("boss", "ges", "exact", "pc", "golem")),
            ("polish", False, ("boss", "golem")),
            ("intercept", True, tuple(LEARNERS)),
        )
        for learner in learners
    },
    "penalty with admm": ({"penalty": 1.0}, "admm"),
    "alpha with admm": ({"alpha": 0.05}, "admm"),
    "lam with admm's likelihood": ({"score": "likelihood", "lam": 0.1}, "admm"),
    "score with admm's paper": ({"score": "likelihood", "preset": "paper"}, "admm"),
    "standardize with boss": ({"method": "covariance", "standardize": True}, "boss"),
    "standardize with the paper": ({"method": "pooled", "preset": "paper", "standardize": True}, "notears"),
    "learner with admm": ({"learner": "boss"}, "admm"),
    "preset with boss": ({"method": "covariance", "learner": "boss", "preset": "paper"}, "boss"),
    "preset with pc": ({"method": "voting", "learner": "pc", "preset": "paper"}, "pc"),
    "method with ges": ({"method": "average", "learner": "ges"}, "ges"),
    "method with boss": ({"method": "average", "learner": "boss"}, "boss"),
    "lam with boss by default": ({"method": "covariance", "lam": 0.1}, "boss"),
    "penalty with notears by default": ({"method": "voting", "penalty": 1.0}, "notears"),
}


@pytest.mark.parametrize("case", UNHEEDED)
def test_options_that_would_do_nothing_are_refused_by_name(case: str) -> None:
    arguments, who = UNHEEDED[case]
    with pytest.raises(InputError, match=f"^{case.split()[0]}: .*'{who}'"):
        dagora.learn(small_sites(), **arguments)


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("penalty", {"penalty": 0.0}),
        ("penalty", {"penalty": -1.0}),
        ("penalty", {"penalty": float("inf")}),
        ("penalty", {"penalty": float("nan")}),
        ("alpha", {"learner": "pc", "alpha": 0.0}),
        ("alpha", {"learner": "pc", "alpha": 1.0}),
        ("alpha", {"learner": "pc", "alpha": float("nan")}),
        ("score", {"learner": "golem", "score": "x"}),
        ("lam", {"learner": "notears", "lam": -0.1}),
        ("threshold", {"learner": "golem", "threshold": float("nan")}),
        ("learner", {"learner": "x"}),
        ("learner", {"learner": ""}),
    ],
    ids=str,
)
def test_bad_values_are_refused_by_name(option: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"^{option}: [^\n]+$"):
        dagora.learn(small_sites(), method="covariance", **arguments)


def test_settings_tell_the_options_that_counted() -> None:
    sites = small_sites()
    by_default = dagora.learn(sites, method="covariance").settings
    assert (by_default["learner"], by_default["penalty"]) == ("boss", 2.0)
    assert not {"lam", "threshold", "alpha", "score", "polish"} & set(by_default)
    golem = dagora.learn(sites, method="covariance", learner="golem").settings
    assert (golem["score"], golem["lam"]) == ("least-squares", 0.02)
    likelihood = dagora.learn(sites, method="covariance", learner="golem", score="likelihood").settings
    assert (likelihood["score"], likelihood["lam"]) == ("likelihood", 0.002)


def test_polish_lowers_the_penalised_loss_or_leaves_it() -> None:
    gained = 0
    for seed in range(8):
        _, sites = dagora.simulate(10, 20, 200, 2, seed=seed, noise="gaussian-unequal")
        S = covariance(np.vstack(sites))
        plain, polished = (penalised_loss(S, notears_path(S, 0.1, search=on).weights, 0.1) for on in (False, True))
        assert polished <= plain + 1e-6
        gained += polished < plain - 1e-3
    assert gained > 0
