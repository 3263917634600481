"""A network over time, unrolled: one column a time step, effects of the past from left to right."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dagora.arrays import FloatArray, IntArray
from dagora.errors import InputError
from dagora.graphs import topological_order

_WITHIN, _LAGS = "#0072B2", ("#D55E00", "#E69F00", "#009E73", "#CC79A7")  # Okabe and Ito: safe for all eyes
_GREY = "#999999"


class Unrolled(Protocol):
    """A learned or true network of time series."""

    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def adjacency(self) -> IntArray: ...  # noqa: D102

    @property
    def weights(self) -> FloatArray: ...  # noqa: D102

    @property
    def lag_adjacency(self) -> IntArray | None: ...  # noqa: D102

    @property
    def lag_weights(self) -> FloatArray | None: ...  # noqa: D102


def draw_unrolled(network: Unrolled, path: str | Path, title: str = "") -> None:
    """Columns t - p ... t.  All effects on time t: within it in blue, from the past in a colour a lag.

    Causes stand above their effects within a step, so that blue arrows point down; the larger |weight|, the wider.
    """
    from matplotlib.figure import Figure

    if network.lag_adjacency is None or network.lag_weights is None:
        raise InputError("drawing: only time series can be unrolled; learn with model 'dynamic'")
    d, lags = len(network.names), len(network.lag_adjacency)
    heights = np.empty(d)
    heights[topological_order(network.adjacency)] = -np.arange(d, dtype=np.float64)
    figure = Figure(figsize=(3.2 + 2.4 * lags, 1.4 + 0.5 * d), dpi=150, layout="constrained")
    axes = figure.subplots()
    widest = _widest(network.weights, network.lag_weights)
    for lag in range(lags, 0, -1):
        for i, j in np.argwhere(network.lag_adjacency[lag - 1]).tolist():
            strength = abs(float(network.lag_weights[lag - 1, i, j])) / widest
            ends = (-lag, heights[i] - _stagger(lag)), (0.0, heights[j])
            _arrow(axes, *ends, _LAGS[(lag - 1) % len(_LAGS)], strength, 0.0)
    for i, j in np.argwhere(network.adjacency).tolist():
        strength = abs(float(network.weights[i, j])) / widest
        _arrow(axes, (0.0, heights[i]), (0.0, heights[j]), _WITHIN, strength, -0.45)
    for step in range(-lags, 1):
        for name, height in zip(network.names, heights - _stagger(-step), strict=True):
            colour = _GREY if step else "#222222"
            axes.text(
                step, height, name, ha="center", va="center", fontsize=9, color=colour, zorder=3,
                bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": colour},
            )  # fmt: skip
        axes.text(step, 0.9, f"t - {-step}" if step else "t", ha="center", va="center", fontsize=11)
    _legend(axes, network)
    axes.set_xlim(-lags - 0.4, 0.75)
    axes.set_ylim(-d + 0.3, 1.3)
    axes.set_axis_off()
    if title:
        axes.set_title(title, fontsize=11)
    figure.savefig(path)


def _stagger(lag: int) -> float:
    """A quarter of a row in every other column, so that arrows from column to column but one miss what is between."""
    return 0.25 * (lag % 2)


def _widest(*weights: npt.NDArray[np.float64]) -> float:
    return max([float(np.abs(own).max(initial=0.0)) for own in weights] + [1e-12])


def _arrow(
    axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str, strength: float, bend: float
) -> None:
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        zorder=1,
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": 0.7 + 1.8 * strength,
            "shrinkA": 13,
            "shrinkB": 13,
            "connectionstyle": f"arc3,rad={bend}",
        },
    )


def _legend(axes: Any, network: Unrolled) -> None:
    assert network.lag_adjacency is not None
    axes.plot([], [], color=_WITHIN, label=f"within a step ({int(network.adjacency.sum())})")
    for lag, own in enumerate(network.lag_adjacency, start=1):
        colour = _LAGS[(lag - 1) % len(_LAGS)]
        axes.plot([], [], color=colour, label=f"lag {lag} ({int(own.sum())})")
    axes.figure.legend(
        loc="outside lower center", ncols=min(3, len(network.lag_adjacency) + 1), frameon=False, fontsize=9
    )
