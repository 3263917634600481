"""The same solvers on tensors: torch's CPU stands in for an accelerator, and is one more where there is CUDA."""

from typing import Any

import numpy as np
import pytest
import torch

import dagora
from dagora import devices
from dagora.acyclicity import walk_weights
from dagora.data.moments import Moments
from dagora.devices import CPU, Device, TorchDevice
from dagora.learners.notears import notears_path
from dagora.models.dynamic import DynamicModel
from dagora.models.linear import LinearModel
from dagora.solvers.global_step import path_step
from dagora.solvers.proximal import soft_threshold
from tests.helpers import covariance, small_series, small_sites

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def there(request: pytest.FixtureRequest) -> Device:
    return TorchDevice(request.param)


def test_put_and_get_keep_every_bit(there: Device) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4))
    moved = there.put(x)
    assert isinstance(moved, torch.Tensor)
    assert moved.dtype == torch.float64
    np.testing.assert_array_equal(there.get(moved), x)
    assert there.put(0.5) == 0.5


def test_walk_weights(there: Device) -> None:
    W = 0.4 * np.random.default_rng(0).standard_normal((6, 6))
    here, h = walk_weights(W)
    walks, h_there = walk_weights(there.put(W))
    np.testing.assert_allclose(there.get(walks), here, atol=1e-12)
    assert h_there == pytest.approx(h, abs=1e-12)
    for outside in (np.eye(6), 2.0 * np.ones((6, 6)), np.full((6, 6), np.nan)):
        walks, h_there = walk_weights(there.put(outside))
        assert h_there == np.inf
        assert np.isnan(there.get(walks)).all()


def test_soft_threshold(there: Device) -> None:
    V = np.random.default_rng(0).standard_normal((5, 5))
    by = np.abs(V.T)
    np.testing.assert_array_equal(there.get(soft_threshold(there.put(V), there.put(by))), soft_threshold(V, by))


@pytest.mark.parametrize("lam", [0.05, np.full((8, 8), 0.05)], ids=["one price", "prices"])
def test_w_step(there: Device, lam: Any) -> None:
    rng = np.random.default_rng(1)
    Z, c = 0.5 * rng.standard_normal((8, 8)), rng.uniform(0.5, 2.0, (8, 8))
    one, other = (
        path_step(np.zeros((8, 8)), Z, c, lam, 0.3, 1e-8, most_steps=3000, device=where) for where in (CPU, there)
    )
    assert one.converged
    assert other.converged
    np.testing.assert_allclose(other.W, one.W, atol=1e-6)


@pytest.mark.parametrize("model", [LinearModel(), LinearModel(False, True), DynamicModel(lags=1)])
def test_local_step(there: Device, model: LinearModel) -> None:
    rows = np.random.default_rng(2).standard_normal((40, 6))
    d = 3 if isinstance(model, DynamicModel) else 6
    metric = np.ones(7 if model.intercept else 6)
    centre = np.random.default_rng(3).standard_normal(model.shape(d))
    found = []
    for where in (CPU, there):
        own = type(model)(**{**vars(model), "device": where})
        problem = own.prepare(Moments.of_rows(rows), 40.0, None, 1.0, metric)
        first, problem = own.prox(problem, centre, 0.7)
        found.append((first, own.prox(problem, centre, 0.7)[0]))
    for here, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, here, atol=1e-12)


@pytest.mark.parametrize("n", [3, 40], ids=["thin", "thick"])
def test_local_steps_of_several_sites_at_once(there: Device, n: int) -> None:
    rng = np.random.default_rng(4)
    data = [Moments.of_rows(rng.standard_normal((n, 6))) for _ in range(3)]
    centres, here, model = rng.standard_normal((3, 6, 6)), LinearModel(), LinearModel(device=there)
    wanted = np.stack(
        [here.prox(here.prepare(own, 120.0, None, 0.3, np.ones(6)), centres[k], 0.7)[0] for k, own in enumerate(data)]
    )
    ((places, together),) = model.together([model.prepare(own, 120.0, None, 0.3, np.ones(6)) for own in data])
    found, together = model.prox(together, centres[places], 0.7)
    np.testing.assert_allclose(found, wanted[places], atol=1e-12)
    again, _ = model.prox(model.apart(together, [2, 0]), centres[[2, 0]], 0.7)
    np.testing.assert_allclose(again, wanted[[2, 0]], atol=1e-12)


def test_path(there: Device) -> None:
    _, (rows,) = dagora.simulate(12, 18, 300, 1, seed=0)
    S = covariance(rows)
    here, other = (notears_path(S, 0.1, least=float(np.diag(S).min()), device=where).weights for where in (CPU, there))
    np.testing.assert_allclose(other, here, atol=1e-6)


@pytest.mark.parametrize("method", ["admm", "pooled"])
@pytest.mark.parametrize("model", ["linear", "dynamic"])
def test_whole_runs_agree(there: Device, method: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sites: Any = small_sites() if model == "linear" else small_series()
    here = dagora.learn(sites, model=model, method=method)
    used = []

    def stand_in(name: str) -> Device:
        used.append(name)
        return there

    for module in ("dagora.learners.notears", "dagora.algorithms.presets"):
        monkeypatch.setattr(f"{module}.device", stand_in)
    other = dagora.learn(sites, model=model, method=method, device="cuda")
    assert set(used) == {"cuda"}
    np.testing.assert_array_equal(other.adjacency, here.adjacency)
    np.testing.assert_allclose(other.weights, here.weights, atol=1e-6)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(dagora.InputError, match="device: torch cannot use 'cuda:99' here"):
        dagora.learn(small_sites(), device="cuda:99")
    with pytest.raises(dagora.InputError, match="device: learner 'boss' has no use for it"):
        dagora.learn(small_sites(), method="covariance", device="cuda")
    assert devices.device("cpu") is CPU
