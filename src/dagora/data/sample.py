"""Rows in memory with their moments, for models that need both."""

from dataclasses import dataclass

import numpy as np

from dagora.arrays import FloatArray
from dagora.data.moments import Moments
from dagora.data.rows import Rows


@dataclass(frozen=True, eq=False)
class Sample(Moments):
    """Moments, and the rows (n, d) behind them."""

    rows: FloatArray

    @classmethod
    def read(cls, rows: Rows) -> "Sample":
        """Read all rows."""
        # Row after row: networks are fitted to whole rows.
        together = np.ascontiguousarray(np.concatenate([np.asarray(c, dtype=np.float64) for c in rows.chunks()]))
        moments = Moments.of([together], rows.d)
        return cls(moments.n, moments.mean, moments.scatter, together)
