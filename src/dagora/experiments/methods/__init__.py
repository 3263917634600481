"""The methods that figures compare, one file each, by the name that figures show.

A method is a function from a `Trial` to an `Outcome`, or simply to an adjacency matrix.  To add one:

    @method("My method")
    def mine(trial):
        return my_graph(trial.sites)
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dagora.errors import InputError
from dagora.experiments.trial import Trial

Method = Callable[[Trial], Any]  # an Outcome, or a graph

METHODS: dict[str, Method] = {}


def method(name: str) -> Callable[[Method], Method]:
    """Register a method under the name that figures show; a name taken twice is the later one's."""

    def register(function: Method) -> Method:
        METHODS[name] = function
        return function

    return register


def load_methods(plugins: tuple[str, ...] = ()) -> None:
    """Import the package's methods, and Python files of one's own."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for plugin in plugins:
        spec = importlib.util.spec_from_file_location(Path(plugin).stem, plugin)
        if spec is None or spec.loader is None or not Path(plugin).is_file():
            raise InputError(f"{plugin!r} is not a Python file; check the path")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def find(name: str) -> Method:
    """A method by name."""
    if name not in METHODS:
        raise InputError(f"there is no method {name!r}; choose from {', '.join(METHODS)}")
    return METHODS[name]
