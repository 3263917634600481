"""A site's summands as fixed-point numbers, and noise in place of one that cannot be added up.

A summand ends with a witness, the number 1.  So the witness of a total is the number of sites.  A site whose numbers
are not finite or out of range must not say so by itself: a server that chooses its questions would learn a number from
the size at which one site balks.  Nor may it add zeros, for the total would be the exact total of the others.  It adds
uniformly random words instead, now and until the run ends.  The total is then noise, which its witness shows; that
noise says neither which site it was nor anything of the others.
"""

import logging

import numpy as np

from dagora.aggregation.fixed_point import LARGEST, Words, add, encode
from dagora.errors import NumericalError
from dagora.federated.protocol import Summand
from dagora.wide import LOW, without_low

_LOG = logging.getLogger("dagora.site")  # for the site's own eyes


class Encoder:
    """A site's half: words of its summands, or None where only noise may leave."""

    def __init__(self, parties: int) -> None:
        self._largest = LARGEST / parties
        self._parties = parties
        self._balked: set[str] = set()  # runs

    def words(self, run: str, summand: Summand) -> Words | None:
        """All fields as one vector of words that ends with the witness."""
        for name, values in summand.items():
            if not (np.abs(values) < self._largest).all():  # false for NaN, too
                _LOG.warning(
                    "run %s: in %r a number is not finite, or is 2^62 / %d or more; noise is sent instead, and the run "
                    "cannot end well", run, name, self._parties,
                )  # fmt: skip
                self._balked.add(run)
        if run in self._balked:
            return None
        whole = without_low(summand)
        words = encode(np.concatenate([*(np.ravel(values) for values in whole.values()), [1.0]]))
        if len(whole) == len(summand):
            return words
        none = (np.zeros(np.size(values)) for values in whole.values())
        below = [np.ravel(summand.get(name + LOW, zeros)) for name, zeros in zip(whole, none, strict=True)]
        return add(words, encode(np.concatenate([*below, [0.0]])))


def check_witness(witness: float, parties: int) -> None:
    """The server's half: whether all sites have added their numbers to the total."""
    if witness != parties:
        raise NumericalError(
            f"the total of {parties} sites is noise: at some site a number to be added up is not finite, or 2^62 / "
            f"{parties} = {LARGEST / parties:.1e} or more (its log says so), or the sites were not asked the same; "
            "subtract constants from large columns, or divide by them, the same at all sites"
        )
