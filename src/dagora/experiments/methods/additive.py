"""Additive effects from two totals."""

import dagora
from dagora.experiments.methods import method
from dagora.experiments.trial import Outcome, Trial


@method("Additive sieve")
def sieve(trial: Trial) -> Outcome:
    """The covariance method on functions of the variables; its graph is a DAG without repairs."""
    result = dagora.learn(trial.sites, model="additive", method="covariance")
    return Outcome(result.adjacency, result.seconds, result.rounds, result.sent)
