"""A network for each variable: consensus, all rows in one place, and every site alone.  Needs torch."""

import time
from typing import Any

import numpy as np

import dagora
from dagora.algorithms.options import NETWORK_DEFAULTS
from dagora.arrays import FloatArray, IntArray
from dagora.experiments.methods import method
from dagora.experiments.methods.admm import outcome
from dagora.experiments.methods.pooled import pooled
from dagora.experiments.trial import Outcome, Trial
from dagora.metrics import evaluate

THRESHOLD: Any = NETWORK_DEFAULTS["threshold"]


@method("MLP-ADMM (paper)")
def paper(trial: Trial) -> Outcome:
    """NOTEARS-MLP-ADMM with the paper's hyperparameters."""
    return outcome(dagora.learn(trial.sites, model="mlp", preset="paper"))


@method("MLP-ADMM (default)")
def default(trial: Trial) -> Outcome:
    """The best we know."""
    return outcome(dagora.learn(trial.sites, model="mlp"))


@method("Masked ADMM")
def masked(trial: Trial) -> Outcome:
    """Networks behind a mask."""
    return outcome(dagora.learn(trial.sites, model="masked"))


@method("NOTEARS-MLP, pooled")
def published(trial: Trial) -> Outcome:
    """NOTEARS-MLP as published, on all rows."""
    return pooled(trial, "paper", "mlp")


@method("MLP, pooled (default)")
def ours(trial: Trial) -> Outcome:
    """Our solver on all rows: the oracle of MLP-ADMM (default)."""
    return pooled(trial, "default", "mlp")


@method("MLP-Voting")
def voting(trial: Trial) -> Outcome:
    """Edges that more than half of the sites found."""
    found, seconds = _alone(trial)
    return Outcome((np.mean([norms > THRESHOLD for norms in found], axis=0) > 0.5).astype(np.int64), seconds)


@method("MLP-Averaging")
def averaging(trial: Trial) -> Outcome:
    """Mean norms above the threshold."""
    found, seconds = _alone(trial)
    return Outcome((np.mean(found, axis=0) > THRESHOLD).astype(np.int64), seconds)


@method("MLP-Best")
def best(trial: Trial) -> Outcome:
    """The site's graph with the lowest SHD, which needs the truth."""
    found, seconds = _alone(trial)
    graphs: list[IntArray] = [(norms > THRESHOLD).astype(np.int64) for norms in found]
    return Outcome(min(graphs, key=lambda graph: evaluate(trial.truth.adjacency, graph)["shd"]), seconds)


def _alone(trial: Trial) -> tuple[list[FloatArray], float]:
    """The norms that every site finds from its own rows, once for all who ask, and the seconds it takes them.

    As `learn` does for voting and averaging, without a polish.
    """

    def learn() -> tuple[list[FloatArray], float]:
        start = time.perf_counter()
        found = [dagora.learn([rows], model="mlp", polish=False).weights for rows in trial.sites]
        return found, time.perf_counter() - start

    known: tuple[list[FloatArray], float] = trial.once(("networks", trial.setting.sites), learn)
    return known
