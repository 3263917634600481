"""From a finished run to a Result, in one process and on a network alike."""

import warnings
from collections.abc import Mapping

import numpy as np

from dagora.aggregation.gaussian import Gaussian
from dagora.algorithms.options import Options
from dagora.arrays import IntArray
from dagora.errors import ConvergenceWarning, ScaleWarning
from dagora.federated.protocol import Aggregation, Estimate
from dagora.federated.run import Run
from dagora.gaussian_network import GaussianNetwork
from dagora.graphs import break_cycles
from dagora.result import Result
from dagora.sortability import sortability
from dagora.version import __version__

_FOLLOWS, _FEW_EDGES = 0.9, 5  # fewer edges follow anything by chance
_SCALE = (
    "directions follow the columns' variances (varsortability {:.2f}): least squares takes what varies more for an "
    "effect, so they hold only if the units are meant; else use method 'covariance' or score 'likelihood'"
)


def conclude(
    outcome: Run,
    options: Options,
    names: tuple[str, ...],
    aggregation: str,
    protection: Aggregation,
    sites: tuple[str, ...],
    rows: Mapping[str, int],
    told: tuple[str, ...] = (),
) -> Result:
    """Read the graph off the estimate, break cycles, and say what was decided.

    rows: of each site, where they may be known.  told: warnings from before the run.
    """
    estimate = outcome.estimate
    d = len(names) // (options.past + 1)  # below the first d rows, weights of the past: no cycles there
    adjacency, removed = break_cycles(estimate.edges[:d], estimate.strength[:d])
    told += estimate.warnings
    for text in told:
        warnings.warn(text, ConvergenceWarning, stacklevel=3)
    sorted_by = {} if estimate.covariance is None else sortability(adjacency, estimate.covariance[:d, :d])
    if options.in_units and sorted_by.get("variance", 0.0) >= _FOLLOWS and adjacency.sum() >= _FEW_EDGES:
        told += (_SCALE.format(sorted_by["variance"]),)
        warnings.warn(told[-1], ScaleWarning, stacklevel=3)
    settings = options.settings | dict(estimate.chosen)
    if estimate.chosen:
        settings["chosen"] = ", ".join(estimate.chosen)
    settings |= {"aggregation": aggregation, "version": __version__}
    if isinstance(protection, Gaussian):
        settings |= {"epsilon": protection.epsilon, "delta": protection.delta, "colluders": protection.colluders}
        settings |= {"epsilon_spent": protection.epsilon_spent, "rows_worth": int(estimate.extras["rows_worth"])}
    return Result(
        weights=estimate.weights[:d] + 0.0,  # no -0.0 in files
        adjacency=adjacency,
        names=names[:d],
        history=outcome.history,
        ledger=outcome.ledger,
        seconds=outcome.seconds,
        settings=settings,
        site_rows=dict(rows),
        sites=sites,
        warnings=told,
        removed=tuple(removed),
        extras=estimate.extras,
        identified=estimate.cpdag,
        sortability=sorted_by,
        functions=estimate.functions,
        network=_network(estimate, options, names, adjacency),
        lag_weights=estimate.weights[d:].reshape(-1, d, d) + 0.0 if options.dynamic else None,
        lag_adjacency=estimate.edges[d:].reshape(-1, d, d).astype(np.int64) if options.dynamic else None,
        confidence=estimate.confidence,
    )


def _network(
    estimate: Estimate, options: Options, names: tuple[str, ...], adjacency: IntArray
) -> GaussianNetwork | None:
    if estimate.moments is None or not options.effective.get("refit", False):
        return None
    return GaussianNetwork.fitted(names, estimate.moments, adjacency)
