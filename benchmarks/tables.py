"""Tables in Markdown and JSON, printed and kept with the command and the machine that made them."""

import json
import os
import platform
import subprocess
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
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
    name: str,
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    notes: str = "",
    command: str = "",
    threads: int = 1,
) -> None:
    """Print a table and write it to results/NAME.md and NAME.json (for benchmarks/compare.py).

    command: the benchmark's name, where it makes several tables.
    """
    option, suffix = (f" --first-seed {first_seed}", f"-from-{first_seed}") if first_seed else ("", "")
    call, cells = f"python -m benchmarks {command or name}{option}", [[_cell(cell) for cell in row] for row in rows]
    lines = [f"# {title}", "", f"`{call}`; {machine(threads)}", "", *markdown(header, cells)]
    lines += ["", notes] if notes else []
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}{suffix}.md").write_text(text, encoding="utf-8")
    record: dict[str, object] = {
        "title": title,
        "command": call,
        "machine": machine(threads),
        "processor": processor(),
        "commit": commit(),
    }
    record |= {"load": round(os.getloadavg()[0], 1)}  # beside one of ours: how busy the machine was with other things
    record |= {"header": list(header), "rows": cells, "notes": notes}
    (RESULTS / f"{name}{suffix}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    head = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return head + ["| " + " | ".join(row) + " |" for row in rows]


def machine(threads: int = 1) -> str:
    """What the figures were measured on, and with how many threads."""
    blas = "one BLAS thread" if threads == 1 else f"{threads} BLAS threads"
    return (
        f"dagora {dagora.__version__}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}, {os.cpu_count()} cores ({platform.machine()}), {blas}"
    )


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


@cache  # asked for before anything is measured: files may change while it runs
def commit() -> str:
    """The commit measured, with a + where files differ from it; empty outside a repository."""
    asked = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*asked, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = [*asked, "diff", "--quiet", "HEAD", "--", "../src", "."]
        return head + ("+" if subprocess.run([*changed, ":!results"]).returncode else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
