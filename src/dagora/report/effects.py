"""Curves of a nonlinear network: one panel an edge, what is expected of the target as the source changes."""

from math import ceil, inf
from pathlib import Path

from dagora.errors import InputError
from dagora.result import Result

MOST = 24  # panels: more cannot be read
_COLUMNS = 4


def draw_effects(result: Result, path: str | Path) -> int:
    """Write a PNG, PDF or SVG of the edges' curves, the strongest first; how many edges there was no room for.

    A curve runs over two standard deviations of its source to either side, other parents at their means.  Panels of
    one target have the same vertical range, so that a parent that matters little looks so.
    """
    from matplotlib.figure import Figure

    edges = result.edges()
    if not edges:
        raise InputError("effects: the network has no edges to draw")
    shown = edges[:MOST]
    columns = min(_COLUMNS, len(shown))
    rows = ceil(len(shown) / columns)
    figure = Figure(figsize=(2.3 * columns, 1.9 * rows), dpi=150, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    effects = [result.effect(source, target) for source, target, _ in shown]
    ranges: dict[str, tuple[float, float]] = {}
    for (_, target, _), effect in zip(shown, effects, strict=True):
        lowest, highest = ranges.get(target, (inf, -inf))
        ranges[target] = min(lowest, float(effect.expected.min())), max(highest, float(effect.expected.max()))
    for panel, (source, target, _), effect in zip(panels, shown, effects, strict=False):
        lowest, highest = ranges[target]
        margin = 0.05 * (highest - lowest)
        panel.set_ylim(lowest - margin, highest + margin)
        panel.plot(effect.values, effect.expected, color="#0072B2", linewidth=1.5)
        panel.set_xlabel(source, fontsize=8)
        panel.set_ylabel(f"expected {target}", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(linewidth=0.3, color="#CCCCCC")
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    figure.savefig(path)
    return len(edges) - len(shown)
