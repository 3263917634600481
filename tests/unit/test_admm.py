"""A site's half of ADMM, round by round, against the paper's equations with unscaled duals."""

import numpy as np
import pytest

from dagora.algorithms.admm import AdmmSite, Consensus
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.errors import MessageError
from dagora.federated.message import Message
from dagora.models.linear import LeastSquares, LinearModel

D, N, ROWS, SITES = 4, 30, 120.0, 5.0
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D)) @ RNG.standard_normal((D, D)) + 1.0
MEAN, METRIC = RNG.standard_normal(D), RNG.uniform(0.5, 2.0, D)
# The server's choices are arbitrary here: a site has to follow any.
BROADCASTS = [0.3 * RNG.standard_normal((D, D)) for _ in range(4)]
RHOS = [0.5, 0.7, 0.7, 2.0]


def site(memory: int = 1, by_rows: bool = True) -> AdmmSite[LeastSquares]:
    return AdmmSite(LinearModel(no_self_loops=False), Consensus(True, by_rows, memory))


def consensus(W: FloatArray, rho: float, mix: list[float], keep: int, rescale: float = 1.0) -> Message:
    return {
        "phase": "consensus", "W": W, "rho": rho, "mix": np.array(mix), "keep": keep, "rescale": rescale,
        "mean": MEAN, "metric": METRIC, "rows": ROWS, "sites": SITES,
    }  # fmt: skip


@pytest.mark.parametrize("by_rows", [True, False])
def test_rounds_follow_the_papers_equations(by_rows: bool) -> None:
    """beta <- beta + rho_k (B - W) (Eq. 8), then B minimises l_k + <beta, B - W> + rho_k/2 |B - W|^2 (Eq. 5).

    rho_k = w_k rho in the metric; w_k = n_k / n, or 1 / K.  What leaves is w_k (B + beta / rho_k).
    """
    part = site(by_rows=by_rows)
    state = part.init(Moments.of_rows(X))
    weight = N / ROWS if by_rows else 1.0 / SITES
    G = (X - MEAN).T @ (X - MEAN) / ROWS
    beta: FloatArray = np.zeros((D, D))
    B: FloatArray = np.zeros((D, D))
    for k, (W, rho) in enumerate(zip(BROADCASTS, RHOS, strict=True)):
        own = weight * rho * METRIC[:, None]
        if k > 0:
            earlier = weight * RHOS[k - 1] * METRIC[:, None]
            beta = beta + earlier * (B - W)
        B = np.linalg.solve(G + np.diag(own[:, 0]), own * W - beta + G).astype(np.float64)
        rescale = RHOS[k - 1] / rho if k > 0 else 1.0
        state, reply = part.local_update(state, consensus(W, rho, [1.0] if k > 0 else [], 0, rescale))
        np.testing.assert_allclose(reply["position"], weight * (B + beta / own), atol=1e-10)
        gap = B - W
        assert reply["products"][-1] == pytest.approx(weight * float((METRIC[:, None] * gap * gap).sum()))


def test_mixing_combines_the_positions_that_the_site_remembers() -> None:
    """Two rounds, then a mixed third: its u is a_1 s_1 + a_2 s_2 - W for the positions s = B + u of both."""
    part = site(memory=3)
    state = part.init(Moments.of_rows(X))
    weight, rho = N / ROWS, 0.5
    state, first = part.local_update(state, consensus(BROADCASTS[0], rho, [], 0))
    state, second = part.local_update(state, consensus(BROADCASTS[1], rho, [1.0], 1))
    _, third = part.local_update(state, consensus(BROADCASTS[2], rho, [-0.4, 1.4], 2))
    W, M = BROADCASTS[2], rho * np.diag(METRIC)
    u = (-0.4 * first["position"] + 1.4 * second["position"]) / weight - W
    G = (X - MEAN).T @ (X - MEAN) / (ROWS * weight)
    B = np.linalg.solve(G + M, M @ (W - u) + G)
    np.testing.assert_allclose(third["position"], weight * (B + u), atol=1e-10)


def test_products_are_those_of_the_residuals_that_it_keeps() -> None:
    part = site(memory=3)
    state = part.init(Moments.of_rows(X))
    residuals, last = [], BROADCASTS[0]
    for k, W in enumerate(BROADCASTS[:3]):
        state, reply = part.local_update(state, consensus(W, 0.5, [0.0, 1.0][2 - k :], k))
        position = reply["position"] / (N / ROWS)
        residuals.append(position - last)  # B - W = (B + u) - (u + W), where u + W is the last position
        last = position
    expected = [N / ROWS * float((METRIC[:, None] * r * residuals[-1]).sum()) for r in residuals]
    np.testing.assert_allclose(reply["products"], expected, rtol=1e-12)


def test_setup_totals_give_mean_and_variances() -> None:
    part = site()
    state = part.init(Moments.of_rows(X))
    state, count = part.local_update(state, {"phase": "count"})
    np.testing.assert_allclose(count["sum"] / count["rows"], X.mean(axis=0))
    assert float(count["sites"]) == 1.0
    _, spread = part.local_update(state, {"phase": "spread", "mean": MEAN})
    np.testing.assert_allclose(spread["squares"], ((X - MEAN) ** 2).sum(axis=0))


@pytest.mark.parametrize(
    "message",
    [{}, {"phase": "other"}, {"phase": "spread"}, consensus(BROADCASTS[0], 1.0, [0.5, 0.5], 1)],
    ids=["empty", "unknown phase", "no mean", "mixes rounds that never were"],
)
def test_a_question_that_makes_no_sense_is_refused(message: Message) -> None:
    part = site()
    with pytest.raises(MessageError):
        part.local_update(part.init(Moments.of_rows(X)), message)
