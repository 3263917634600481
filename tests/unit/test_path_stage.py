"""A stage of the path: it descends, keeps to what is free, minds inputs, and takes few inverses."""

import numpy as np
import pytest

from dagora.acyclicity import log_determinant, walk_weights
from dagora.arrays import FloatArray
from dagora.devices import CPU
from dagora.errors import NumericalError
from dagora.solvers.path_stage import descend
from tests.helpers import finite_differences, random_covariance

LAM, MU = 0.1, 0.5


def objective(S: FloatArray, W: FloatArray) -> float:
    d = W.shape[1]
    R = np.eye(len(S), d) - W
    return 0.5 * float(np.trace(R.T @ S @ R)) + LAM * float(np.abs(W).sum()) + MU * float(log_determinant(W[:d])[0])


@pytest.mark.parametrize("seed", range(4))
def test_every_step_lowers_the_objective(seed: int) -> None:
    S, free = random_covariance(8, seed), ~np.eye(8, dtype=bool)
    values = [
        objective(S, descend(S, np.zeros((8, 8)), LAM, MU, 0.0, free, CPU, steps)) for steps in (0, 1, 2, 4, 8, 16)
    ]
    assert (np.diff(values) <= 1e-9).all()
    assert values[-1] < values[0] - 1.0


def test_inputs_have_no_part_in_cycles_and_end_stationary() -> None:
    S, d = random_covariance(7, 2), 4
    free = np.eye(7, d) == 0.0
    free[1, 2] = False
    W = descend(S, np.zeros((7, d)), np.full((7, 1), LAM), MU, 1e-9, free, most_steps=300)
    assert not W[~free].any()

    def smooth(V: FloatArray) -> float:
        return objective(S, V) - LAM * float(np.abs(V).sum())

    slope, active = finite_differences(smooth, W), W != 0.0
    assert active[d:].any()
    np.testing.assert_allclose(slope[active], -LAM * np.sign(W[active]), atol=1e-5)
    assert (np.abs(slope[free & ~active]) <= LAM + 1e-5).all()


def test_a_start_that_is_no_m_matrix_is_refused() -> None:
    with pytest.raises(NumericalError, match="outside the log-determinant's domain"):
        descend(np.eye(3), np.full((3, 3), 2.0), LAM, MU, 1e-3, ~np.eye(3, dtype=bool))


def test_a_step_takes_one_inverse_as_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    inverses = 0

    def counted(W: FloatArray) -> tuple[FloatArray, float]:
        nonlocal inverses
        inverses += 1
        return walk_weights(W)

    monkeypatch.setattr("dagora.solvers.path_stage.walk_weights", counted)
    S, steps = random_covariance(20, 0), 10
    descend(S, np.zeros((20, 20)), LAM, MU, 0.0, ~np.eye(20, dtype=bool), most_steps=steps)
    assert steps + 1 <= inverses <= 2 * steps + 1
