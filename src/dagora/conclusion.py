"""From a finished run to a Result, in one process and on a network alike."""

import warnings
from collections.abc import Mapping

import numpy as np

from dagora.aggregation.gaussian import Gaussian
from dagora.algorithms.presets import Options
from dagora.arrays import IntArray
from dagora.errors import ConvergenceWarning
from dagora.federated.protocol import Aggregation, Estimate
from dagora.federated.run import Run
from dagora.gaussian_network import GaussianNetwork
from dagora.graphs import break_cycles
from dagora.result import Result
from dagora.version import __version__


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
    settings = options.settings | {"aggregation": aggregation, "version": __version__}
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
        functions=estimate.functions,
        network=_network(estimate, options, names, adjacency),
        lag_weights=estimate.weights[d:].reshape(-1, d, d) + 0.0 if options.dynamic else None,
        lag_adjacency=estimate.edges[d:].reshape(-1, d, d).astype(np.int64) if options.dynamic else None,
    )


def _network(
    estimate: Estimate, options: Options, names: tuple[str, ...], adjacency: IntArray
) -> GaussianNetwork | None:
    if estimate.moments is None or not options.effective.get("refit", False):
        return None
    return GaussianNetwork.fitted(names, estimate.moments, adjacency)
