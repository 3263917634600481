"""How sure an edge is: in how many bootstrap replicates it was found, and which way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dagora.arrays import FloatArray


class Frequency(NamedTuple):
    """One pair of variables, seen from one of them; shares of replicates."""

    source: str
    target: str
    edge: float  # joined, whichever way
    arrow: float  # source -> target
    undirected: float  # joined, the direction left open
    direction: float  # source -> target where joined: arrow / edge


@dataclass(frozen=True, eq=False)
class Confidence:
    """Shares of the replicates that gave a graph: `replicates - failed`; NaN if none did.

    From learners of classes an arrow is one that the class compels (of the CPDAG), and an edge may be undirected; from
    all others every edge is an arrow.
    """

    replicates: int  # asked for
    failed: int  # of these gave no graph
    edge: FloatArray  # (d, d), symmetric: i and j are joined
    arrow: FloatArray  # [i, j]: i -> j
    undirected: FloatArray  # symmetric: joined, the direction left open
    lagged: FloatArray | None = None  # (p, d, d), of time series: [l - 1, i, j], an effect of i, l steps before, on j

    @property
    def direction(self) -> FloatArray:
        """[i, j]: the share of i -> j among the replicates in which i and j are joined; NaN where they never are."""
        return np.divide(self.arrow, self.edge, out=np.full_like(self.edge, np.nan), where=self.edge > 0.0)

    def frequencies(self, names: Sequence[str]) -> list[Frequency]:
        """Every two variables that were ever joined, seen from each; the most frequent arrow first."""
        direction = self.direction
        found = [
            Frequency(
                names[i], names[j], *(float(m[i, j]) for m in (self.edge, self.arrow, self.undirected, direction))
            )
            for i, j in np.argwhere(self.edge > 0.0).tolist()
        ]
        return sorted(found, key=lambda pair: (-pair.arrow, -pair.edge))

    def lagged_frequencies(self, names: Sequence[str]) -> list[tuple[str, str, int, float]]:
        """(source, target, lag, share) of every effect of the past that was ever found, the most frequent first."""
        if self.lagged is None:
            return []
        found = [
            (names[i], names[j], lag + 1, float(self.lagged[lag, i, j]))
            for lag, i, j in np.argwhere(self.lagged > 0.0).tolist()
        ]
        return sorted(found, key=lambda effect: -effect[3])
