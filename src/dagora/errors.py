"""The errors that users see: one line each, which says where, what and what to do."""

from collections.abc import Sequence


class DagoraError(Exception):
    """Any failure that Dagora explains in one line; the command line prints it and exits with 2."""


class InputError(DagoraError, ValueError):
    """Data or an option that cannot be used.  Names site, column and row, never a value."""


class MessageError(DagoraError, ValueError):
    """Bytes from the wire that are not a well-formed message within the size limits."""


class NumericalError(DagoraError, ArithmeticError):
    """A computation that left the finite numbers: reported, never returned as a graph."""


class ResultWarning(UserWarning):
    """What is to be known of a result; also in `Result.warnings`."""


class ConvergenceWarning(ResultWarning):
    """A solver stopped before its own tolerance was met; the result says how far it came."""


class ScaleWarning(ResultWarning):
    """The directions of a result follow the columns' variances, hence their units, closely."""


class MissingSiteError(DagoraError):
    """Sites that did not answer.  A sum without them would be another sum, so the round gives none."""

    def __init__(self, sites: Sequence[str]) -> None:
        self.sites = tuple(sites)
        names = ", ".join(map(repr, self.sites))
        what, them = ("site", "it") if len(self.sites) == 1 else ("sites", "them")
        super().__init__(f"no answer from {what} {names}; start {them} again")


class SlowSiteError(DagoraError):
    """A site that is there, but has worked on one answer for longer than it may."""

    def __init__(self, site: str, seconds: float) -> None:
        super().__init__(
            f"site {site!r} has worked on one answer for more than {seconds:g} s (working); read its log, start it "
            "again if it hangs, then resume the run, or submit the job with a larger working"
        )
