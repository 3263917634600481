"""The last word of prior knowledge: whatever a method has found, its graph has all required edges and no forbidden one.

Sites and servers keep to knowledge in every step, so there is nothing left to do here, but that rules which combine
graphs (voting, averaging, breaking cycles) know nothing of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dagora.federated.message import Message
from dagora.federated.protocol import Algorithm, Estimate, ServerPart, Total
from dagora.knowledge import Constraints


@dataclass(frozen=True)
class KnowingServer:
    """A server part whose estimate keeps to what is known."""

    part: ServerPart[Any]
    known: Constraints

    def init(self) -> Any:
        """The part's."""
        return self.part.init()

    def broadcast(self, state: Any) -> Message | None:
        """The part's."""
        return self.part.broadcast(state)

    def global_update(self, state: Any, total: Total) -> Any:
        """The part's."""
        return self.part.global_update(state, total)

    def progress(self, state: Any) -> Mapping[str, float]:
        """The part's."""
        return self.part.progress(state)

    def estimate(self, state: Any) -> Estimate:
        """The part's, in accordance with knowledge."""
        return keeping(self.part.estimate(state), self.known)


def keeping(found: Estimate, known: Constraints) -> Estimate:
    """The estimate with required edges, which no cycle can take away, and without forbidden ones."""
    d, warnings = len(known.required), found.warnings
    weights, edges, strength = found.weights.copy(), found.edges.copy(), found.strength.astype(np.float64)
    if wrong := int((edges[:d] & known.forbidden).sum()):
        warnings += (f"{wrong} of the edges found are forbidden by knowledge, and were left out",)
    weights[:d][known.forbidden] = 0.0
    edges[:d] = (edges[:d] | known.required) & ~known.forbidden
    strength[:d][known.required] = np.inf
    return replace(found, weights=weights, edges=edges, strength=strength, warnings=warnings)


def with_knowledge(algorithm: Algorithm[Any, Any, Any], known: Constraints | None) -> Algorithm[Any, Any, Any]:
    """The algorithm, whose result keeps to what is known."""
    return algorithm if known is None else Algorithm(algorithm.site, KnowingServer(algorithm.server, known))
