"""The paper's experiments in small: configs, methods, resuming, parallel runs, tables and figures."""

import csv
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from joblib._parallel_backends import ThreadingBackend

import dagora
from dagora.experiments import runner
from dagora.experiments.figures import FIGURES, Figure, Setting, load_figure
from dagora.experiments.methods import METHODS, find, load_methods, method
from dagora.experiments.plots import draw
from dagora.experiments.reproduce import reproduce
from dagora.experiments.runner import COLUMNS, read_rows, run_figure
from dagora.experiments.summary import Mean, markdown, summarise
from dagora.experiments.trial import Outcome, Trial, trials
from dagora.graphs import is_dag
from tests.helpers import sites_with_a_cycle

SMALL = Figure(
    "small",
    "Small",
    "linear",
    "sites",
    (Setting(5, 60, 2), Setting(5, 60, 4)),
    ("ADMM (default)", "Voting", "Averaging", "Best", "PC-Voting", "FGES-Voting", "Pooled (default)"),
)


@pytest.fixture(autouse=True)
def _own_methods_are_forgotten() -> Iterator[None]:
    load_methods()
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def but_for_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def some_trial(sites: int = 4, n: int = 120, d: int = 5, seed: int = 0) -> Trial:
    return trials("linear", [Setting(d, n, sites)], seed)[0]


