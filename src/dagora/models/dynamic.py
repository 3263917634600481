"""The structural vector autoregression of order p (Pamfil et al. 2020, DYNOTEARS; paper, Section 5.2).

    x_t = W' x_t + A_1' x_(t-1) + ... + A_p' x_(t-p) + noise          W a DAG; nothing is asked of A_1 ... A_p

One row z_t = (x_t, x_(t-1), ..., x_(t-p)) for every time that has p others before it in its series; the least squares
of x_t on the rest of z_t need only the moments of z.  So this is the linear model with more rows in theta: W on top,
then A_1, ..., A_p.  The local step is the linear model's, in closed form; penalties and acyclicity are the server's.
What leaves a site are sums over its rows z_t, as with rows x.
"""

from dataclasses import dataclass

import numpy as np

from dagora.arrays import FloatArray
from dagora.models.linear import LinearModel


@dataclass(frozen=True)
class DynamicModel(LinearModel):
    """theta = (W, A_1, ..., A_p), one below the other; p = 0 is the linear model."""

    lags: int = 0

    def shape(self, d: int) -> tuple[int, int]:
        """A row for each of the d (p + 1) variables of z, a column for each of x."""
        return (d * (self.lags + 1), d)


def by_part(d: int, lags: int, within: float, before: float) -> float | FloatArray:
    """A price or threshold for each row of theta, as a column; just the first where there is no past."""
    if lags == 0:
        return within
    return np.repeat([within, before], [d, d * lags])[:, None]
