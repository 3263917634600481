"""How ADMM's penalties move for networks behind a mask: along the path, h on the mask (models/masked.py)."""

from dataclasses import dataclass

import numpy as np

from dagora.algorithms.network_schedule import NetworkPlan, NetworkSchedule
from dagora.arrays import FloatArray
from dagora.models.masked import probabilities
from dagora.solvers.mask_step import mask_step
from dagora.solvers.network_step import shrunk
from dagora.solvers.path import path_ended, path_penalty

# Of a logit's curvature: relative to their mean, so that masks that have closed move slowly and may open again; and to
# the variables' mean variance, for where nothing depends on any mask the mean is zero.
_FLOOR, _LEAST = 30.0, 1e-3


@dataclass(frozen=True)
class MaskedSchedule(NetworkSchedule):
    """Follow the minimum of  loss + lam sum P + ridge/2 (|W_1|^2 + |W_2|^2 + ...) + mu h(P)  as mu grows by stages.

    Masks are noisy, so that no stage can end before its rounds are over.
    """

    first_rounds: int = 50
    stage_rounds: int = 25
    tolerance: float = 0.0

    def measure(
        self, plan: NetworkPlan, curvature: FloatArray, variances: FloatArray
    ) -> tuple[FloatArray, NetworkPlan]:
        """Networks as ever; logits, none below a multiple of their mean."""
        size, off = self.architecture.size, ~np.eye(self.architecture.d, dtype=bool)
        networks, plan = super().measure(plan, curvature[:, :size], variances)
        logits = curvature[:, size:]
        floor = max(_FLOOR * float(logits[off].mean()), _LEAST * float(np.exp(np.log(variances).mean())))
        return np.concatenate([networks, np.maximum(logits, floor)], axis=1), plan

    def ended(self, plan: NetworkPlan, W: FloatArray) -> bool:
        """Whether the edges that are more likely than not have no cycle left."""
        P = probabilities(W, self.architecture)
        return path_ended(plan.stage, np.where(P > 0.5, P, 0.0), np.ones(len(P)))

    def w_step(
        self, plan: NetworkPlan, W: FloatArray, Z: FloatArray, metric: FloatArray
    ) -> tuple[FloatArray, NetworkPlan]:
        """Networks are shrunk, logits meet the stage's problem."""
        if plan.done:
            return W, plan
        size, c = self.architecture.size, plan.rho * metric
        mu = path_penalty(plan.stage, np.ones(1))
        networks = shrunk(self.architecture, Z[:, :size], c[:, :size], self.ridge)
        U = mask_step(W[:, size:].T, Z[:, size:].T, c[:, size:].T, self.lam, mu).T
        theta = np.concatenate([networks, U], axis=1)
        return theta, self.after(plan, W, theta, metric, probabilities(theta, self.architecture))
