"""Secure sums by homomorphic encryption: the server adds what it cannot read, and a key holder reads only the sum.

    1. once a run: the key holder, the cohort's first site, makes BFV keys and signs the public ones
    2. encrypt: site k encrypts its summand's residues under the public keys and sends the ciphertexts
    3. server: adds up the ciphertexts, and sends the sum to the key holder
    4. open: the key holder decrypts the sum and answers with it

BFV computes with integers, exactly.  CKKS, made for real numbers, would give approximate sums, and its decrypted
answers can betray the secret key to whoever sees them (Li and Micciancio 2021); here the server sees them all.
The key holder cannot tell a sum from a single ciphertext: this protects against a server that adds up faithfully and
is curious, on a network that nobody else reads (TLS), not against one that cheats or colludes with the key holder.
`masked` protects against all of these.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from dagora.aggregation import residues
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.fixed_point import check_verdict, encode_summand
from dagora.aggregation.layout import Layout, common_layout
from dagora.aggregation.residues import PRIMES, Residues
from dagora.aggregation.turns import Answered, Attempts
from dagora.errors import InputError, MessageError
from dagora.federated.message import Message, Value
from dagora.federated.protocol import Summand, Total, Transport
from dagora.federated.vault import Memory, Vault

_SLOTS = 4096  # numbers in a ciphertext; with BFV's default moduli for this degree, 128 bits of security


class Encrypted:
    """Both halves; the key holder's is that of the first site."""

    def __init__(self, cohort: Cohort) -> None:
        _tenseal()
        self._cohort = cohort
        self._attempts = Attempts()
        self._run: object = None
        self._keys: Message = {}
        self._contexts: list[Any] = []

    @property
    def holder(self) -> str:
        """The site that holds the secret keys."""
        return self._cohort.sites[0]

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Encrypt a site's summands; at the key holder, also make keys and open sums."""
        return _Encryptor(self._cohort, site, self.holder, answer, vault).reply

    def total(self, transport: Transport, message: Message) -> Total:
        """Add ciphertexts, and have the key holder open the sum."""
        asked = self._attempts.of(message, "encrypt")
        if message.get("run") != self._run:
            self._collect(transport, str(message.get("run")))
            self._run = message.get("run")
        if message.get("round") == 1:
            asked |= self._keys
        replies, question = transport.exchange(asked), Question.of(asked)
        contents = {site: self._cohort.open(site, question, replies[site]) for site in self._cohort.sites}
        layout, total = common_layout(contents), None
        for site, content in contents.items():
            vectors = _vectors(self._contexts, content, "ciphertexts", f"site {site!r}")
            if total is not None and [v.size() for v in vectors] != [v.size() for v in total]:
                raise MessageError(f"site {site!r}: its ciphertexts are not those of its layout; stop it")
            total = vectors if total is None else [a + b for a, b in zip(total, vectors, strict=True)]
        assert total is not None
        follow = {name: asked[name] for name in ("run", "round", "secure.attempt")} | {"secure.step": "open"}
        boxed = _packed([vector.serialize() for vector in total], "secure.sum")
        opened = transport.exchange(follow, {self.holder: boxed})
        content = self._cohort.open(self.holder, Question.of(follow), opened[self.holder])
        values = content.get("residues")
        right = content.get("of") == _digest(boxed, "secure.sum")
        if not right or not isinstance(values, np.ndarray) or values.shape[:1] != (len(PRIMES),):
            raise MessageError(f"key holder {self.holder!r} opened something else than the sum; check the network")
        found = residues.to_floats(values[:, : layout.length])
        check_verdict(found[-1], len(contents))
        return layout.split(found[:-1])

    def _collect(self, transport: Transport, run: str) -> None:
        message = _request(run)
        reply = transport.exchange(message, {self.holder: {}})[self.holder]
        self._contexts = _contexts(self._cohort.open(self.holder, Question.of(message), reply), self.holder)
        self._keys = {f"secure.{part}": reply[part] for part in ("body", "signature")}


