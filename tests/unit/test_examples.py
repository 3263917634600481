"""Every example runs, from a folder of its own, and prints something."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))

# Warnings are errors, but for the one that simulated data deserve (errors.ScaleWarning).
STRICT = ("-W", "error", "-W", "ignore:directions follow the columns")

SAYS = {  # what the reader is to see
    "quickstart": "->",
    "own_files": "source,target,weight",
    "units": "the same class in the original units: True",
    "time_series": "if every site learned alone, and voted:",
    "effects": "the network leaves",
    "own_method": "| 16 | Largest correlations |",
}


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *STRICT, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[script.stem] in done.stdout


ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    if "```python" in path.read_text()
    and path.stem not in ("federation", "start")  # needs one: tests/federation/test_runs.py; is below
)


EACH = "import sys\nfor block in sys.stdin.read().split(sys.argv[1]):\n    exec(block, {'__name__': '__main__'})"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_python_in_the_documentation_runs(document: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert blocks
    mark = "# --- the next block ---"
    # One process a page, for imports take longer than most blocks; no block sees another's names.
    done = subprocess.run(
        [sys.executable, *STRICT, "-c", EACH, mark],
        input=mark.join(blocks), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_first_five_minutes(tmp_path: Path) -> None:
    """All of docs/start.md but the installation, in its order: what it makes, learns and shows."""
    text = (ROOT / "docs" / "start.md").read_text().replace("\\\n", "")
    steps = re.findall(r"```python\n(.*?)```|^    (dagora [^\n]*)$", text, re.DOTALL | re.MULTILINE)
    assert len(steps) == 3
    shown = ""
    for block, command in steps:
        arguments = ["-c", block] if block else ["-m", *shlex.split(command)]
        done = subprocess.run(
            [sys.executable, *STRICT, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        shown += done.stdout
    assert "Age [years]" in shown
    assert "either way" in shown
    assert "Three clinics" in (tmp_path / "result" / "report.html").read_text()
