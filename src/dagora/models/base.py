"""What an algorithm asks of a model."""

from typing import Protocol, TypeVar

from dagora.arrays import FloatArray

Problem = TypeVar("Problem")
Data_contra = TypeVar("Data_contra", contravariant=True)


class Model(Protocol[Data_contra, Problem]):
    """A family of conditional distributions with parameters theta, an array.

    A site's loss l_k, divided by the site's weight w_k, is fixed by a prepared `Problem`.
    """

    def prepare(
        self, data: Data_contra, rows: float, centre: FloatArray | None, weight: float, metric: FloatArray
    ) -> Problem:
        """Do once what every proximal step needs; `rows` is the number over all sites."""

    def prox(self, problem: Problem, centre: FloatArray, rho: float) -> FloatArray:
        """argmin over theta of l_k(theta) / w_k + rho/2 |theta - centre|^2 in the metric."""

    def shape(self, d: int) -> tuple[int, int]:
        """Shape of theta for d variables; its first d rows are the weights W."""