class _Encryptor:
    """A site's half: public keys of the run, and at the key holder the secret ones."""

    def __init__(
        self, cohort: Cohort, site: str, holder: str, answer: Callable[[Message], Summand], vault: Vault | None
    ) -> None:
        self._cohort, self._site, self._holder, self._answer = cohort, site, holder, answer
        self._vault = Memory() if vault is None else vault
        self._encrypted, self._opened = Answered(), Answered()
        self._run: object = None
        self._public: list[Any] = []
        self._secret: list[Any] = []
        self._offered: tuple[str, list[bytes]] = "", []

    def reply(self, message: Message) -> Message:
        """Answer the step that the message is in."""
        question = Question.of(message)
        if question.step == "encrypt":
            return self._encrypt(message, question)
        if self._site == self._holder and question.step == "keys":
            return self._offer(question)
        if self._site == self._holder and question.step == "open":
            return self._open(message, question)
        raise MessageError("message refused: it names no step of encrypted sums that is this site's")

    def _offer(self, question: Question) -> Message:
        if question.run != self._offered[0]:  # once a run: other keys would open its sums as noise
            self._secret = [
                _tenseal().context_from(self._vault.once(f"bfv {prime} {question.run}", partial(_new_keys, prime)), 1)
                for prime in PRIMES
            ]
            public = [
                context.serialize(save_secret_key=False, save_galois_keys=False, save_relin_keys=False)
                for context in self._secret
            ]
            self._offered = question.run, public
        return self._cohort.seal(self._site, question, _packed(self._offered[1], "contexts"))

    def _encrypt(self, message: Message, question: Question) -> Message:
        self._encrypted.once(question)
        if question.run != self._run:
            offer = {part: message.get(f"secure.{part}", "") for part in ("body", "signature")}
            content = self._cohort.open(self._holder, Question.of(_request(question.run)), offer)
            self._public, self._run = _contexts(content, self._holder), question.run
        summand = self._answer(message)
        values = residues.of_words(encode_summand(summand, len(self._cohort.sites)))
        ts = _tenseal()
        ciphertexts = [
            ts.bfv_vector(context, chunk.tolist() or [0]).serialize()
            for context, row in zip(self._public, values, strict=True)
            for chunk in np.split(row, range(_SLOTS, len(row), _SLOTS))
        ]
        return self._cohort.seal(
            self._site, question, {"layout": Layout.of(summand).text, **_packed(ciphertexts, "ciphertexts")}
        )

    def _open(self, message: Message, question: Question) -> Message:
        self._opened.once(question)
        vectors = _vectors(self._secret, message, "secure.sum", "the server")
        rows = [[int(value) for value in vector.decrypt()] for vector in vectors]
        chunks = len(rows) // len(PRIMES)
        values: Residues = np.array(
            [np.concatenate(rows[i * chunks : (i + 1) * chunks]) % p for i, p in enumerate(PRIMES)], dtype=np.uint64
        )
        return self._cohort.seal(self._site, question, {"residues": values, "of": _digest(message, "secure.sum")})


def _tenseal() -> Any:
    try:
        import tenseal
    except ImportError:
        raise InputError("aggregation 'encrypted' needs tenseal: pip install 'dagora[encrypted]'") from None
    return tenseal


def _new_keys(prime: int) -> bytes:
    ts = _tenseal()
    context = ts.context(ts.SCHEME_TYPE.BFV, poly_modulus_degree=_SLOTS, plain_modulus=prime, n_threads=1)
    return bytes(context.serialize(save_secret_key=True))


def _request(run: str) -> Message:
    return {"run": run, "round": 0, "secure.attempt": 0, "secure.step": "keys"}


def _packed(parts: Sequence[bytes], name: str) -> Message:
    """Several byte strings as two arrays."""
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    return {name: np.frombuffer(b"".join(parts), np.uint8), f"{name}.sizes": sizes}


def _unpacked(content: Mapping[str, Value], name: str, sender: str) -> list[bytes]:
    data, sizes = content.get(name), content.get(f"{name}.sizes")
    if not isinstance(data, np.ndarray) or not isinstance(sizes, np.ndarray) or sizes.ndim != 1:
        raise MessageError(f"{sender} sent no {name!r}; stop it")
    if (sizes < 0).any() or sizes.sum() != data.size or len(sizes) % len(PRIMES):
        raise MessageError(f"{sender}: the sizes of {name!r} do not add up; stop it")
    return [part.tobytes() for part in np.split(data, np.cumsum(sizes)[:-1])]


def _digest(content: Mapping[str, Value], name: str) -> str:
    """What was opened: the answer names it, lest another sum be slipped in on the way."""
    return sha256(np.asarray(content.get(name)).tobytes()).hexdigest()


def _contexts(content: Mapping[str, Value], holder: str) -> list[Any]:
    ts = _tenseal()
    return [ts.context_from(part, n_threads=1) for part in _unpacked(content, "contexts", f"key holder {holder!r}")]


def _vectors(contexts: Sequence[Any], content: Mapping[str, Value], name: str, sender: str) -> list[Any]:
    """Ciphertexts, all of the first prime before those of the second."""
    ts, parts = _tenseal(), _unpacked(content, name, sender)
    chunks = len(parts) // len(PRIMES)
    try:
        return [ts.bfv_vector_from(contexts[i // chunks], part) for i, part in enumerate(parts)]
    except (ValueError, RuntimeError, IndexError, ZeroDivisionError):
        raise MessageError(f"{sender} sent what is no ciphertext under the run's keys; stop it") from None
