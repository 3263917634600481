"""From a method's name and options to the two halves of an algorithm."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dagora.algorithms.additive import AdditiveServer, AdditiveSite, Learn, alone
from dagora.algorithms.admm import AdmmServer, AdmmSite, Consensus
from dagora.algorithms.bootstrap import bootstrapped
from dagora.algorithms.covariance import CovarianceServer, CovarianceSite
from dagora.algorithms.knowing import with_knowledge
from dagora.algorithms.likelihood_schedule import LikelihoodSchedule
from dagora.algorithms.limited import limited
from dagora.algorithms.local import LocalServer, LocalSite
from dagora.algorithms.options import AUTO, DEFAULT_LEARNER, Options
from dagora.algorithms.parameters import with_parameters
from dagora.algorithms.private_covariance import PrivateCovarianceServer, PrivateCovarianceSite
from dagora.algorithms.schedules import PaperSchedule, PathSchedule
from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.rows import Rows
from dagora.devices import device
from dagora.errors import InputError
from dagora.federated.protocol import Algorithm
from dagora.knowledge import Constraints
from dagora.learners import additive
from dagora.learners.base import Learned, LearnerOptions
from dagora.learners.registry import LEARNERS, naming_columns, with_names
from dagora.models.dynamic import DynamicModel, by_part
from dagora.models.linear import LinearModel, read_weights
from dagora.models.restricted import RestrictedModel

_LEARNERS_OWN = ("lam", "threshold", "device", "lags", "lag_lam", "lag_threshold")  # of ADMM's options


def build(options: Options, names: tuple[str, ...]) -> Algorithm[Any, Any, Any]:
    """The algorithm for these variables; its sites start from moments, or from rows for curved effects."""
    algorithm = whole = with_knowledge(_build(options, names), options.constraints(names))
    if options.effective.get("refit", False) and options.method not in ("covariance", "pooled"):
        whole = with_parameters(algorithm, len(names))  # of the answer, and of no replicate
    if options.replicates:
        return bootstrapped(limited(whole), limited(algorithm), options.replicates)
    return limited(whole)


def _build(options: Options, names: tuple[str, ...]) -> Algorithm[Any, Any, Any]:
    if options.additive:
        return _additive(options, names)
    if options.networks:
        return _networks(options, names)
    if options.method == "admm":
        if options.unequal:
            return _likelihood(options, names)
        return _admm(options, names, options.constraints(names))
    entry, learn = LEARNERS[options.chosen_learner], _learner(options, names)
    if options.method in ("covariance", "pooled"):
        return Algorithm(CovarianceSite(), CovarianceServer(len(names), learn))
    voting = options.method == "voting"
    threshold = _threshold(options, len(names) // (options.past + 1))
    server = LocalServer(voting, entry.classes, threshold, options.constraints(names))
    return Algorithm(LocalSite(learn, voting), server)


def _threshold(options: Options, d: int) -> float | FloatArray:
    """For all weights, or a column for those of the same time and those of the past; 0 where it is yet to be chosen."""
    chosen = options.effective
    within = 0.0 if chosen.get("threshold") == AUTO else float(chosen.get("threshold", 0.0))
    return by_part(d, options.past, within, float(chosen.get("lag_threshold", 0.0)))


def build_private(options: Options, names: tuple[str, ...], noise: float) -> Algorithm[Rows, Any, Any]:
    """The covariance method for summands that are noised: its sites bound what a row can change."""
    server = PrivateCovarianceServer(names, _learner(options, names), noise)
    return with_knowledge(Algorithm(PrivateCovarianceSite(), server), options.constraints(names))


def _additive(options: Options, names: tuple[str, ...]) -> Algorithm[Rows, Any, Any]:
    known = options.constraints(names)
    learn: Learn = naming_columns(partial(additive.additive, **options.effective, constraints=known), names)
    if options.method == "voting":
        return Algorithm(LocalSite(partial(alone, learn=learn), voting=True), LocalServer(True, False, 0.0))
    return Algorithm(AdditiveSite(), AdditiveServer(len(names), learn))


def _networks(options: Options, names: tuple[str, ...]) -> Algorithm[Any, Any, Any]:
    try:
        from dagora.algorithms import networks  # torch is an extra, and slow to import
    except ImportError:
        raise InputError(
            f"model: {options.model!r} needs torch; install it with: pip install 'dagora[nonlinear]'"
        ) from None
    return networks.build(options.model, options.method, options.preset, names, **options.effective)


def _learner(options: Options, names: tuple[str, ...]) -> Callable[[Moments], Learned]:
    heeded = {name: value for name, value in options.effective.items() if name != "refit"}
    heeded |= {name: None for name, value in heeded.items() if value == AUTO}
    # Of a site alone few rows are left: what is free of its price there is more often noise, and the search takes long.
    bounded = options.method not in ("voting", "average")
    known = options.constraints(names)
    chosen = LearnerOptions(**heeded, published=options.published, bounded=bounded, constraints=known)
    return with_names(LEARNERS[options.chosen_learner].learner, chosen, names)


def _admm(options: Options, names: tuple[str, ...], known: Constraints | None) -> Algorithm[Moments, Any, Any]:
    chosen, lags = options.effective, options.past
    d = len(names) // (lags + 1)
    self_loops = options.preset == "paper"  # its text does not bar them
    model = LinearModel(not self_loops, chosen.get("intercept", False))
    if options.dynamic:
        model = DynamicModel(not self_loops, lags=lags)
    if options.preset == "paper":
        consensus = Consensus(global_mean=False, by_rows=False, memory=1)
        schedule: Any = PaperSchedule(lam=chosen["lam"], lag_lam=chosen["lag_lam"] if lags else None)
    else:
        inputs = lags * d if chosen["polish"] else 0
        consensus = Consensus(True, True, 5, inputs, chosen["standardize"])
        lam = None if chosen["lam"] == AUTO else chosen["lam"]
        learn = _from_consensus(options, names, known) if chosen["polish"] else None
        where = device(chosen["device"])
        schedule = PathSchedule(lam, chosen.get("lag_lam", 0.0), learn, known, device=where)
        model = replace(model, device=where)
    read = partial(read_weights, d=d * (lags + 1), threshold=_threshold(options, d))
    server = AdmmServer(d * (lags + 1), np.zeros(model.shape(d)), consensus, schedule, read)
    if known is None:
        return Algorithm(AdmmSite(model, consensus), server)
    restricted = RestrictedModel(np.concatenate([known.permitted, np.ones((lags * d, d), dtype=bool)]))
    return Algorithm(AdmmSite(restricted, consensus, restricted.multipliers), server)


def _from_consensus(
    options: Options, names: tuple[str, ...], known: Constraints | None
) -> Callable[[Moments], Learned]:
    """What learns from the moments that a consensus implies: the pooled oracle's learner.  They are standardised, if
    they are to be, already.
    """
    heeded = {name: options.effective[name] for name in _LEARNERS_OWN if name in options.effective}
    heeded |= {name: None for name, value in heeded.items() if value == AUTO}
    return with_names(LEARNERS["notears"].learner, LearnerOptions(**heeded, constraints=known), names)


def _likelihood(options: Options, names: tuple[str, ...]) -> Algorithm[Moments, Any, Any]:
    d, search = len(names), LearnerOptions(penalty=options.effective["penalty"], constraints=options.constraints(names))
    consensus = Consensus(True, True, 5, standardize=True)
    schedule = LikelihoodSchedule(with_names(LEARNERS[DEFAULT_LEARNER].learner, search, names))
    read = partial(read_weights, d=d, threshold=0.0)
    server = AdmmServer(d, np.zeros((d, d)), consensus, schedule, read)
    return Algorithm(AdmmSite(LinearModel(), consensus), server)
