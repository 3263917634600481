"""A site: its data's state, and the bytes it answers with."""

from typing import Generic

from dagora.errors import DagoraError, MessageError
from dagora.federated.message import Message, decode, encode
from dagora.federated.protocol import Aggregation, Data, SitePart, SiteState, Summand


class Site(Generic[Data, SiteState]):
    """Answers broadcasts.  The state (moments, duals, last reply) stays here; only protected summands leave.

    A round moves the state once, however often it is asked for: a retry gets the summand that was computed already,
    and a repeated round with another question is refused.
    """

    def __init__(self, name: str, part: SitePart[Data, SiteState], data: Data, aggregation: Aggregation) -> None:
        self.name = name
        self._part = part
        self._state = part.init(data)
        self._protected = aggregation.at_site(name, self._answer)
        self._last: tuple[Message, Summand] | None = None

    def handle(self, request: bytes) -> bytes:
        """Bytes in, bytes out: all that a network sees of a site."""
        return self.reply(decode(request))

    def reply(self, message: Message) -> bytes:
        """The same for a message that has been decoded already."""
        try:
            return encode(self._protected(message))
        except DagoraError as error:
            raise type(error)(f"site {self.name!r}: {error}") from error

    def _answer(self, message: Message) -> Summand:
        if self._last is not None and _turn(message) == _turn(self._last[0]) != (None, None):
            earlier, summand = self._last
            if encode(_question(message)) != encode(_question(earlier)):
                raise MessageError(f"round {message.get('round')} was asked before with another question; refused")
            return summand
        self._state, summand = self._part.local_update(self._state, message)
        self._last = message, summand
        return summand


def _turn(message: Message) -> tuple[object, object]:
    return message.get("run"), message.get("round")


def _question(message: Message) -> Message:
    """The algorithm's part of a message: what aggregations add differs between attempts."""
    return {name: value for name, value in message.items() if not name.startswith("secure.")}
