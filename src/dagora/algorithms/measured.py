"""ADMM in a metric that follows the curvature, for models that are not quadratic.  Algorithm 1 itself is in admm.py.

    setup   count and spread as in admm.py; then, and whenever the schedule asks again ("curvature"), the diagonal
            curvatures of the sites' losses are added up.  The mean is the metric of the rounds that follow
    rounds  as in admm.py; the first in a new metric carries it, and scaled duals are rescaled to it

What leaves a site besides: its curvatures, squared derivatives summed over its rows, as a summand of their total.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol

import numpy as np

from dagora.algorithms.admm import AdmmServer, AdmmSite, AnyPlan, Schedule, ServerState, SiteState
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

    def local_update(self, state: SiteState[Problem], message: Message) -> tuple[SiteState[Problem], Summand]:
        """The phases of ADMM, and "curvature"."""
        if message.get("phase") == "curvature":
            state = state if state.problem is not None else self._prepare(state, message)
            assert state.problem is not None
            return state, {"curvature": self.model.curvature(state.problem)}
        if state.problem is not None and "metric" in message:
            metric = array(message, "metric")
            if metric.shape != array(message, "W").shape or not (metric > 0.0).all():
                raise MessageError("message refused: its metric does not fit its parameters")
            state = self._remeasured(state, state.problem, metric, array(message, "W"))
        return super().local_update(state, message)

    def _remeasured(
        self, state: SiteState[Problem], problem: Problem, metric: FloatArray, W: FloatArray
    ) -> SiteState[Problem]:
        ratio = by_entry(state.metric) / metric
        positions = tuple(rebased(position, state.weight * W, ratio) for position in state.positions)
        return replace(state, metric=metric, problem=self.model.measured(problem, metric), positions=positions)


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
