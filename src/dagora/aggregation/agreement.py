"""Keys that each two sites share and nobody else knows, agreed upon through a server that need not be trusted.

    1. keys     every site makes a new X25519 key pair for the run and signs its public half
    2. confirm  the server relays all public halves; every site checks the signatures and signs what it was shown
    3. the first question carries all confirmations: a site answers only if all sites were shown the same

Signatures are over the cohort's transcript (cohort.py) and checked against pinned keys, so that the server can neither
put itself between two sites nor tell two sites different things about the run.  Step 2 is the consistency check of
Bonawitz et al. (2017).  A pair's key is HKDF (SHA-256) of the Diffie-Hellman secret over the transcript, over all that
was confirmed and over both names.  It serves that run only.
"""

from collections.abc import Callable, Mapping
from secrets import token_bytes

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from dagora.aggregation.cohort import Cohort, Question
from dagora.errors import MessageError
from dagora.federated.message import Message, Value, encode
from dagora.federated.protocol import Transport
from dagora.federated.vault import Memory, Vault

KEYS_STEP = "keys"
CONFIRM_STEP = "confirm"
SETTING_UP = (KEYS_STEP, CONFIRM_STEP)

_KEY, _SIGNATURE = 32, 64
_NONCE = bytes(16)  # a key serves one stream


class Agreement:
    """A site's half: its own key pair, and the keys it shares with every other site of the cohort."""

    def __init__(self, cohort: Cohort, site: str, vault: Vault | None = None) -> None:
        self._cohort, self._site = cohort, site
        self._vault = Memory() if vault is None else vault
        self._run = ""
        self._private = X25519PrivateKey.generate()
        self._shown: tuple[Question, dict[str, X25519PublicKey]] | None = None  # what this site has confirmed
        self._pairs: dict[str, bytes] | None = None

    def answer(self, message: Message) -> Message:
        """Steps one and two."""
        return self._offer(message) if message.get("secure.step") == KEYS_STEP else self._confirm(message)

    def pairs(self, message: Message) -> Mapping[str, bytes]:
        """A key for every other site.  The first message after step two carries what all sites confirmed."""
        if message.get("run") != self._run:
            raise MessageError("message refused: no keys were agreed upon for this run")
        if self._pairs is None:
            if self._shown is None:
                raise MessageError("message refused: this site was not shown the public keys of the run")
            question, keys = self._shown
            confirmed = _rows(message.get("secure.confirmed"), len(self._cohort.sites), _SIGNATURE)
            if confirmed is None:
                raise MessageError("message refused: what the sites confirmed is not in it")
            for peer, signature in zip(self._cohort.sites, confirmed, strict=True):
                self._cohort.open(peer, question, {"body": _CONFIRMED, "signature": signature})
            self._pairs = {peer: self._derive(question, peer, key) for peer, key in keys.items() if peer != self._site}
        return self._pairs

    def _offer(self, message: Message) -> Message:
        """A new key pair for a new run; its public half, signed."""
        question = Question.of(message)
        if question.run != self._run:
            own = self._vault.once(f"x25519 {question.run}", lambda: X25519PrivateKey.generate().private_bytes_raw())
            self._run, self._private = question.run, X25519PrivateKey.from_private_bytes(own)
            self._shown = self._pairs = None
        public = self._private.public_key().public_bytes_raw()
        return self._cohort.seal(self._site, question, {"key": np.frombuffer(public, np.uint8)})

    def _confirm(self, message: Message) -> Message:
        """Check what all sites offered, and sign it: the question's digest is over all of it."""
        question = Question.of(message)
        if question.run != self._run:
            raise MessageError("message refused: no keys were asked for in this run")
        asked = Question.of(_request(self._run))
        keys = {}
        for peer, offer in _unpack(message, self._cohort.sites).items():
            keys[peer] = _public(self._cohort.open(peer, asked, offer), peer)
        if keys[self._site] != self._private.public_key():
            raise MessageError("message refused: the public key relayed for this site is an old one; start over")
        if self._shown is not None and self._shown[0] != question:
            raise MessageError("message refused: this site was shown other public keys before, in the same run")
        self._shown = question, keys
        return self._cohort.seal(self._site, question, {})

    def _derive(self, question: Question, peer: str, public: X25519PublicKey) -> bytes:
        pair = self._cohort.context(question, *sorted((self._site, peer)))
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


def noise_stream(vault: Vault, run: str, context: bytes) -> Callable[[int], bytes]:
    """Uniform bytes that nobody else knows, the same for the same question, also after a restart.

    Noise that was drawn anew would show that it is noise: all else that a site sends is the same when it is sent again.
    """
    return key_stream(derived_key(vault.once(f"noise {run}", lambda: token_bytes(_KEY)), context))


class Relay:
    """The server's half: what sites offered and confirmed in a run, relayed with the messages of its first round."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._run: object = None
        self._confirmed: Message = {}

    def with_keys(self, transport: Transport, asked: Message) -> dict[str, Value]:
        """The message, with all confirmations in it where sites may still lack them."""
        if asked.get("run") != self._run:
            self._confirmed = agree(self._cohort, transport, str(asked.get("run")))
            self._run = asked.get("run")
        return {**asked, **self._confirmed} if asked.get("round") == 1 else dict(asked)


def agree(cohort: Cohort, transport: Transport, run: str) -> Message:
    """Have all sites offer keys and confirm what all offered; fields to relay with the next message."""
    message = _request(run)
    offers, question = transport.exchange(message), Question.of(message)
    for site in cohort.sites:
        _public(cohort.open(site, question, offers[site]), site)
    parts = {part: [np.asarray(offers[site][part]) for site in cohort.sites] for part in ("body", "signature")}
    shown: Message = {
        **_request(run, CONFIRM_STEP),
        **{f"secure.{part}": np.concatenate(arrays) for part, arrays in parts.items()},
    }
    replies, question = transport.exchange(shown), Question.of(shown)
    for site in cohort.sites:
        cohort.open(site, question, replies[site])
    return {"secure.confirmed": np.concatenate([np.asarray(replies[site]["signature"]) for site in cohort.sites])}


_CONFIRMED = np.frombuffer(encode({}), np.uint8)  # the body under a confirmation: the question says it all


def _request(run: str, step: str = KEYS_STEP) -> Message:
    return {"run": run, "round": 0, "secure.attempt": 0, "secure.step": step}


def _unpack(message: Message, sites: tuple[str, ...]) -> dict[str, Message]:
    bodies = _rows(message.get("secure.body"), len(sites), None)
    signatures = _rows(message.get("secure.signature"), len(sites), _SIGNATURE)
    if bodies is None or signatures is None:
        raise MessageError("message refused: it does not hold one public key of every site of the cohort")
    rows = zip(sites, bodies, signatures, strict=True)
    return {site: {"body": body, "signature": signature} for site, body, signature in rows}


def _rows(
    value: Value | None, count: int, size: int | None
) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]] | None":
    """So many equal parts of bytes, each of a size if one is given; None if they are not there."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.size == 0 or value.size % count:
        return None
    rows: npt.NDArray[np.uint8] = value.reshape(count, -1)
    return rows if size is None or rows.shape[1] == size else None


def _public(content: Mapping[str, Value], site: str) -> X25519PublicKey:
    key = content.get("key")
    if not isinstance(key, np.ndarray) or key.dtype != np.uint8 or key.size != _KEY:
        raise MessageError(f"site {site!r} offered no public key; stop it")
    return X25519PublicKey.from_public_bytes(key.tobytes())
