"""Who takes part in a run, what they have agreed to, and how a payload proves where it comes from and what it answers.

A cohort is frozen: every site's public key (Ed25519) is known to all before the first round and pinned.  Its
*transcript* is one hash of everything that defines the run: the sites in their order with their keys, and the terms
(plan, administrator's signature, columns, aggregation with its threshold or noise).  A question's *digest* is one hash
of all its fields, without exception.  Both enter every signature, every key of a pair of sites, every mask and every
share.  So sites that were told anything different sign different things, and have masks that do not cancel and shares
that do not open.

A receiver reads nothing of this from the payload: it knows what it asked whom.  A payload that was altered, cut,
replayed from another round, swapped with another site's or signed by a stranger fails the one check, before a byte of
it is used.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
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
    digest: str  # of all fields: sites that were asked anything different have nothing in common

    @classmethod
    def of(cls, message: Message) -> "Question":
        """Read it off a broadcast."""
        run, step = message.get("run"), message.get("secure.step")
        turn, attempt = message.get("round"), message.get("secure.attempt")
        if not (isinstance(run, str) and isinstance(step, str) and type(turn) is int and type(attempt) is int):
            raise MessageError("message refused: it names no run, round, attempt and step")
        return cls(run, turn, attempt, step, sha256(encode(message)).hexdigest())

    @property
    def turn(self) -> tuple[int, int]:
        """Round and attempt: later questions have larger ones."""
        return self.round, self.attempt


@dataclass(frozen=True)
class Cohort:
    """Sites in a fixed order with their public keys, and those private keys that are held here.

    In simulation all are; a site holds its own, and the coordinator none.  terms: a hash of what else defines the run.
    """

    public: Mapping[str, Ed25519PublicKey]
    private: Mapping[str, Ed25519PrivateKey] = field(default_factory=dict, repr=False)
    terms: bytes = b""

    @classmethod
    def simulated(cls, sites: tuple[str, ...]) -> "Cohort":
        """New keys for all sites, in one process."""
        private = {site: Ed25519PrivateKey.generate() for site in sites}
        return cls({site: key.public_key() for site, key in private.items()}, private)

    def under(self, **terms: str | float) -> "Cohort":
        """The same sites under further terms: one that has other terms shares nothing with this one."""
        return replace(self, terms=sha256(self.terms + _ENCODER.encode(sorted(terms.items())).encode()).digest())

    @property
    def sites(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self.public)

    @cached_property
    def transcript(self) -> bytes:
        """One hash of the sites, their order, their keys and the terms."""
        keys = [(site, key.public_bytes_raw().hex()) for site, key in self.public.items()]
        return sha256(_ENCODER.encode(["dagora transcript", keys, self.terms.hex()]).encode()).digest()

    def context(self, question: Question, *names: str) -> bytes:
        """Bytes that no other cohort, terms, question or names give."""
        parts = [question.run, question.round, question.attempt, question.step, question.digest, *names]
        return _ENCODER.encode(["dagora", self.transcript.hex(), *parts]).encode()

    def seal(self, site: str, question: Question, content: Message) -> Message:
        """A signed reply of a site whose private key is held here."""
        body = encode(content)
        signature = self.private[site].sign(self._signed(site, question, body))
        return {"body": np.frombuffer(body, np.uint8), "signature": np.frombuffer(signature, np.uint8)}

    def open(self, site: str, question: Question, reply: Message) -> dict[str, Value]:
        """What a site's reply says, if it is that site's answer to that question."""
        body, signature = _bytes(reply.get("body")), _bytes(reply.get("signature"))
        try:
            self.public[site].verify(signature, self._signed(site, question, body))
        except KeyError:
            raise MessageError(f"site {site!r} is not of this cohort; its answer was not used") from None
        except InvalidSignature:
            raise MessageError(
                f"site {site!r}: its answer to round {question.round} is not signed by the key pinned for it, or was "
                "altered or repeated on the way, or the site was told other terms of the run; it was not used: check "
                "the network and the site's key"
            ) from None
        return decode(body)

    def _signed(self, site: str, question: Question, body: bytes) -> bytes:
        return self.context(question, site) + sha256(body).digest()


def _bytes(value: Value | None) -> bytes:
    return value.tobytes() if isinstance(value, np.ndarray) and value.dtype == np.uint8 else b""
