"""Dagora learns the structure of a Bayesian network from data that stays where it is: only sums leave the sites."""

import logging
from typing import TYPE_CHECKING, Any

from dagora.data.dynamic_simulation import simulate_series
from dagora.data.sachs_data import load_sachs
from dagora.data.simulate import Truth, simulate
from dagora.errors import ConvergenceWarning, DagoraError, InputError, MessageError, NumericalError, ScaleWarning
from dagora.gaussian_network import GaussianNetwork
from dagora.interchange.registry import read_graph
from dagora.knowledge import Knowledge
from dagora.lag_order import select_lags
from dagora.learn import learn
from dagora.metrics import evaluate
from dagora.result import Result
from dagora.version import __version__

if TYPE_CHECKING:
    from dagora.estimator import FederatedDAG

__all__ = [
    "ConvergenceWarning",
    "DagoraError",
    "FederatedDAG",
    "GaussianNetwork",
    "InputError",
    "Knowledge",
    "MessageError",
    "NumericalError",
    "Result",
    "ScaleWarning",
    "Truth",
    "__version__",
    "evaluate",
    "learn",
    "load_sachs",
    "read_graph",
    "select_lags",
    "simulate",
    "simulate_series",
]

logging.getLogger("dagora").addHandler(logging.NullHandler())  # lines are for those who ask for them


def __getattr__(name: str) -> Any:
    """Import the estimator when it is asked for: scikit-learn is an extra."""
    if name == "FederatedDAG":
        from dagora.estimator import FederatedDAG

        return FederatedDAG
    raise AttributeError(f"module 'dagora' has no attribute {name!r}")
