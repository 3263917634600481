"""One run of another package's learner: python peer_worker.py PEER ROWS.npy ANSWER.npy.

Runs in the peers' own environment, so nothing of Dagora is imported.  Rows come as .npy, the answer goes back as .npy:
thresholded weights, or for XGES ones where an edge is, both ways where it has no direction.  Seconds (of the fit alone)
and version come as a line of JSON.  Each peer has its own defaults.
"""

import contextlib
import importlib.metadata
import io
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def dagma(rows: Any) -> Callable[[], Any]:
    """DAGMA, linear."""
    from dagma.linear import DagmaLinear

    return lambda: DagmaLinear(loss_type="l2").fit(rows)


def castle(name: str) -> Callable[[Any], Callable[[], Any]]:
    """A learner of gcastle."""

    def prepare(rows: Any) -> Callable[[], Any]:
        import castle.algorithms

        learner = getattr(castle.algorithms, name)()

        def fit() -> Any:
            learner.learn(rows)
            return learner.causal_matrix

        return fit

    return prepare


def xges(rows: Any) -> Callable[[], Any]:
    """XGES, after one run on a few rows: numba compiles it."""
    from xges import XGES

    XGES().fit(rows[:50, :4], verbose=0)
    return lambda: XGES().fit(rows, verbose=0).to_adjacency_matrix()


PEERS: dict[str, tuple[str, Callable[[Any], Callable[[], Any]]]] = {
    "DAGMA": ("dagma", dagma),
    "gcastle NOTEARS": ("gcastle", castle("Notears")),
    "gcastle GOLEM": ("gcastle", castle("GOLEM")),
    "gcastle NOTEARS-MLP": ("gcastle", castle("NotearsNonlinear")),
    "XGES": ("xges", xges),
}


def main(peer: str, source: str, target: str) -> None:
    """Fit, keep the answer, say how long it took."""
    package, prepare = PEERS[peer]
    rows = np.load(source, allow_pickle=False)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        fit = prepare(rows)  # imports are not timed
        start = time.perf_counter()
        answer = np.asarray(fit(), dtype=np.float64)
        seconds = time.perf_counter() - start
    np.save(target, answer, allow_pickle=False)
    print(json.dumps({"seconds": seconds, "version": importlib.metadata.version(package)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
