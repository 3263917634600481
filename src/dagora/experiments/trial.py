"""The data that a method is tried on, and work that several methods share on it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dagora.arrays import FloatArray, IntArray
from dagora.data.moments import Moments
from dagora.data.sachs_data import load_sachs
from dagora.data.simulate import simulate
from dagora.errors import InputError
from dagora.experiments.figures import Setting
from dagora.learners.base import Learned, LearnerOptions
from dagora.learners.registry import LEARNERS


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method found (0/1, cycles allowed; -1 once for an undirected edge), and what it cost."""

    graph: IntArray
    seconds: float | None = None  # None: as the runner measures it
    rounds: int = 0
    sent: int = 0  # bytes that left all sites


@dataclass(frozen=True, eq=False)
class Trial:
    """One seed of one setting."""

    setting: Setting
    seed: int
    truth: Any  # with .adjacency and .names
    rows: FloatArray  # of all sites
    shared: dict[Any, Any] = field(default_factory=dict)  # among the trials on the same rows

    @property
    def sites(self) -> list[FloatArray]:
        """The rows, divided evenly; what is left over by the division is left out, as in the paper."""
        each = len(self.rows) // self.setting.sites
        return [self.rows[k * each : (k + 1) * each] for k in range(self.setting.sites)]

    def once(self, what: Any, compute: Callable[[], Any]) -> Any:
        """The value, computed only the first time that anyone asks for it on these rows."""
        if what not in self.shared:
            self.shared[what] = compute()
        return self.shared[what]

    def local(self, learner: str) -> tuple[list[Learned], float]:
        """What every site learns alone, and the seconds that it takes them one after the other."""
        return self.once(("local", learner, self.setting.sites), lambda: _learn_alone(self.sites, learner))  # type: ignore[no-any-return]


def trials(data: str, settings: list[Setting], seed: int) -> list[Trial]:
    """Trials of settings that differ in the number of sites only, on the same rows."""
    d, n = settings[0].d, settings[0].n
    shared: dict[Any, Any] = {}
    truth: Any
    if data == "sachs":
        truth, every = load_sachs()
        if (d, n <= len(every)) != (every.shape[1], True):
            raise InputError(f"the Sachs data have {len(every)} rows of {every.shape[1]} variables")
        rows = every[np.random.default_rng(seed).permutation(len(every))[:n]]
    else:
        truth, (rows,) = simulate(d, d, n, 1, seed=seed, model=data)
    return [Trial(setting, seed, truth, rows, shared) for setting in settings]


def _learn_alone(sites: list[FloatArray], learner: str) -> tuple[list[Learned], float]:
    entry = LEARNERS[learner]
    options = LearnerOptions(**entry.defaults, bounded=False)
    start = time.perf_counter()
    found = [entry.learner(Moments.of_rows(rows), options) for rows in sites]
    return found, time.perf_counter() - start
