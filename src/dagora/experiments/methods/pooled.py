"""All rows in one place: NOTEARS as published, and our solver of the same problem."""

import numpy as np

import dagora
from dagora.experiments.methods import method
from dagora.experiments.trial import Outcome, Trial


@method("NOTEARS, pooled")
def published(trial: Trial) -> Outcome:
    """NOTEARS-AllData of the paper; the same for any number of sites, so it is computed once for all."""
    return pooled(trial, "paper")


@method("Pooled (default)")
def default(trial: Trial) -> Outcome:
    """The path and the polish on all rows: the oracle of ADMM (default)."""
    return pooled(trial, "default")


def pooled(trial: Trial, preset: str, model: str = "linear") -> Outcome:
    """A preset of `learn` on all rows."""
    rows = np.vstack(trial.sites)  # not trial.rows: a few may be left over by the division

    def learn() -> Outcome:
        result = dagora.learn([rows], model=model, method="pooled", preset=preset)
        return Outcome(result.adjacency, result.seconds)

    found: Outcome = trial.once(("pooled", model, preset, len(rows)), learn)
    return found
