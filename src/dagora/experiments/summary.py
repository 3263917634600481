"""Means and standard errors over runs, as data and as a Markdown table."""

import math
from collections import defaultdict
from dataclasses import asdict, dataclass

from dagora.experiments.figures import Figure, Setting
from dagora.experiments.runner import Row

SHOWN = {"shd": "SHD", "tpr": "TPR", "fdr": "FDR"}


@dataclass(frozen=True)
class Mean:
    """Mean of some runs, with its standard error (0 for one run)."""

    value: float
    error: float

    @classmethod
    def of(cls, values: list[float]) -> "Mean":
        """Mean and standard error."""
        n = len(values)
        mean = math.fsum(values) / n
        spread = math.fsum((value - mean) ** 2 for value in values)
        return cls(mean, math.sqrt(spread / (n - 1) / n) if n > 1 else 0.0)


def summarise(rows: list[Row]) -> dict[tuple[Setting, str], dict[str, Mean]]:
    """By setting and method: SHD, TPR, FDR, rounds and seconds."""
    cells = defaultdict(list)
    for row in rows:
        cells[Setting(row["d"], row["n"], row["sites"]), row["method"]].append(row)
    shown = (*SHOWN, "rounds", "seconds")
    return {cell: {name: Mean.of([float(row[name]) for row in some]) for name in shown} for cell, some in cells.items()}


def markdown(figure: Figure, rows: list[Row], command: str) -> str:
    """A table with a row a setting and method."""
    means, runs = summarise(rows), len({row["seed"] for row in rows})
    version = rows[0]["version"] if rows else ""
    lines = [f"# {figure.title}", "", f"`{command}`: mean ± standard error over {runs} runs, dagora {version}", ""]
    lines += [f"| {figure.axis} | method | SHD | TPR | FDR | rounds | seconds |", "|" + "---|" * 7]
    for setting in figure.settings:
        for method in figure.methods:
            cell = means.get((setting, method))
            if cell is not None:
                numbers = [f"{cell[name].value:.2f} ± {cell[name].error:.2f}" for name in SHOWN]
                cost = [f"{cell['rounds'].value:.0f}", f"{cell['seconds'].value:.2f}"]
                lines.append(f"| {asdict(setting)[figure.axis]} | {method} | {' | '.join(numbers + cost)} |")
    return "\n".join(lines) + "\n"
