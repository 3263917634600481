"""Runs a figure: every method on every setting and seed, in parallel, never twice.

A job is one seed on the settings that share their data.  Its results are appended to FIGURE.csv as soon as it is done;
a run that was interrupted reads them and does only what is missing.  At the end the file is sorted, so that two runs
with the same seeds differ in times only.
"""

import csv
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby, product
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from dagora.cells import bare, write_rows
from dagora.errors import InputError, ResultWarning
from dagora.experiments.figures import Figure, Setting
from dagora.experiments.methods import Method, find, load_methods
from dagora.experiments.trial import Outcome, trials
from dagora.files import write_files
from dagora.metrics import evaluate
from dagora.version import __version__

METRICS = ("shd", "tpr", "fdr", "skeleton_f1", "edges")
COLUMNS = ("d", "n", "sites", "seed", "method", *METRICS, "rounds", "sent", "seconds", "version")

Row = dict[str, Any]
Key = tuple[Setting, int, str]  # setting, seed, method
Watch = Callable[[int, int], None]  # jobs done, jobs in all


def run_figure(
    figure: Figure,
    folder: str | Path,
    *,
    runs: int = 30,
    jobs: int = 1,
    first_seed: int = 0,
    plugins: tuple[str, ...] = (),
    watch: Watch | None = None,
) -> list[Row]:
    """Do what is missing in FOLDER/FIGURE.csv, and return all rows.

    jobs: processes.  Which kind is joblib's to say: `with joblib.parallel_config(backend="dask"): run_figure(...)`.
    """
    if jobs < 1 or runs < 1:
        raise InputError("jobs and runs must be 1 or more")
    load_methods(plugins)
    # The functions travel to the processes, which need not know of plugins; an unknown name is refused before any work.
    methods = {name: find(name) for name in figure.methods}
    path = Path(folder) / f"{figure.name}.csv"
    wanted = list(product(figure.settings, range(first_seed, first_seed + runs), figure.methods))
    rows = {_key(row): row for row in (*_shared_rows(figure, path, wanted), *read_rows(path))}
    _write(path, rows.values())  # without a line that an interruption has torn
    work = list(_jobs(figure, {key for key in wanted if key not in rows}))
    if watch is not None:
        watch(0, len(work))
    finished = Parallel(jobs, return_as="generator_unordered")(
        delayed(_run_job)(figure.data, methods, *job) for job in work
    )
    for count, new in enumerate(finished, start=1):
        rows.update((_key(row), row) for row in new)
        _append(path, new)
        if watch is not None:
            watch(count, len(work))
    place = {key: index for index, key in enumerate(wanted)}
    rows = dict(sorted(rows.items(), key=lambda item: place.get(item[0], len(place))))  # others, of earlier runs, last
    _write(path, rows.values())
    return [rows[key] for key in wanted]


def _shared_rows(figure: Figure, path: Path, wanted: list[Key]) -> list[Row]:
    """What the figure needs of another one that has the same data."""
    if not figure.shares:
        return []
    keys = set(wanted)
    return [row for row in read_rows(path.with_name(f"{figure.shares}.csv")) if _key(row) in keys]


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, a torn last line left out; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        whole = [line for line in lines if line.endswith("\n")]
    reader = csv.DictReader(whole)
    if reader.fieldnames is None or tuple(reader.fieldnames) != COLUMNS:
        raise InputError(f"{str(path)!r} is not a file of runs; move it away, or choose another folder")
    rows = [_typed(row) for row in reader]
    if any(row["version"] != __version__ for row in rows):
        raise InputError(f"{str(path)!r} holds runs of another version of dagora; choose another folder")
    return rows


def _jobs(figure: Figure, todo: set[Key]) -> Iterator[tuple[list[Setting], int, set[Key]]]:
    """(settings that share rows, seed, what is to be done), long ones first so that no processor waits at the end."""
    by_size = sorted(figure.settings, key=lambda setting: (-setting.d, -setting.n, setting.sites))
    for _, group in groupby(by_size, key=lambda setting: (setting.d, setting.n)):
        settings = list(group)
        for seed in sorted({seed for setting, seed, _ in todo if setting in settings}):
            keys = {key for key in todo if key[0] in settings and key[1] == seed}
            yield [setting for setting in settings if any(key[0] == setting for key in keys)], seed, keys


def _run_job(data: str, methods: Mapping[str, Method], settings: list[Setting], seed: int, keys: set[Key]) -> list[Row]:
    rows = []
    for trial in trials(data, settings, seed):
        for name, function in methods.items():
            if (trial.setting, seed, name) not in keys:
                continue
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResultWarning)  # a point among many, not a result to rely on
                found = function(trial)
            outcome = found if isinstance(found, Outcome) else Outcome(found)
            seconds = time.perf_counter() - start if outcome.seconds is None else outcome.seconds
            scores = evaluate(trial.truth.adjacency, outcome.graph)
            rows.append(
                asdict(trial.setting)
                | {"seed": seed, "method": name}
                | {metric: scores[metric] for metric in METRICS}
                | {"rounds": outcome.rounds, "sent": outcome.sent, "seconds": round(seconds, 3)}
                | {"version": __version__}
            )
    return rows


def _key(row: Mapping[str, Any]) -> Key:
    return Setting(row["d"], row["n"], row["sites"]), row["seed"], row["method"]


def _typed(row: Mapping[str, str]) -> Row:
    kinds = dict.fromkeys(("tpr", "fdr", "skeleton_f1", "seconds"), float) | dict.fromkeys(("method", "version"), bare)
    return {name: kinds.get(name, int)(value) for name, value in row.items()}


def _write(path: Path, rows: Iterable[Row]) -> None:
    def write(out: Any) -> None:
        write_rows(out, [COLUMNS, *_cells(rows)])

    write_files(path.parent, {path.name: write})


def _append(path: Path, rows: list[Row]) -> None:
    with path.open("a", newline="", encoding="utf-8") as out:
        write_rows(out, _cells(rows))


def _cells(rows: Iterable[Row]) -> Iterator[list[Any]]:
    return ([row[column] for column in COLUMNS] for row in rows)
