"""Networks of curves on the command line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import dagora as package
from tests.unit.test_cli import Done, dagora

LEARN = ("learn", "a.csv", "b.csv")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sites with one edge, x -> y by a curve, and z alone."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        X = rng.standard_normal((100, 3))
        X[:, 1] = 2.0 * np.tanh(2.0 * X[:, 0]) + 0.3 * X[:, 1]
        lines = ["x,y,z", *(",".join(repr(float(value)) for value in row) for row in X)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def assert_refused(done: Done, folder: Path, said: str) -> None:
    """One line, exit code 2, nothing written."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(rf"dagora: {said}.*\n", done.stderr), done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["a.csv", "b.csv"]


@pytest.fixture
def no_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing may be learned")

    monkeypatch.setattr("dagora.cli.learn", refuse)


def test_networks_are_learned_and_their_curves_drawn(folder: Path) -> None:
    chosen = ("--model", "mlp", "--hidden", 4, "--seed", 1)
    done = dagora(*LEARN, *chosen, "--effects", "curves.png", "--out", "out", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((folder / "out" / "result.json").read_text())
    assert [(edge["source"], edge["target"]) for edge in report["edges"]] == [("x", "y")]
    assert (report["settings"]["hidden"], report["settings"]["seed"]) == ([4], 1)
    weight = report["edges"][0]["weight"]
    assert re.search(rf"x +│ y +│ +{weight:.4g} ", done.stdout), done.stdout  # a size without a sign
    by_hand = package.learn([folder / "a.csv", folder / "b.csv"], model="mlp", hidden=4, seed=1)
    assert weight == by_hand.weights[0, 1]


def test_weights_of_linear_effects_keep_their_sign(folder: Path) -> None:
    assert re.search(r"x +│ y +│ +\+\d", dagora(*LEARN, cwd=folder).stdout)


@pytest.mark.parametrize("name", ["deep/er/curves.svg", "curves.PDF"])
def test_curves_are_drawn_where_they_are_wanted(name: str, folder: Path) -> None:
    done = dagora(*LEARN, "--model", "additive", "--method", "covariance", "--effects", name, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / name).stat().st_size > 1000


def test_without_edges_nothing_is_drawn_and_that_is_said(folder: Path) -> None:
    chosen = ("--model", "additive", "--method", "covariance", "--penalty", 1e6)
    done = dagora(*LEARN, *chosen, "--effects", "curves.png", cwd=folder)
    assert done.returncode == 0
    assert done.stderr == "dagora: effects: the network has no edges, so nothing was drawn\n"
    assert not (folder / "curves.png").exists()


def test_two_hidden_layers_are_told_apart_by_a_comma(folder: Path) -> None:
    done = dagora(*LEARN, "--model", "mlp", "--hidden", "3,2", "--no-polish", "--json", cwd=folder)
    settings = json.loads(done.stdout)["settings"]
    assert (settings["hidden"], settings["polish"]) == ([3, 2], False)


@pytest.mark.parametrize("hidden", ["4,x", "4,", "", "4.5", "4;2", "0", "-3", "4,0"])
def test_hidden_layers_that_are_none_are_refused(hidden: str, folder: Path) -> None:
    done = dagora(*LEARN, "--model", "mlp", f"--hidden={hidden}", cwd=folder)
    assert_refused(done, folder, "hidden: must be the number of units")


@pytest.mark.usefixtures("no_learning")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "effects: they are curves"),
        (("--model", "mlp", "--method", "voting"), "effects: voting, average and the paper's preset"),
        (("--model", "mlp", "--method", "average"), "effects: voting, average and the paper's preset"),
        (("--model", "mlp", "--preset", "paper"), "effects: voting, average and the paper's preset"),
        (("--model", "additive", "--method", "voting"), "effects: voting, average and the paper's preset"),
    ],
    ids=str,
)
def test_curves_that_nobody_keeps_are_refused_before_anything_is_learned(
    options: tuple[str, ...], said: str, folder: Path
) -> None:
    assert_refused(dagora(*LEARN, *options, "--effects", "curves.png", cwd=folder), folder, said)


@pytest.mark.usefixtures("no_learning")
@pytest.mark.parametrize("name", ["curves.txt", "curves", "curves.png.gz"])
def test_files_that_are_no_drawings_are_refused_before_anything_is_learned(name: str, folder: Path) -> None:
    done = dagora(*LEARN, "--model", "mlp", "--effects", name, cwd=folder)
    assert_refused(done, folder, "effects: name a file that ends with")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "mlp", "--device", "nonsense"), "device: torch cannot use 'nonsense' here"),
        (("--model", "masked", "--device", "nonsense"), "device: torch cannot use 'nonsense' here"),
        (("--model", "mlp", "--ridge", "-1"), "ridge: must be a finite number"),
        (("--model", "mlp", "--ridge", "nan"), "ridge: must be a finite number"),
        (("--model", "mlp", "--seed", "-1"), "seed: must be a whole number"),
        (("--ridge", "1"), "ridge: .* has no use for it"),
        (("--hidden", "4"), "hidden: .* has no use for it"),
        (("--seed", "1"), "seed: .* has no use for it"),
        (("--preset", "paper", "--device", "cpu"), "device: .* has no use for it"),
        (("--device", "nonsense"), "device: torch cannot use 'nonsense' here"),
        (("--model", "masked", "--polish"), "polish: .* has no use for it"),
        (("--model", "masked", "--preset", "paper"), "preset: 'paper' gives no figures"),
        (("--model", "mlp", "--method", "covariance"), "method: 'covariance' does not fit model 'mlp'"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_in_one_line(options: tuple[str, ...], said: str, folder: Path) -> None:
    assert_refused(dagora(*LEARN, *options, cwd=folder), folder, said)
