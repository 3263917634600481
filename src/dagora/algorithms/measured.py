"""ADMM in a metric that follows the curvature, for models that are not quadratic.  Algorithm 1 itself is in admm.py.

    setup   count and spread as in admm.py; then, and whenever the schedule asks again ("curvature"), the diagonal
            curvatures of the sites' losses are added up.  The mean is the metric of the rounds that follow
    rounds  as in admm.py; the first in a new metric carries it, and scaled duals are rescaled to it

What leaves a site besides: its curvatures, squared derivatives summed over its rows, as a summand of their total.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol

import numpy as np

from dagora.algorithms.admm import AdmmServer, AdmmSite, AnyPlan, Schedule, ServerState, SiteState
from dagora.algorithms.bench import Bench
from dagora.arrays import FloatArray
from dagora.errors import MessageError
from dagora.federated.message import Message, Value, array
from dagora.federated.protocol import Summand, Total
from dagora.models.base import CurvedModel, Problem, by_entry


class MeasuringSchedule(Schedule[AnyPlan], Protocol):
    """A schedule that says when the curvature is asked for."""

    def measuring(self, plan: AnyPlan) -> bool:
        """Whether the curvature is wanted next."""

    def measure(self, plan: AnyPlan, curvature: FloatArray, variances: FloatArray) -> tuple[FloatArray, AnyPlan]:
        """The metric, from the mean curvature over all rows."""


@dataclass(frozen=True)
class MeasuredSite(AdmmSite[Problem]):
    """A site that tells its curvature."""

    model: CurvedModel[Any, Problem]

    def joint(self, message: Message) -> bool:
        """Rounds, and curvatures."""
        return message.get("phase") == "curvature" or super().joint(message)

    def local_updates(
        self, states: Sequence[SiteState[Problem]], message: Message
    ) -> list[tuple[SiteState[Problem], Summand]]:
        """A round of ADMM, or "curvature"."""
        if message.get("phase") == "curvature":
            return self.at_benches(states, message, self._measure)
        return super().local_updates(states, message)

    def _measure(self, bench: Bench[Problem], message: Message) -> tuple[Bench[Problem], list[Summand]]:
        curvature = self.model.curvature(bench.problem)
        by_site = curvature.reshape(len(bench.weight), -1, curvature.shape[-1])
        return bench, [{"curvature": own} for own in by_site]

    def _round(self, bench: Bench[Problem], message: Message) -> tuple[Bench[Problem], list[Summand]]:
        if "metric" in message:
            bench = self._remeasured(bench, array(message, "metric"), array(message, "W"))
        return super()._round(bench, message)

    def _remeasured(self, bench: Bench[Problem], metric: FloatArray, W: FloatArray) -> Bench[Problem]:
        if np.array_equal(metric, bench.metric):
            return bench
        if metric.shape != W.shape or bench.shape not in ((), W.shape) or not (metric > 0.0).all():
            raise MessageError("message refused: its metric does not fit its parameters")
        ratio, here = (by_entry(bench.metric) / metric).ravel(), bench.weight[:, None, None] * W.ravel()
        positions = bench.positions if bench.shape == () else rebased(bench.positions, here, ratio)
        return replace(bench, metric=metric, problem=self.model.measured(bench.problem, metric), positions=positions)


@dataclass(frozen=True)
class MeasuredServer(AdmmServer[AnyPlan], Generic[AnyPlan]):
    """A server that asks for curvatures when its schedule says so."""

    schedule: MeasuringSchedule[AnyPlan]

    def broadcast(self, state: ServerState[AnyPlan]) -> Message | None:
        """The curvature, with what the setup found if nothing was asked before it; else as ADMM does."""
        if state.phase != "curvature" or state.plan.done:
            message = super().broadcast(state)
            if message is None or state.metric is None or not state.renewed:
                return message
            return {**message, "metric": state.metric}
        if len(state.totals) > 0:
            return {"phase": "curvature"}
        mean: dict[str, Value] = {} if state.mean is None else {"mean": state.mean}
        return {"phase": "curvature", **mean, "metric": np.ones(1), "rows": state.rows, "sites": state.sites}

    def global_update(self, state: ServerState[AnyPlan], total: Total) -> ServerState[AnyPlan]:
        """Take in the curvature, or what ADMM asked for."""
        if state.phase == "curvature":
            assert state.metric is not None
            assert state.variances is not None
            metric, plan = self.schedule.measure(state.plan, total["curvature"] / state.rows, state.variances)
            Z = rebased(state.Z, state.W, by_entry(state.metric) / metric)
            return replace(state, phase="consensus", plan=plan, metric=metric, Z=Z, renewed=True)
        state = replace(super().global_update(state, total), renewed=False)
        asking = state.phase == "consensus" and self.schedule.measuring(state.plan)
        return replace(state, phase="curvature") if asking else state


def rebased(position: FloatArray, W: FloatArray, ratio: FloatArray) -> FloatArray:
    """A position W + u, with the scaled dual u in another metric."""
    moved: FloatArray = W + (position - W) * ratio
    return moved
