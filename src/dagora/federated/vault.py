"""What a site draws at random once a run, and must find again after a restart: keys and noise.

A mask under a new key would not cancel, and noise drawn again would be a second release.  So aggregations ask the vault
for such bytes by name; in one process it is memory, on a network a folder of the site's own (federation/store.py).
"""

from collections.abc import Callable
from typing import Protocol


class Vault(Protocol):
    """Secrets by name, which never leave the site."""

    def once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The bytes of that name; made, and kept before they are used, if there are none yet."""


class Memory:
    """A vault that lasts as long as its process, with room for the newest secrets only."""

    def __init__(self, room: int = 16) -> None:
        self._kept: dict[str, bytes] = {}
        self._room = room

    def once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Keep the last few: those of earlier runs are of no use."""
        if name not in self._kept:
            self._kept[name] = make()
            while len(self._kept) > self._room:
                del self._kept[next(iter(self._kept))]
        return self._kept[name]
