"""Learning from noisy totals: sensitivities hold row by row, any units and means are found, and graphs come out."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dagora
from dagora.aggregation.bounded import Bounded
from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.plain import Plain
from dagora.algorithms.private_covariance import PrivateCovarianceServer, PrivateCovarianceSite
from dagora.algorithms.private_moments import read_sums, sensitivity, shortened, shortened_share, sums
from dagora.algorithms.private_ranges import (
    MAGNITUDE_EDGES,
    MAGNITUDES,
    POSITIONS,
    magnitudes,
    positions,
    read_magnitudes,
)
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.rows import Rows
from dagora.errors import MessageError, NumericalError
from dagora.federated.message import Message
from dagora.federated.protocol import Aggregation
from dagora.federated.run import Run, run
from dagora.federated.site import Site
from dagora.graphs import break_cycles
from dagora.learners.base import Learned, LearnerOptions
from dagora.learners.notears import notears
from dagora.metrics import evaluate
from dagora.transport.in_process import InProcess
from tests.helpers import covariance

pytest.importorskip("opendp")
pytest.importorskip("dp_accounting")

D = 4
ANY = st.floats(allow_nan=False, allow_infinity=False)
USUAL = st.floats(-100.0, 100.0)
ROWS = st.integers(0, 6).flatmap(lambda n: arrays(np.float64, (n, D), elements=USUAL | ANY))
ROW = arrays(np.float64, (1, D), elements=USUAL | ANY)


def rows_of(*chunks: FloatArray) -> Rows:
    return Rows(lambda: iter(chunks), D)


def question(phase: str, seed: int) -> Message:
    rng = np.random.default_rng(seed)
    message: dict[str, object] = {"phase": phase, "share": 0.5}
    if phase == "positions":
        low = 100.0 * rng.normal(size=D)
        message |= {"low": low, "high": low + 10.0 ** rng.uniform(-3, 3, size=D)}
    if phase == "moments":
        message |= {"centre": 10.0 * rng.normal(size=D), "whiten": rng.normal(size=(D, D)), "radius": 2.0}
    return message  # type: ignore[return-value]


@settings(max_examples=200, deadline=None)
@given(ROWS, ROW, st.sampled_from(["magnitudes", "positions", "moments"]), st.integers(0, 5))
def test_one_row_changes_a_summand_by_its_sensitivity_at_most(
    rows: FloatArray, row: FloatArray, phase: str, seed: int
) -> None:
    site, message = PrivateCovarianceSite(), question(phase, seed)
    _, without = site.local_update(rows_of(rows), message)
    _, with_it = site.local_update(rows_of(rows[:2], np.vstack([rows[2:], row])), message)
    assert isinstance(without, Bounded)
    assert without.share == 0.5
    change = np.concatenate([np.ravel(with_it[name] - without[name]) for name in without])
    assert np.linalg.norm(change) <= without.sensitivity * (1.0 + 1e-12)  # of numpy's norm; the sums are exact
    assert isinstance(with_it, Bounded)
    assert with_it.sensitivity == without.sensitivity == (5.0 if phase == "moments" else 2.0)


@given(ROWS, st.integers(0, 5))
def test_sums_of_rows_are_exact(rows: FloatArray, seed: int) -> None:
    """However they are ordered and cut into chunks: rounding cannot betray a row."""
    message = question("moments", seed)
    _, once = PrivateCovarianceSite().local_update(rows_of(rows), message)
    shuffled = rows[np.random.default_rng(seed).permutation(len(rows))]
    _, again = PrivateCovarianceSite().local_update(rows_of(shuffled[:1], shuffled[1:]), message)
    for name, values in once.items():
        np.testing.assert_array_equal(values, again[name])


def test_the_sensitivity_is_no_looser_than_needed() -> None:
    """A row along one axis reaches it, but for what the grid takes."""
    far = np.array([[1e9, 0.0, 0.0, 0.0]])
    norm = np.linalg.norm(np.concatenate([np.ravel(v) for v in sums([far], np.zeros(D), np.eye(D), 2.0).values()]))
    assert 0.99 * sensitivity(2.0) < norm <= sensitivity(2.0)


def test_short_rows_keep_their_place_and_long_ones_their_direction() -> None:
    z = shortened(np.array([[0.3, -0.2, 0.1, 0.0], [300.0, -400.0, 0.0, 0.0]]), np.zeros(D), np.eye(D), 2.0)
    np.testing.assert_allclose(z[0], [0.3, -0.2, 0.1, 0.0], atol=2.0**-11)
    np.testing.assert_allclose(z[1], [1.2, -1.6, 0.0, 0.0], atol=5e-3)
    rows = 10.0 * np.random.default_rng(0).normal(size=(20_000, D))
    assert (shortened(rows, np.zeros(D), np.eye(D), 2.0) ** 2).sum(axis=1).max() <= 4.0


def test_sums_are_read_back() -> None:
    rows = 0.3 * np.random.default_rng(0).normal(size=(500, D)) + np.array([0.1, 0.0, -0.2, 0.3])
    found = read_sums(sums([rows[:100], rows[100:]], np.zeros(D), np.eye(D), 50.0), deviation=0.0)
    assert found is not None
    assert found.rows == 500.0
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(found.covariance, covariance(rows), atol=1e-4)
    assert read_sums({"rows": np.array(29.0)}, deviation=10.0) is None


@pytest.mark.parametrize("d", [1, 2, 20])
def test_what_shortening_leaves_of_a_normal_variance(d: int) -> None:
    squares = (np.random.default_rng(d).normal(size=(400_000, d)) ** 2).sum(axis=1)
    assert shortened_share(d, np.sqrt(d)) == pytest.approx(np.minimum(squares, d).mean() / d, abs=4e-3)


@given(arrays(np.float64, (5, D), elements=USUAL | ANY | st.sampled_from([0.0, -0.0, 1e-320, 2.0**40, -(2.0**-41)])))
def test_every_value_has_one_bin_by_magnitude(rows: FloatArray) -> None:
    counts = magnitudes(rows)
    assert counts.shape == (D, MAGNITUDES)
    np.testing.assert_array_equal(counts.sum(axis=1), 5.0)
    for j, column in enumerate(rows.T):
        for value in column:
            (place,) = np.flatnonzero(magnitudes(np.full((1, D), value))[0])
            assert counts[j, place] > 0.0
            inside = min(max(abs(value), 0.0), 2.0**39.5) * np.sign(value)
            assert MAGNITUDE_EDGES[place] <= inside <= MAGNITUDE_EDGES[place + 1]


def test_values_have_a_bin_by_position_or_none() -> None:
    low, high = np.array([0.0, -1.0]), np.array([1.0, 255.0])
    rows = np.array([[0.0, -1.0], [0.999, 254.5], [1.0, 255.0], [-1e-9, 1e300], [0.5, 3.2]])
    counts = positions(rows, low, high)
    assert counts.shape == (2, POSITIONS)
    assert [np.flatnonzero(column).tolist() for column in counts] == [[0, 128, 255], [0, 4, 255]]


def test_mostly_zeros_are_scaled_by_the_other_values() -> None:
    column = np.where(np.arange(1000) % 10 == 0, 3.0, 0.0)[:, None]
    found = read_magnitudes(magnitudes(column), noise=1.0)
    assert found is not None
    assert 0.5 < found[0].scale[0] < 4.0


def given_to_the_learner(sites: Sequence[FloatArray], epsilon: float | None) -> tuple[Moments, Run]:
    kept: list[Moments] = []
    d = sites[0].shape[1]

    def learn(moments: Moments) -> Learned:
        kept.append(moments)
        return notears(moments, LearnerOptions())

    aggregation: Aggregation = Plain()
    noise = 0.0
    if epsilon is not None:
        aggregation = gaussian = Gaussian(Plain(), len(sites), epsilon)
        noise = gaussian.multiplier

    def data(rows: FloatArray) -> Rows:
        def chunks() -> Iterable[FloatArray]:
            return rows[:700], rows[700:]

        return Rows(chunks, d)

    parts = [Site(str(k), PrivateCovarianceSite(), data(rows), aggregation) for k, rows in enumerate(sites)]
    outcome = run(
        PrivateCovarianceServer(tuple(f"x{j}" for j in range(d)), learn, noise), aggregation, InProcess(parts)
    )
    if epsilon is not None:
        assert gaussian.shares == {str(k): 1.0 for k in range(len(sites))}  # all of the budget, and no more
        assert 0.999 * epsilon < gaussian.epsilon_spent <= epsilon
    return kept[0], outcome


def error(found: Moments, truth: FloatArray) -> float:
    """The largest relative error of the variance of any linear combination, after the best common factor."""
    scale = np.sqrt(np.diag(truth))
    L = np.linalg.inv(np.linalg.cholesky(truth / scale / scale[:, None]))
    relative = np.linalg.eigvalsh(L @ (found.covariance / scale / scale[:, None]) @ L.T)
    return float(relative[-1] / relative[0] - 1.0)


UNITS = 10.0 ** np.array([-6.0, 6.0, 0.0, 3.0, -2.0])
CASES = {
    "plain": lambda x, sd, rng: x,
    "wild units": lambda x, sd, rng: x * UNITS,
    "means of 3 deviations": lambda x, sd, rng: x + 3.0 * sd,
    "means of 1e4 deviations": lambda x, sd, rng: x - 1e4 * sd,
    "all of it": lambda x, sd, rng: (x + np.array([1e4, -1e2, 0.0, 10.0, 1e3]) * sd) * UNITS,
    "heavy tails": lambda x, sd, rng: x * np.sqrt(2.0 / rng.chisquare(2.0, size=(len(x), 1))),  # no variance exists
}


@pytest.mark.parametrize("case", CASES)
def test_covariances_are_found_wherever_the_columns_lie(case: str) -> None:
    _, (x, y) = dagora.simulate(5, 6, 10_000, 2, seed=3)
    S = covariance(np.vstack([x, y]))
    sd, rng = np.sqrt(np.diag(S)), np.random.default_rng(0)
    units = UNITS if case in ("wild units", "all of it") else np.ones(5)
    found, _ = given_to_the_learner([CASES[case](part, sd, rng) for part in (x, y)], epsilon=4.0)
    assert 5_000 < found.n < 10_300
    assert error(found, S * np.outer(units, units)) < 0.3


def test_phases_depend_on_what_is_needed() -> None:
    _, (x,) = dagora.simulate(5, 6, 4_000, 1, seed=3)
    _, near = given_to_the_learner([x], epsilon=None)
    assert [(left.phase, left.rounds) for left in near.ledger] == [("magnitudes", 1), ("moments", 3)]
    assert [figures["budget"] for figures in near.history][-1] == 1.0
    _, far = given_to_the_learner([x + 2e3], epsilon=None)
    assert [(left.phase, left.rounds) for left in far.ledger] == [("magnitudes", 1), ("positions", 2), ("moments", 3)]


def test_the_learner_is_told_how_many_rows_the_noisy_total_is_worth() -> None:
    """1 / n' = 1 / n + noise^2, checked against noise that is measured: that of the whitened covariances."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20_000, 3))
    gaussian = Gaussian(Plain(), 1, epsilon=1.0)
    found, _ = given_to_the_learner([x], epsilon=1.0)
    last = (1.0 - 1 / 16) * 17 / 32
    noise = gaussian.multiplier * 4.0 / np.sqrt(last) / (45 / 32) / 20_000
    assert found.n == pytest.approx(1.0 / (1.0 / 20_000 + noise**2), rel=0.05)
    exact, _ = given_to_the_learner([x], epsilon=None)
    assert exact.n == 20_000


