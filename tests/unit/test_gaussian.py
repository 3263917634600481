"""Noise for differential privacy: of the stated size, whoever colludes, within the budget, and never left out."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from dagora.aggregation.accounting import budget, check, spent
from dagora.aggregation.bounded import Bounded
from dagora.aggregation.gaussian import Gaussian, discrete_gaussian, grid_and_deviation
from dagora.aggregation.plain import Plain
from dagora.arrays import FloatArray
from dagora.errors import DagoraError, InputError, NumericalError
from dagora.federated.message import Message
from dagora.federated.protocol import Summand
from dagora.federated.site import Site
from dagora.federated.vault import Memory
from dagora.transport.in_process import InProcess

pytest.importorskip("opendp")
pytest.importorskip("dp_accounting")

SIZE = 1000


def assert_deviation(values: FloatArray, deviation: float) -> None:
    """A chi-square test of the variance that true noise fails once in 1e8 times."""
    statistic = float(((values / deviation) ** 2).sum())
    assert chi2.ppf(5e-9, values.size) < statistic < chi2.isf(5e-9, values.size)


class Part:
    """Answers with its data, bounded or not."""

    def __init__(self, sensitivity: float | None = 1.0, share: float = 1.0) -> None:
        self.sensitivity, self.share = sensitivity, share

    def init(self, data: FloatArray) -> FloatArray:
        return data

    def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
        fields = {"a": state.copy(), "b": np.array(7.0)}
        return state, fields if self.sensitivity is None else Bounded(fields, self.sensitivity, self.share)


def sites(aggregation: Gaussian, part: Part, data: Sequence[FloatArray]) -> InProcess:
    return InProcess([Site(str(k), part, values, aggregation) for k, values in enumerate(data)])


@pytest.mark.parametrize("deviation", [0.7, 3.0, 2.0**20])
def test_the_sampler_draws_whole_numbers_of_the_stated_deviation(deviation: float) -> None:
    noise = discrete_gaussian(deviation, SIZE)
    assert noise.shape == (SIZE,)
    np.testing.assert_array_equal(noise, np.rint(noise))
    whole = np.arange(-40.0, 41.0)
    density = np.exp(-(whole**2) / (2.0 * deviation**2))
    exact = math.sqrt(float((whole**2 * density).sum() / density.sum())) if deviation < 5.0 else deviation
    # Six deviations of a mean square, and a third more: whole numbers have slightly other fourth moments.
    assert abs(float((noise**2).mean()) / exact**2 - 1.0) < 8.0 * math.sqrt(2.0 / SIZE)
    assert abs(float(noise.mean())) < 6.0 * exact / math.sqrt(SIZE)


def test_two_draws_differ() -> None:
    assert (discrete_gaussian(2.0**20, 20) != discrete_gaussian(2.0**20, 20)).any()


@pytest.mark.parametrize(("K", "colluders"), [(1, None), (2, None), (5, None), (4, 0), (4, 3)])
def test_what_colluders_cannot_subtract_still_has_the_full_noise(K: int, colluders: int | None) -> None:
    """Noise of the honest sites alone is of deviation D / sqrt(2 rho); that of all is `multiplier`."""
    gaussian = Gaussian(Plain(), K, epsilon=1.0, colluders=colluders)
    assert gaussian.colluders == (K // 2 if colluders is None else colluders)
    summand = Bounded({"a": np.zeros(SIZE)}, 3.0, 0.25)
    honest = sum(gaussian.noisy(summand)["a"] for _ in range(K - gaussian.colluders))
    assert_deviation(np.asarray(honest), 3.0 / math.sqrt(2.0 * gaussian.rho * 0.25))
    everyone = honest + sum((gaussian.noisy(summand)["a"] for _ in range(gaussian.colluders)), np.zeros(SIZE))
    assert_deviation(everyone, gaussian.multiplier * 3.0 / math.sqrt(0.25))


def test_the_total_is_the_sum_with_noise_and_no_reply_is_exact() -> None:
    rng = np.random.default_rng(0)
    data = [rng.normal(size=SIZE) for _ in range(4)]
    gaussian = Gaussian(Plain(), 4, epsilon=8.0)
    total = gaussian.total(sites(gaussian, Part(sensitivity=0.5), data), {"phase": "x"})
    assert {name: values.shape for name, values in total.items()} == {"a": (SIZE,), "b": ()}
    assert_deviation(np.append(total["a"] - sum(data), total["b"] - 28.0), 0.5 * gaussian.multiplier)
    single = Gaussian(Plain(), 4, epsilon=8.0)
    replies = sites(single, Part(sensitivity=0.5), data).exchange({"phase": "x"})
    for reply, values in zip(replies.values(), data, strict=True):
        own = reply["a"]
        assert isinstance(own, np.ndarray)
        assert_deviation(own - values, 0.5 * single.multiplier / 2.0)  # a quarter of the variance of four


@given(st.floats(1e-6, 1e6), st.integers(1, 10_000), st.floats(1e-6, 1e3), st.integers(1, 1000))
def test_the_grid_is_fine_and_the_noise_covers_its_rounding(D: float, values: int, rho: float, honest: int) -> None:
    grid, deviation = grid_and_deviation(D, values, 2.0 * rho, honest)
    assert math.frexp(grid)[0] == 0.5  # a power of two: multiples are doubles
    assert deviation >= 2.0**20 * (1.0 - 1e-12)
    worst = D / grid + math.sqrt(values)
    assert worst**2 / (2.0 * honest * deviation**2) <= rho * (1.0 + 1e-9)


def test_noisy_values_are_exact_multiples_of_the_grid() -> None:
    gaussian = Gaussian(Plain(), 3, epsilon=0.5)
    grid, _ = grid_and_deviation(2.0, 100, 2.0 * gaussian.rho, 2)
    noisy = gaussian.noisy(Bounded({"a": 1e6 * np.random.default_rng(1).normal(size=100)}, 2.0, 1.0))["a"]
    np.testing.assert_array_equal(noisy / grid, np.rint(noisy / grid))


def test_a_summand_without_sensitivity_is_refused() -> None:
    gaussian = Gaussian(Plain(), 1, epsilon=1.0)
    with pytest.raises(InputError, match="states no sensitivity, so noise cannot protect it; use method 'covariance'"):
        gaussian.total(sites(gaussian, Part(sensitivity=None), [np.zeros(3)]), {"phase": "x"})
    assert gaussian.shares == {}


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, math.inf, math.nan])
def test_a_sensitivity_must_be_a_bound(sensitivity: float) -> None:
    with pytest.raises(InputError, match="sensitivity"):
        Gaussian(Plain(), 1, epsilon=1.0).noisy(Bounded({"a": np.zeros(3)}, sensitivity, 1.0))


@pytest.mark.parametrize("value", [1e300, math.inf, math.nan])
def test_values_that_leave_the_grid_are_refused(value: float) -> None:
    with pytest.raises(NumericalError, match="nothing was sent"):
        Gaussian(Plain(), 1, epsilon=1.0).noisy(Bounded({"a": np.array([value])}, 1.0, 1.0))


def test_the_budget_is_spent_once() -> None:
    gaussian = Gaussian(Plain(), 2, epsilon=1.0)
    transport = sites(gaussian, Part(share=0.5), [np.zeros(3), np.zeros(3)])
    gaussian.total(transport, {"phase": "x"})
    assert gaussian.shares == {"0": 0.5, "1": 0.5}
    assert gaussian.epsilon_spent == pytest.approx(spent(gaussian.rho / 2.0, 1e-5))
    gaussian.total(transport, {"phase": "y"})
    assert 0.999 < gaussian.epsilon_spent <= 1.0
    with pytest.raises(DagoraError, match="budget of this run is used up; nothing was sent"):
        gaussian.total(transport, {"phase": "z"})


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, math.nan])
def test_shares_are_parts_of_the_budget(share: float) -> None:
    gaussian = Gaussian(Plain(), 1, epsilon=1.0)
    with pytest.raises(DagoraError, match="budget"):
        gaussian.total(sites(gaussian, Part(share=share), [np.zeros(3)]), {"phase": "x"})


def test_a_retry_gets_the_same_noise_and_costs_nothing() -> None:
    gaussian, summand = Gaussian(Plain(), 1, epsilon=1.0), Bounded({"a": np.zeros(50)}, 1.0, 0.75)
    protected = gaussian.at_site("north", lambda message: summand)
    first, second = protected({"round": 1})["a"], protected({"round": 1})["a"]
    assert isinstance(first, np.ndarray)
    np.testing.assert_array_equal(first, second)
    assert first.any()
    assert gaussian.shares == {"north": 0.75}


def test_noise_that_a_crash_has_kept_is_for_its_own_question_only() -> None:
    # Else a server asks for the whole budget, and after the crash for the same round at a millionth of it.
    vault = Memory()
    wanted: Message = {"run": "r", "round": 1, "share": 0.75}
    whole, small = (Bounded({"a": np.zeros(50)}, 1.0, share) for share in (0.75, 1e-6))
    first = Gaussian(Plain(), 1, epsilon=1.0).at_site("north", lambda message: whole, vault)(wanted)
    restarted = Gaussian(Plain(), 1, epsilon=1.0)
    with pytest.raises(DagoraError, match="was asked before with another question; nothing was sent"):
        restarted.at_site("north", lambda message: small, vault)({**wanted, "share": 1e-6})
    again = Gaussian(Plain(), 1, epsilon=1.0)
    second = again.at_site("north", lambda message: whole, vault)({**wanted, "secure.attempt": 1 << 16})
    np.testing.assert_array_equal(np.asarray(first["a"]), np.asarray(second["a"]))
    assert again.shares == {"north": 0.75}


def gaussian_delta(epsilon: float, deviation: float) -> float:
    """Exact delta of Gaussian noise on a sum of sensitivity 1 (Balle and Wang 2018)."""
    a, b = 0.5 / deviation, epsilon * deviation
    return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b))


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 8.0, 30.0])
def test_the_budget_against_formulas_from_elsewhere(epsilon: float, delta: float) -> None:
    rho = budget(epsilon, delta)
    assert spent(rho, delta) <= epsilon
    assert spent(1.001 * rho, delta) > epsilon
    assert gaussian_delta(epsilon, 1.0 / math.sqrt(2.0 * rho)) <= delta  # private by the exact formula
    simple = (math.sqrt(math.log(1.0 / delta) + epsilon) - math.sqrt(math.log(1.0 / delta))) ** 2
    assert simple <= rho  # no worse than epsilon = rho + 2 sqrt(rho log(1 / delta)) (Bun and Steinke 2016)
    assert spent(0.0, delta) == 0.0


BAD: list[tuple[str, dict[str, Any]]] = [
    *(("epsilon", {"epsilon": value}) for value in (0.0, -1.0, math.inf, math.nan, True, "1", 1e9)),
    ("epsilon", {"epsilon": 1e-9, "delta": 1e-15}),
    *(("delta", {"epsilon": 1.0, "delta": value}) for value in (0.0, 1.0, -1.0, 2.0, math.nan, "1")),
    *(("colluders", {"epsilon": 1.0, "colluders": value}) for value in (-1, 3)),
]


@pytest.mark.parametrize(("option", "arguments"), BAD, ids=str)
def test_bad_values_are_refused_by_name(option: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"^{option}: [^\n]+$"):
        Gaussian(Plain(), 3, **arguments)


@pytest.mark.parametrize("package", ["opendp.prelude", "dp_accounting"])
def test_missing_packages_are_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(1.0, 1e-5)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DagoraError, match=r"pip install 'dagora\[privacy\]'"):
        discrete_gaussian(spent(1.0, 1e-5), 1)
