"""Networks and their derivatives against a plain forward pass and torch's own differentiation, in double precision."""

import itertools

import numpy as np
import pytest
import torch

from dagora.arrays import BoolArray, FloatArray
from dagora.models.network import (
    Architecture,
    Networks,
    Point,
    against,
    along,
    evaluate,
    jacobian,
    kernel,
    linearise,
    network_of,
    squares,
)
from tests.networks import jacobian_of, outputs_of

D, N = 4, 7
HIDDEN = pytest.mark.parametrize("hidden", [(4,), (3, 2)], ids=str)
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((N, D))


def random_theta(hidden: tuple[int, ...], seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).standard_normal((D, Architecture(D, hidden).size))


def point_at(hidden: tuple[int, ...], theta: FloatArray) -> Point:
    layers = Architecture(D, hidden).split(torch.tensor(theta))
    return linearise(layers, *evaluate(layers, torch.tensor(ROWS)))


def by_layer(hidden: tuple[int, ...]) -> list[tuple[slice, int, int]]:
    """Where each layer's weights and biases lie in theta, with its numbers of inputs and outputs, counted anew."""
    at, found = 0, []
    for inputs, outputs in itertools.pairwise((D, *hidden, 1)):
        found.append((slice(at, at + (inputs + 1) * outputs), inputs, outputs))
        at += (inputs + 1) * outputs
    return found


@HIDDEN
def test_outputs_are_those_of_a_plain_forward_pass(hidden: tuple[int, ...]) -> None:
    theta = random_theta(hidden)
    np.testing.assert_allclose(point_at(hidden, theta).output.numpy(), outputs_of(hidden, theta, ROWS), atol=1e-13)


@HIDDEN
def test_the_jacobian_is_that_of_autograd(hidden: tuple[int, ...]) -> None:
    theta = random_theta(hidden)
    J = jacobian(point_at(hidden, theta)).numpy()
    np.testing.assert_allclose(J, jacobian_of(hidden, theta, ROWS), atol=1e-13)


@HIDDEN
def test_products_with_the_jacobian_are_those_of_autograd(hidden: tuple[int, ...]) -> None:
    theta, v = random_theta(hidden), random_theta(hidden, seed=1)
    y = RNG.standard_normal((D, N))
    point, J = point_at(hidden, theta), jacobian_of(hidden, theta, ROWS)
    direction = Architecture(D, hidden).split(torch.tensor(v))
    np.testing.assert_allclose(along(point, direction).numpy(), np.einsum("dnp,dp->dn", J, v), atol=1e-12)
    np.testing.assert_allclose(against(point, torch.tensor(y)).numpy(), np.einsum("dnp,dn->dp", J, y), atol=1e-12)


@HIDDEN
def test_the_kernel_weighs_inputs_alike_for_all_units(hidden: tuple[int, ...]) -> None:
    E = np.empty((D, Architecture(D, hidden).size))
    for part, inputs, outputs in by_layer(hidden):
        weights, bias = RNG.uniform(0.0, 2.0, (D, inputs)), RNG.uniform(0.0, 2.0, (D, 1))
        E[:, part] = np.hstack([np.tile(weights, outputs), np.tile(bias, outputs)])
    theta = random_theta(hidden)
    J = jacobian_of(hidden, theta, ROWS)
    found = kernel(point_at(hidden, theta), Architecture(D, hidden).split(torch.tensor(E))).numpy()
    np.testing.assert_allclose(found, np.einsum("dnp,dp,dmp->dnm", J, E, J), atol=1e-12)


@HIDDEN
def test_squares_are_means_over_the_units_of_a_layer(hidden: tuple[int, ...]) -> None:
    theta = random_theta(hidden)
    entries = (jacobian_of(hidden, theta, ROWS) ** 2).sum(axis=1)
    expected = np.empty_like(entries)
    for depth, (part, inputs, outputs) in enumerate(by_layer(hidden)):
        weights = entries[:, part][:, : inputs * outputs].reshape(D, outputs, inputs)
        biases = entries[:, part][:, inputs * outputs :]
        mean = weights.mean(axis=1) if depth == 0 else np.tile(weights.mean(axis=(1, 2))[:, None], inputs)
        bias = np.tile(biases.mean(axis=1)[:, None], outputs)
        expected[:, part] = np.hstack([np.tile(mean, outputs), bias])
    np.testing.assert_allclose(squares(point_at(hidden, theta)).numpy(), expected, rtol=1e-12)


@HIDDEN
def test_one_network_with_some_inputs_has_the_columns_of_its_jacobian(hidden: tuple[int, ...]) -> None:
    theta, k, inputs = random_theta(hidden), 2, np.array([True, False, False, True])
    own = network_of(point_at(hidden, theta), k, torch.tensor(np.flatnonzero(inputs)))
    J = jacobian_of(hidden, theta, ROWS)[k]
    np.testing.assert_allclose(jacobian(own).numpy(), J[:, Architecture(D, hidden).using(inputs)], atol=1e-13)
    np.testing.assert_allclose(own.output.numpy(), outputs_of(hidden, theta, ROWS)[k], atol=1e-13)


