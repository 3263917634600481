"""A figure of the paper: which data, along which axis, by which methods.  Read from a short TOML file."""

import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any

from dagora.data.simulate import MODELS
from dagora.errors import InputError

_CONFIGS = files("dagora") / "experiments" / "configs"
FIGURES = tuple(
    sorted(entry.name.removesuffix(".toml") for entry in _CONFIGS.iterdir() if entry.name.endswith(".toml"))
)
DATA = (*MODELS, "sachs")
QUICK_D, QUICK_RUNS = 20, 3


@dataclass(frozen=True)
class Setting:
    """One place on a figure's axis: d variables, n rows in all, divided evenly among so many sites."""

    d: int
    n: int
    sites: int


@dataclass(frozen=True)
class Figure:
    """What a config file says."""

    name: str
    title: str
    data: str  # a model of `simulate` (Erdos-Renyi graphs with d edges), or "sachs"
    axis: str  # the field of a setting that the x axis shows
    settings: tuple[Setting, ...]
    methods: tuple[str, ...]
    shd_top: float = inf  # where the axis of SHD ends at most: methods far worse than the rest run off it
    shares: str = ""  # a figure with the same data, whose runs need not be repeated

    @property
    def small(self) -> tuple[Setting, ...]:
        """The settings with few variables."""
        return tuple(setting for setting in self.settings if setting.d <= QUICK_D)

    def quick(self) -> "Figure":
        """The settings with few variables."""
        settings = self.small
        if not settings:
            raise InputError(f"{self.name}: all settings have more than {QUICK_D} variables; run it without --quick")
        return replace(self, settings=settings)


def load_figure(name: str) -> Figure:
    """A figure of the paper by name, or a config file of one's own by path."""
    if name in FIGURES:
        return _parse(name, (_CONFIGS / f"{name}.toml").read_text(encoding="utf-8"))
    path = Path(name)
    if path.suffix != ".toml":
        raise InputError(f"there is no figure {name!r}; choose from {', '.join(FIGURES)}, or give a .toml file")
    try:
        return _parse(path.stem, path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{name!r} cannot be read; check the path") from None


def _parse(name: str, text: str) -> Figure:
    try:
        entries: dict[str, Any] = tomllib.loads(text)
        settings = tuple(Setting(**setting) for setting in entries.pop("settings"))
        figure = Figure(name, settings=settings, methods=tuple(entries.pop("methods")), **entries)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{name}: not a figure's config ({error}); compare it with experiments/configs") from None
    if figure.data not in DATA:
        raise InputError(f"{name}: data must be one of {', '.join(DATA)}")
    if figure.axis not in ("d", "n", "sites"):
        raise InputError(f"{name}: axis must be d, n or sites")
    return figure