def test_the_papers_figures_are_there() -> None:
    assert set(FIGURES) == {
        "variables", "clients-10", "clients-20", "clients-50", "sachs", "constraint-score", "nonlinear",
        "nonlinear-20",
    }  # fmt: skip
    for name in FIGURES:
        figure = load_figure(name)
        assert all(find(each) for each in figure.methods)
        assert all(setting.n % setting.sites == 0 for setting in figure.settings)
    assert [s.sites for s in load_figure("clients-20").settings] == [2, 4, 8, 16, 32, 64]
    assert [(s.d, s.n // s.sites) for s in load_figure("variables").settings] == [(10, 3), (20, 6), (50, 15), (100, 30)]


def test_quick_keeps_few_variables() -> None:
    assert [s.d for s in load_figure("variables").quick().settings] == [10, 20]
    with pytest.raises(dagora.InputError, match="clients-50: all settings have more than 20 variables"):
        load_figure("clients-50").quick()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "not a figure's config"),
        ('title = "t"', "not a figure's config"),
        ('title="t"\ndata="x"\naxis="d"\nmethods=[]\nsettings=[]', "data must be one of"),
        ('title="t"\ndata="linear"\naxis="x"\nmethods=[]\nsettings=[]', "axis must be"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(dagora.InputError, match=message):
        load_figure(str(tmp_path / "own.toml"))


def test_unknown_figures_and_methods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(dagora.InputError, match="there is no figure 'x'; choose from"):
        load_figure("x")
    with pytest.raises(dagora.InputError, match="cannot be read"):
        load_figure(str(tmp_path / "none.toml"))
    with pytest.raises(dagora.InputError, match="there is no method 'x'; choose from"):
        run_figure(replace(SMALL, methods=("x",)), tmp_path)
    with pytest.raises(dagora.InputError, match="jobs and runs must be 1 or more"):
        run_figure(SMALL, tmp_path, jobs=0)
    assert list(tmp_path.iterdir()) == []


def test_trials_of_one_seed_share_their_rows() -> None:
    two, four = trials("linear", list(SMALL.settings), 3)
    assert two.rows is four.rows
    assert [len(rows) for rows in four.sites] == [15] * 4
    np.testing.assert_array_equal(np.vstack(two.sites), np.vstack(four.sites))
    again = trials("linear", [SMALL.settings[0]], 3)[0]
    np.testing.assert_array_equal(again.rows, two.rows)
    assert not np.array_equal(trials("linear", [SMALL.settings[0]], 4)[0].rows, two.rows)


def test_what_the_division_leaves_over_is_left_out() -> None:
    assert [len(rows) for rows in some_trial(sites=7).sites] == [17] * 7


def test_sachs_trials_draw_rows_without_repeats() -> None:
    trial = trials("sachs", [Setting(11, 512, 4)], 0)[0]
    _, every = dagora.load_sachs()
    assert trial.rows.shape == (512, 11)
    known = {row.tobytes() for row in every}
    assert all(row.tobytes() in known for row in trial.rows)
    with pytest.raises(dagora.InputError, match="853 rows of 11 variables"):
        trials("sachs", [Setting(11, 900, 4)], 0)


@pytest.mark.parametrize("sites", [2, 4])
def test_sites_that_learn_alone_are_added_up_as_learn_does_it(sites: int) -> None:
    trial = some_trial(sites)
    for name, options in (("Voting", {"method": "voting"}), ("Averaging", {"method": "average"})):
        result = dagora.learn(trial.sites, **options)  # type: ignore[arg-type]
        graph = result.adjacency.copy()
        for i, j in result.removed:
            graph[i, j] = 1
        outcome = find(name)(trial)
        np.testing.assert_array_equal(outcome.graph, graph)
        assert outcome.sent == result.sent
    for name, learner in (("PC-Voting", "pc"), ("FGES-Voting", "ges")):
        result = dagora.learn(trial.sites, method="voting", learner=learner)
        np.testing.assert_array_equal(find(name)(trial).graph, result.cpdag)


def test_votes_are_scored_without_repair() -> None:
    trial = Trial(Setting(3, 1500, 3), 0, some_trial(d=3).truth, np.vstack(sites_with_a_cycle()))
    graph = find("Voting")(trial).graph
    assert graph.sum() == 3
    assert not is_dag(graph)


def test_best_is_the_best_of_the_sites() -> None:
    trial = some_trial()
    distances = [
        dagora.evaluate(trial.truth, learned.edges.astype(int))["shd"] for learned in trial.local("notears")[0]
    ]
    assert dagora.evaluate(trial.truth, find("Best")(trial).graph)["shd"] == min(distances)


def test_a_site_with_three_rows_can_vote() -> None:
    trial = some_trial(sites=10, n=30, d=10)
    assert find("PC-Voting")(trial).graph.sum() == 0  # no test has a degree of freedom
    assert find("FGES-Voting")(trial).graph.shape == (10, 10)


def test_every_method_runs_and_two_runs_agree(tmp_path: Path) -> None:
    rows = run_figure(SMALL, tmp_path / "one", runs=2)
    assert len(rows) == 2 * 2 * 7
    again = run_figure(SMALL, tmp_path / "two", runs=2, jobs=2)  # other processes, in whatever order
    assert but_for_times(rows) == but_for_times(again)
    with (tmp_path / "one" / "small.csv").open() as lines:
        assert next(csv.reader(lines)) == list(COLUMNS)
    assert but_for_times(read_rows(tmp_path / "two" / "small.csv")) == but_for_times(rows)
    assert {row["version"] for row in rows} == {dagora.__version__}


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = replace(SMALL, methods=("Counted", "Stops"))
    calls = []
    stop = True

    @method("Counted")
    def counted(trial: Trial) -> Any:
        calls.append((trial.setting.sites, trial.seed))
        return np.zeros((5, 5), dtype=int)

    @method("Stops")
    def stops(trial: Trial) -> Any:
        if stop and trial.seed == 1:
            raise KeyboardInterrupt
        return np.zeros((5, 5), dtype=int)

    with pytest.raises(KeyboardInterrupt):
        run_figure(figure, tmp_path, runs=3)
    assert len(read_rows(tmp_path / "small.csv")) == 4  # seed 0, both settings and methods
    path = tmp_path / "small.csv"
    path.write_text(path.read_text() + "5,60,2,1,Counted,3,0.")  # torn in the middle of a line
    stop = False
    calls.clear()
    rows = run_figure(figure, tmp_path, runs=3)
    assert sorted(calls) == [(2, 1), (2, 2), (4, 1), (4, 2)]  # seed 0 is not repeated
    fresh = run_figure(figure, tmp_path / "fresh", runs=3)
    assert but_for_times(rows) == but_for_times(fresh)


def test_fewer_runs_lose_nothing(tmp_path: Path) -> None:
    figure = replace(SMALL, methods=("Pooled (default)",))
    run_figure(figure, tmp_path, runs=3)
    assert len(run_figure(figure, tmp_path, runs=1)) == 2
    assert len(read_rows(tmp_path / "small.csv")) == 6


def test_figures_with_the_same_data_share_runs(tmp_path: Path) -> None:
    first = replace(SMALL, methods=("Pooled (default)",))
    run_figure(first, tmp_path, runs=1)
    done = []
    second = replace(SMALL, name="other", methods=("Pooled (default)",), shares="small")
    rows = run_figure(second, tmp_path, runs=1, watch=lambda count, total: done.append(total))
    assert len(rows) == 2
    assert done == [0]


def test_runs_of_another_version_and_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = replace(SMALL, methods=("Pooled (default)",))
    run_figure(figure, tmp_path, runs=1)
    before = (tmp_path / "small.csv").read_bytes()
    monkeypatch.setattr(runner, "__version__", "9.9")
    with pytest.raises(dagora.InputError, match="another version of dagora; choose another folder"):
        run_figure(figure, tmp_path, runs=1)
    assert (tmp_path / "small.csv").read_bytes() == before
    (tmp_path / "small.csv").write_text("a,b\n1,2\n")
    with pytest.raises(dagora.InputError, match="is not a file of runs"):
        run_figure(figure, tmp_path, runs=1)


def test_the_backend_is_joblibs_to_choose(tmp_path: Path) -> None:
    """As a dask or ray backend would be: registered under a name, chosen around the call."""
    submitted = []

    class Counting(ThreadingBackend):  # type: ignore[misc]
        def submit(self, func: Any, callback: Any = None) -> Any:
            submitted.append(func)
            return super().submit(func, callback)

    joblib.register_parallel_backend("counting", Counting)
    figure = replace(SMALL, methods=("Pooled (default)",))
    expected = run_figure(figure, tmp_path / "here", runs=4)
    with joblib.parallel_config(backend="counting"):
        rows = run_figure(figure, tmp_path / "there", runs=4, jobs=2)
    assert len(submitted) == 4
    assert but_for_times(rows) == but_for_times(expected)


def test_a_method_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\n"
        "from dagora.experiments.methods import method\n"
        "@method('Mine')\n"
        "def mine(trial):\n"
        "    return np.zeros((trial.setting.d, trial.setting.d), dtype=int)\n"
    )
    figure = replace(SMALL, methods=("Mine", "Pooled (default)"))
    rows = run_figure(figure, tmp_path, runs=2, jobs=2, plugins=(str(path),))
    mine = [row for row in rows if row["method"] == "Mine"]
    assert [row["shd"] for row in mine] == [5, 5, 5, 5]  # none of the five edges found
    assert all(row["seconds"] >= 0.0 for row in mine)
    draw(figure, rows, tmp_path)  # a style for it, too
    with pytest.raises(dagora.InputError, match="is not a Python file"):
        load_methods((str(tmp_path / "none.py"),))


def test_means_and_standard_errors() -> None:
    values = [1.0, 2.0, 6.0]
    mean = Mean.of(values)
    assert mean.value == 3.0
    assert mean.error == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    assert Mean.of([4.0]) == Mean(4.0, 0.0)


def test_the_table_has_a_row_a_cell(tmp_path: Path) -> None:
    rows = run_figure(SMALL, tmp_path, runs=2)
    text = markdown(SMALL, rows, "the command")
    assert text.count("\n| ") == 1 + 2 * 7
    assert "`the command`: mean ± standard error over 2 runs" in text
    cell = summarise(rows)[Setting(5, 60, 4), "Voting"]["shd"]
    assert f"| 4 | Voting | {cell.value:.2f} ± {cell.error:.2f} |" in text


def test_equal_rows_make_equal_figures(tmp_path: Path) -> None:
    rows = run_figure(replace(SMALL, methods=("Voting", "Pooled (default)")), tmp_path, runs=2)
    figure = replace(SMALL, methods=("Voting", "Pooled (default)"))
    first, second = draw(figure, rows, tmp_path / "a"), draw(figure, rows, tmp_path / "b")
    assert [path.suffix for path in first] == [".png", ".svg", ".pdf"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert len(one.read_bytes()) > 5000


def test_nonlinear_and_sachs_figures_run(tmp_path: Path) -> None:
    for name, d in (("nonlinear", 6), ("sachs", 11)):
        figure = load_figure(name)
        small = replace(figure, settings=(Setting(d, 120, 2),), methods=("ADMM (default)", "Additive sieve"))
        assert len(run_figure(small, tmp_path, runs=1)) == 2


@pytest.mark.parametrize("name", ["nonlinear", "nonlinear-20"])
def test_networks_are_compared_in_small(name: str, tmp_path: Path) -> None:
    figure = load_figure(name)
    rows = run_figure(replace(figure, settings=(Setting(3, 60, 2),)), tmp_path, runs=1)
    assert [row["method"] for row in rows] == list(figure.methods)


def test_reproduce_from_a_shell(tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text(
        'title = "Tiny"\ndata = "linear"\naxis = "d"\nmethods = ["Pooled (default)", "Voting"]\n'
        "settings = [{ d = 4, n = 40, sites = 2 }, { d = 30, n = 60, sites = 2 }]\n"
    )
    command = [str(Path(sys.executable).parent / "dagora")]
    done = subprocess.run(
        [*command, "reproduce", str(config), "--runs", "2", "--quick", "--out", str(tmp_path / "out"), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    files = json.loads(done.stdout)["files"][str(config)]
    assert sorted(Path(path).name for path in files) == ["tiny.csv", "tiny.md", "tiny.pdf", "tiny.png", "tiny.svg"]
    assert {row["d"] for row in read_rows(tmp_path / "out" / "tiny.csv")} == {4}
    shown = subprocess.run(
        [*command, "reproduce", str(config), "--runs", "2", "--quick", "--out", str(tmp_path / "out")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Tiny" in shown.stdout
    wrong = subprocess.run([*command, "reproduce", "nothing"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("dagora: there is no figure 'nothing'; choose from")
    assert len(wrong.stderr.splitlines()) == 1


def test_the_documented_example_names_its_method() -> None:
    example = Path(__file__).parents[2] / "examples" / "own_method.py"
    spec = importlib.util.spec_from_file_location("own_method", example)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    outcome = find("Largest correlations")(some_trial())
    assert not isinstance(outcome, Outcome)
    assert np.asarray(outcome).sum() == 5


def test_reproduce_writes_and_returns_the_same(tmp_path: Path) -> None:
    config = tmp_path / "one.toml"
    config.write_text(
        'title = "One"\ndata = "linear"\naxis = "d"\nmethods = ["Pooled (default)"]\n'
        "settings = [{ d = 4, n = 40, sites = 2 }]\n"
    )
    done = reproduce(str(config), tmp_path, runs=1)
    assert (tmp_path / "one.md").read_text() == done.table
    assert but_for_times(read_rows(tmp_path / "one.csv")) == but_for_times(done.rows)
