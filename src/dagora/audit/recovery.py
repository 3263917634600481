"""From the answers of one site, or from totals, back to second moments: linear algebra that anyone can do.

An ADMM answer w (B + u) gives B, for u follows from earlier answers, and B is the solution of

    G (B - E) = rho D (C - B) + diag(t),    C = W - u,    E the first columns of I

in which the server knows all but the Gram matrix G of the site's rows and, where the sites keep diag(B) = 0, the
multipliers t.  The paper's preset has no t, so that one answer gives G = rho (C - B) (B - I)^-1.  With t one answer
leaves one number open, which the variances of the setup phase settle; with intercepts it is the row count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dagora.algorithms.covariance import unfolded
from dagora.algorithms.private_moments import read_sums, shortened_share
from dagora.arrays import FloatArray
from dagora.federated.message import Message, array, number
from dagora.federated.protocol import Summand


@dataclass(frozen=True)
class Recovered:
    """Rows behind an answer: their number, their mean if it was sent, and their mean square about `centre_of`."""

    n: float
    mean: FloatArray | None
    second: FloatArray


@dataclass(frozen=True)
class Setting:
    """What an ADMM run's first consensus broadcast tells everyone."""

    rows: float
    sites: float
    metric: FloatArray
    mean: FloatArray | None  # None: every site is centred by its own, weighs 1 / K and has a diagonal

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "Setting":
        """Read it off."""
        first = next(each for each in messages if each.get("phase") == "consensus")
        mean = array(first, "mean") if "mean" in first else None
        return cls(number(first, "rows"), number(first, "sites"), array(first, "metric"), mean)

    def weight(self, n: float) -> float:
        """Of a site with n rows."""
        return 1.0 / self.sites if self.mean is None else n / self.rows


@dataclass(frozen=True)
class Step:
    """A local step: B is the prox of the site's loss at C."""

    rho: float
    C: FloatArray
    B: FloatArray
    W: FloatArray


def centre_of(messages: Sequence[Message], d: int) -> FloatArray | None:
    """The point about which the run measures rows; None for each site's own mean."""
    last = messages[-1]
    if last.get("phase") == "moments":
        return array(last, "centre")
    setting = Setting.of(messages)
    if setting.mean is None and len(setting.metric) > d:  # intercepts: nothing is centred
        return np.zeros(d)
    return setting.mean


def recover(messages: Sequence[Message], answers: Sequence[Summand], whole: bool = False) -> Recovered:
    """Second moments from the sequence of a site's answers, or (`whole`) from that of the totals.

    Totals obey the equations above only as far as the sites agree, that is at consensus.
    """
    if "whiten" in messages[-1]:
        return _private(messages[-1], answers[-1])
    if messages[-1].get("phase") == "moments":
        n, centre = max(float(answers[-1]["rows"]), 1.0), array(messages[-1], "centre")
        squares = unfolded(answers[-1]["squares"], len(centre))
        return Recovered(n, centre + answers[-1]["sum"] / n, _positive(squares / n))
    setting = Setting.of(messages)
    setup = {name: values for answer in answers for name, values in answer.items() if name not in _ROUND}
    n = setting.rows if whole else plausible_rows(float(setup["rows"]), setting)
    weight = 1.0 if whole else setting.weight(n)
    variances = None if setting.mean is None else np.clip(setup["squares"], 0.0, setting.rows * setting.metric) / n
    corner = n / (setting.rows * weight)
    rounds = [(m, a) for m, a in zip(messages, answers, strict=True) if m.get("phase") == "consensus"]
    positions = [answer["position"] / weight for _, answer in rounds]
    best, least = np.zeros((len(setting.metric),) * 2), np.inf
    for step, (_, answer) in zip(local_steps([m for m, _ in rounds], positions), rounds, strict=True):
        G = _gram(step, setting.metric, variances, corner)
        size = float(np.linalg.norm(G))
        doubt = float(np.linalg.norm(G - G.T)) / max(size, 1e-300)
        if whole:  # what the sites disagree on, and what a large rho leaves of the digits
            doubt = float(np.sqrt(abs(answer["products"][-1]))) + step.rho * 1e-14 / max(size, 1e-300)
        if np.isfinite(G).all() and doubt < least:
            best, least = G, doubt
    d = step.B.shape[1]
    mean = setup["sum"] / n if "sum" in setup else best[d, :d] / corner if len(best) > d else None
    return Recovered(n, mean, _positive(best[:d, :d] / corner))


def local_steps(messages: Sequence[Message], positions: Sequence[FloatArray]) -> Iterator[Step]:
    """Replay a site's duals (algorithms/admm.py, step 2) from its positions B + u."""
    remembered: list[FloatArray] = []
    for message, position in zip(messages, positions, strict=True):
        W, mix, keep = array(message, "W"), array(message, "mix"), int(number(message, "keep"))
        u = np.zeros_like(W)
        if len(mix) > 0:
            u = number(message, "rescale") * (np.tensordot(mix, np.stack(remembered[-len(mix) :]), axes=1) - W)
        yield Step(number(message, "rho"), W - u, position - u, W)
        remembered = [*remembered[len(remembered) - keep :], position]


def plausible_rows(n: float, setting: Setting) -> float:
    """A count as read, or the average one if it cannot be a count."""
    sane = 1.0 <= n <= setting.rows and abs(n - round(n)) < 1e-6
    return float(round(n)) if sane else setting.rows / setting.sites


_ROUND = ("position", "products")  # of a summand; the rest is the setup's


def _gram(step: Step, metric: FloatArray, variances: FloatArray | None, corner: float) -> FloatArray:
    """G from one local step; zero where readings are so wild that the equations have no solution."""
    p, d = step.B.shape
    R = step.rho * metric[:, None] * (step.C - step.B)
    A = step.B - np.eye(p, d)
    try:
        M = np.linalg.inv(A[:d])
        with np.errstate(all="ignore"):
            if p > d:
                cross = (R[d] - corner * A[d]) @ M
                inner = (R[:d] - np.outer(cross, A[d])) @ M
                return np.block([[inner, cross[:, None]], [cross[None], np.full((1, 1), corner)]])
            if variances is None:
                return R @ M
            t = (variances - (R * M.T).sum(axis=1)) / np.diag(M)
            return (R + np.diag(t)) @ M
    except np.linalg.LinAlgError:
        return np.zeros((p, p))


def _private(message: Message, answer: Summand) -> Recovered:
    """From noisy sums of whitened and shortened rows (algorithms/private_moments.py)."""
    centre, unwhiten = array(message, "centre"), np.linalg.pinv(array(message, "whiten"))
    read = read_sums(answer, 0.0)
    if read is None:  # one row at most: the noise has taken them all
        return Recovered(1.0, centre, np.zeros((len(centre),) * 2))
    # Shortening scales the covariance of elliptical rows; the server knows by how much, and undoes it, too.
    covariance = read.covariance / shortened_share(len(centre), number(message, "radius"))
    second = unwhiten @ (covariance + np.outer(read.mean, read.mean)) @ unwhiten.T
    return Recovered(read.rows, centre + unwhiten @ read.mean, _positive(second))


def _positive(S: FloatArray) -> FloatArray:
    """The nearest matrix that can be one of second moments."""
    eigenvalues, Q = np.linalg.eigh((S + S.T) / 2.0)
    positive: FloatArray = (Q * np.maximum(eigenvalues, 0.0)) @ Q.T
    return positive
