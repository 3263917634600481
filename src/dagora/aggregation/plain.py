"""Plain sums: every site's summand reaches the server as it is.  For simulation and trusted servers only."""

from collections.abc import Callable

import numpy as np

from dagora.errors import MessageError
from dagora.federated.message import Message
from dagora.federated.protocol import Summand, Total, Transport
from dagora.federated.vault import Vault
from dagora.wide import LOW, Wide, without_low


class Plain:
    """Adds summands in the transport's order of sites, so that equal runs give equal bits."""

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Nothing is hidden: the summand is the reply."""
        return answer

    def total(self, transport: Transport, message: Message) -> Total:
        """Add the replies field by field; sites that answer with other fields or shapes are named."""
        total: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
        for site, reply in transport.exchange(message).items():
            if not total:
                total = {name: np.zeros(np.shape(values)) for name, values in reply.items()}
            if reply.keys() != total.keys():
                raise MessageError(f"site {site!r} answered with other fields than the first site; stop it")
            for name, values in reply.items():
                if not isinstance(values, np.ndarray) or values.shape != total[name].shape:
                    raise MessageError(f"site {site!r}: field {name!r} has not the shape of the first site's")
            for name in without_low(total):
                values = np.asarray(reply[name])
                if name + LOW in total:  # what rounding takes from the sum goes to the digits below
                    added = Wide.of(total, name) + Wide(values, np.asarray(reply[name + LOW]))
                    total |= added.fields(name)
                else:
                    total[name] += values
        return total
