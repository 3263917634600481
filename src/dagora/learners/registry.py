"""The learners by name: which options each heeds, and with which defaults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec

from dagora.data.moments import Moments
from dagora.data.wording import listing
from dagora.errors import InputError
from dagora.learners.base import CollinearError, Learned, Learner, LearnerOptions
from dagora.learners.boss import boss
from dagora.learners.exact import exact
from dagora.learners.ges import ges
from dagora.learners.golem import EQUAL_LAM, golem
from dagora.learners.notears import notears
from dagora.learners.pc import pc

Arguments = ParamSpec("Arguments")

SCORES = ("least-squares", "likelihood")
UNITS = {"standardize": False}  # heeded where units matter


@dataclass(frozen=True)
class Entry:
    """A learner, the options that it heeds with their defaults, and whether it gives equivalence classes."""

    learner: Learner
    defaults: Mapping[str, Any]
    classes: bool


LEARNERS = {
    "boss": Entry(boss, {"penalty": 2.0}, classes=True),
    "ges": Entry(ges, {"penalty": 1.0}, classes=True),
    "exact": Entry(exact, {"penalty": 1.0}, classes=True),
    "pc": Entry(pc, {"alpha": 0.05}, classes=True),
    "notears": Entry(notears, {"lam": 0.1, "threshold": 0.3, "polish": True, **UNITS, "device": "cpu"}, classes=False),
    "golem": Entry(golem, {"lam": EQUAL_LAM, "threshold": 0.3, "score": "least-squares", **UNITS}, classes=False),
}


def with_names(learner: Learner, options: LearnerOptions, names: tuple[str, ...]) -> Callable[[Moments], Learned]:
    """The learner as algorithms call it: from moments; what it says of columns, it says by name."""
    return naming_columns(lambda moments: learner(moments, options), names)


def naming_columns(learner: Callable[Arguments, Learned], names: tuple[str, ...]) -> Callable[Arguments, Learned]:
    """The same learner, which knows what columns are called."""

    def learn(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Learned:
        try:
            return learner(*arguments, **keywords)
        except CollinearError as error:
            columns = listing([names[j] for j in error.columns], most=6)
            raise InputError(
                f"columns {columns} determine each other by a linear relation (to 1e-9 of the variance); remove one"
            ) from error

    return learn
