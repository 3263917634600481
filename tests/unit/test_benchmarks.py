"""Every benchmark runs in small, and says what it measured."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pages, tables
from benchmarks.__main__ import NAMES
from tests.effort import effort

SMALL: dict[str, dict[str, Any]] = {
    "accuracy": {"D": (5,), "K": (2,), "N": 60},
    "one_site": {"D": (5,)},
    "speed": {"CELLS": ((5, 2),)},
    "scaling": {"D": (5, 50, 200), "K": (1, 8, 512), "ROUNDS": 6, "WIDTH": 5},
    "memory": {"FILES": 2, "ROWS": 500, "D": 4},
    "streaming": {"N": 3000, "D": 4},
    "growth": {
        "D": (4, 6),
        "K": (2,),
        "ROWS": (500,),
        "LARGE": (("covariance, notears", 5),),
        "MANY": 90,
        "N": 80,
        "SITES": 2,
        "WIDTH": 4,
        "STREAMED": 4,
        "FROM": 4,
        "FAR": 4,
    },
    "peers_continuous": {"SEEDS": {5: 1}, "DEGREES": {"ER1": 1}, "N": 100, "K": 2, "CURVED_D": (3,)},
    "totals": {"D": 5, "K": 3, "N": 60},
    "score_search": {"D": (5,), "N": 100, "K": 2},
    "equal_variances": {"D": (5,), "N": 60, "K": 2},
    "auto": {"D": (5,), "K": (2,), "N": 60, "LAM": (0.1,)},
    "scale_free": {"D": 5, "N": 100, "K": 2},
    "stand_in": {"CELLS": ((5, 64),)},
    "networks": {"NETWORKS": ("small",), "N": 200},
    "large": {"D": 10, "N": 100, "K": 2},
    "private_sums": {"CELLS": ((2, 3, "plain"), (2, 3, "masked"), (2, 3, "shared"), (2, 3, "encrypted"))},
    "private_runs": {"RUNS": (("default", 4, 2),)},
    "leakage": {
        "D": 3,
        "SECONDS": 1.0,
        "RUNS": (("admm", "default", "masked", 2), ("covariance", "default", "plain", 2)),
    },
    "additive": {"CELLS": (("mlp", 5, 2, ("additive", "linear (ADMM)")),), "N": 60},
    "dynamic": {
        "D": (4,),
        "P": (1,),
        "K": (2,),
        "SITES": 2,
        "SERIES": 4,
        "LENGTH": 20,
        "TIMED": ((4, 1),),
        "LONG": 200,
    },
    "confidence": {
        "CASES": {"ADMM, d = 4": (4, "gaussian", {}), "boss, d = 4": (4, "gaussian-unequal", {"method": "covariance"})},
        "REPLICATES": 4,
        "N": 60,
        "K": 3,
    },
    "knowledge": {"D": (5,), "ROWS": 20, "K": 2, "TIERS": 2},
    "mlp": {"CELLS": ((4, (2,)),), "N": 100},
    "mlp_steps": {"D": 3, "K": 2, "N": 60, "SHAPE": {"hidden": (2,), "seed": 0, "device": "cpu", "threshold": 0.3}},
    "masked": {"D": 3, "K": 2, "N": 60, "RUNS": {"masked": {"model": "masked"}, "mlp": {"model": "mlp"}}},
    "gpu": {"CELLS": ((4, 2, 40),), "FULL": ((4, 2, 40),)},
    "gpu_linear": {"N": 80, "SITES": 2, "CELLS": ((4, "ADMM", True), (5, "covariance, notears", False))},
    "dp": {"D": 4, "K": 2, "N": 3000, "EPSILONS": (8.0,)},
    "fuzz": {"INPUTS": {"message.decode": 300}, "OTHERS": 40},
    "faults": {"RUNS": (("admm", "masked"),), "KILLS": 2, "D": 5, "N": 150},
    "federation": {
        "EQUAL": ((3, "admm", "masked"), (3, "covariance", "plain")),
        "EQUAL_D": 5,
        "EQUAL_N": 150,
        "OVERHEAD": ((2, 5, "plain"),),
        "OVERHEAD_N": 150,
        "MANY": (3, 5),
    },
}


# For make soak; "fuzz" and "faults" have files in tests/soak.
LARGER: dict[str, dict[str, Any]] = {
    "mlp_steps": {"D": 3, "K": 2, "N": 100},
    "federation": {
        "EQUAL": ((3, "admm", "masked"), (3, "covariance", "plain"), (3, "voting", "masked")),
        "EQUAL_D": 5,
        "EQUAL_N": 150,
        "OVERHEAD": ((3, 5, "plain"),),
        "OVERHEAD_N": 150,
        "MANY": (4, 5),
    },
}


SMALL_NETWORK = """
{"nodes": ["a", "b", "c"], "arcs": [["a", "b"]], "cpds": {
  "a": {"coefficients": {"(Intercept)": [3.0]}, "variance": [2.0], "parents": []},
  "b": {"coefficients": {"(Intercept)": [0.0], "a": [1.5]}, "variance": [0.5], "parents": ["a"]},
  "c": {"coefficients": {"(Intercept)": [-1.0]}, "variance": [100.0], "parents": []}}}
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name in LARGER else name for name in NAMES]
)
def test_benchmark_in_small(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    for constant, value in effort(SMALL, SMALL | LARGER)[name].items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    if name == "networks":
        (tmp_path / "small.json").write_text(SMALL_NETWORK)
        monkeypatch.setattr(module, "folder", lambda: tmp_path)
    module.main(2, 1)
    text = (tmp_path / f"{name}.md").read_text()
    assert f"python -m benchmarks {name}" in text
    assert text.count("\n|") >= 3
    record = json.loads((tmp_path / f"{name}.json").read_text())
    assert record["command"] == f"python -m benchmarks {name}"
    assert all(len(row) == len(record["header"]) for row in record["rows"])


def test_every_benchmark_has_a_small_version() -> None:
    assert set(SMALL) == set(NAMES)


def test_the_tables_of_pages_are_those_measured() -> None:
    for page in pages.PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- table ") > 0
        assert pages.filled(text) == text, "run: python -m benchmarks.pages"


def test_a_table_that_has_changed_is_put_in(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text("# Title\n\n`command`\n\n| new |\n", encoding="utf-8")
    page = "before\n<!-- table one -->\n| old |\n<!-- end -->\nafter <!-- end -->\n"
    new = "before\n<!-- table one -->\n`command`\n\n| new |\n<!-- end -->\nafter <!-- end -->\n"
    assert pages.filled(page, tmp_path) == new
