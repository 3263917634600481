"""Options and data of networks: whatever is asked, there is a graph or one line that says why not."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.algorithms import networks, refit
from dagora.algorithms.admm import AdmmSite
from dagora.algorithms.measured import MeasuredSite
from dagora.algorithms.options import METHODS, PRESETS
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.sample import Sample
from dagora.errors import ConvergenceWarning, InputError, MessageError
from dagora.graphs import is_dag
from dagora.learners import mcsl

SMALL: dict[str, Any] = {"hidden": 2}
PUBLISHED = {("mlp", "admm"), ("mlp", "pooled"), ("masked", "pooled")}  # what the paper's preset knows


def noise(seed: int = 0, rows: int = 60, d: int = 3, sites: int = 2) -> list[FloatArray]:
    """Columns that have nothing to do with each other."""
    return np.array_split(np.random.default_rng(seed).normal(size=(rows, d)), sites)


@pytest.mark.parametrize(("model", "method", "preset"), [*product(("mlp", "masked"), METHODS, PRESETS)])
def test_every_combination_gives_a_graph_or_one_line(
    model: str, method: str, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {**(mcsl.solve.__kwdefaults__ or {}), "outer": 2, "steps": 5}
    monkeypatch.setattr(mcsl.solve, "__kwdefaults__", short)
    asked = {"model": model, "method": method, "preset": preset} | SMALL
    if method == "covariance" or (preset == "paper" and (model, method) not in PUBLISHED):
        with pytest.raises(InputError, match=r"^(method|preset): [^\n]*$"):
            dagora.learn(noise(), **asked)
    else:
        assert is_dag(dagora.learn(noise(), **asked).adjacency)


@pytest.mark.parametrize("options", [{}, {"lam": 10.0}, {"ridge": 1e4}], ids=str)
def test_masks_before_nothing_end_without_an_edge(options: dict[str, Any]) -> None:
    """Seed 0 is one on which the metric of the logits went to zero while it had no floor of its own."""
    assert dagora.learn(noise(0, 200, 4), model="masked", **options).edges() == []


@pytest.mark.parametrize("model", ["mlp", "masked"])
def test_a_site_that_cannot_learn_votes_for_nothing(model: str) -> None:
    rows = noise(1, 90, 3, 3)
    rows[1] = rows[1][:1]  # a single row
    rows[2][:, 0] = 1.0  # constant here, but not elsewhere
    assert dagora.learn(rows, model=model, method="voting", **SMALL).edges() == []


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="too few rows for networks: 8, but 11 or more"):
        dagora.learn(noise(0, 8), model="mlp")


@pytest.mark.parametrize("method", ["admm", "pooled"])
def test_the_papers_preset_warns_of_columns_it_does_not_suit(method: str) -> None:
    far = [rows * np.array([1.0, 1e-3, 1.0]) + np.array([0.0, 0.0, 50.0]) for rows in noise()]
    with pytest.warns(ConvergenceWarning) as told:
        dagora.learn(far, model="mlp", method=method, preset="paper", **SMALL)
    texts = [str(warning.message) for warning in told]
    assert any(text.startswith("columns 'x2': deviations far from 1") for text in texts)
    assert any(text.startswith("columns 'x3': means far from 0") for text in texts) == (method == "admm")


@pytest.mark.parametrize("model", ["mlp", "masked"])
def test_a_device_is_refused_where_it_would_do_nothing(model: str) -> None:
    with pytest.raises(InputError, match=r"device: model .* has no use for it"):
        dagora.learn(noise(), model=model, method="pooled", preset="paper", device="cpu")


def test_numbers_of_numpy_are_taken_and_written_as_numbers(tmp_path: Any) -> None:
    numbers: dict[str, Any] = {"seed": np.int64(3), "hidden": np.array([3, 2]), "lam": np.float32(0.5)}
    result = dagora.learn(noise(), model="mlp", **numbers)
    assert (result.settings["seed"], result.settings["hidden"], result.settings["lam"]) == (3, (3, 2), 0.5)
    result.save(tmp_path)


@pytest.mark.parametrize("hidden", [0, -1, 1001, (), (3, 0), "10", 2.5, True])
def test_layers_of_no_width_are_refused(hidden: Any) -> None:
    with pytest.raises(InputError, match="hidden: must be the number of units"):
        dagora.learn(noise(), model="mlp", hidden=hidden)


def test_networks_that_are_cut_off_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refit, "ROUNDS", dict.fromkeys(refit.ROUNDS, 3))
    monkeypatch.setattr(refit, "_UNFINISHED", 1e-9)
    _, sites = dagora.simulate(4, 4, 120, 2, seed=0, model="mlp")
    with pytest.warns(ConvergenceWarning, match="in their last round and are unfinished"):
        dagora.learn(sites, model="mlp", polish=False)


def test_progress_never_goes_back() -> None:
    _, sites = dagora.simulate(5, 6, 200, 2, seed=3, model="mlp")
    done = [figures["done"] for figures in dagora.learn(sites, model="mlp").history]
    assert all(earlier <= later for earlier, later in pairwise(done))
    assert done[-1] == 1.0


CONSENSUS: dict[str, Any] = {
    "phase": "consensus", "rho": 1.0, "rescale": 1.0, "mix": np.zeros(0), "keep": 0, "rows": 60.0, "sites": 2.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": 0.0}, {"rows": 3.0}, {"sites": 0.0}, {"mean": np.zeros(2)}, {"metric": np.zeros((3, 11))},
        {"metric": np.full((3, 11), np.nan)}, {"rho": 0.0}, {"rho": -1.0}, {"W": np.full((3, 11), np.nan)},
    ],
    ids=str,
)  # fmt: skip
def test_a_consensus_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    algorithm: Any = networks.build(
        "mlp", "admm", "default", ("a", "b", "c"), hidden=(2,), seed=0, threshold=0.5, lam=0.01, ridge=0.01, polish=True
    )
    part: AdmmSite[Any] = algorithm.site.admm
    assert isinstance(part, MeasuredSite)
    rows = noise()[0]
    moments = Moments.of_rows(rows)
    state = part.init(Sample(moments.n, moments.mean, moments.scatter, rows))
    right = CONSENSUS | {"W": algorithm.server.admm.start, "mean": np.zeros(3), "metric": np.ones((3, 11))}
    part.local_update(state, right)
    with pytest.raises(MessageError, match="message refused"):
        part.local_update(state, right | wrong)
