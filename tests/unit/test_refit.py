"""Networks fitted from totals."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

from dagora.algorithms.refit import ROUNDS
from dagora.arrays import FloatArray
from dagora.errors import MessageError
from dagora.federated.message import Message, array
from dagora.models.network import Architecture
from tests.networks import generic_minimum, jacobian_of, outputs_of
from tests.refits import (
    FORWARDS,
    LAM,
    RIDGE,
    D,
    N,
    Refit,
    added,
    chain,
    prepared,
    refit_site,
    sample,
)

RNG = np.random.default_rng(0)


# Questions to a site


def question(architecture: Architecture) -> dict[str, Any]:
    theta = np.random.default_rng(3).standard_normal((2, architecture.size))
    used, products = np.ones((2, D)), np.ones(2)
    return {"phase": "fit", "variables": np.array([2.0, 0.0]), "theta": theta, "used": used, "products": products}


@pytest.mark.parametrize(
    "wrong",
    [
        {"variables": np.array([2.0, float(D)])},
        {"variables": np.array([2.0, -1.0])},
        {"variables": np.array([2.0, 0.5])},
        {"variables": np.array([2.0, np.nan])},
        {"variables": np.array([2.0])},
        {"variables": np.zeros(0), "theta": np.zeros((0, 11)), "used": np.zeros((0, D)), "products": np.zeros(0)},
        {"theta": np.zeros((2, 10))},
        {"theta": np.zeros((3, 11))},
        {"theta": np.zeros(11)},
        {"theta": np.full((2, 11), np.nan)},
        {"used": np.ones((2, D + 1))},
        {"used": np.ones(D)},
        {"theta": "text"},
        {"variables": np.array([2, 0])},
        {"products": "yes"},
        {"products": 1.0},
        {"products": np.ones(3)},
        {"products": np.ones((2, 1))},
        {"products": np.array([True, False])},
        {"phase": "other"},
    ],
    ids=[
        "unknown variable", "negative variable", "half a variable", "no variable", "too few variables", "no networks",
        "short networks", "too many networks", "one row", "no numbers", "too many inputs", "inputs of one", "text",
        "whole numbers", "text for products", "one for all products", "too many products", "products in a column",
        "truth values", "phase",
    ],
)  # fmt: skip
def test_a_fit_that_makes_no_sense_is_refused(wrong: Message) -> None:
    architecture = Architecture(D, (2,))
    assert architecture.size == 11
    site, own = refit_site(architecture), sample(RNG.standard_normal((N, D)))
    state = prepared(site, own, float(N), own.mean)
    site.local_update(state, question(architecture))  # without the mistake it is answered
    with pytest.raises(MessageError):
        site.local_update(state, {**question(architecture), **wrong})


@pytest.mark.parametrize("variables", [np.array(2.0), np.array([[2.0], [0.0]])], ids=["a number", "a column"])
def test_a_fit_whose_variables_are_no_list_is_refused(variables: FloatArray) -> None:
    architecture = Architecture(D, (2,))
    site, own = refit_site(architecture), sample(RNG.standard_normal((N, D)))
    with pytest.raises(MessageError):
        site.local_update(prepared(site, own, float(N), own.mean), {**question(architecture), "variables": variables})


@pytest.mark.parametrize("missing", ["variables", "theta", "used", "products"])
def test_a_fit_with_a_part_missing_is_refused(missing: str) -> None:
    architecture = Architecture(D, (2,))
    site, own = refit_site(architecture), sample(RNG.standard_normal((N, D)))
    message = {name: value for name, value in question(architecture).items() if name != missing}
    with pytest.raises(MessageError):
        site.local_update(prepared(site, own, float(N), own.mean), message)


def test_a_fit_before_the_setup_is_refused() -> None:
    architecture = Architecture(D, (2,))
    site = refit_site(architecture)
    with pytest.raises(MessageError):
        site.local_update(site.init(sample(RNG.standard_normal((N, D)))), question(architecture))


def test_a_fit_is_answered_with_the_sums_that_were_asked_for_and_changes_nothing_at_the_site() -> None:
    architecture = Architecture(D, (2,))
    site, own = refit_site(architecture), sample(RNG.standard_normal((N, D)))
    state, asked = prepared(site, own, float(N), own.mean), question(architecture)
    asked["used"] = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    after, sums = site.local_update(state, asked)
    assert after is state
    X = own.rows - own.mean
    residual = outputs_of((2,), asked["theta"], X) - X.T[[2, 0]]
    np.testing.assert_allclose(sums["squares"], (residual**2).sum(axis=1))
    J = jacobian_of((2,), asked["theta"], X)
    np.testing.assert_allclose(sums["gradient"], np.einsum("knp,kn->kp", J, residual), atol=1e-10)
    p, q = 11 - 2, 11 - 4  # parameters in use
    assert sums["products"].shape == (p * (p + 1) // 2 + q * (q + 1) // 2,)
    asked["products"] = np.array([0.0, 1.0])
    _, fewer = site.local_update(state, asked)
    using = architecture.using(asked["used"][1] != 0.0)
    JJ = J[1][:, using].T @ J[1][:, using]
    np.testing.assert_allclose(fewer["products"], JJ[np.triu_indices(q)], atol=1e-10)
    asked["products"] = np.zeros(2)
    assert sorted(site.local_update(state, asked)[1]) == ["gradient", "squares"]


# Fits from totals


@pytest.mark.parametrize("backwards", [True, False])
def test_from_where_a_fit_ends_a_generic_optimiser_gains_nothing(
    backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROUNDS, "order", 500)
    allowed = FORWARDS[::-1, ::-1] if backwards else FORWARDS
    at = Refit([chain()], allowed, tolerance=1e-10)
    ended = next(state for state in at.passes() if state.stage == "graph")
    start = sum(at.objective(j, at.first.trying[j].descent.x)[0] for j in range(3))
    values = []
    for j, fitted in enumerate(ended.networks):
        theta, lam = fitted.descent.x, at.architecture.penalties(LAM, RIDGE).lam
        value = at.objective(j, theta)[0] + float(lam @ np.abs(theta))
        assert fitted.descent.value == pytest.approx(value, rel=1e-9)
        free = at.architecture.using(allowed[:, j])
        _, least = generic_minimum(partial(at.objective, j), theta, lam, free)
        assert value <= least * (1.0 + 1e-5)
        assert (theta[~free] == 0.0).all()
        values.append(value)
    assert sum(values) < 0.7 * start
    assert ended.objective == pytest.approx(sum(values), rel=1e-9)


def test_the_fit_of_three_sites_is_that_of_their_rows_together() -> None:
    X = chain()
    one, three = Refit([X], FORWARDS), Refit([X[:30], X[30:130], X[130:]], FORWARDS)
    apart, together = three.server.estimate(three.passes()[-1]), one.server.estimate(one.passes()[-1])
    np.testing.assert_allclose(apart.weights, together.weights, atol=1e-5)
    np.testing.assert_allclose(apart.extras["objective"], together.extras["objective"], rtol=1e-7)
    assert apart.functions is not None
    assert together.functions is not None
    np.testing.assert_allclose(apart.functions.predict(X), together.functions.predict(X), atol=1e-4)


def test_objectives_never_rise_within_a_pass() -> None:
    seen = Refit([chain()], FORWARDS[::-1, ::-1], searches=2).passes()
    assert {state.stage for state in seen} >= {"order", "reversals", "settle", "graph"}
    for before, after in itertools.pairwise(seen):
        if before.stage == after.stage and after.rounds > before.rounds:
            values = [(a.descent.value, b.descent.value) for a, b in zip(before.trying, after.trying, strict=True)]
            assert all(later <= earlier for earlier, later in values)


def test_products_are_asked_for_once_and_only_of_networks_that_are_like_none_before_them() -> None:
    """Those of the order, which come from ADMM; and, in a search, those of a parent that takes in its child."""
    at = Refit([chain()], FORWARDS[::-1, ::-1], searches=2)
    state, asked, networks = at.first, [], []
    while (message := at.server.broadcast(state)) is not None:
        moving = [fitted for fitted in state.trying if not fitted.descent.ended]
        products = array(message, "products")
        assert products.shape == array(message, "variables").shape == (len(moving),)
        np.testing.assert_array_equal(array(message, "variables"), [fitted.variable for fitted in moving])
        expected = [0.0] * len(moving)
        if state.rounds == 0:
            expected = {"order": [1.0] * 3, "reversals": [0.0, 1.0] * (len(moving) // 2)}.get(state.stage, expected)
        assert products.tolist() == expected
        asked.append((state.stage, bool(products.any())))
        networks.append(len(moving))
        total = added([at.site.local_update(own, message)[1] for own in at.states])
        state = at.server.global_update(state, total)
    assert {stage for stage, _ in asked} == {"order", "reversals", "settle", "graph"}
    assert {stage for stage, some in asked if some} == {"order", "reversals"}
    assert 0 < min(networks) < 3  # some were at rest


def test_noise_variances_are_what_the_functions_leave() -> None:
    X = chain()
    at = Refit([X], FORWARDS)
    found = at.server.estimate(at.passes()[-1])
    assert found.functions is not None
    left = X - found.functions.predict(X)
    np.testing.assert_allclose(found.extras["noise_variances"], (left**2).mean(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(found.edges, np.eye(3, k=1, dtype=bool))
    np.testing.assert_array_equal(found.edges, found.weights > 0.5)
