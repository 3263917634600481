"""Secure sums by homomorphic encryption: the server adds what it cannot read, and a key holder reads only the sum.

    1. once a run: every two sites agree on a key (agreement.py); the key holder, the cohort's first site, makes BFV
       keys and signs the public ones
    2. encrypt: site k adds pairwise masks to its summand's residues, as in masked.py, encrypts them under the public
       keys and sends the ciphertexts
    3. server: adds up the ciphertexts, and sends the sum to the key holder
    4. open: the key holder decrypts the sum, in which the masks cancel, and answers with it

The masks are there because a key holder cannot tell a sum from a single ciphertext: a server that cheats may have one
opened, and finds a masked payload.  So this protects as `masked` does, and in addition nobody but server and key holder
can compute a total from all that was sent.

BFV computes with integers, exactly.  CKKS, made for real numbers, would give approximate sums, and its decrypted
answers can betray the secret key to whoever sees them (Li and Micciancio 2021); here the server sees them all.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from dagora.aggregation import residues
from dagora.aggregation.agreement import SETTING_UP, Agreement, Relay, derived_key, key_stream, noise_stream
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.encoding import Encoder, check_witness
from dagora.aggregation.fixed_point import Words
from dagora.aggregation.layout import Layout, common_layout
from dagora.aggregation.residues import MODULI, PRIMES, Residues
from dagora.aggregation.turns import Answered, Attempts
from dagora.errors import InputError, MessageError
from dagora.federated.message import Message, Value
from dagora.federated.protocol import Summand, Total, Transport
from dagora.federated.vault import Memory, Vault

CONTEXTS_STEP, ENCRYPT_STEP, OPEN_STEP = "contexts", "encrypt", "open"

_SLOTS = 4096  # numbers in a ciphertext; with BFV's default moduli for this degree, 128 bits of security


class Encrypted:
    """Both halves; the key holder's is that of the first site."""

    def __init__(self, cohort: Cohort) -> None:
        _tenseal()
        self._cohort = cohort.under(aggregation="encrypted")
        self._attempts = Attempts()
        self._relay = Relay(self._cohort)
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
        """Mask and encrypt a site's summands; at the key holder, also make keys and open sums."""
        return _Encryptor(self._cohort, site, self.holder, answer, vault).reply

    def total(self, transport: Transport, message: Message) -> Total:
        """Add ciphertexts, and have the key holder open the sum."""
        asked = self._relay.with_keys(transport, self._attempts.of(message, ENCRYPT_STEP))
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
        follow = {name: asked[name] for name in ("run", "round", "secure.attempt")} | {"secure.step": OPEN_STEP}
        boxed = _packed([vector.serialize() for vector in total], "secure.sum")
        opened = transport.exchange(follow, {self.holder: boxed})
        question = Question.of({**follow, **boxed})
        content = self._cohort.open(self.holder, question, opened[self.holder])
        values = content.get("residues")
        right = content.get("of") == _digest(boxed, "secure.sum")
        if not right or not isinstance(values, np.ndarray) or values.shape[:1] != (len(PRIMES),):
            raise MessageError(f"key holder {self.holder!r} opened something else than the sum; check the network")
        check_witness(residues.to_floats(values[:, layout.size : layout.length])[0], len(contents))
        return layout.total(residues.to_wide(values[:, : layout.size]))

    def _collect(self, transport: Transport, run: str) -> None:
        message = _request(run)
        reply = transport.exchange(message, {self.holder: {}})[self.holder]
        self._contexts = _contexts(self._cohort.open(self.holder, Question.of(message), reply), self.holder)
        self._keys = {f"secure.contexts.{part}": reply[part] for part in ("body", "signature")}


class _Encryptor:
    """A site's half: public keys of the run, and at the key holder the secret ones."""

    def __init__(
        self, cohort: Cohort, site: str, holder: str, answer: Callable[[Message], Summand], vault: Vault | None
    ) -> None:
        self._cohort, self._site, self._holder, self._answer = cohort, site, holder, answer
        self._vault = Memory() if vault is None else vault
        self._agreement, self._encoder = Agreement(cohort, site, self._vault), Encoder(len(cohort.sites))
        self._encrypted, self._opened = Answered(), Answered()
        self._run: object = None
        self._public: list[Any] = []
        self._secret: list[Any] = []
        self._offered: tuple[str, list[bytes]] = "", []

    def reply(self, message: Message) -> Message:
        """Answer the step that the message is in."""
        question = Question.of(message)
        if question.step in SETTING_UP:
            return self._agreement.answer(message)
        if question.step == ENCRYPT_STEP:
            return self._encrypt(message, question)
        if self._site == self._holder and question.step == CONTEXTS_STEP:
            return self._offer(question)
        if self._site == self._holder and question.step == OPEN_STEP:
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
        pairs = self._agreement.pairs(message)  # first: a refused question must not make the site forget others
        if question.run != self._run:
            offer = {part: message.get(f"secure.contexts.{part}", "") for part in ("body", "signature")}
            content = self._cohort.open(self._holder, Question.of(_request(question.run)), offer)
            self._public, self._run = _contexts(content, self._holder), question.run
        self._encrypted.once(question)
        summand = self._answer(message)
        layout = Layout.of(summand)
        values = self._masked(question, pairs, self._encoder.words(question.run, summand), layout.length)
        ts = _tenseal()
        ciphertexts = [
            ts.bfv_vector(context, chunk.tolist() or [0]).serialize()
            for context, row in zip(self._public, values, strict=True)
            for chunk in np.split(row, range(_SLOTS, len(row), _SLOTS))
        ]
        return self._cohort.seal(self._site, question, {"layout": layout.text, **_packed(ciphertexts, "ciphertexts")})

    def _masked(self, question: Question, pairs: Mapping[str, bytes], words: Words | None, length: int) -> Residues:
        """Residues that mean something only in the sum of all sites'; noise if there are no words."""
        if words is None:
            random = noise_stream(self._vault, question.run, self._cohort.context(question, "noise"))
            return residues.uniform((length,), random(residues.bytes_for(length)))
        values, context = residues.of_words(words), self._cohort.context(question, "mask")
        for peer, pair in pairs.items():
            mask = residues.uniform((length,), key_stream(derived_key(pair, context))(residues.bytes_for(length)))
            values = (values + (mask if self._site < peer else MODULI - mask)) % MODULI
        return values

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
    return {"run": run, "round": 0, "secure.attempt": 0, "secure.step": CONTEXTS_STEP}


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
