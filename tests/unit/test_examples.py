"""Every example runs, from a folder of its own, and prints something."""

import re
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
    if "```python" in path.read_text() and path.stem != "federation"  # needs one: tests/federation/test_runs.py
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_python_in_the_documentation_runs(document: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, *STRICT, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
