"""The errors that users see: one line each, which says where, what and what to do."""


class DagoraError(Exception):
    """Any failure that Dagora explains in one line; the command line prints it and exits with 2."""


class InputError(DagoraError, ValueError):
    """Data or an option that cannot be used.  Names site, column and row, never a value."""


class MessageError(DagoraError, ValueError):
    """Bytes from the wire that are not a well-formed message within the size limits."""


class NumericalError(DagoraError, ArithmeticError):
    """A computation that left the finite numbers: reported, never returned as a graph."""


class ConvergenceWarning(UserWarning):
    """A solver stopped before its own tolerance was met; the result says how far it came."""
