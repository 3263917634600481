"""Tables in Markdown, printed and kept with the command and the machine that made them."""

import os
import platform
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from joblib import Parallel, delayed

import dagora
from dagora.errors import ResultWarning

RESULTS = Path(__file__).parent / "results"
first_seed = 0  # set by --first-seed


def over_seeds(job: Callable[..., Any], runs: int, jobs: int, *arguments: Any) -> list[Any]:
    """job(seed, *arguments) for consecutive seeds, in parallel."""
    seeds = range(first_seed, first_seed + runs)
    return list(Parallel(jobs)(delayed(_quietly)(job, seed, *arguments) for seed in seeds))


def _quietly(job: Callable[..., Any], *arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        return job(*arguments)


def publish(
    name: str, title: str, header: Sequence[str], rows: Iterable[Sequence[object]], notes: str = "", command: str = ""
) -> None:
    """Print a table and write it to results/NAME.md; command: the benchmark's name, where it makes several tables."""
    option, suffix = (f" --first-seed {first_seed}", f"-from-{first_seed}") if first_seed else ("", "")
    lines = [f"# {title}", "", f"`python -m benchmarks {command or name}{option}`; {machine()}", ""]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    lines += ["", notes] if notes else []
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}{suffix}.md").write_text(text, encoding="utf-8")


def machine() -> str:
    """What the figures were measured on."""
    return (
        f"dagora {dagora.__version__}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}, {os.cpu_count()} cores ({platform.machine()}), one BLAS thread"
    )


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
