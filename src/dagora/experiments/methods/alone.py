"""Baselines in which every site learns alone: voting, averaging and the best site's graph.

Sites learn once for all of them.  Votes and weights are then added up by the algorithm of `dagora.learn`, whose graph
is taken before cycles are broken: the paper scores voting and averaging as they are.
PC-Voting and FGES-Voting vote on equivalence classes; an undirected edge counts as right if either direction is.
"""

from collections.abc import Callable

import numpy as np

from dagora.aggregation.plain import Plain
from dagora.algorithms.local import LocalServer, LocalSite
from dagora.data.moments import Moments
from dagora.experiments.methods import method
from dagora.experiments.trial import Outcome, Trial
from dagora.federated.run import run
from dagora.federated.site import Site
from dagora.learners.base import Learned
from dagora.metrics import evaluate
from dagora.transport.in_process import InProcess

THRESHOLD = 0.3


@method("Voting")
def voting(trial: Trial) -> Outcome:
    """NOTEARS-Voting: edges that more than half of the sites found."""
    return _together(trial, "notears", voting=True, classes=False)


@method("Averaging")
def averaging(trial: Trial) -> Outcome:
    """NOTEARS-Avg: mean weights above the threshold."""
    return _together(trial, "notears", voting=False, classes=False)


@method("PC-Voting")
def pc_voting(trial: Trial) -> Outcome:
    """PC at every site; with 3 rows no test has a degree of freedom, and PC finds no edge."""
    return _together(trial, "pc", voting=True, classes=True)


@method("FGES-Voting")
def fges_voting(trial: Trial) -> Outcome:
    """GES at every site; with fewer rows than variables at most (n_k - 1) / 2 parents, and a ridge of 1e-9."""
    return _together(trial, "ges", voting=True, classes=True)


@method("Best")
def best(trial: Trial) -> Outcome:
    """NOTEARS-Best: the site's graph with the lowest SHD, which needs the truth."""
    found, seconds = trial.local("notears")
    graphs = [learned.edges.astype(np.int64) for learned in found]
    return Outcome(min(graphs, key=lambda graph: evaluate(trial.truth.adjacency, graph)["shd"]), seconds)


def _together(trial: Trial, learner: str, *, voting: bool, classes: bool) -> Outcome:
    found, seconds = trial.local(learner)
    sites = [
        Site(str(k), LocalSite(_already(learned), voting), Moments.of_rows(rows), Plain())
        for k, (learned, rows) in enumerate(zip(found, trial.sites, strict=True))
    ]
    done = run(LocalServer(voting, classes, THRESHOLD), Plain(), InProcess(sites))
    graph = done.estimate.cpdag if done.estimate.cpdag is not None else done.estimate.edges.astype(np.int64)
    sent = sum(entry.sent for entry in done.ledger)
    return Outcome(graph, seconds + done.seconds, len(done.history), sent)


def _already(learned: Learned) -> Callable[[Moments], Learned]:
    """A learner that has learned already."""
    return lambda moments: learned
