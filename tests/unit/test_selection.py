"""Choosing lam and the threshold, against brute force over what could be chosen."""

import json
from math import comb, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.solvers.selection import FIRST, GRID, best_threshold, choose, extended_bic, first_lam
from tests.helpers import covariance, small_sites


def score_by_hand(S: FloatArray, n: int, edges: BoolArray | IntArray, equal: bool) -> float:
    d, left = len(S), []
    for j in range(d):
        parents = np.flatnonzero(edges[:, j])
        b = np.linalg.pinv(S[np.ix_(parents, parents)]) @ S[parents, j]
        left.append(S[j, j] - S[parents, j] @ b)
    fit = n * d / 2 * log(np.mean(left)) if equal else n / 2 * np.log(left).sum()
    k = int(edges.sum())
    return float(fit + k * log(n) / 2 + log(comb(d * (d - 1), k)))


@pytest.mark.parametrize("equal", [True, False])
def test_the_threshold_has_the_best_score_of_all_thresholds(equal: bool) -> None:
    _, (rows,) = dagora.simulate(d=6, edges=7, n=120, sites=1, seed=2)
    S = covariance(rows)
    W = dagora.learn([rows], method="pooled", lam=0.01, polish=True).weights
    by_hand = {t: score_by_hand(S, 120, np.abs(W) > t, equal) for t in [*(np.abs(W[W != 0]) - 1e-12), 1e9]}
    found = best_threshold(S, 120, W, 0.01, None, equal)
    assert found.score == pytest.approx(min(by_hand.values()), abs=1e-6)
    assert found.score == pytest.approx(score_by_hand(S, 120, np.abs(W) > found.threshold, equal), abs=1e-6)
    fixed = best_threshold(S, 120, W, 0.01, 0.3, equal)
    assert fixed.score == pytest.approx(score_by_hand(S, 120, np.abs(W) > 0.3, equal), abs=1e-6)


def test_no_edge_is_a_choice() -> None:
    rows = np.random.default_rng(0).standard_normal((200, 5))
    W = np.triu(np.full((5, 5), 0.01), 1)
    found = best_threshold(covariance(rows), 200, W, 0.1, None)
    assert not (np.abs(W) > found.threshold).any()


def test_few_rows_do_not_buy_parents_that_fit_whatever_there_is() -> None:
    rows = np.random.default_rng(1).standard_normal((5, 8))
    result = dagora.learn([rows, rows[::-1] + 1.0], method="voting", lam="auto", threshold="auto")
    assert result.adjacency.sum(axis=0).max() <= 2  # of 4 degrees of freedom


@pytest.mark.parametrize("options", [{}, {"learner": "golem"}, {"learner": "golem", "score": "likelihood"}])
def test_auto_is_the_best_of_the_fixed_values_it_could_have_chosen(options: dict[str, Any]) -> None:
    _, (rows,) = dagora.simulate(d=8, edges=8, n=256, sites=1, seed=4)
    S, equal = covariance(rows), options.get("score") != "likelihood"
    auto = dagora.learn([rows], method="pooled", lam="auto", threshold="auto", **options)
    reached = score_by_hand(S, 256, auto.adjacency, equal)
    lam, threshold = auto.settings["lam"], auto.settings["threshold"]
    assert auto.settings["chosen"] == "lam, threshold"
    if not options:
        assert min(abs(lam / first_lam(np.diag(S)) - step / FIRST) for step in GRID) < 1e-9
    for step in GRID:
        fixed = dagora.learn([rows], method="pooled", lam=step * lam / FIRST, threshold=threshold, **options)
        # Other lam of the grid, but not the same basins: within a step of the score's own scale.
        assert reached <= score_by_hand(S, 256, fixed.adjacency, equal) + 0.5 * log(256)


def test_sites_choose_as_pooled_rows_do() -> None:
    for seed in range(3):
        _, sites = dagora.simulate(d=10, edges=10, n=256, sites=8, seed=seed)
        together = dagora.learn(sites, method="pooled", lam="auto", threshold="auto")
        apart = dagora.learn(sites, lam="auto", threshold="auto")
        assert apart.settings["lam"] == pytest.approx(together.settings["lam"], rel=1e-6)
        assert (apart.adjacency == together.adjacency).all()
        assert dagora.learn(sites, lam="auto").settings["threshold"] == 0.3


def test_units_of_all_columns_together_do_not_matter() -> None:
    sites = small_sites()
    one = dagora.learn(sites, lam="auto", threshold="auto")
    other = dagora.learn([1000.0 * rows for rows in sites], lam="auto", threshold="auto")
    assert (one.adjacency == other.adjacency).all()
    assert other.settings["lam"] == pytest.approx(1e6 * one.settings["lam"])


def test_choose_starts_from_the_lam_that_it_is_given() -> None:
    S, asked = np.eye(3), []

    def solve(near: FloatArray, lam: float) -> FloatArray:
        asked.append(lam)
        return near

    best = choose(S, 100, np.zeros((3, 3)), 0.2, solve, 0.3)
    assert sorted([*asked, 0.2]) == pytest.approx(sorted(2.0 * step for step in GRID))
    assert best.lam == pytest.approx(max(asked))  # of equals the one that prefers fewer edges


def test_extended_bic_prices_what_there_is_to_choose_from() -> None:
    assert extended_bic(np.ones(4), 100, 3) == pytest.approx(1.5 * log(100) + log(comb(12, 3)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"preset": "paper", "lam": "auto"}, "lam: 'auto' is for model 'linear' and preset 'default'"),
        ({"model": "mlp", "threshold": "auto"}, "threshold: 'auto' is for model 'linear'"),
        ({"method": "average", "threshold": "auto"}, "threshold: 'auto' needs totals"),
        ({"polish": False, "lam": "auto"}, "lam: 'auto' needs the polish"),
        ({"lam": "best"}, "lam: must be a number or auto"),
    ],
)
def test_auto_is_refused_where_it_cannot_be_had(options: dict[str, Any], says: str) -> None:
    with pytest.raises(dagora.InputError, match=says):
        dagora.learn(small_sites(), **options)


def test_auto_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dagora.cli import app

    files = []
    for k, rows in enumerate(small_sites()):
        files.append(str(tmp_path / f"s{k}.csv"))
        np.savetxt(files[-1], rows, delimiter=",", header="a,b,c,d,e", comments="")
    app(["learn", *files, "--lam", "auto", "--threshold", "auto", "--json"], standalone_mode=False)
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["chosen"] == "lam, threshold"
    assert isinstance(settings["lam"], float)
