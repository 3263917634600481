"""One figure from its name to files: rows of all runs, a table and a drawing."""

from dataclasses import dataclass
from pathlib import Path

from dagora.experiments.figures import load_figure
from dagora.experiments.plots import draw
from dagora.experiments.runner import Row, Watch, run_figure
from dagora.experiments.summary import markdown
from dagora.files import write_files


@dataclass(frozen=True)
class Reproduction:
    """The rows, the table, and the files written."""

    rows: list[Row]
    table: str
    paths: list[Path]


def reproduce(
    name: str,
    folder: str | Path,
    runs: int = 30,
    jobs: int = 1,
    quick: bool = False,
    first_seed: int = 0,
    plugins: tuple[str, ...] = (),
    watch: Watch | None = None,
) -> Reproduction:
    """Run a figure (what is missing of it), tabulate and draw it."""
    folder = Path(folder)
    figure = load_figure(name)
    if quick:
        figure = figure.quick()
    rows = run_figure(
        figure, folder, runs=runs, jobs=jobs, first_seed=first_seed, plugins=plugins, watch=watch
    )  # fmt: skip
    options = "".join(
        [f" --runs {runs}", " --quick" if quick else "", f" --first-seed {first_seed}" if first_seed else ""]
    )
    table = markdown(figure, rows, f"dagora reproduce {name}{options}")
    written = write_files(folder, {f"{figure.name}.md": lambda out: print(table, end="", file=out)})
    return Reproduction(rows, table, [folder / f"{figure.name}.csv", *written, *draw(figure, rows, folder)])
