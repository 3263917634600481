"""The command line as a user meets it: a process, its output, its exit code, its files."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from dagora.cli import main
from dagora.interchange.registry import read_graph

SIMULATE = ("simulate", "--d", 6, "--edges", 6, "--n", 200, "--sites", 3, "--seed", 1)

Writer = Callable[[Path], None]


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: object
    stdout: str
    stderr: str


def dagora(*arguments: object, cwd: Path) -> Done:
    """Run main() as the installed command does, in this process: starting Python anew takes most of a second."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["dagora", *map(str, arguments)]),
        patch.dict("os.environ", {"COLUMNS": "200"}),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        chdir(cwd),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    return Done(stop.value.code, stdout.getvalue(), stderr.getvalue())


def test_installed_command(tmp_path: Path) -> None:
    command = Path(sys.executable).parent / "dagora"
    done = subprocess.run([command, "learn", "nowhere.csv"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert_refused(Done(done.returncode, done.stdout, done.stderr), tmp_path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    done = dagora(
        "simulate", "--d", 6, "--edges", 6, "--n", 200, "--sites", 3, "--seed", 1, "--out", "data", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return folder / "data"


def test_simulate_writes_sites_and_truth(data: Path) -> None:
    assert sorted(path.name for path in data.iterdir()) == ["site-01.csv", "site-02.csv", "site-03.csv", "truth.csv"]
    assert len(read_graph(data / "truth.csv").weights.nonzero()[0]) == 6
    assert (data / "site-01.csv").read_text().splitlines()[0] == "x1,x2,x3,x4,x5,x6"


def test_learn_evaluate_round_trip(data: Path, tmp_path: Path) -> None:
    sites = sorted(data.glob("site-*.csv"))
    done = dagora("learn", *sites, "--out", tmp_path / "result", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("dagora: warning: directions follow the columns' variances")  # simulated: they do
    assert done.stderr.count("\n") == 1
    assert "weight" in done.stdout
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == ["edges.csv", "result.json", "weights.csv"]
    weights = read_graph(tmp_path / "result" / "weights.csv")
    report = json.loads((tmp_path / "result" / "result.json").read_text())
    assert list(weights.names) == report["names"] == [f"x{j}" for j in range(1, 7)]
    for edge in report["edges"]:
        i, j = weights.names.index(edge["source"]), weights.names.index(edge["target"])
        assert weights.weights[i, j] == edge["weight"]  # full precision in every file
    for estimate in ("result", "result/edges.csv", "result/weights.csv"):
        scored = dagora("evaluate", data / "truth.csv", tmp_path / estimate, "--json", cwd=tmp_path)
        assert json.loads(scored.stdout)["shd"] <= 2, scored.stderr


def test_json_is_one_object(data: Path, tmp_path: Path) -> None:
    done = dagora("learn", *sorted(data.glob("site-*.csv")), "--method", "voting", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["settings"]["method"] == "voting"
    assert list(tmp_path.iterdir()) == []


def test_learn_says_which_directions_are_open(data: Path, tmp_path: Path) -> None:
    sites, chosen = sorted(data.glob("site-*.csv")), ("--method", "covariance", "--learner", "boss")
    report = json.loads(dagora("learn", *sites, *chosen, "--json", cwd=tmp_path).stdout)
    assert report["settings"]["learner"] == "boss"
    undirected = {frozenset(pair) for pair in report["undirected"]}
    pairs = [frozenset((edge["source"], edge["target"])) for edge in report["edges"]]
    assert 0 < len(undirected) < len(pairs)
    assert undirected < set(pairs)
    done = dagora("learn", *sites, *chosen, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    heading, *lines = [line for line in done.stdout.splitlines() if line.startswith(("┃", "│"))]
    assert heading.strip("┃ ").split(" ┃ ")[-1].strip() == "direction"
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    shown = {frozenset(row[:2]): row[3] for row in cells}
    assert shown == {pair: "either way" if pair in undirected else "->" for pair in pairs}
    count = f"{len(undirected)} edge" + "s" * (len(undirected) > 1)
    assert f"The directions of {count} are open" in done.stdout


@pytest.mark.parametrize(("options", "rests"), [((), True), (("--method", "covariance"), False)])
def test_learn_says_what_directions_rest_on(data: Path, tmp_path: Path, options: tuple[str, ...], rests: bool) -> None:
    done = dagora("learn", *sorted(data.glob("site-*.csv")), *options, cwd=tmp_path)
    assert ("directions rest on noise variances being about equal" in done.stdout) is rests


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((100, 2)) @ [[1.0, 2.0], [0.0, 1.0]]
    names = "Age [years]", "state :id: [/x]"
    for site in ("a", "b"):
        np.savetxt(tmp_path / f"{site}.csv", rows, delimiter=",", header=",".join(names), comments="")
    done = dagora("learn", "a.csv", "b.csv", "--method", "covariance", "--out", "out [1]", cwd=tmp_path)
    assert all(name in done.stdout for name in (*names, "out [1]"))


def test_learners_of_weights_leave_no_direction_open(data: Path, tmp_path: Path) -> None:
    sites, chosen = sorted(data.glob("site-*.csv")), ("--method", "covariance", "--learner", "notears")
    assert json.loads(dagora("learn", *sites, *chosen, "--json", cwd=tmp_path).stdout)["undirected"] == []
    assert "either way" not in dagora("learn", *sites, *chosen, cwd=tmp_path).stdout


def test_a_bootstrap_says_how_sure_edges_are(data: Path, tmp_path: Path) -> None:
    files = sorted(data.glob("site-*.csv"))
    done = dagora("learn", *files, "--bootstrap", 5, "--seed", 2, "--out", "result", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "edge frequency" in done.stdout
    assert "direction frequency" in done.stdout
    assert "Frequencies are of 5 replicates" in done.stdout
    assert (tmp_path / "result" / "confidence.csv").exists()
    about = json.loads(dagora("learn", *files, "--bootstrap", 5, "--seed", 2, "--json", cwd=tmp_path).stdout)
    kept = json.loads((tmp_path / "result" / "result.json").read_text())
    assert about["confidence"] == kept["confidence"]
    assert_refused(dagora("learn", *files, "--bootstrap", 0, "--out", "other", cwd=tmp_path), tmp_path / "other")


def test_same_seed_same_files(data: Path, tmp_path: Path) -> None:
    dagora(*SIMULATE, "--out", "again", cwd=tmp_path)
    for path in data.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    for name in ("one", "two"):
        dagora("learn", *sorted(data.glob("site-*.csv")), "--out", name, cwd=tmp_path)
    assert (tmp_path / "one" / "weights.csv").read_bytes() == (tmp_path / "two" / "weights.csv").read_bytes()


def too_much() -> None:
    np.empty((10**8, 10**8))


def no_more() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("demand", "said"),
    [
        (too_much, "not enough (unable to allocate 71.1 PiB for an array with shape (100000000, 100000000) and data"),
        (no_more, "the memory of this machine is not enough; the need grows with the square of the number of columns"),
    ],
)
def test_too_little_memory_is_told_in_one_line(
    demand: Callable[[], None], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagora.cli.simulate", lambda *_, **__: demand())
    done = dagora("simulate", "--out", "x", cwd=tmp_path)
    assert_refused(done, tmp_path)
    assert said in done.stderr
    assert "leave out columns, or use a machine with more memory" in done.stderr


def test_demo_compares_methods_and_draws(tmp_path: Path) -> None:
    done = dagora("demo", "--d", 6, "--n", 120, "--sites", 3, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["methods"]
    assert [row["method"].split()[0] for row in rows] == ["ADMM", "ADMM", "one", "voting", "averaging", "pooled"]
    assert (tmp_path / "demo-output" / "graph.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", ["learn", "simulate", "evaluate", "demo", "lags"])
def test_help(command: str, tmp_path: Path) -> None:
    done = dagora(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "--json" in done.stdout


def write(text: str | bytes) -> Writer:
    def put(path: Path) -> None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return put


BAD: dict[str, tuple[str, Writer, str]] = {
    "missing": ("bad.csv", lambda path: None, ""),
    "empty": ("bad.csv", write(""), ""),
    "header only": ("bad.csv", write("a,b,c\n"), ""),
    "ragged": ("bad.csv", write("a,b,c\n1,2,3\n4,5\n7,8,9\n"), "row 2"),
    "binary": ("bad.csv", write(b"\x00\x01\x02\xff" * 64), ""),
    "bad parquet": ("bad.parquet", write(b"PAR1 no such thing PAR1"), ""),
    "nan": ("bad.csv", write("a,b,c\n1,2,3\n4,nan,6\n7,8,9\n"), "'b'"),
    "infinity": ("bad.csv", write("a,b,c\n1,2,3\n4,5,inf\n7,8,9\n"), "'c'"),
    "text": ("bad.csv", write("a,b,c\n1,2,3\n4,5,6\nseven,8,9\n"), "'a'"),
    "duplicate names": ("bad.csv", write("a,b,a\n1,2,3\n4,5,7\n"), "'a'"),
    "missing column": ("bad.csv", write("a,b\n1,2\n4,5\n"), "'c'"),
    "extra column": ("bad.csv", write("a,b,c,e\n1,2,3,4\n4,5,7,6\n"), "'e'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_site_gives_one_line_that_names_it(case: str, tmp_path: Path) -> None:
    name, make, column = BAD[case]
    make(tmp_path / name)
    good = [f"{a},{b},{c}" for a, b, c in np.random.default_rng(0).normal(size=(20, 3))]
    (tmp_path / "good.csv").write_text("\n".join(["c,a,b", *good]))
    done = dagora("learn", "good.csv", name, "--out", "result", cwd=tmp_path)
    assert_refused(done, tmp_path)
    assert "'bad'" in done.stderr
    assert column in done.stderr


ALONE: dict[str, tuple[str, str]] = {
    "constant": ("a,b,c\n1,5,3\n4,5,6\n7,5,9.5\n", "'b'"),
    "identical": ("a,b,c\n1,2,1\n4,5,4\n7,5,7\n", "'a' and 'c'"),
    "single row": ("a,b,c\n1,2,3\n", "row"),
    "one column": ("a\n1\n2\n", "'a'"),
}


@pytest.mark.parametrize("case", ALONE)
def test_data_from_which_nothing_can_be_learned(case: str, tmp_path: Path) -> None:
    text, column = ALONE[case]
    (tmp_path / "bad.csv").write_text(text)
    done = dagora("learn", "bad.csv", "--out", "result", cwd=tmp_path)
    assert_refused(done, tmp_path)
    assert "'bad'" in done.stderr
    assert column in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["learn"],
        ["learn", "good.csv", "--method", "nonsense"],
        ["learn", "good.csv", "--method", "covariance", "--learner", "nonsense"],
        ["learn", "good.csv", "--learner", "boss"],
        ["learn", "good.csv", "--method", "covariance", "--lam", "0.1"],
        ["learn", "good.csv", "--method", "covariance", "--penalty", "0"],
        ["learn", "good.csv", "--method", "covariance", "--no-polish"],
        ["learn", "good.csv", "--method", "voting", "--learner", "pc", "--alpha", "1"],
        ["learn", "good.csv", "--method", "average", "--learner", "ges"],
        ["learn", "good.csv", "--method", "pooled", "--learner", "golem", "--score", "x"],
        ["learn", "good.csv", "--lam", "-1"],
        ["learn", "good.csv", "--lam", "text"],
        ["learn", "good.csv", "--intercept"],
        ["learn", "good.csv", "--out", "good.csv"],
        ["simulate", "--d", "5", "--edges", "99", "--out", "x"],
        ["simulate", "--sites", "9", "--n", "3", "--out", "x"],
        ["evaluate", "nothing.csv", "good.csv"],
        ["nonsense"],
        ["learn", "--nonsense"],
    ],
    ids=" ".join,
)
def test_bad_options(arguments: list[str], tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    (tmp_path / "good.csv").write_text("\n".join(["a,b,c", *(",".join(map(str, row)) for row in rows)]))
    assert_refused(dagora(*arguments, cwd=tmp_path), tmp_path)


def assert_refused(done: Done, folder: Path) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("dagora: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert not (folder / "result").exists()
    assert not (folder / "x").exists()


def test_no_arguments_prints_help(tmp_path: Path) -> None:
    done = dagora(cwd=tmp_path)
    assert done.returncode == 0
    assert "learn" in done.stdout


def test_a_quick_reproduction_leaves_out_what_is_not_quick(tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text(
        'title = "Tiny"\ndata = "linear"\naxis = "sites"\nmethods = ["ADMM (default)"]\n'
        "settings = [{ d = 4, n = 40, sites = 2 }]\n"
    )
    done = dagora("reproduce", "clients-50", config, "--quick", "--runs", 1, "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["files"]) == [str(config)]
