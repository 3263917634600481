"""Two runs, one of them with a site or a row more: the totals differ by that site's or row's own sums.

Works against every exact sum, however well it is protected, and fails against calibrated noise.  Not even a protocol
that is secure in each run helps: the leak is in the answers.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dagora.arrays import FloatArray
from dagora.audit.finding import SERVER, Finding, blind_error, relative_error
from dagora.audit.inversion import second_moments, typical
from dagora.audit.recovery import Recovered, centre_of, recover
from dagora.audit.transcript import Transcript
from dagora.data.moments import Moments
from dagora.federated.protocol import Summand


def differencing(
    larger: Transcript, smaller: Transcript, site: str, moments: Mapping[str, Moments], answers: Sequence[Summand]
) -> Finding:
    """The server subtracts the totals of a run without `site` from those of a run with it.

    moments: of all sites of the larger run.  answers: the site's own summands there, to check graphs against.
    """
    if "learn" in larger.phases:
        field = "votes" if "votes" in larger.totals[0] else "weights"
        truth, whole = answers[0][field], larger.totals[0][field]
        estimate, guess = whole - smaller.totals[0][field], whole / len(larger.sites)
        target = f"graph of {site}"
    else:
        centre = centre_of(larger.messages, len(moments[site].mean))
        rows, _, squares = _difference(larger, smaller, centre)
        truth, estimate = second_moments(moments[site], centre), squares / rows
        guess = typical(list(moments.values()), centre)
        target = f"covariance of {site}"
    detail = "difference of two runs' totals, with and without the site; blind: the mean over the sites"
    error = relative_error(estimate, truth)
    return Finding("differencing", SERVER, target, error, blind_error(guess, truth), detail)


def differencing_row(larger: Transcript, smaller: Transcript, row: FloatArray) -> Finding | None:
    """The same for a run without one row.  None where no sums of rows are sent: then only products differ."""
    if "learn" in larger.phases or (centre := centre_of(larger.messages, len(row))) is None:
        return None
    _, total, _ = _difference(larger, smaller, centre)
    truth = row - centre
    detail = "difference of two runs' sums, with and without the row; blind: the centre of all rows"
    error = relative_error(total, truth)
    return Finding("differencing", SERVER, "a single row", error, blind_error(np.zeros_like(truth), truth), detail)


def _difference(
    larger: Transcript, smaller: Transcript, centre: FloatArray | None
) -> tuple[float, FloatArray, FloatArray]:
    """Number, sum and sum of squares about `centre` of the rows that only the larger run has."""
    d = larger.totals[-1]["position"].shape[1] if centre is None else len(centre)
    sums = [
        sums_about(recover(run.messages, run.totals, whole=True), centre_of(run.messages, d), centre)
        for run in (larger, smaller)
    ]
    rows, total, squares = (a - b for a, b in zip(*sums, strict=True))
    return max(float(rows), 1.0), total, squares


def sums_about(
    found: Recovered, own: FloatArray | None, centre: FloatArray | None
) -> tuple[float, FloatArray, FloatArray]:
    """Sums of a run's rows, moved from the point about which the run took them to `centre`."""
    squares = found.n * found.second
    if own is None or centre is None or found.mean is None:
        return found.n, np.zeros(len(squares)), squares
    total, gap = found.n * (found.mean - own), own - centre
    moved = squares + np.outer(total, gap) + np.outer(gap, total) + found.n * np.outer(gap, gap)
    return found.n, total + found.n * gap, moved
