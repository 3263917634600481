"""Who takes part in a run, and how a payload proves where it comes from and what it answers.

A cohort is frozen: every site's public key (Ed25519) is known to all before the first round and pinned.  A payload is
signed over the run, the round, the attempt, the step, the site and the payload's hash.  Nothing of that is read from
the payload: the receiver knows what it asked whom, so a payload that was altered, cut, replayed from another round,
swapped with another site's or signed by a stranger fails the one check, before a byte of it is used.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dagora.errors import MessageError
from dagora.federated.message import Message, Value, decode, encode

_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class Question:
    """What a payload answers.  A retry of a round is another attempt, and hence another question."""

    run: str
    round: int
    attempt: int
    step: str
    digest: str  # of the algorithm's broadcast: sites that were asked different things have nothing in common

    @classmethod
    def of(cls, message: Message) -> "Question":
        """Read it off a broadcast."""
        asked = {name: value for name, value in message.items() if not name.startswith("secure.")}
        run, step = message.get("run"), message.get("secure.step")
        turn, attempt = message.get("round"), message.get("secure.attempt")
        if not (isinstance(run, str) and isinstance(step, str) and isinstance(turn, int) and isinstance(attempt, int)):
            raise MessageError("message refused: it names no run, round, attempt and step")
        return cls(run, turn, attempt, step, sha256(encode(asked)).hexdigest())

    @property
    def turn(self) -> tuple[int, int]:
        """Round and attempt: later questions have larger ones."""
        return self.round, self.attempt

    def context(self, *names: str) -> bytes:
        """Bytes that no other question and no other names give."""
        parts = [self.run, self.round, self.attempt, self.step, self.digest, *names]
        return _ENCODER.encode(["dagora", *parts]).encode()


@dataclass(frozen=True)
class Cohort:
    """Sites in a fixed order with their public keys, and those private keys that are held here.

    In simulation all are; a site holds its own, and the coordinator none.
    """

    public: Mapping[str, Ed25519PublicKey]
    private: Mapping[str, Ed25519PrivateKey] = field(default_factory=dict, repr=False)

    @classmethod
    def simulated(cls, sites: tuple[str, ...]) -> "Cohort":
        """New keys for all sites, in one process."""
        private = {site: Ed25519PrivateKey.generate() for site in sites}
        return cls({site: key.public_key() for site, key in private.items()}, private)

    @property
    def sites(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self.public)

    def seal(self, site: str, question: Question, content: Message) -> Message:
        """A signed reply of a site whose private key is held here."""
        body = encode(content)
        signature = self.private[site].sign(_signed(site, question, body))
        return {"body": np.frombuffer(body, np.uint8), "signature": np.frombuffer(signature, np.uint8)}

    def open(self, site: str, question: Question, reply: Message) -> dict[str, Value]:
        """What a site's reply says, if it is that site's answer to that question."""
        body, signature = _bytes(reply.get("body")), _bytes(reply.get("signature"))
        try:
            self.public[site].verify(signature, _signed(site, question, body))
        except KeyError:
            raise MessageError(f"site {site!r} is not of this cohort; its answer was not used") from None
        except InvalidSignature:
            raise MessageError(
                f"site {site!r}: its answer to round {question.round} is not signed by the key pinned for it, or was "
                "altered or repeated on the way; it was not used: check the network and the site's key"
            ) from None
        return decode(body)


def _signed(site: str, question: Question, body: bytes) -> bytes:
    return question.context(site) + sha256(body).digest()


def _bytes(value: Value | None) -> bytes:
    return value.tobytes() if isinstance(value, np.ndarray) and value.dtype == np.uint8 else b""
