"""A job as an administrator asks for it: a method and parameters by name, and nothing that could be run.

A plan has `learn`'s options, less those that are a site's own (data, policy, ledger, threads, device).  Whoever reads
one, be it a file, the server or a site, makes it anew from its fields: what is not on the list is refused there.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from dagora.aggregation.registry import Privacy, check_privacy
from dagora.algorithms.options import Options
from dagora.assembly import check_combination, with_default_learner
from dagora.errors import InputError
from dagora.federated.policy import MOVES_ROWS, Job
from dagora.interchange.knowledge_files import known_as_text
from dagora.knowledge import Knowledge

_SITES_OWN = ("device",)
_KINDS = {
    "aggregation": str, "epsilon": int | float, "delta": int | float, "colluders": int, "series": str, "time": str,
    "sites": tuple, "deadline": int | float, "working": int | float,
}  # fmt: skip
_LONGEST = 1 << 20  # characters of a plan; what is known of a hundred variables needs a tenth
_OPTIONS = tuple(field.name for field in fields(Options) if field.name not in _SITES_OWN)


@dataclass(frozen=True)
class Plan:
    """What is asked of the sites, checked as it is made."""

    options: Mapping[str, Any]  # those of Options that are given
    aggregation: str = "masked"
    epsilon: float | None = None
    delta: float | None = None
    colluders: int | None = None
    series: str | None = None
    time: str | None = None
    sites: tuple[str, ...] = ()  # none: all that the server knows of
    deadline: float = 600.0  # seconds that a site may stay away before the run stops
    working: float = 3600.0  # seconds that a site may work on one answer before the run stops

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise InputError(f"{name}: is of the wrong kind; see docs/federation.md")
        if self.settings.method == MOVES_ROWS:
            raise InputError(f"method: {MOVES_ROWS!r} would move rows; choose another")
        check_combination(self.settings, self.privacy)
        if self.settings.replicates and self.settings.seed is not None and not self.settings.networks:
            raise InputError("seed: in a federation each site draws rows by a secret of its own; leave it out")
        for name in ("series", "time"):
            if getattr(self, name) is not None and not self.settings.dynamic:
                raise InputError(f"{name}: model {self.settings.model!r} has no use for it; leave it out")
        for name in ("deadline", "working"):
            if not 0 < getattr(self, name) < 1e9:
                raise InputError(f"{name}: must be a number of seconds over 0")
        if len(self.settings.knowledge or "") > _LONGEST // 2:
            raise InputError(f"knowledge: is longer than {_LONGEST // 2} characters; say it by tiers")
        if not all(isinstance(site, str) and site for site in self.sites) or len(set(self.sites)) < len(self.sites):
            raise InputError("sites: must be a list of different names")

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Plan":
        """From keys and values; every one must be known."""
        if isinstance(found.get("knowledge"), Knowledge):
            found = {**found, "knowledge": known_as_text(found["knowledge"])}
        own = [field.name for field in fields(cls) if field.name != "options"]
        for key in found:
            if key not in own and key not in _OPTIONS:
                raise InputError(f"job: there is no key {key!r}; choose from {', '.join([*_OPTIONS, *own])}")
        parts = [part for value in found.values() for part in (value if isinstance(value, list) else [value])]
        if any(isinstance(part, list | dict) for part in parts):
            raise InputError("job: a value is of the wrong kind; see docs/federation.md")
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in found.items() if n in own}
        options = {name: tuple(v) if isinstance(v, list) else v for name, v in found.items() if name in _OPTIONS}
        try:
            return cls(options, **values)
        except TypeError:
            raise InputError("job: a value is of the wrong kind; see docs/federation.md") from None

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """From job.toml.  A file of knowledge, named as seen from there, is read now: the plan has what is in it."""
        where = f"job {str(path)!r}"
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
            if isinstance(found.get("knowledge"), str):
                found["knowledge"] = known_as_text(path.parent / found["knowledge"])
            return cls.of(found)
        except OSError as error:
            raise InputError(f"{where}: cannot be read: {error.strerror}; check the path") from None
        except InputError as error:
            raise InputError(f"{where}: {str(error).removeprefix('job: ')}") from None
        except ValueError as error:
            raise InputError(f"{where}: is not valid TOML: {error}; correct it") from None

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """As it came over the network."""
        try:
            found = json.loads(text) if len(text) <= _LONGEST else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise InputError("job refused: it is not a list of keys and values")
        return cls.of(found)

    def with_changes(self, changes: Mapping[str, Any]) -> "Plan":
        """The same with some keys changed."""
        return self.of({**json.loads(self.to_json()), **changes})

    def to_json(self) -> str:
        """For the network; the same plan gives the same text."""
        given = {name: value for name, value in asdict(self).items() if name != "options" and value not in (None, ())}
        return json.dumps({**self.options, **given}, sort_keys=True)

    @cached_property
    def privacy(self) -> Privacy | None:
        """The options of differential privacy."""
        return check_privacy(self.aggregation, self.epsilon, self.delta, self.colluders)

    @cached_property
    def settings(self) -> Options:
        """The options of learning."""
        given = dict(self.options)
        model, method = str(given.get("model", "linear")), str(given.get("method", "admm"))
        given["learner"] = with_default_learner(given.get("learner"), model, method, self.privacy)
        return Options(**given)

    def job(self, run: str, by: str) -> Job:
        """What a site's policy is asked about; `by` is the administrator who has signed the run."""
        replicates = self.settings.replicates
        if self.privacy is None:
            return Job(run, self.settings.method, self.aggregation, self.sites, None, None, replicates, None, by)
        return Job(
            run, self.settings.method, self.aggregation, self.sites, self.epsilon, self.privacy.delta, replicates,
            self.privacy.held_against(len(self.sites)), by,
        )  # fmt: skip
