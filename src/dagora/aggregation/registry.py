"""The aggregations by name."""

from collections.abc import Callable
from dataclasses import dataclass

from dagora.aggregation.cohort import Cohort
from dagora.aggregation.encrypted import Encrypted
from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.masked import Masked
from dagora.aggregation.plain import Plain
from dagora.aggregation.shared import Shared
from dagora.errors import InputError
from dagora.federated.protocol import Aggregation

GAUSSIAN = "gaussian"
DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class Privacy:
    """How much a row may be given away in a whole run; `colluders` sites may pool what they know (None: half)."""

    epsilon: float
    delta: float = DEFAULT_DELTA
    colluders: int | None = None

    def held_against(self, sites: int) -> int:
        """How many of so many sites may collude."""
        return sites // 2 if self.colluders is None else self.colluders


def _exact(make: Callable[[Cohort], Aggregation]) -> Callable[[Cohort, Privacy | None], Aggregation]:
    return lambda cohort, privacy: make(cohort)


def _gaussian(cohort: Cohort, privacy: Privacy | None) -> Gaussian:
    assert privacy is not None
    # Under masks always: each site adds a part of the noise only, which protects totals but not single summands.
    # And under masks that cancel only if all sites were told the same noise.
    colluders = privacy.held_against(len(cohort.sites))
    noisy = cohort.under(epsilon=privacy.epsilon, delta=privacy.delta, colluders=colluders)
    return Gaussian(Masked(noisy), len(cohort.sites), privacy.epsilon, privacy.delta, colluders)


AGGREGATIONS: dict[str, Callable[[Cohort, Privacy | None], Aggregation]] = {
    "plain": _exact(lambda cohort: Plain()),
    "masked": _exact(Masked),
    "shared": _exact(Shared),
    "encrypted": _exact(Encrypted),
    GAUSSIAN: _gaussian,
}


def check_privacy(
    aggregation: str, epsilon: float | None, delta: float | None, colluders: int | None
) -> Privacy | None:
    """The options of differential privacy; refused where they would do nothing, and demanded where they are needed."""
    if aggregation not in AGGREGATIONS:
        raise InputError(f"aggregation: there is no {aggregation!r}; choose from {', '.join(AGGREGATIONS)}")
    if aggregation == GAUSSIAN:
        if epsilon is None:
            raise InputError("epsilon: aggregation 'gaussian' needs it: the privacy loss allowed, for instance 1")
        return Privacy(epsilon, DEFAULT_DELTA if delta is None else delta, colluders)
    for name, value in {"epsilon": epsilon, "delta": delta, "colluders": colluders}.items():
        if value is not None:
            raise InputError(f"{name}: only aggregation 'gaussian' has a use for it; leave it out")
    return None
