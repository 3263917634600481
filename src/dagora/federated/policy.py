"""What a site allows, in a TOML file that its data owner keeps; the site checks it before anything leaves.

A coordinator can only ask.  `Policy.admit` says whether a site joins a run, `Policy.release` whether a summand may
leave; both raise a PolicyError that names the rule, what was asked and what is allowed.  Nothing here knows an
algorithm: the rules are about counts of rows, sites, values, rounds and runs.

A refusal may travel to the coordinator, which could ask until it knows at what number of rows the site refuses.  So
rules that depend on the rows come last, share one wording, and raise a RowsPolicyError: the guard charges it as a run.

The defaults are norms of the field, floors and not proofs: DataSHIELD refuses subsets of fewer than 3 rows
(nfilter.subset) and models of more than 0.33 parameters a row (nfilter.glm), and algorithms of vantage6 ask for 3 or
more organisations.  They are for networked use; a simulation has no policy.
"""

import json
import logging
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from dagora.errors import DagoraError, InputError

MOVES_ROWS = "pooled"  # the one method that no policy can allow
NOISY = ("gaussian",)  # the aggregations whose releases are differentially private
DEFAULT_RUNS = 10
MAX_NAME = 200  # characters; what a coordinator names is written to the ledger

_LOG = logging.getLogger("dagora.site")  # for the site's own eyes
_ROUNDING = 1e-9  # three runs of epsilon 0.1 fit a budget of 0.3, though 0.1 + 0.1 + 0.1 > 0.3 in doubles


class PolicyError(DagoraError):
    """What was asked is against the site's policy: nothing has left."""


class RowsPolicyError(PolicyError):
    """The site has too few rows for what was asked: a refusal that depends on its data."""

    @classmethod
    def of(cls, rule: str) -> "RowsPolicyError":
        """Worded the same for every rule; which one it was is for the site's own log."""
        _LOG.warning("too few rows for the rule %s of this site's policy", rule)
        return cls(
            "policy: this site has too few rows for what is asked (minimum_rows, parameters_per_row and "
            "replicates_per_row: the site's own log says which); use fewer variables or replicates, or ask the site"
        )


@dataclass(frozen=True)
class Job:
    """What a site is asked to join.  It comes from outside, so it is checked as it is made."""

    run: str
    method: str
    aggregation: str
    sites: tuple[str, ...]
    epsilon: float | None = None  # of the whole run; None without differential privacy
    delta: float | None = None
    replicates: int = 0  # of a bootstrap
    colluders: int | None = None  # sites that may pool what they know without harm; None without noise
    by: str = ""  # the administrator who has signed the run; nobody in one process

    def __post_init__(self) -> None:
        names = (self.run, self.method, self.aggregation, *self.sites)
        if type(self.sites) is not tuple or not all(
            isinstance(name, str) and 0 < len(name) <= MAX_NAME for name in names
        ):
            raise PolicyError(
                f"job refused: run, method, aggregation and sites are names of 1 to {MAX_NAME} characters"
            )
        if len(set(self.sites)) < len(self.sites):
            raise PolicyError("job refused: two sites have the same name; rename one")
        if (self.epsilon is None) != (self.delta is None):
            raise PolicyError("job refused: epsilon and delta are given together or not at all")
        # A negative epsilon would give back budget, and NaN would pass any comparison.
        if self.epsilon is not None and not (_positive(self.epsilon) and _probability(self.delta)):
            raise PolicyError("job refused: epsilon must be over 0 and finite, delta from 0 to below 1")
        if self.epsilon is not None and self.aggregation not in NOISY:
            raise PolicyError(f"job refused: aggregation {self.aggregation!r} adds no noise, so it has no epsilon")
        if type(self.replicates) is not int or self.replicates < 0:
            raise PolicyError("job refused: replicates must be a whole number, 0 or more")
        if self.replicates and self.epsilon is not None:
            raise PolicyError("job refused: every bootstrap replicate would spend epsilon again")
        if self.colluders is not None and not _whole(self.colluders):
            raise PolicyError("job refused: colluders must be a whole number, 0 or more")
        if not isinstance(self.by, str) or len(self.by) > MAX_NAME:
            raise PolicyError(f"job refused: an administrator's name has {MAX_NAME} characters at most")


class Spent(NamedTuple):
    """What was taken from the same data before: runs, and their privacy loss by plain composition."""

    epsilon: float = 0.0  # infinite once a run had no differential privacy
    delta: float = 0.0
    runs: int = 0  # and refusals that depended on the data
    cohort: frozenset[str] = frozenset()  # the sites of the last run; none before the first
    introductions: int = 0  # of the last day


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _probability(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _count(value: object) -> bool:
    return type(value) is int and value >= 1


def _whole(value: object) -> bool:
    return type(value) is int and value >= 0


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) and name for name in value)


