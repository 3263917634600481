"""Moments against exact arithmetic, facts against brute force, and the checks over all sites."""

from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.summary import Facts, SiteSummary, check_together, summarise
from dagora.data.tables import open_table, open_tables
from dagora.errors import InputError


def exact(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and scatter in rational arithmetic, rounded once at the end."""
    n, d = rows.shape
    x = [[Fraction(float(value)) for value in row] for row in rows]
    mean = [sum((row[j] for row in x), Fraction(0)) / n for j in range(d)]
    scatter = [
        [float(sum(((row[i] - mean[i]) * (row[j] - mean[j]) for row in x), Fraction(0))) for j in range(d)]
        for i in range(d)
    ]
    return np.array([float(m) for m in mean]), np.array(scatter)


def names_of(d: int) -> list[str]:
    return [f"x{j + 1}" for j in range(d)]


def summaries(sites: Mapping[str, FloatArray]) -> list[SiteSummary]:
    return [summarise(open_table(site, rows), names_of(rows.shape[1])) for site, rows in sites.items()]


def check(**sites: FloatArray) -> Moments:
    d = next(iter(sites.values())).shape[1]
    return check_together(names_of(d), summaries(sites))


def refusal(**sites: FloatArray) -> str:
    with pytest.raises(InputError) as caught:
        check(**sites)
    line = str(caught.value)
    assert "\n" not in line
    assert "0.1" not in line
    return line


# ---- moments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (1e8, 1.0), (-1e8, 1e-3), (1e-9, 1e-12), (1e12, 1e3)])
@pytest.mark.parametrize("size", [1, 7, 300])
def test_moments_against_rational_arithmetic(mean: float, sd: float, size: int) -> None:
    rng = np.random.default_rng(1)
    rows = mean + sd * (rng.normal(size=(300, 3)) @ np.array([[1, 0.5, 0], [0, 1, -2], [0, 0, 1]]))
    chunks = [rows[i : i + size] for i in range(0, 300, size)]
    got = Moments.of(chunks, 3)
    want_mean, want_scatter = exact(rows)
    assert got.n == 300
    # Each pooling rounds the running mean by at most one unit in its last place.
    eps = np.finfo(float).eps
    np.testing.assert_allclose(got.mean, want_mean, rtol=len(chunks) * eps, atol=len(chunks) * eps * sd)
    # The gap between two means inherits that rounding, which bounds what the scatter can keep.
    slack = 1e-12 + 4 * abs(mean) * eps / sd
    np.testing.assert_allclose(got.scatter, want_scatter, rtol=0, atol=slack * want_scatter.max())
    np.testing.assert_array_equal(got.scatter, got.scatter.T)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_rows_that_drift_lose_no_digits(size: int) -> None:
    """Centring at the mean so far must not be paid for with digits when the mean wanders far from where it began."""
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(280, 3)) + 1e6 * np.repeat(np.arange(7.0) ** 2, 40)[:, None] * np.array([1.0, -2.0, 0.0])
    got = Moments.of([rows[i : i + size] for i in range(0, 280, size)], 3)
    _, want = exact(rows)
    spread = np.sqrt(np.diag(want))
    np.testing.assert_allclose(got.scatter / np.outer(spread, spread), want / np.outer(spread, spread), atol=1e-13)


def test_moments_against_numpy() -> None:
    rows = np.random.default_rng(2).normal(3.0, 2.0, size=(1000, 5))
    got = Moments.of([rows[:10], rows[10:999], rows[999:]], 5)
    np.testing.assert_allclose(got.mean, rows.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(got.covariance, np.cov(rows.T, bias=True), rtol=1e-11)
    np.testing.assert_allclose(got.total, rows.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(got.about(np.zeros(5)), rows.T @ rows, rtol=1e-12)
    centre = np.arange(5.0)
    np.testing.assert_allclose(got.about(centre), (rows - centre).T @ (rows - centre), rtol=1e-12)


def test_no_rows_and_empty_chunks_change_nothing() -> None:
    rows = np.random.default_rng(3).normal(size=(4, 2))
    plain, padded = Moments.of([rows], 2), Moments.of([rows[:0], rows, rows[:0]], 2)
    np.testing.assert_array_equal(plain.scatter, padded.scatter)
    assert Moments.of([], 2).n == 0


def test_the_callers_rows_are_left_alone() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    rows.flags.writeable = False
    Moments.of([rows], 3)
    Facts.none(3).after(rows)


# ---- facts --------------------------------------------------------------------------------------


def test_facts_against_brute_force() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        rows = rng.integers(0, 2, size=(rng.integers(1, 5), 6)).astype(float)
        cut = rng.integers(0, len(rows) + 1)
        streamed = Facts.none(6).after(rows[:cut]).after(rows[cut:])
        added = Facts.none(6).after(rows[:cut]) + Facts.none(6).after(rows[cut:])
        constant = [j for j in range(6) if np.ptp(rows[:, j]) == 0]
        equal = {(i, j) for i, j in combinations(range(6), 2) if (rows[:, i] == rows[:, j]).all()}
        for facts in (streamed, added):
            assert facts.constant_columns() == constant
            pairs = facts.identical_columns()
            assert set(pairs) <= equal
            assert {j for _, j in pairs} == {j for _, j in equal}
            assert all((k, i) not in equal for i, _ in pairs for k in range(i))


def test_signed_zeros_are_equal() -> None:
    rows = np.array([[0.0, -0.0], [1.0, 1.0]])
    assert Facts.none(2).after(rows).identical_columns() == [(0, 1)]


# ---- all sites together -------------------------------------------------------------------------


def test_pooled_moments_are_those_of_all_rows() -> None:
    rows = np.random.default_rng(5).normal(size=(60, 3))
    pooled = check(a=rows[:1], b=rows[1:20], c=rows[20:])
    mean, scatter = exact(rows)
    assert pooled.n == 60
    np.testing.assert_allclose(pooled.mean, mean, atol=1e-14)
    np.testing.assert_allclose(pooled.scatter, scatter, atol=1e-12)


def test_files_of_any_column_order_give_the_same_moments(tmp_path: Path) -> None:
    (tmp_path / "u.csv").write_text("a,b\n1,2\n3,5\n")
    (tmp_path / "v.csv").write_text("b,a\n2,1\n5,3\n")
    u, v = (summarise(table, ["a", "b"]) for table in open_tables([tmp_path / "u.csv", tmp_path / "v.csv"]))
    np.testing.assert_array_equal(u.moments.scatter, [[2.0, 3.0], [3.0, 4.5]])
    np.testing.assert_array_equal(u.moments.scatter, v.moments.scatter)


def test_a_single_row_in_all() -> None:
    assert refusal(a=np.array([[1.0, 2.0]])) == "site 'a': a single row in all; add rows"


def test_one_row_a_site_will_do() -> None:
    assert check(a=np.array([[1.0, 2.0]]), b=np.array([[3.0, 7.0]])).n == 2


@pytest.mark.parametrize("value", [0.1, 1e-300, 1e8 + 0.1, 0.0])
def test_a_constant_column_is_found_in_spite_of_rounding(value: float) -> None:
    rows = np.column_stack([np.arange(100_000.0), np.full(100_000, value)])
    line = refusal(a=rows, b=rows[:10])
    assert line == "sites 'a', 'b': the same value in every row of column 'x2'; remove it"


@pytest.mark.parametrize(("mean", "sd"), [(1e8, 1e-3), (1.0, 1e-9), (0.0, 1e-100)])
def test_a_small_spread_is_no_constant(mean: float, sd: float) -> None:
    rng = np.random.default_rng(6)
    rows = np.column_stack([rng.normal(size=500), mean + sd * rng.normal(size=500)])
    assert check(a=rows).covariance[1, 1] == pytest.approx(sd**2, rel=0.2)


def test_a_column_may_be_constant_at_one_site_or_at_each() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.normal(size=(2, 20, 2))
    first[:, 1], second[:, 1] = 0.0, 1.0
    check(a=first, b=rng.normal(size=(20, 2)))
    check(a=first, b=second)


def test_identical_columns_are_named_with_the_sites() -> None:
    rng = np.random.default_rng(8)
    sites = {f"s{k}": rng.normal(size=(10, 2))[:, [0, 1, 0]] for k in range(5)}
    line = refusal(**sites)
    assert line == "sites 's0', 's1', 's2' and 2 more: columns 'x1' and 'x3' agree in every row; remove one"


def test_columns_identical_at_one_site_only_or_nearly_are_fine() -> None:
    rng = np.random.default_rng(9)
    twins = rng.normal(size=(10, 1)) @ np.ones((1, 2))
    check(a=twins, b=rng.normal(size=(10, 2)))
    nearly = twins.copy()
    nearly[-1, 1] = np.nextafter(nearly[-1, 1], 9.0)
    check(a=nearly)
    check(a=twins * np.array([1.0, 2.0]))  # correlated, not identical


@pytest.mark.parametrize("scale", [1e200, 1e308, 1e-200])
def test_squares_outside_double_precision(scale: float) -> None:
    rows = np.random.default_rng(10).uniform(-1, 1, size=(50, 2)) * np.array([1.0, scale])
    line = refusal(a=rows)
    assert "column 'x2'" in line
    assert "rescale" in line
