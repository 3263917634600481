"""A site: its data's state, and the bytes it answers with."""

from typing import Generic

from dagora.errors import DagoraError
from dagora.federated.message import Message, decode, encode
from dagora.federated.protocol import Aggregation, Data, SitePart, SiteState, Summand


class Site(Generic[Data, SiteState]):
    """Answers broadcasts.  The state (moments, duals, last reply) stays here; only protected summands leave."""

    def __init__(self, name: str, part: SitePart[Data, SiteState], data: Data, aggregation: Aggregation) -> None:
        self.name = name
        self._part = part
        self._state = part.init(data)
        self._protected = aggregation.at_site(name, self._answer)

    def handle(self, request: bytes) -> bytes:
        """Bytes in, bytes out: all that a network sees of a site."""
        return self.reply(decode(request))

    def reply(self, message: Message) -> bytes:
        """The same for a message that has been decoded already."""
        return encode(self._protected(message))

    def _answer(self, message: Message) -> Summand:
        try:
            self._state, summand = self._part.local_update(self._state, message)
        except DagoraError as error:
            raise type(error)(f"site {self.name!r}: {error}") from error
        return summand
