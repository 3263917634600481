"""An exact total must be that of the pooled rows and of nothing else: how they lie at sites must not show in it.

A site's own arithmetic (n times a rounded mean) leaves digits far below any statistic.  They depend on the site's rows
in a way that can be searched for: from one total of binary columns, all sites' numbers of rows and of ones were found.
"""

import numpy as np
import pytest

from dagora.aggregation import fixed_point
from dagora.aggregation.encoding import Encoder
from dagora.algorithms.covariance import CovarianceSite, pooled_moments
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.wide import Wide

COLUMNS = ("a coin", "a rare event", "an age", "a count", "a year", "a code", "a pressure")


def whole_rows(rng: np.random.Generator, n: int) -> FloatArray:
    return np.column_stack(
        [
            rng.random(n) < 0.5,
            rng.random(n) < 0.05,
            rng.integers(18, 95, n),
            rng.poisson(3.0, n),
            rng.integers(2005, 2025, n),
            rng.integers(0, 4, n),
            rng.normal(130.0, 15.0, n).round(),
        ]
    ).astype(np.float64)


def exact_total(sites: list[FloatArray], rounded: bool = True) -> fixed_point.Words:
    """As a masked sum adds it up."""
    part, encoder = CovarianceSite(), Encoder(len(sites))
    total = np.zeros((2, 1 + 7 + 28 + 1), dtype=np.uint64)
    for rows in sites:
        own = Moments.of_rows(rows)
        if rounded:
            _, summand = part.local_update(own, {"phase": "moments", "centre": np.zeros(7)})
        else:  # as they come out of the site's arithmetic
            n, (i, j) = np.full(7, float(own.n)), np.triu_indices(7)
            squares = Wide.product(own.mean[i], own.mean[j]).times(Wide(n[0] * np.ones(28), np.zeros(28)))
            squares += Wide(own.scatter[i, j], np.zeros(28))
            sums = Wide.product(n, own.mean)
            summand = {"rows": np.array(float(own.n)), **sums.fields("sum"), **squares.fields("squares")}
        words = encoder.words("run", summand)
        assert words is not None
        fixed_point.add_to(*total, *words)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_where_rows_lie_does_not_show_in_the_total_of_whole_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = whole_rows(rng, 700)
    truth = np.concatenate([[700.0], rows.sum(axis=0), (rows.T @ rows)[np.triu_indices(7)]])
    totals, raw = set(), set()
    for _ in range(4):
        cuts = np.sort(rng.choice(np.arange(20, 680), 2, replace=False))
        sites = np.split(rng.permutation(rows), cuts)
        total = exact_total(sites)
        assert (total[0, :-1] == 0).all()  # whole numbers to the last digit
        np.testing.assert_array_equal(fixed_point.decode(total)[:-1], truth)
        totals.add(total.tobytes())
        raw.add(exact_total(sites, rounded=False).tobytes())
    assert len(totals) == 1
    assert len(raw) == 4  # which is what the rounding is for


@pytest.mark.parametrize("spreads", [0.0, 1.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_the_rounding_costs_no_digits_that_a_statistic_has(spreads: float, scale: float) -> None:
    rng = np.random.default_rng(0)
    sites = [(rng.normal(size=(n, 7)) @ rng.normal(size=(7, 7)) + spreads) * scale for n in (40, 300, 1000)]
    part = CovarianceSite()
    answers = [part.local_update(Moments.of_rows(own), {"phase": "moments", "centre": np.zeros(7)})[1] for own in sites]
    total: dict[str, FloatArray] = {"rows": np.sum([answer["rows"] for answer in answers], axis=0)}
    for name in ("sum", "squares"):
        added = Wide.of(answers[0], name) + Wide.of(answers[1], name) + Wide.of(answers[2], name)
        total |= added.fields(name)
    found, truth = pooled_moments(total, np.zeros(7)), Moments.of_rows(np.concatenate(sites))
    spread = np.sqrt(np.diag(truth.covariance))
    np.testing.assert_allclose(found.mean / spread, truth.mean / spread, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((found.covariance - truth.covariance) / np.outer(spread, spread), 0.0, atol=2e-9)
