"""What an attack found, measured against the truth and against a guess that needs no attack."""

from dataclasses import dataclass

import numpy as np

from dagora.arrays import FloatArray

SERVER = "server"
SITE = "one site"
LIAR = "a lying server"
COALITION = "all sites but one"
COALITION_AND_SERVER = "all sites but one, with the server"

_CLEARLY = 0.5  # of the blind guess's error


@dataclass(frozen=True)
class Finding:
    """An adversary's best estimate of a target.

    error: relative error |estimate - truth|_F / |truth|_F.
    blind: that of the best guess from what the adversary may know anyway, without the messages attacked.
    """

    name: str
    adversary: str
    target: str
    error: float
    blind: float
    detail: str

    @property
    def succeeds(self) -> bool:
        """Whether the attack told the adversary something: it is clearly closer to the truth than the guess.

        A fixed bound on the error would call it a success to guess a site that is nearly all of the data.
        """
        return self.error < _CLEARLY * self.blind


def relative_error(estimate: FloatArray, truth: FloatArray) -> float:
    """In the Frobenius norm; an estimate of nothing is wrong by its own size."""
    size = float(np.linalg.norm(truth))
    error = float(np.linalg.norm(estimate - truth))
    return error / size if size > 0.0 else error


def blind_error(guess: FloatArray, truth: FloatArray) -> float:
    """Of a guess, or of zero if that is closer: noise must not look like knowledge beside a poor guess."""
    return min(relative_error(guess, truth), relative_error(np.zeros_like(truth), truth))
