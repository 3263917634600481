"""Exact totals keep what rounding left in them: with centres of its choice, a server could read sites off that."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dagora.aggregation import fixed_point
from dagora.algorithms.limited import ASKED_AT_MOST
from dagora.algorithms.options import Options
from dagora.algorithms.presets import build
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import MessageError
from dagora.federated.message import Message

MEANS, ROWS = (-0.0734, 0.022, 0.1816), (2900, 3000, 3111)
START, STEP, GRID = 1.5 * 2.0**23, 2.0**-7, 1 << 20


def sites() -> list[Moments]:
    rng = np.random.default_rng(0)
    return [Moments.of_rows(rng.normal(m, 1.0, (n, 1))) for m, n in zip(MEANS, ROWS, strict=True)]


def exact_total(answers: list[FloatArray]) -> Fraction:
    """As a masked sum gives it."""
    total = np.zeros((2, 1), dtype=np.uint64)
    for answer in answers:
        fixed_point.add_to(*total, *fixed_point.encode(np.ravel(answer)))
    whole = (int(total[1, 0]) << 64) | int(total[0, 0])
    return Fraction(whole - (1 << 128) if whole >> 127 else whole, 1 << 64)


def means_found(ask: Callable[[float, str], Fraction], questions: int) -> FloatArray:
    """Every site's mean: the remainder of the squares is a sawtooth in the centre, whose pitch is a site's mean."""
    n, total, squares = ask(0.0, "rows"), ask(0.0, "sum"), ask(0.0, "squares")
    moves = np.sort(np.random.default_rng(5).choice(GRID, questions, replace=False))
    unit, left = 2.0**-5, np.zeros(GRID, dtype=complex)
    for j in moves:
        c = Fraction(START + j * STEP)
        rest = float(ask(float(c), "squares") - (squares - 2 * c * total + n * c * c))
        left[j] = rest * np.exp(-2j * np.pi * float((c**2 / Fraction(unit)) % 1))
    spectrum = np.abs(np.fft.fft(left - left.sum() / GRID))
    found = -np.fft.fftfreq(GRID) * unit / (2.0 * STEP)
    best: list[float] = []
    for k in np.argsort(spectrum)[::-1]:
        if len(best) < len(MEANS) and all(abs(found[k] - other) > 1e-3 for other in best):
            best.append(float(found[k]))
    return np.sort(best)


def test_sums_about_any_centre_give_every_sites_mean_away() -> None:
    data = sites()

    def ask(centre: float, field: str) -> Fraction:
        shift = [own.mean - centre for own in data]
        sums = {
            "rows": [np.array([float(own.n)]) for own in data],
            "sum": [own.n * gap for own, gap in zip(data, shift, strict=True)],
            "squares": [own.scatter + own.n * gap**2 for own, gap in zip(data, shift, strict=True)],
        }
        return exact_total(sums[field])

    np.testing.assert_allclose(means_found(ask, 950), [float(own.mean[0]) for own in data], atol=1e-4)


def test_a_sites_sums_are_about_zero_whatever_it_is_asked() -> None:
    part, data = build(Options(method="covariance"), ("x", "y")).site, Moments.of_rows(np.ones((3, 2)))
    asked: Message = {"phase": "moments", "centre": np.zeros(2)}
    state, first = part.local_update(part.init(data), asked)
    for change in (
        {"centre": np.array([0.0, 1e-300])},
        {"centre": np.zeros(1)},
        {"centre": np.zeros((2, 2))},
        {"phase": "x"},
    ):
        with pytest.raises(MessageError, match="a site's sums are about zero"):
            part.local_update(part.init(data), {**asked, **change})
    _, second = part.local_update(state, asked)
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@pytest.mark.parametrize("phase", ["count", "spread"])
def test_the_setup_of_admm_is_limited_too(phase: str) -> None:
    part = build(Options(method="admm"), ("x", "y")).site
    state = part.init(Moments.of_rows(np.random.default_rng(0).normal(size=(50, 2))))
    for _ in range(ASKED_AT_MOST[phase]):
        state, _ = part.local_update(state, {"phase": phase, "mean": np.zeros(2)})
    with pytest.raises(MessageError, match=f"'{phase}' is answered"):
        part.local_update(state, {"phase": phase, "mean": np.zeros(2)})
