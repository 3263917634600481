"""Levenberg-Marquardt with an l1 penalty against a generic optimiser on split variables, step by step."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dagora.arrays import BoolArray, FloatArray
from dagora.solvers.levenberg import Descent, Penalties, Quadratic, Seen, _lack
from tests.networks import Smooth, generic_minimum

P, N = 8, 40
SEEDS = pytest.mark.parametrize("seed", range(3))


class Squares:
    """f(x) = |g(A x) - b|^2 / (2 n) for g entry by entry, with prices that differ from coordinate to coordinate."""

    def __init__(self, seed: int, g: Callable[[FloatArray], FloatArray], slope: Callable[[FloatArray], FloatArray]):
        rng = np.random.default_rng(seed)
        self.A = rng.standard_normal((N, P)) @ rng.standard_normal((P, P))
        truth = np.where(np.arange(P) < P // 2, rng.standard_normal(P), 0.0)
        self.g, self.slope = g, slope
        self.b = g(self.A @ truth) + 0.3 * rng.standard_normal(N)
        self.penalties = Penalties(np.where(np.arange(P) < 2, 0.0, 0.02), rng.uniform(0.0, 0.02, P))
        self.start = 0.3 * rng.standard_normal(P)

    def seen(self, x: FloatArray, moving: BoolArray | None = None, first: bool = False) -> Seen:
        moving = np.ones(P, dtype=bool) if moving is None else moving
        sums = self.A @ x
        residual, J = self.g(sums) - self.b, self.slope(sums)[:, None] * self.A
        JJ = (J.T @ J)[np.ix_(moving, moving)] / N if first else None
        return Seen(0.5 * float(residual @ residual) / N, J.T @ residual / N, moving, JJ)

    def smooth(self, x: FloatArray) -> tuple[float, FloatArray]:
        seen, ridge = self.seen(x), self.penalties.ridge
        return seen.value + 0.5 * float(ridge @ x**2), seen.gradient + ridge * x

    def path(self, tolerance: float, most: int = 300) -> list[Descent]:
        """Every state on the way to the end."""
        states = [Descent.at(self.start)]
        while not states[-1].ended:
            assert len(states) < most, "no end"
            seen = self.seen(states[-1].trial, first=len(states) == 1)
            states.append(states[-1].observe(seen, self.penalties, tolerance))
        return states[1:]


def linear(seed: int) -> Squares:
    return Squares(seed, lambda z: z, np.ones_like)


def curved(seed: int) -> Squares:
    return Squares(seed, lambda z: np.asarray(np.tanh(0.5 * z) + 0.1 * z), lambda z: 0.5 / np.cosh(0.5 * z) ** 2 + 0.1)


def excess_slope(smooth: Smooth, lam: FloatArray, x: FloatArray) -> float:
    """How far x is from a minimum's conditions."""
    gradient = smooth(x)[1]
    off = np.where(x != 0.0, np.abs(gradient + lam * np.sign(x)), np.maximum(np.abs(gradient) - lam, 0.0))
    return float(off.max())


@SEEDS
@pytest.mark.parametrize("problem", [linear, curved])
def test_the_descent_ends_at_the_minimum_of_a_generic_optimiser(problem: Callable[[int], Squares], seed: int) -> None:
    at = problem(seed)
    end = at.path(1e-13)[-1]
    x, least = generic_minimum(at.smooth, at.start, at.penalties.lam)
    assert end.value == pytest.approx(least, rel=1e-9)
    np.testing.assert_allclose(end.x, x, atol=1e-3)
    assert excess_slope(at.smooth, at.penalties.lam, end.x) < 1e-5
    assert (end.x == 0.0).any()  # exactly: the penalty bites
    assert (end.trial == end.x).all()


