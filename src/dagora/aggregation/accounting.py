"""From (epsilon, delta) to a zCDP budget rho and back.

Gaussian noise of variance s^2 on a sum of L2 sensitivity D is D^2 / (2 s^2)-zCDP (Bun and Steinke 2016), and so is
discrete Gaussian noise on a sum of integers (Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential
privacy").  Budgets of rounds add up, also where earlier answers decide what is asked next and how much of the budget
it gets, if someone refuses what would exceed it (a filter: Feldman and Zrnic 2021, "Individual privacy accounting via
a Renyi filter").  rho-zCDP means a Renyi divergence of at most rho a at every order a; dp-accounting turns that into
epsilon at delta.
"""

import math
from functools import lru_cache

import numpy as np

from dagora.errors import DagoraError, InputError

MISSING = "noise for differential privacy needs two more packages: pip install 'dagora[privacy]'"

_ORDERS = tuple((1.0 + np.geomspace(1e-3, 1e6, 400)).tolist())  # any order gives a valid epsilon; the least counts
_SMALLEST, _LARGEST = 1e-14, 1e6  # rho; nobody needs noise outside this range


def budget(epsilon: float, delta: float) -> float:
    """The largest rho that is (epsilon, delta)-differentially private, rounded down."""
    check(epsilon, delta)
    return _budget(float(epsilon), float(delta))


@lru_cache(maxsize=32)
def _budget(epsilon: float, delta: float) -> float:
    low, high = math.log(_SMALLEST), math.log(_LARGEST)
    if spent(_SMALLEST, delta) > epsilon:
        raise InputError(f"epsilon: {epsilon:g} at delta {delta:g} is too small for any answer; raise one of them")
    if spent(_LARGEST, delta) <= epsilon:
        raise InputError(f"epsilon: {epsilon:g} protects nothing; choose one below 100, or aggregation 'masked'")
    while high - low > 1e-7:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if spent(math.exp(middle), delta) <= epsilon else (low, middle)
    return math.exp(low)


def spent(rho: float, delta: float) -> float:
    """Epsilon at delta of releases that are rho-zCDP together."""
    if rho == 0.0:
        return 0.0
    try:
        from dp_accounting import ZCDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise DagoraError(MISSING) from None
    return float(RdpAccountant(_ORDERS).compose(ZCDpEvent(rho)).get_epsilon(delta))


def check(epsilon: float, delta: float) -> None:
    """Refuse what promises nothing."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0.0 < epsilon < math.inf:
        raise InputError("epsilon: must be a finite number above 0")
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0.0 < delta < 1.0:
        raise InputError("delta: must lie between 0 and 1, well below one over the number of rows")
