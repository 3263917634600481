"""From a method's name and a preset to the two halves of an algorithm."""

from dataclasses import dataclass
from typing import Any

from dagora.algorithms.admm import AdmmServer, AdmmSite, Consensus
from dagora.algorithms.local import LocalServer, LocalSite
from dagora.algorithms.schedules import PaperSchedule, PathSchedule
from dagora.data.moments import Moments
from dagora.errors import InputError
from dagora.federated.protocol import Algorithm
from dagora.learners.notears import Learner, notears, notears_path
from dagora.models.linear import LinearModel

MODELS = ("linear",)
METHODS = ("admm", "voting", "average", "pooled")
PRESETS = ("default", "paper")

NOTEARS_LAMBDA = 0.1  # as in NOTEARS' public code
PAPER_LAMBDA = 0.01  # Appendix B, for ADMM


@dataclass(frozen=True)
class Options:
    """What a run is asked to do.  Refuses what it does not know, by name."""

    model: str
    method: str
    preset: str
    lam: float | None
    threshold: float
    intercept: bool

    def __post_init__(self) -> None:
        _known("model", self.model, MODELS)
        _known("method", self.method, METHODS)
        _known("preset", self.preset, PRESETS)
        for name, value in (("lam", self.penalty), ("threshold", self.threshold)):
            if not 0.0 <= value < float("inf"):
                raise InputError(f"{name}: must be a finite number, 0 or more")
        if self.intercept and (self.method, self.preset) != ("admm", "paper"):
            raise InputError("intercept: only with method 'admm' and preset 'paper'; leave it out")

    @property
    def penalty(self) -> float:
        """lam, or the preset's."""
        if self.lam is not None:
            return self.lam
        return PAPER_LAMBDA if (self.method, self.preset) == ("admm", "paper") else NOTEARS_LAMBDA

    @property
    def learner(self) -> Learner:
        """What a site that learns alone uses.

        The published NOTEARS is too slow on sites with few rows, so that only the pooled oracle of the paper's
        preset uses it; elsewhere the path solves the same problem.
        """
        return notears if (self.method, self.preset) == ("pooled", "paper") else notears_path


def build(options: Options, d: int) -> Algorithm[Moments, Any, Any]:
    """The algorithm for d variables."""
    if options.method != "admm":
        voting = options.method == "voting"
        return Algorithm(
            LocalSite(options.learner, options.penalty, options.threshold, voting),
            LocalServer(voting, options.threshold),
        )
    if options.preset == "paper":
        model = LinearModel(no_self_loops=False, intercept=options.intercept)
        consensus = Consensus(global_mean=False, by_rows=False, memory=1)
        schedule: Any = PaperSchedule(lam=options.penalty)
    else:
        model = LinearModel()
        consensus = Consensus(global_mean=True, by_rows=True, memory=5)
        schedule = PathSchedule(lam=options.penalty)
    server = AdmmServer(d, model.shape(d), consensus, schedule, options.threshold)
    return Algorithm(AdmmSite(model, consensus), server)


def _known(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{option}: there is no {value!r}; choose from {', '.join(choices)}")
