"""What a run is asked to do: options by name, their defaults by model, method and preset, and what is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from dagora.errors import InputError
from dagora.interchange.knowledge_files import parse_csv, write_csv
from dagora.knowledge import Constraints, Knowledge
from dagora.learners import additive
from dagora.learners.golem import UNEQUAL_LAM
from dagora.learners.registry import LEARNERS, SCORES

MODELS = ("linear", "additive", "mlp", "masked", "dynamic")
METHODS = ("admm", "covariance", "voting", "average", "pooled")
PRESETS = ("default", "paper")

DEFAULT_LEARNER = "boss"  # of method "covariance": the best in any units (docs/learners.md)
ADMM_DEFAULTS = {
    "lam": 0.1,
    "threshold": 0.3,
    "polish": True,
    "score": "least-squares",
    "standardize": False,
    "device": "cpu",
}
ADMM_LIKELIHOOD = {"penalty": 2.0, "score": "likelihood"}  # the order search's own price
ADMM_PAPER = {"lam": 0.01, "threshold": 0.3, "intercept": False}  # Appendix B
ADDITIVE_DEFAULTS = {"penalty": 1.0, "score": "similar"}
ADDITIVE_METHODS = ("covariance", "voting", "pooled")
NETWORK_SHAPE = {"hidden": (10,), "seed": 0, "device": "cpu"}
NETWORK_DEFAULTS = {"lam": 0.01, "ridge": 0.01, "threshold": 0.5, "polish": True, **NETWORK_SHAPE}
NETWORK_PUBLISHED = {"lam": 0.01, "ridge": 0.01, "threshold": 0.3, "hidden": (10,), "seed": 0}  # NOTEARS-MLP's code
NETWORK_PAPER = {"lam": 0.001, "threshold": 0.3, **NETWORK_SHAPE}  # Appendix B; it has no ridge
MASKED_DEFAULTS = {"lam": 0.01, "ridge": 0.01, "threshold": 0.5, **NETWORK_SHAPE}  # of a mask, between 0 and 1
MASKED_PUBLISHED = NETWORK_PUBLISHED | {"threshold": 0.5}
NETWORK_METHODS = ("admm", "voting", "average", "pooled")
LAG_DEFAULTS = {"lag_lam": 0.05, "lag_threshold": 0.1}  # of model "dynamic" (docs/time-series.md)
KNOWING_MODELS = ("linear", "additive", "dynamic")  # those that heed prior knowledge
MOST_UNITS = 1000  # of a layer: a larger number is a slip
MOST_LAGS = 100  # d (lags + 1) variables are stacked: a larger number is a slip
MOST_REPLICATES = 10_000  # of a bootstrap: a larger number is a slip

AUTO = "auto"  # lam and threshold: chosen by the data (solvers/selection.py)
_CHOSEN = ("lam", "threshold")
_CHOICES = ("model", "method", "preset", "learner", "knowledge")
_NUMBERS = ("lam", "threshold", "penalty", "alpha", "lag_lam", "lag_threshold", "ridge")


@dataclass(frozen=True)
class Options:
    """What a run is asked to do; None leaves an option to its default.  Refuses what it does not know, by name."""

    model: str = "linear"
    method: str = "admm"
    preset: str = "default"
    learner: str | None = None
    lam: float | str | None = None  # or "auto"
    threshold: float | str | None = None  # or "auto"
    score: str | None = None
    penalty: float | None = None
    alpha: float | None = None
    polish: bool | None = None
    intercept: bool | None = None
    lags: int | None = None
    lag_lam: float | None = None
    lag_threshold: float | None = None
    hidden: int | Sequence[int] | None = None
    ridge: float | None = None
    seed: int | None = None
    device: str | None = None
    refit: bool | None = None
    standardize: bool | None = None
    bootstrap: int | None = None
    knowledge: str | None = None  # as the lines of a CSV file (docs/knowledge.md), so that it can travel

    def __post_init__(self) -> None:
        _known("model", self.model, MODELS)
        _known("method", self.method, METHODS)
        _known("preset", self.preset, PRESETS)
        if self.learner is not None:
            _known("learner", self.learner, tuple(LEARNERS))
        if self.additive or self.networks:
            self._check_nonlinear()
        else:
            self._check_combination()
        heeded = (*self._defaults(), *(("bootstrap", "seed") if self.bootstrap is not None else ()))
        for name, value in asdict(self).items():
            if value is not None and name not in heeded and name not in _CHOICES:
                raise InputError(f"{name}: {self._who()} has no use for it; leave it out")
        self._check_auto()
        _check_values({**self.effective, **self._resampling}, tuple(additive.SCORES) if self.additive else SCORES)
        self._check_knowledge()

    @property
    def additive(self) -> bool:
        """Whether sites' parts start from rows, and not from moments of the variables."""
        return self.model == "additive"

    @property
    def networks(self) -> bool:
        """Whether every variable has a network, fitted to rows in memory."""
        return self.model in ("mlp", "masked")

    @property
    def dynamic(self) -> bool:
        """Whether the data are time series."""
        return self.model == "dynamic"

    @property
    def past(self) -> int:
        """The order of the model: how many steps back effects reach."""
        return int(self.effective["lags"]) if self.dynamic else 0

    @property
    def replicates(self) -> int:
        """How many bootstrap replicates follow the answer."""
        return 0 if self.bootstrap is None else int(self.bootstrap)

    @property
    def _resampling(self) -> dict[str, Any]:
        """What is given for a bootstrap.  No model or learner is told of it."""
        given = {"bootstrap": _plain(self.bootstrap), "seed": _plain(self.seed)}
        return {} if self.bootstrap is None else {name: value for name, value in given.items() if value is not None}

    @property
    def effective(self) -> Mapping[str, Any]:
        """The options that count in this run, with their defaults filled in."""
        given = {name: _plain(value) for name, value in asdict(self).items() if value is not None}
        if self.hidden is not None:
            given["hidden"] = _as_widths(given["hidden"])
        return {name: given.get(name, default) for name, default in self._defaults().items()}

    @property
    def settings(self) -> dict[str, Any]:
        """All that was decided, for the result."""
        chosen = {"model": self.model, "method": self.method, "preset": self.preset}
        if self.method != "admm" and not self.additive and not self.networks:
            chosen["learner"] = self.chosen_learner
        known = {"knowledge": self.knowledge} if self.known is not None else {}
        return chosen | dict(self.effective) | self._resampling | known

    @cached_property
    def known(self) -> Knowledge | None:
        """Prior knowledge by name; None without."""
        found = Knowledge() if self.knowledge is None else parse_csv(self.knowledge)
        return found if found else None

    def constraints(self, names: tuple[str, ...]) -> Constraints | None:
        """Prior knowledge about the columns; of time series, about effects within a time step."""
        return None if self.known is None else self.known.constraints(names[: len(names) // (self.past + 1)])

    @property
    def chosen_learner(self) -> str:
        """Of totals, of pooled rows or of single sites."""
        if self.learner is not None:
            return self.learner
        if self.dynamic:
            return "notears"
        return DEFAULT_LEARNER if (self.method, self.preset) == ("covariance", "default") else "notears"

    @property
    def published(self) -> bool:
        """Whether NOTEARS is solved as published: by the paper's preset, on all rows together.

        It is too slow on sites with few rows: those that learn alone follow the path, polish included, in any preset.
        """
        return self.preset == "paper" and self.method in ("covariance", "pooled")

    def _defaults(self) -> Mapping[str, Any]:
        if self.additive:
            return ADDITIVE_DEFAULTS
        if self.model == "masked":
            return MASKED_PUBLISHED if self.preset == "paper" else MASKED_DEFAULTS
        if self.networks:
            if self.preset == "paper":
                return NETWORK_PAPER if self.method == "admm" else NETWORK_PUBLISHED
            # A site alone has few rows: many edges, all of which a polish would try, and none that it could trust.
            return NETWORK_DEFAULTS | ({"polish": False} if self.method in ("voting", "average") else {})
        if not self.dynamic:
            # Where the server has the moments of all rows, parameters cost nothing; else they cost a round.
            return self._linear_defaults() | {"refit": self.method in ("covariance", "pooled")}
        within = {name: value for name, value in self._linear_defaults().items() if name not in ("intercept", "score")}
        return within | {"lags": 1} | ({} if self.lags == 0 else LAG_DEFAULTS)

    def _linear_defaults(self) -> dict[str, Any]:
        if self.method == "admm":
            return dict(ADMM_PAPER if self.preset == "paper" else self._admm_defaults())
        defaults = dict(LEARNERS[self.chosen_learner].defaults)
        if self.chosen_learner == "golem" and self.score == "likelihood":
            defaults["lam"] = UNEQUAL_LAM
        if self.published:
            del defaults["standardize"], defaults["device"]  # as published
            defaults["polish"] = False
        return defaults

    def _admm_defaults(self) -> Mapping[str, Any]:
        return ADMM_LIKELIHOOD if self.score == "likelihood" and not self.dynamic else ADMM_DEFAULTS

    @property
    def unequal(self) -> bool:
        """Whether ADMM maximises the likelihood for noise of any variances, and so finds a class."""
        return self.method == "admm" and self.effective.get("score") == "likelihood"

    @property
    def in_units(self) -> bool:
        """Whether the directions rest on the units of the columns."""
        chosen = self.effective
        return "lam" in chosen and not self.networks and not chosen.get("standardize", False)

    def _check_auto(self) -> None:
        for name in ("lam", "threshold"):
            if self.effective.get(name) != AUTO:
                continue
            if self.dynamic or self.networks or self.preset == "paper":
                raise InputError(f"{name}: 'auto' is for model 'linear' and preset 'default'; give a number")
            if self.method == "average" and name == "threshold":
                raise InputError("threshold: 'auto' needs totals that method 'average' does not have; give a number")
            if self.method == "admm" and not self.effective["polish"]:
                raise InputError(f"{name}: 'auto' needs the polish of method 'admm'; leave polish on, or give a number")

    def _check_combination(self) -> None:
        if self.method == "admm" and self.learner is not None:
            raise InputError("learner: method 'admm' has its own; leave it out, or choose another method")
        if self.preset == "paper" and self.method != "admm" and self.chosen_learner != "notears":
            raise InputError(f"preset: 'paper' is NOTEARS; leave it out with learner {self.chosen_learner!r}")
        if self.method == "average" and LEARNERS[self.chosen_learner].classes:
            raise InputError(
                f"method: 'average' needs weights that can be averaged; learner {self.chosen_learner!r} gives "
                "equivalence classes: use 'voting'"
            )
        if self.dynamic and self.method != "admm" and self.chosen_learner != "notears":
            raise InputError(f"learner: {self.learner!r} does not fit model 'dynamic'; leave it out ('notears')")

    def _check_nonlinear(self) -> None:
        methods = ADDITIVE_METHODS if self.additive else NETWORK_METHODS
        if self.method not in methods:
            choices = ", ".join(map(repr, methods))
            raise InputError(f"method: {self.method!r} does not fit model {self.model!r}; choose from {choices}")
        if self.preset != "default" and self.additive:
            raise InputError(f"preset: {self.preset!r} does not know model 'additive'; leave it out")
        if self.preset != "default" and (self.model, self.method) == ("masked", "admm"):
            raise InputError(f"preset: {self.preset!r} gives no figures for model 'masked'; leave it out")
        if self.preset != "default" and self.networks and self.method in ("voting", "average"):
            raise InputError(f"preset: {self.preset!r} is for methods 'admm' and 'pooled' here; leave it out")
        if self.learner is not None:
            raise InputError(f"learner: model {self.model!r} has its own; leave it out")

    def _check_knowledge(self) -> None:
        if isinstance(self.knowledge, Knowledge):  # as from a notebook
            object.__setattr__(self, "knowledge", write_csv(self.knowledge))
        if self.knowledge is not None and not isinstance(self.knowledge, str):
            raise InputError("knowledge: must be a dagora.Knowledge or the path of a file; see docs/knowledge.md")
        if self.known is None:
            return
        if self.model not in KNOWING_MODELS:
            models = ", ".join(map(repr, KNOWING_MODELS))
            raise InputError(f"knowledge: model {self.model!r} has no use for it; choose from {models}")
        if (self.method, self.preset) == ("admm", "paper"):
            raise InputError("knowledge: the paper's ADMM has no place for it; use preset 'default', or leave it out")

    def _who(self) -> str:
        if self.additive or self.networks:
            return f"model {self.model!r}"
        if self.dynamic:
            return "model 'dynamic'" + (" without lags" if self.lags == 0 else "")
        if self.method != "admm":
            return f"learner {self.chosen_learner!r}"
        score = " and score 'likelihood'" if self.score == "likelihood" else ""
        return f"method 'admm' with preset {self.preset!r}{score}"


def _known(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{option}: there is no {value!r}; choose from {', '.join(choices)}")


def _check_values(options: Mapping[str, Any], scores: tuple[str, ...]) -> None:
    for name, value in options.items():
        if name in _CHOSEN and value == AUTO:
            continue
        if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InputError(f"{name}: must be a number{' or auto' if name in _CHOSEN else ''}")
        if name in ("polish", "intercept", "refit", "standardize") and not isinstance(value, bool):
            raise InputError(f"{name}: must be True or False")
        if name == "hidden" and not _widths(value):
            raise InputError(
                f"hidden: must be the number of units of each hidden layer, 1 to {MOST_UNITS}, such as 10 or (20, 10)"
            )
        if name == "seed" and (
            isinstance(value, bool) or not isinstance(value, Integral) or not 0 <= int(value) < 2**63
        ):
            raise InputError("seed: must be a whole number, 0 or more and below 2^63")
        if name == "bootstrap" and (
            isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= MOST_REPLICATES
        ):
            raise InputError(f"bootstrap: must be a whole number of replicates, 1 to {MOST_REPLICATES}")
        if name == "device" and not isinstance(value, str):
            raise InputError("device: must be the name of a torch device, such as 'cpu' or 'cuda'")
        if name == "lags" and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_LAGS):
            raise InputError(f"lags: must be a whole number, 0 to {MOST_LAGS}")
        if name in ("lam", "threshold", "lag_lam", "lag_threshold", "ridge") and not 0.0 <= value < float("inf"):
            raise InputError(f"{name}: must be a finite number, 0 or more")
        if name == "penalty" and not 0.0 < value < float("inf"):
            raise InputError("penalty: must be a finite number above 0")
        if name == "alpha" and not 0.0 < value < 1.0:
            raise InputError("alpha: must lie between 0 and 1")
        if name == "score":
            _known("score", value, scores)


def _as_widths(hidden: Any) -> Any:
    """10 or [20, 10] as a tuple of plain numbers; what is neither, as it is, to be refused."""
    if isinstance(hidden, list | tuple):
        return tuple(map(_plain, hidden))
    return (hidden,) if isinstance(hidden, Integral) else hidden


def _plain(value: Any) -> Any:
    """A number or array of numpy's as one of Python's, so that it can be written down."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _widths(hidden: Any) -> bool:
    """Whether these can be the widths of layers."""
    if not isinstance(hidden, tuple) or not hidden:
        return False
    return all(isinstance(u, Integral) and not isinstance(u, bool) and 0 < int(u) <= MOST_UNITS for u in hidden)
