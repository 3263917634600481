r"""Text for terminals and logs: characters that steer a terminal, or that cannot be seen, are written as \x1b is here.

Names of columns, sites and runs, and the words of errors, may come from data files or from other participants.
"""

import logging
from types import TracebackType
from typing import TypeAlias
from unicodedata import category

# Control characters (with line ends), invisible ones (with those that turn the direction of text), halves of
# characters, line and paragraph separators.
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_Failure: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def visible(text: str) -> str:
    """One line that shows what is in the text; the same again if it is applied again."""
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if category(c) in _HIDDEN else c for c in text)


class Lines(logging.Formatter):
    """One line an event; the lines of a traceback are indented, so that none of them looks like an event."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The event's own line."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: _Failure) -> str:  # noqa: N802
        """A traceback."""
        return "\n".join("    " + visible(line) for line in super().formatException(ei).split("\n"))