@SEEDS
@pytest.mark.parametrize("problem", [linear, curved])
def test_values_never_rise_and_are_those_of_the_objective(problem: Callable[[int], Squares], seed: int) -> None:
    at = problem(seed)
    states = at.path(1e-10)
    values = [state.value for state in states]
    assert (np.diff(values) <= 0.0).all()
    for state in states:
        objective = at.smooth(state.x)[0] + float(at.penalties.lam @ np.abs(state.x))
        assert state.value == pytest.approx(objective, rel=1e-12)
        assert state.loss == pytest.approx(at.seen(state.x).value, rel=1e-12)


def test_what_a_quadratic_gains_is_foretold_exactly() -> None:
    at = linear(0)
    state = at.path(1e-3)[0]
    after = state.observe(at.seen(state.trial), at.penalties, 0.0)
    assert state.value - after.value == pytest.approx(state.foretold, rel=1e-9)
    assert after.damping < state.damping


def test_coarse_tolerances_end_sooner_but_not_without_a_reason() -> None:
    at = curved(1)
    fine, coarse = at.path(1e-12), at.path(1e-2)
    assert len(coarse) < len(fine)
    assert coarse[-2].value - coarse[-1].value <= 1e-2 * coarse[-1].value
    assert coarse[-3].value - coarse[-2].value > 1e-2 * coarse[-2].value


def test_a_trial_that_fails_makes_the_next_ones_shorter_and_shorter() -> None:
    at = curved(0)
    state = Descent.at(at.start).observe(at.seen(at.start, first=True), at.penalties, 1e-6)
    lengths, dampings = [], []
    for _ in range(5):
        lengths.append(float(np.linalg.norm(state.trial - state.x)))
        dampings.append(state.damping)
        state = state.observe(replace(at.seen(state.trial), value=1e9), at.penalties, 1e-6)
        np.testing.assert_array_equal(state.x, at.start)
        assert not state.ended
    assert (np.diff(lengths) < 0.0).all()
    # Nielsen: times 2, 4, 8, ... as long as trials fail.
    np.testing.assert_allclose(np.divide(dampings[1:], dampings[:-1]), [2.0, 4.0, 8.0, 16.0])


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_where_every_trial_fails_the_descent_ends_where_it_was(value: float) -> None:
    at = curved(0)
    state = Descent.at(at.start).observe(at.seen(at.start, first=True), at.penalties, 1e-6)
    for _ in range(100):
        if state.ended:
            break
        state = state.observe(replace(at.seen(state.trial), value=value), at.penalties, 1e-6)
    assert state.ended
    np.testing.assert_array_equal(state.x, at.start)
    np.testing.assert_array_equal(state.trial, at.start)


@SEEDS
def test_a_model_satisfies_the_secant_equation_after_each_move(seed: int) -> None:
    at, rng = curved(seed), np.random.default_rng(seed + 10)
    model, x = Quadratic.at(at.seen(at.start, first=True)), at.start
    learned = 0
    for _ in range(12):
        move = 0.2 * rng.standard_normal(P)
        before, seen = model.gradient, at.seen(x + move)
        model, x = model.after(move, seen), x + move
        y = seen.gradient - before
        np.testing.assert_array_equal(model.gradient, seen.gradient)
        np.testing.assert_allclose(model.C, model.C.T, atol=1e-12)
        if y @ move > 0.0:
            np.testing.assert_allclose((model.JJ + model.C) @ move, y, atol=1e-12)
            learned += 1
    assert learned >= 3