def _rule(default: Any, valid: Callable[[object], bool], must: str, says: str, example: Any = None) -> Any:
    """A field of a policy with all that is to be said of it; one with an example may be left unset (None)."""
    return field(default=default, metadata={"valid": valid, "must": must, "says": says, "example": example})


_COUNT = "a whole number, 1 or more"
_LIST = 'a list of names, such as ["covariance"]'


@dataclass(frozen=True)
class Policy:
    """The rules of one site.  `Policy()` has the defaults, `Policy.read` a file, `to_toml` a file to start from."""

    minimum_rows: int = _rule(3, _count, _COUNT, "with fewer rows this site joins no run")
    parameters_per_row: float = _rule(
        0.33, _positive, "a number over 0", "most values in one summand, for each row here"
    )
    minimum_sites: int = _rule(
        3, _count, _COUNT, "fewest sites in a run, this one included, and in any part of them that a total is over"
    )
    same_cohort: bool = _rule(
        True, _flag, "true or false", "all runs on these data have the same sites: two that differ by one reveal it"
    )
    methods: tuple[str, ...] = _rule(
        ("covariance", "admm", "voting", "average"), _names, _LIST, 'allowed; "pooled" would move rows and never is'
    )
    aggregations: tuple[str, ...] = _rule(
        ("masked", "shared", "encrypted", "gaussian"), _names, _LIST, '"plain" shows the server each summand'
    )
    rounds: int = _rule(1000, _count, _COUNT, "most rounds in one run; of a bootstrap, in each replicate")
    attempts: int = _rule(20, _count, _COUNT, "most answers to one round: retries, each protected anew")
    runs: int = _rule(DEFAULT_RUNS, _count, _COUNT, "most runs over the life of the data")
    introductions: int = _rule(50, _count, _COUNT, "most introductions in 24 hours; they come before a run")
    colluders: float = _rule(
        0.5, _share, "a number from 0 to below 1", "least share of the sites that noise must hold against"
    )
    epsilon: float | None = _rule(
        None, _positive, "a number over 0", "privacy budget over the life of the data; unset: none is asked for", 1.0
    )
    delta: float | None = _rule(
        None, _probability, "a number from 0 to below 1", "the budget's other half; set both or neither", 1e-6
    )
    replicates: int = _rule(
        200, _whole, "a whole number, 0 or more", "most bootstrap replicates in one run; 0 for none"
    )
    replicates_per_row: float = _rule(0.5, _positive, "a number over 0", "most bootstrap replicates, for each row here")

    def __post_init__(self) -> None:
        for rule in fields(self):
            value, unset = getattr(self, rule.name), rule.metadata["example"] is not None
            if not (rule.metadata["valid"](value) or (unset and value is None)):
                raise InputError(f"policy: {rule.name} must be {rule.metadata['must']}; correct it, or leave it out")
        if MOVES_ROWS in self.methods:
            raise InputError(f"policy: methods must not list {MOVES_ROWS!r}, which would move rows; take it out")
        if (self.epsilon is None) != (self.delta is None):
            missing = "delta" if self.delta is None else "epsilon"
            raise InputError(f"policy: {missing} is missing; a budget needs epsilon and delta, set both or neither")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Policy":
        """Read a TOML file; what it leaves out has its default, and what it gets wrong is refused in one line."""
        where = f"policy {os.fspath(path)!r}"
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{where}: cannot be read: {error.strerror}; check the path") from None
        except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
            raise InputError(f"{where}: is not valid TOML: {error}; correct it") from None
        known = [rule.name for rule in fields(cls)]
        for key in found:
            if key not in known:
                raise InputError(f"{where}: there is no key {key!r}; choose from {', '.join(known)}")
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in found.items()}
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{where}: {str(error).removeprefix('policy: ')}") from None

    def to_toml(self) -> str:
        """The policy as a file with a comment on every line; `Policy().to_toml()` is one to start from."""
        lines = []
        for rule in fields(self):
            value, says = getattr(self, rule.name), rule.metadata["says"]
            shown = rule.metadata["example"] if value is None else value
            mark = "# " if value is None else ""
            lines.append(f"{mark}{rule.name} = {json.dumps(shown, ensure_ascii=False)}  # {says}\n")
        return "".join(lines)

    def admit(self, job: Job, rows: int | None, spent: Spent) -> None:
        """Join the run, or raise.

        rows: the site's; None for the rules alone that do not depend on its data.
        spent: what its ledger says of earlier runs.
        """
        if job.method == MOVES_ROWS:
            raise PolicyError(f"policy: method {MOVES_ROWS!r} is never allowed: it would move rows")
        for rule, asked, allowed in (
            ("method", job.method, self.methods),
            ("aggregation", job.aggregation, self.aggregations),
        ):
            if asked not in allowed:
                raise PolicyError(
                    f"policy: {rule} {asked!r} is not allowed here (allowed: {', '.join(allowed) or 'none'})"
                )
        if len(job.sites) < self.minimum_sites:
            raise PolicyError(f"policy: {len(job.sites)} sites are too few here (minimum_sites: {self.minimum_sites})")
        if self.same_cohort and spent.cohort and frozenset(job.sites) != spent.cohort:
            raise PolicyError(
                "policy: earlier runs on these data had other sites, and two totals that differ by a site reveal it "
                "(same_cohort); run with the same sites"
            )
        if job.colluders is not None and job.colluders < math.floor(self.colluders * len(job.sites)):
            raise PolicyError(
                f"policy: noise that holds against {job.colluders} colluding sites of {len(job.sites)} is too little "
                f"here (colluders: {self.colluders})"
            )
        if spent.runs >= self.runs:
            raise PolicyError(f"policy: one more run after {spent.runs} is not allowed here (runs: {self.runs})")
        if job.replicates > self.replicates:
            raise PolicyError(
                f"policy: {job.replicates} bootstrap replicates are not allowed here (replicates: {self.replicates})"
            )
        self._within_budget(job, spent)
        if rows is not None and rows < self.minimum_rows:
            raise RowsPolicyError.of("minimum_rows")
        if rows is not None and job.replicates > self.replicates_per_row * rows:
            raise RowsPolicyError.of("replicates_per_row")

    def introduce(self, spent: Spent) -> None:
        """Answer one more question about a run to come, or raise."""
        if spent.introductions >= self.introductions:
            raise PolicyError(
                f"policy: {spent.introductions} introductions in 24 hours are enough here "
                f"(introductions: {self.introductions}); try again later"
            )

    def release(self, shapes: Mapping[str, tuple[int, ...]], rows: int, round: int, attempt: int = 1) -> None:
        """Let a summand of fields with these shapes leave in this round and attempt (the first is 1), or raise.

        round: in a bootstrap counted anew in each replicate.
        """
        if round > self.rounds:
            raise PolicyError(f"policy: round {round} is not allowed here (rounds: {self.rounds})")
        if attempt > self.attempts:
            raise PolicyError(f"policy: a round is not answered {attempt} times here (attempts: {self.attempts})")
        values = sum(math.prod(shape) for shape in shapes.values())
        if values / max(rows, 1) > self.parameters_per_row:  # a quotient: 33 / 100 is 0.33 to the last bit
            raise RowsPolicyError.of("parameters_per_row")

    def check_parts(self, cohort: Iterable[str], subsets: Iterable[frozenset[str]]) -> None:
        """Let totals over these subsets of a cohort leave, or raise.

        Differences of totals are totals, too.  So what counts are the smallest parts that all subsets together cut the
        cohort into: each must hold enough sites.
        """
        parts = [frozenset(cohort)]
        for subset in subsets:
            parts = [part for whole in parts for part in (whole & subset, whole - subset) if part]
        if len(parts) > 1 and min(map(len, parts)) < self.minimum_sites:
            raise PolicyError(
                f"policy: a total over a part of the sites must leave {self.minimum_sites} sites or more on either "
                "side, together with all earlier ones (minimum_sites)"
            )

    def _within_budget(self, job: Job, spent: Spent) -> None:
        """Plain composition: the losses of runs on the same data add up."""
        if self.epsilon is None or self.delta is None:
            return
        budget = f"(budget: epsilon {self.epsilon}, delta {self.delta})"
        if job.epsilon is None or job.delta is None:
            raise PolicyError(f"policy: a run without differential privacy is not allowed here {budget}")
        if spent.epsilon == math.inf:
            raise PolicyError(
                f"policy: earlier runs here were not differentially private, so no budget is left {budget}"
            )
        for name, asked, earlier, allowed in (
            ("epsilon", job.epsilon, spent.epsilon, self.epsilon),
            ("delta", job.delta, spent.delta, self.delta),
        ):
            if asked + earlier > allowed * (1.0 + _ROUNDING):
                raise PolicyError(f"policy: {name} {asked} is not allowed here after {earlier} {budget}")