@HIDDEN
def test_layers_are_views_that_agree_with_one_another(hidden: tuple[int, ...]) -> None:
    architecture, theta = Architecture(D, hidden), random_theta(hidden)
    layers = architecture.split(torch.from_numpy(theta))
    assert [tuple(layer.weights.shape) for layer in layers] == [(D, o, i) for _, i, o in by_layer(hidden)]
    architecture.first_layer(theta)[1, 2, 3] = 17.0  # unit 2 of the network of variable 1 takes in variable 3
    assert layers[0].weights[1, 2, 3] == 17.0
    assert sum(layer.weights[0].numel() + layer.biases[0].numel() for layer in layers) == architecture.size


@HIDDEN
def test_norms_vanish_exactly_where_a_network_ignores_a_variable(hidden: tuple[int, ...]) -> None:
    architecture, theta = Architecture(D, hidden), random_theta(hidden) * Architecture(D, hidden).free()
    architecture.first_layer(theta)[2, :, 0] = 0.0
    norms = architecture.norms(theta)
    for i in range(D):
        moved = ROWS.copy()
        moved[:, i] += 1.0
        changed = np.abs(outputs_of(hidden, theta, moved) - outputs_of(hidden, theta, ROWS)).max(axis=1)
        np.testing.assert_array_equal(norms[i] > 0.0, changed > 0.0)
    assert norms[0, 2] == 0.0
    assert (norms == 0.0).sum() == D + 1
    assert norms[1, 3] == pytest.approx(np.linalg.norm(architecture.first_layer(theta)[3, :, 1]))


@HIDDEN
def test_only_a_variables_own_weights_are_not_free(hidden: tuple[int, ...]) -> None:
    free = Architecture(D, hidden).free()
    assert (free == 0.0).sum() == D * hidden[0]
    J = jacobian_of(hidden, random_theta(hidden), np.eye(D))  # row i lets variable i alone in
    of_inputs = np.abs(J[:, :, : D * hidden[0]]) > 0.0
    np.testing.assert_array_equal(free[:, : D * hidden[0]] == 0.0, of_inputs[range(D), range(D)])


@HIDDEN
def test_starts_are_told_by_their_seeds_and_have_no_self_loops(hidden: tuple[int, ...]) -> None:
    architecture = Architecture(D, hidden)
    start = architecture.start(3)
    np.testing.assert_array_equal(start, architecture.start(3))
    assert (start != architecture.start(4)).any()
    norms = architecture.norms(start)
    assert (np.diag(norms) == 0.0).all()
    assert (norms[~np.eye(D, dtype=bool)] > 0.0).all()
    for part, inputs, _ in by_layer(hidden):
        assert np.abs(start[:, part]).max() <= 1.0 / np.sqrt(inputs)
    assert np.abs(architecture.first_layer(start)).max() <= 0.3 / np.sqrt(D)


@HIDDEN
@pytest.mark.parametrize("inputs", [np.zeros(D, dtype=bool), np.array([False, True, True, False])], ids=["none", "two"])
def test_parameters_in_use_are_those_that_the_output_depends_on(hidden: tuple[int, ...], inputs: BoolArray) -> None:
    architecture = Architecture(D, hidden)
    J = jacobian_of(hidden, random_theta(hidden), ROWS * inputs)
    using = architecture.using(inputs)
    np.testing.assert_array_equal(using, (np.abs(J) > 0.0).any(axis=(0, 1)))
    np.testing.assert_array_equal(architecture.inputs(using), inputs)
    np.testing.assert_array_equal(architecture.inputs(random_theta(hidden)[0] * using), inputs)


@HIDDEN
def test_penalties_spare_biases_and_put_l1_on_the_first_layer(hidden: tuple[int, ...]) -> None:
    architecture, theta = Architecture(D, hidden), random_theta(hidden)
    lam, ridge = 0.3, 0.7
    layers = architecture.split(torch.tensor(theta))
    for j in range(D):
        expected = lam * layers[0].weights[j].abs().sum() + sum(ridge / 2.0 * (w[j] ** 2).sum() for w, _ in layers)
        assert architecture.penalties(lam, ridge).at(theta[j]) == pytest.approx(float(expected))


@HIDDEN
def test_predictions_are_those_of_torch_modules_about_the_centre(hidden: tuple[int, ...]) -> None:
    theta, centre = random_theta(hidden), RNG.standard_normal(D)
    networks = Networks(Architecture(D, hidden), theta, centre, np.ones(D))
    found = networks.predict(ROWS)
    assert found.shape == (N, D)
    for j in range(D):
        modules: list[torch.nn.Module] = []
        for part, inputs, outputs in by_layer(hidden):
            linear = torch.nn.Linear(inputs, outputs, dtype=torch.float64)
            own = torch.tensor(theta[j, part])
            linear.weight.data, linear.bias.data = own[: inputs * outputs].view(outputs, inputs), own[-outputs:]
            modules += [linear, torch.nn.Sigmoid()]
        f = torch.nn.Sequential(*modules[:-1])
        expected = centre[j] + f(torch.tensor(ROWS - centre)).detach().numpy()[:, 0]
        np.testing.assert_allclose(found[:, j], expected, atol=1e-13)
