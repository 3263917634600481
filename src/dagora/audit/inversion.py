"""Single-message attacks: what the server reads off one site's replies, and what a coalition reads off a total."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dagora.arrays import FloatArray
from dagora.audit.finding import COALITION, COALITION_AND_SERVER, SERVER, SITE, Finding, blind_error, relative_error
from dagora.audit.readings import readings
from dagora.audit.recovery import Recovered, Setting, centre_of, recover
from dagora.audit.transcript import Summands, Transcript
from dagora.data.moments import Moments
from dagora.federated.protocol import Summand


def answers_read(transcript: Transcript, site: str) -> tuple[Summand, ...]:
    """A site's replies as the server can read them."""
    return tuple(readings(each.replies[site], each.total) for each in transcript.rounds)


def answers_left(transcript: Transcript, site: str, summands: Summands) -> tuple[Summand, ...]:
    """What all other sites find when they subtract their summands from the totals."""
    others = [own for name, own in summands.items() if name != site]
    return tuple(
        {field: values - sum(own[i][field] for own in others) for field, values in total.items()}
        for i, total in enumerate(transcript.totals)
    )


def inversion(transcript: Transcript, site: str, moments: Mapping[str, Moments], summands: Summands) -> Finding:
    """The server solves a site's replies for its second moments, or reads its graph off them."""
    answers = answers_read(transcript, site)
    return _finding("inversion", SERVER, transcript, site, answers, moments, summands, exclude=None)


def collusion(transcript: Transcript, site: str, moments: Mapping[str, Moments], summands: Summands) -> Finding:
    """All other sites and the server subtract what they know from the totals, then invert what is left.

    No aggregation can prevent it short of noise: it is what a sum means.
    """
    answers = answers_left(transcript, site, summands)
    return _finding("collusion", COALITION_AND_SERVER, transcript, site, answers, moments, summands, exclude=site)


def broadcast_setup(transcript: Transcript, site: str, moments: Mapping[str, Moments]) -> Finding | None:
    """All other sites, without the server, subtract their sums from what ADMM's first broadcast tells everyone.

    The default preset sends all sites the row count, the mean and the variances over all rows.  With two sites,
    each is all others.  None where the broadcast holds no mean.
    """
    if "consensus" not in transcript.phases:
        return None
    setting = Setting.of(transcript.messages)
    if setting.mean is None:
        return None
    mean = setting.mean
    known = [own for name, own in moments.items() if name != site]
    n = setting.rows - sum(own.n for own in known)
    shift = -sum((own.n * (own.mean - mean) for own in known), np.zeros_like(mean)) / n
    squares = (setting.rows * setting.metric - sum(np.diag(own.about(mean)) for own in known)) / n
    estimate = np.stack([shift, squares])
    truth = np.stack([moments[site].mean - mean, np.diag(moments[site].about(mean)) / moments[site].n])
    blind = blind_error(np.stack([np.zeros_like(mean), setting.metric]), truth)
    detail = "the first broadcast holds n, mean and variances over all rows; blind: the site is like all rows"
    target = f"mean and variances of {site}"
    adversary = SITE if len(moments) == 2 else COALITION
    return Finding("broadcast", adversary, target, relative_error(estimate, truth), blind, detail)


def second_moments(moments: Moments, centre: FloatArray | None) -> FloatArray:
    """Mean square of the rows about a point; None for their own mean."""
    return moments.covariance if centre is None else moments.about(centre) / moments.n


def typical(moments: Sequence[Moments], centre: FloatArray | None) -> FloatArray:
    """The row-weighted mean of the sites' second moments: what the totals tell of them all at once."""
    rows = sum(own.n for own in moments)
    mean: FloatArray = np.sum([own.n / rows * second_moments(own, centre) for own in moments], axis=0)
    return mean


def recover_bounded(transcript: Transcript, answers: Sequence[Summand], moments: Mapping[str, Moments]) -> Recovered:
    """A site's moments, shrunk if need be to what a part of all rows can at most have: attackers know nonsense."""
    everyone = list(moments.values())
    centre, rows = centre_of(transcript.messages, len(everyone[0].mean)), sum(own.n for own in everyone)
    found = recover(transcript.messages, answers)
    n = min(found.n, float(rows))
    trace, most = float(np.trace(found.second)), float(np.trace(typical(everyone, centre))) * rows / n
    return replace(found, n=n, second=found.second * (min(1.0, most / trace) if trace > 0.0 else 1.0))


def _finding(
    name: str,
    adversary: str,
    transcript: Transcript,
    site: str,
    answers: Sequence[Summand],
    moments: Mapping[str, Moments],
    summands: Summands,
    exclude: str | None,
) -> Finding:
    if "learn" in transcript.phases:
        return _graph(name, adversary, transcript, site, answers, summands)
    d = len(moments[site].mean)
    centre = centre_of(transcript.messages, d)
    truth = second_moments(moments[site], centre)
    estimate = recover_bounded(transcript, answers, moments).second
    guess = typical([own for each, own in moments.items() if each != exclude], centre)
    how = (
        "the reply holds them, if plain"
        if "moments" in transcript.phases
        else "solved from the rounds' linear equations"
    )
    what = "all rows'" if exclude is None else "the coalition's own"
    detail = f"{how}; blind: {what} second moments about the same point"
    target = f"covariance of {site}"
    return Finding(name, adversary, target, relative_error(estimate, truth), blind_error(guess, truth), detail)


def _graph(
    name: str, adversary: str, transcript: Transcript, site: str, answers: Sequence[Summand], summands: Summands
) -> Finding:
    field = "votes" if "votes" in transcript.totals[0] else "weights"
    truth = summands[site][0][field]
    guess = transcript.totals[0][field] / len(transcript.sites)
    detail = f"the reply's {field} are the site's graph; blind: the mean over the sites"
    most = float(np.abs(transcript.totals[0][field]).max())
    error = relative_error(answers[0][field].clip(-most, most), truth)
    return Finding(name, adversary, f"graph of {site}", error, blind_error(guess, truth), detail)
