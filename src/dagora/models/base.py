"""What an algorithm asks of a model."""

from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar

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

    def prox(self, problem: Problem, centre: FloatArray, rho: float) -> tuple[FloatArray, Problem]:
        """argmin over theta of l_k(theta) / w_k + rho/2 |theta - centre|^2 in the metric, or steps towards it.

        Where steps start from what the last ones reached, the problem that is given back remembers it.
        With problems put together by `together`, the centre has an axis of sites first, and so has the answer.
        """

    def together(self, problems: Sequence[Problem]) -> list[tuple[list[int], Problem]]:
        """Problems put together whose steps may well be taken at once: the places of each lot, and the lot as one."""

    def apart(self, problem: Problem, places: Sequence[int]) -> Problem:
        """Some of those that were put together."""


class CurvedModel(Model[Data_contra, Problem], Protocol):
    """A model that is not quadratic: the metric should follow its curvature, which changes with theta."""

    def curvature(self, problem: Problem) -> FloatArray:
        """Diagonal curvature of the site's sum of squares where it stands, an array like theta."""

    def measured(self, problem: Problem, metric: FloatArray) -> Problem:
        """The same problem in another metric."""


def by_entry(metric: FloatArray) -> FloatArray:
    """A number for each row, as a column; or for each entry, as it is."""
    return metric[:, None] if metric.ndim == 1 else metric


class Alone(Generic[Problem]):
    """For a model whose problems are best left alone: an axis for the one site changes nothing in them."""

    def together(self, problems: Sequence[Problem]) -> list[tuple[list[int], Problem]]:
        """Each by itself."""
        return [([place], problem) for place, problem in enumerate(problems)]

    def apart(self, problem: Problem, places: Sequence[int]) -> Problem:
        """It is."""
        return problem


def lots(kinds: Sequence[Hashable], numbers: Sequence[int], most: int) -> list[list[int]]:
    """Places of those that are of one kind, in lots of at most so many numbers, or of one place."""
    found: list[list[int]] = []
    open_lots: dict[Hashable, list[int]] = {}
    for place, kind in enumerate(kinds):
        lot = open_lots.get(kind)
        if lot is None or (len(lot) + 1) * numbers[place] > most:
            lot = open_lots[kind] = []
            found.append(lot)
        lot.append(place)
    return found
