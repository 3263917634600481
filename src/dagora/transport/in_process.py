"""Sites and coordinator in one process.  Messages still travel as bytes, so they weigh what they would weigh."""

from collections.abc import Mapping, Sequence
from typing import Any

from dagora.errors import DagoraError
from dagora.federated.message import Message, decode, encode
from dagora.federated.site import Site, step_together


class InProcess:
    """Calls each site in turn, in the order given."""

    def __init__(self, sites: Sequence[Site[Any, Any]]) -> None:
        names = [site.name for site in sites]
        if len(set(names)) < len(names):
            raise DagoraError("two sites have the same name; rename one")
        self._sites = tuple(sites)
        self.sent = 0
        self.received = 0

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> dict[str, Message]:
        """Send the same bytes to every site, or each its own, and decode what they answer; here all always do."""
        common = encode(message)
        decoded = decode(common)  # once for all: its arrays cannot be written to
        replies: dict[str, Message] = {}
        if own is None:
            step_together(self._sites, decoded)
        for site in self._sites:
            if own is None:
                size, request = len(common), decoded
            elif site.name in own:
                single = encode({**message, **own[site.name]})
                size, request = len(single), decode(single)
            else:
                continue
            reply = site.reply(request)
            self.received += size
            self.sent += len(reply)
            replies[site.name] = decode(reply)
        return replies

    def close(self) -> None:
        """Nothing is held."""
