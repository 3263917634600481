"""Summands that say how much one row can change them, which is what noise has to hide."""

from collections.abc import Mapping

from dagora.arrays import FloatArray


class Bounded(dict[str, FloatArray]):
    """A summand with its sensitivity, and the share of the run's privacy budget that its release may use.

    sensitivity: the L2 norm, over all fields together, by which adding or removing one row can change the summand.
    share: between 0 and 1.  The shares of a run's rounds add up to 1 at most.
    """

    def __init__(self, fields: Mapping[str, FloatArray], sensitivity: float, share: float) -> None:
        super().__init__(fields)
        self.sensitivity = sensitivity
        self.share = share
