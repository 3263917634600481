"""Options for networks of curves."""

from pathlib import Path
from typing import Annotated

import typer

from dagora.cli_series import DRAWINGS
from dagora.errors import InputError
from dagora.files import make_folder
from dagora.result import Result
from dagora.terminal import err

CURVED = ("additive", "mlp", "masked")

Hidden = Annotated[
    str | None, typer.Option(help="mlp, masked: units of each hidden layer, such as 10 (the default) or 20,10.")
]
Ridge = Annotated[float | None, typer.Option(help="mlp, masked: weight of the squared weights (0.01).")]
Seed = Annotated[
    int | None, typer.Option(help="mlp, masked: of the random start and of masks; --bootstrap: of rows drawn (0).")
]
Device = Annotated[
    str | None, typer.Option(help="mlp, masked, admm, notears: cpu (default), or a torch device such as cuda.")
]
Effects = Annotated[Path | None, typer.Option(help="additive, mlp, masked: a PNG, PDF or SVG of each edge's curve.")]


def widths(hidden: str | None) -> tuple[int, ...] | None:
    """'20,10' as (20, 10)."""
    if hidden is None:
        return None
    try:
        return tuple(int(units) for units in hidden.split(","))
    except ValueError:
        raise InputError("hidden: must be the number of units of each hidden layer, such as 10 or 20,10") from None


def check_effects(model: str, method: str, preset: str, path: Path | None) -> None:
    """Refuse what could not be drawn before anything is learned."""
    if path is None:
        return
    if model not in CURVED:
        raise InputError(f"effects: they are curves; leave it out, or choose --model from {', '.join(CURVED)}")
    if method in ("voting", "average") or preset == "paper":
        raise InputError("effects: voting, average and the paper's preset keep no functions; leave it out")
    if path.suffix.lower() not in DRAWINGS:
        raise InputError(f"effects: name a file that ends with {', '.join(DRAWINGS)}")
    if path.is_dir():
        raise InputError(f"effects: {str(path)!r} is a folder; name a file")


def draw_curves(result: Result, path: Path | None) -> None:
    """Each edge's curve, if they are wanted and there are any."""
    if path is None:
        return
    if not result.adjacency.any():
        err.print("dagora: effects: the network has no edges, so nothing was drawn", highlight=False)
        return
    from dagora.report.effects import draw_effects  # matplotlib is slow to import

    make_folder(path.parent)
    left_out = draw_effects(result, path)
    if left_out:
        err.print(f"dagora: effects: the {left_out} weakest edges were left out of {path}", highlight=False)