def test_a_coordinate_that_joins_is_taken_to_be_as_steep_as_the_others() -> None:
    at, half = linear(0), np.arange(P) < P // 2
    model = Quadratic.at(at.seen(at.start * half, half, first=True))
    still = model.after(np.zeros(P), at.seen(at.start * half))  # nothing to learn from
    np.testing.assert_array_equal(still.JJ[: P // 2, : P // 2], model.JJ)
    np.testing.assert_allclose(still.JJ[P // 2 :, P // 2 :], np.diag(model.JJ).mean() * np.eye(P - P // 2))
    assert (still.JJ[: P // 2, P // 2 :] == 0.0).all()


def test_nothing_is_learned_from_a_move_against_the_slope() -> None:
    at = curved(0)
    model = Quadratic.at(at.seen(at.start, first=True))
    move = np.ones(P)
    bent = replace(at.seen(at.start), gradient=model.gradient - move)  # y's < 0: no convex model fits
    np.testing.assert_array_equal(model.after(move, bent).C, 0.0)


def test_a_move_almost_across_the_change_of_slope_does_not_freeze_the_model() -> None:
    """No curvature above |y| / |s| was seen, so the model should not have one that is thousands of times larger."""
    both = np.ones(2, dtype=bool)
    model = Quadratic.at(Seen(1.0, np.zeros(2), both, np.eye(2)))
    after = model.after(np.array([1.0, 0.0]), Seen(1.0, np.array([1e-5, 1.0]), both))
    assert np.abs(after.JJ + after.C).max() < 1e4


@pytest.mark.parametrize("problem", [linear, curved])
def test_coordinates_may_join_and_leave_on_the_way(problem: Callable[[int], Squares]) -> None:
    """At first only some move; all others join, after which only those that are nonzero or pulled go on moving."""
    at, lam = problem(0), problem(0).penalties.lam
    moving = np.arange(P) % 2 == 0
    state = Descent.at(at.start * moving)
    state = state.observe(at.seen(state.trial, moving, first=True), at.penalties, 1e-13)
    assert (state.trial[~moving] == 0.0).all()
    state = state.observe(at.seen(state.trial, moving), at.penalties, 0.0)
    shrank = False
    for _ in range(300):
        if state.ended:
            break
        assert state.model is not None
        moving = (state.trial != 0.0) | (np.abs(state.model.gradient) > lam)
        shrank |= not moving.all()
        state = state.observe(at.seen(state.trial, moving), at.penalties, 1e-13)
    assert shrank
    _, least = generic_minimum(at.smooth, at.start, lam)
    assert state.value == pytest.approx(least, rel=1e-6)


def test_the_first_point_needs_its_products() -> None:
    at = linear(0)
    with pytest.raises(ValueError, match="J'J"):
        Descent.at(at.start).observe(at.seen(at.start), at.penalties, 1e-6)


def nearby(at: Squares, seed: int) -> tuple[FloatArray, Quadratic]:
    """A point that is off the minimum, and the model that a descent to it ended with."""
    end = at.path(1e-6)[-1]
    assert end.model is not None
    return end.x + 0.2 * np.random.default_rng(seed).standard_normal(P), end.model


@SEEDS
@pytest.mark.parametrize("problem", [linear, curved])
def test_with_a_model_from_nearby_a_descent_ends_where_one_with_its_own_products_does(
    problem: Callable[[int], Squares], seed: int
) -> None:
    at = problem(seed)
    x, model = nearby(at, seed)
    fresh, carried = Descent.at(x), Descent.at(x, model)
    assert fresh.lacks_model
    assert not carried.lacks_model
    ends = []
    for state in (fresh, carried):
        values: list[float] = []
        while not state.ended:
            assert len(values) < 300, "no end"
            state = state.observe(at.seen(state.trial, first=state.lacks_model), at.penalties, 1e-13)
            assert not state.lacks_model
            values.append(state.value)
        assert (np.diff(values) <= 0.0).all()
        assert values[0] > 1.01 * values[-1]  # there was a way to go
        ends.append(state)
    _, least = generic_minimum(at.smooth, x, at.penalties.lam)
    for end in ends:
        assert end.value == pytest.approx(least, rel=1e-7)
    np.testing.assert_allclose(ends[1].x, ends[0].x, atol=1e-3)


@SEEDS
def test_a_model_from_nearby_serves_other_coordinates_too(seed: int) -> None:
    at = curved(seed)
    x, model = nearby(at, seed)
    fewer = np.arange(P) != 1
    state = Descent.at(x * fewer, model)
    for _ in range(300):
        if state.ended:
            break
        state = state.observe(at.seen(state.trial, fewer), at.penalties, 1e-13)
        assert state.trial[1] == 0.0
    _, least = generic_minimum(at.smooth, x * fewer, at.penalties.lam, fewer)
    assert state.value == pytest.approx(least, rel=1e-7)


def test_elsewhere_a_model_keeps_what_it_knows_and_guesses_the_rest() -> None:
    at, rng = linear(0), np.random.default_rng(0)
    known, wanted = np.arange(P) < 5, np.arange(P) >= 2
    bend = rng.standard_normal((5, 5))
    model = replace(Quadratic.at(at.seen(at.start * known, known, first=True)), C=bend + bend.T)
    seen = at.seen(at.start * wanted, wanted)
    there = model.elsewhere(seen)
    np.testing.assert_array_equal(there.gradient, seen.gradient)
    np.testing.assert_array_equal(there.moving, wanted)
    np.testing.assert_array_equal(there.JJ[:3, :3], model.JJ[2:, 2:])
    np.testing.assert_array_equal(there.C[:3, :3], model.C[2:, 2:])
    np.testing.assert_allclose(there.JJ[3:, 3:], np.diag(model.JJ).mean() * np.eye(3))
    for unknown in (there.JJ[:3, 3:], there.JJ[3:, :3], there.C[3:], there.C[:, 3:]):
        assert (unknown == 0.0).all()


@pytest.mark.parametrize("shift", [0.0, 0.5, 10.0])
@SEEDS
def test_what_a_matrix_lacks_makes_it_convex_and_no_more_than_that(seed: int, shift: float) -> None:
    A = np.random.default_rng(seed).standard_normal((P, P))
    H = A @ A.T - shift * np.eye(P)
    kept, least = H.copy(), float(np.linalg.eigvalsh(H)[0])
    assert _lack(H) == pytest.approx(max(0.0, -least), abs=1e-12)
    assert (_lack(H) > 0.0) == (shift > 0.0)
    np.testing.assert_array_equal(H, kept)


def test_a_matrix_that_is_singular_lacks_next_to_nothing() -> None:
    assert 0.0 <= _lack(np.ones((P, P))) < 1e-12
    assert _lack(np.zeros((P, P))) == 0.0


@pytest.mark.parametrize("bend", [0.0, -3.0], ids=["convex", "not convex"])
def test_the_next_trial_is_the_minimum_of_the_damped_model(bend: float) -> None:
    at = linear(0)
    first = Descent.at(at.start).observe(at.seen(at.start, first=True), at.penalties, 1e-6)
    assert first.model is not None
    state = replace(first, model=replace(first.model, C=bend * first.model.JJ), damping=0.1)
    x, gradient, H, ridge = state.x, first.model.gradient, (1.0 + bend) * first.model.JJ, at.penalties.ridge
    lacking = max(0.0, -float(np.linalg.eigvalsh(H + np.diag(ridge))[0]))
    assert (lacking > 1.0) == (bend < 0.0)
    damped = H + (0.1 * np.diag(first.model.JJ).mean() + lacking) * np.eye(P)

    def model(y: FloatArray) -> tuple[float, FloatArray]:
        slope = damped @ (y - x)
        value = float((gradient + 0.5 * slope) @ (y - x) + 0.5 * ridge @ y**2)
        return value, gradient + slope + ridge * y

    y, _ = generic_minimum(model, x, at.penalties.lam)
    after = state.observe(replace(at.seen(state.trial), value=np.inf), at.penalties, 0.0)  # fails: damping 0.2
    np.testing.assert_allclose(state._step(at.penalties).trial, y, atol=1e-6)
    assert np.linalg.norm(after.trial - x) < np.linalg.norm(y - x)
