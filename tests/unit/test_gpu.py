"""A local step on a GPU is that of the CPU.  Without one, there is nothing to compare."""

import numpy as np
import pytest
import torch

from dagora.data.moments import Moments
from dagora.data.sample import Sample
from dagora.models.masked import MaskedModel, Masking
from dagora.models.mlp import MlpModel
from dagora.models.network import Architecture


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here; python -m benchmarks gpu compares too")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rows", [20, 300])
def test_steps_on_gpu_and_cpu_agree(rows: int, masked: bool) -> None:
    architecture = Architecture(6, (5,))
    start = architecture.start(0)
    if masked:
        start = np.concatenate([start, np.full((6, 6), -1.0)], axis=1)
    x = np.random.default_rng(1).normal(size=(rows, 6))
    moments = Moments.of_rows(x)
    sample = Sample(moments.n, moments.mean, moments.scatter, x)
    found = []
    for device in ("cpu", "cuda"):
        model: MlpModel = MlpModel(architecture, start, device)
        if masked:
            model = MaskedModel(architecture, start, device, masking=Masking(0))
        problem = model.prepare(sample, float(rows), None, 1.0, np.ones(6))
        found.append(model.prox(problem, start, 0.5)[0])
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here; python -m benchmarks gpu compares too")
def test_steps_of_several_sites_at_once_on_a_gpu_are_those_of_each_on_the_cpu() -> None:
    architecture = Architecture(6, (5,))
    start, rng = architecture.start(0), np.random.default_rng(2)
    rows = [rng.normal(size=(n, 6)) for n in (20, 30, 20, 300)]
    centres, found = rng.normal(size=(len(rows), *start.shape)), {}
    for device in ("cpu", "cuda"):
        model = MlpModel(architecture, start, device)
        problems = []
        for own in rows:
            moments = Moments.of_rows(own)
            sample = Sample(moments.n, moments.mean, moments.scatter, own)
            problems.append(model.prepare(sample, 400.0, None, 0.25, np.ones(6)))
        found[device] = np.empty_like(centres)
        for places, problem in model.together(problems):
            found[device][places] = model.prox(problem, centres[places], 0.5)[0]
    np.testing.assert_allclose(found["cuda"], found["cpu"], atol=1e-6)
