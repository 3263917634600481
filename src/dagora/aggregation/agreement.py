"""Keys that each two sites share and nobody else knows, agreed upon through a server that need not be trusted.

Per run every site makes a new X25519 key pair and signs its public half; the server collects and relays them all.
Signatures are checked against pinned keys, so that the server cannot put itself between two sites.  A pair's key is
HKDF (SHA-256) of the Diffie-Hellman secret over the run and both names, and serves that run only.
"""

from collections.abc import Callable, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from dagora.aggregation.cohort import Cohort, Question
from dagora.errors import MessageError
from dagora.federated.message import Message, Value
from dagora.federated.protocol import Transport
from dagora.federated.vault import Memory, Vault

KEYS_STEP = "keys"

_KEY, _SIGNATURE = 32, 64
_NONCE = bytes(16)  # a key serves one stream


class Agreement:
    """A site's half: its own key pair, and the keys it shares with every other site of the cohort."""

    def __init__(self, cohort: Cohort, site: str, vault: Vault | None = None) -> None:
        self._cohort, self._site = cohort, site
        self._vault = Memory() if vault is None else vault
        self._run = ""
        self._private = X25519PrivateKey.generate()
        self._pairs: dict[str, bytes] | None = None

    def offer(self, message: Message) -> Message:
        """Step one: a new key pair for a new run; its public half, signed."""
        question = Question.of(message)
        if question.run != self._run:
            own = self._vault.once(f"x25519 {question.run}", lambda: X25519PrivateKey.generate().private_bytes_raw())
            self._run, self._private, self._pairs = question.run, X25519PrivateKey.from_private_bytes(own), None
        public = self._private.public_key().public_bytes_raw()
        return self._cohort.seal(self._site, question, {"key": np.frombuffer(public, np.uint8)})

    def pairs(self, message: Message) -> Mapping[str, bytes]:
        """A key for every other site.  The first message after step one carries what all sites offered."""
        if message.get("run") != self._run:
            raise MessageError("message refused: no keys were agreed upon for this run")
        if self._pairs is None:
            question = Question.of(_request(self._run))
            offers = _unpack(message, self._cohort.sites)
            keys = {peer: _public(self._cohort.open(peer, question, offer), peer) for peer, offer in offers.items()}
            if keys.pop(self._site) != self._private.public_key():
                raise MessageError("message refused: the public key relayed for this site is an old one; start over")
            self._pairs = {peer: self._derive(question, peer, key) for peer, key in keys.items()}
        return self._pairs

    def _derive(self, question: Question, peer: str, public: X25519PublicKey) -> bytes:
        pair = question.context(*sorted((self._site, peer)))
        try:
            secret = self._private.exchange(public)
        except ValueError:
            raise MessageError(f"site {peer!r} offered a public key that hides nothing; stop it") from None
        return HKDF(SHA256(), 32, None, pair).derive(secret)


def derived_key(pair: bytes, context: bytes) -> bytes:
    """A key for one question and one use, which the context names."""
    return HKDFExpand(SHA256(), 32, context).derive(pair)


def key_stream(key: bytes) -> Callable[[int], bytes]:
    """Uniform bytes that only holders of the key can tell from random ones: the next so many at each call."""
    encryptor = Cipher(algorithms.ChaCha20(key, _NONCE), mode=None).encryptor()
    return lambda count: encryptor.update(bytes(count))


class Relay:
    """The server's half: a run's public keys, asked for once and relayed with the messages of its first round."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._run: object = None
        self._keys: Message = {}

    def with_keys(self, transport: Transport, asked: Message) -> dict[str, Value]:
        """The message, with all public keys in it where sites may still lack them."""
        if asked.get("run") != self._run:
            self._keys = collect(self._cohort, transport, str(asked.get("run")))
            self._run = asked.get("run")
        return {**asked, **self._keys} if asked.get("round") == 1 else dict(asked)


def collect(cohort: Cohort, transport: Transport, run: str) -> Message:
    """Ask all sites for their public keys; fields to relay with the next message."""
    message = _request(run)
    replies, question = transport.exchange(message), Question.of(message)
    for site in cohort.sites:
        _public(cohort.open(site, question, replies[site]), site)
    parts = {part: [np.asarray(replies[site][part]) for site in cohort.sites] for part in ("body", "signature")}
    return {f"secure.{part}": np.concatenate(arrays) for part, arrays in parts.items()}


def _request(run: str) -> Message:
    return {"run": run, "round": 0, "secure.attempt": 0, "secure.step": KEYS_STEP}


def _unpack(message: Message, sites: tuple[str, ...]) -> dict[str, Message]:
    bodies, signatures = message.get("secure.body"), message.get("secure.signature")
    if not isinstance(bodies, np.ndarray) or not isinstance(signatures, np.ndarray):
        raise MessageError("message refused: the sites' public keys are not in it")
    if bodies.size % len(sites) or signatures.size != _SIGNATURE * len(sites):
        raise MessageError("message refused: it does not hold one public key of every site of the cohort")
    rows = zip(sites, bodies.reshape(len(sites), -1), signatures.reshape(len(sites), -1), strict=True)
    return {site: {"body": body, "signature": signature} for site, body, signature in rows}


def _public(content: Mapping[str, Value], site: str) -> X25519PublicKey:
    key = content.get("key")
    if not isinstance(key, np.ndarray) or key.dtype != np.uint8 or key.size != _KEY:
        raise MessageError(f"site {site!r} offered no public key; stop it")
    return X25519PublicKey.from_public_bytes(key.tobytes())