def test_graphs_come_out_of_noisy_totals() -> None:
    scores = []
    for seed in range(3):
        truth, sites = dagora.simulate(10, 10, 10_000, 4, seed=seed)
        _, outcome = given_to_the_learner(sites, epsilon=2.0)
        adjacency, _ = break_cycles(outcome.estimate.edges, outcome.estimate.strength)
        scores.append(evaluate(truth.adjacency, adjacency)["f1"])
    assert np.mean(scores) > 0.85


def test_the_answer_is_noisy() -> None:
    """The same rows twice: as far apart as the noise says, so it cannot have been left out."""
    x = np.random.default_rng(5).normal(size=(5_000, 3))
    first, second = (given_to_the_learner([x], epsilon=1.0)[0].covariance for _ in range(2))
    assert np.abs(first - second).max() > 1e-4


@pytest.mark.parametrize("n", [3, 60])
def test_too_few_rows_for_the_noise_are_refused(n: int) -> None:
    with pytest.raises(NumericalError, match="too few rows for so little epsilon"):
        given_to_the_learner([np.random.default_rng(0).normal(size=(n, 5))], epsilon=0.2)


def test_unknown_questions_are_refused() -> None:
    site, data = PrivateCovarianceSite(), rows_of(np.zeros((2, D)))
    refused: list[Message] = [
        {"phase": "rows", "share": 0.5},
        {"phase": "magnitudes"},
        {**question("moments", 0), "radius": 0.0},
        {**question("moments", 0), "radius": float("nan")},
        {**question("moments", 0), "whiten": np.zeros((D, D + 1))},
    ]
    for message in refused:
        with pytest.raises(MessageError, match=r"^message refused"):
            site.local_update(data, message)
