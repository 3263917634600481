"""Secure sums by Shamir's secret sharing among the sites, so that a total survives sites that drop out.

    1. once a run: sites agree on a key for every two of them                       (agreement.py)
    2. deal: site k writes its summand as residues v_k and draws a polynomial f_k of degree t - 1 with f_k(0) = v_k;
       it sends f_k(j) for every site j, encrypted for j alone (ChaCha20-Poly1305), through the server
    3. agree: the server says what all sites dealt; a site signs it, once and for all, if it has dealt its part of it
    4. combine: shown that t sites or more have signed the same, site j adds up what all sites dealt to it and answers
       with sum_k f_k(j), a point of the polynomial sum_k f_k, whose value at 0 is the total
    5. server: interpolates from any t answers

A site that has dealt counts in full even if it is gone in steps 3 and 4, as long as t sites answer: up to K - t may
drop out.  One that is missing before it has dealt ends the attempt with an error that names it, for a total without it
would be another total.  t is more than two thirds of the sites, so that any two groups of t have more than a third of
all sites in common.  Fewer than t sites together, even with the server, learn nothing of another site's summand.

A question has one attempt, ever.  A site's polynomials are a function of its secret for the run and of the question, so
that a repetition gives the same bytes and two totals of one question cannot differ.  A site sends K - 1 shares: traffic
grows with K^2 over all sites, the price of surviving dropouts without trusting the server.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from dagora.aggregation import residues
from dagora.aggregation.agreement import SETTING_UP, Agreement, Relay, derived_key, noise_stream
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.encoding import Encoder, check_witness
from dagora.aggregation.layout import Layout, common_layout
from dagora.aggregation.residues import MODULI, PRIMES, Residues
from dagora.aggregation.turns import Answered, asked
from dagora.errors import InputError, MessageError
from dagora.federated.message import Message, Value, encode
from dagora.federated.protocol import Summand, Total, Transport
from dagora.federated.vault import Memory, Vault

DEAL_STEP, AGREE_STEP, COMBINE_STEP = "deal", "agree", "combine"

_NONCE = bytes(12)  # a key serves one share
_TAG, _HASH, _SIGNATURE = 16, 32, 64
_SHARE = np.dtype("<u4")
_AGREED = np.frombuffer(encode({}), np.uint8)  # the body under such a signature: the question says it all


def least_threshold(sites: int) -> int:
    """More than two thirds."""
    return 2 * sites // 3 + 1


class Shared:
    """Both halves.  `threshold` sites (None: the least that is safe) are needed, and enough, to open a total."""

    def __init__(self, cohort: Cohort, threshold: int | None = None) -> None:
        sites = len(cohort.sites)
        least = least_threshold(sites)
        self.threshold = least if threshold is None else threshold
        if not least <= self.threshold <= sites:
            raise InputError(
                f"threshold: must lie between {least}, which is more than two thirds of the sites, and their number, "
                f"{sites}"
            )
        self._cohort = cohort.under(aggregation="shared", threshold=self.threshold)
        self._relay = Relay(self._cohort)

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Deal a site's summands, and add up what others dealt."""
        return _Dealer(self._cohort, site, self.threshold, answer, vault).reply

    def total(self, transport: Transport, message: Message) -> Total:
        """Have all sites deal, and enough of them agree and combine."""
        deal = self._relay.with_keys(transport, asked(message, DEAL_STEP))
        sites = self._cohort.sites
        replies, question = transport.exchange(deal), Question.of(deal)
        dealt = {site: self._cohort.open(site, question, replies[site]) for site in sites}
        layout = common_layout(dealt)
        shares = np.stack([_array(dealt[site], "shares", site, (len(sites), _sealed(layout.length))) for site in sites])
        agreed, combine = self._agreed(transport, question, shares)
        own: dict[str, Message] = {site: {"secure.shares": shares[:, sites.index(site)]} for site in agreed}
        answers = transport.exchange(combine, own, self.threshold)
        size = len(PRIMES), layout.length
        points = []
        for site in [site for site in agreed if site in answers]:
            content = self._cohort.open(site, Question.of({**combine, **own[site]}), answers[site])
            points.append((sites.index(site) + 1, _array(content, "point", site, size)))
        found = _at_zero(points[: self.threshold])
        check_witness(residues.to_floats(found[:, -1:])[0], len(sites))
        return layout.total(residues.to_wide(found[:, :-1]))

    def _agreed(
        self, transport: Transport, question: Question, shares: npt.NDArray[np.uint8]
    ) -> tuple[list[str], dict[str, Value]]:
        """Those who have signed what was dealt, and the question by which they combine it."""
        agree = _agreement_on(question, np.stack([_digest(own) for own in shares]))
        replies, signed = transport.exchange(agree, None, self.threshold), Question.of(agree)
        sites = self._cohort.sites
        agreed = [site for site in sites if site in replies]
        signatures = np.zeros((len(sites), _SIGNATURE), dtype=np.uint8)
        for site in agreed:
            self._cohort.open(site, signed, replies[site])
            signatures[sites.index(site)] = replies[site]["signature"]
        return agreed, {**agree, "secure.step": COMBINE_STEP, "secure.agreed": signatures}


class _Dealer:
    """A site's half: between the steps it keeps its own share, and what it has agreed to."""

    def __init__(
        self,
        cohort: Cohort,
        site: str,
        threshold: int,
        answer: Callable[[Message], Summand],
        vault: Vault | None,
    ) -> None:
        self._cohort, self._site, self._threshold, self._answer = cohort, site, threshold, answer
        self._vault = Memory() if vault is None else vault
        self._agreement, self._answered = Agreement(cohort, site, self._vault), Answered()
        self._encoder = Encoder(len(cohort.sites))
        self._pairs: Mapping[str, bytes] = {}
        self._dealt: tuple[Question, Residues, bytes] | None = None  # question, own share, digest of all shares
        self._agreed: Question | None = None

    def reply(self, message: Message) -> Message:
        """Answer the step that the message is in."""
        step, question = message.get("secure.step"), Question.of(message)
        if step in SETTING_UP:
            return self._agreement.answer(message)
        if step == DEAL_STEP:
            return self._deal(message, question)
        if step == AGREE_STEP:
            return self._agree(message, question)
        if step == COMBINE_STEP:
            return self._combine(message, question)
        raise MessageError("message refused: it names no step of shared sums")

    def _deal(self, message: Message, question: Question) -> Message:
        if question.attempt != 0:
            raise MessageError("message refused: a shared sum has one attempt")
        self._pairs = self._agreement.pairs(message)  # first: a refused question must not make the site forget others
        self._answered.repeatable(question)
        summand, sites = self._answer(message), self._cohort.sites
        layout = Layout.of(summand)
        # The same question, asked again, must find the same polynomials: others hold their points.
        stream = noise_stream(self._vault, question.run, self._cohort.context(question, "polynomials"))
        words = self._encoder.words(question.run, summand)
        noise = residues.uniform((layout.length,), stream(residues.bytes_for(layout.length)))
        secret = noise if words is None else residues.of_words(words)
        shares = _evaluate(secret, self._threshold, len(sites), stream)
        sealed = np.zeros((len(sites), _sealed(layout.length)), dtype=np.uint8)
        own = sites.index(self._site)
        for j, peer in enumerate(sites):
            if peer != self._site:
                cipher = ChaCha20Poly1305(self._share_key(question, self._site, peer))
                sealed[j] = np.frombuffer(cipher.encrypt(_NONCE, shares[j].astype(_SHARE).tobytes(), None), np.uint8)
        if self._dealt is None or self._dealt[0] != question:
            self._agreed = None
        self._dealt = question, shares[own], _digest(sealed).tobytes()
        return self._cohort.seal(self._site, question, {"layout": layout.text, "shares": sealed})

    def _agree(self, message: Message, question: Question) -> Message:
        """Sign what all sites dealt; nothing else, ever, in this question."""
        dealt, _, digest = self._dealt_in(question)
        listed = message.get("secure.dealt")
        if message.get("secure.of") != dealt.digest or not _lists(listed, self._cohort.sites, self._site, digest):
            raise MessageError("message refused: it does not say what this site has dealt")
        if self._agreed not in (None, question):
            raise MessageError("message refused: this site has agreed to other shares in this question")
        self._agreed = question
        return self._cohort.seal(self._site, question, {})

    def _combine(self, message: Message, question: Question) -> Message:
        asked, point, _ = self._dealt_in(question)
        self._check_agreed(message)
        sites, size = self._cohort.sites, point.shape[1]
        received = _array(message, "secure.shares", "the server", (len(sites), _sealed(size)))
        for row, peer in zip(received, sites, strict=True):  # every site's, or a part of the sum would be opened
            if peer == self._site:
                continue
            try:
                cipher = ChaCha20Poly1305(self._share_key(asked, peer, self._site))
                share = cipher.decrypt(_NONCE, row.tobytes(), None)
            except InvalidTag:
                raise MessageError(f"the share that site {peer!r} dealt is missing or was altered; not used") from None
            point = (point + np.frombuffer(share, _SHARE).reshape(point.shape)) % MODULI
        return self._cohort.seal(self._site, question, {"point": point})

    def _dealt_in(self, question: Question) -> tuple[Question, Residues, bytes]:
        if self._dealt is None or (self._dealt[0].run, *self._dealt[0].turn) != (question.run, *question.turn):
            raise MessageError("message refused: this site has not dealt in this round")
        return self._dealt

    def _check_agreed(self, message: Message) -> None:
        """Whether this site and enough others have signed what is to be combined."""
        agreed = {name: value for name, value in message.items() if name not in ("secure.agreed", "secure.shares")}
        question = Question.of({**agreed, "secure.step": AGREE_STEP})
        if question != self._agreed:
            raise MessageError("message refused: this site has not agreed to what is to be combined")
        signatures = message.get("secure.agreed")
        if not isinstance(signatures, np.ndarray) or signatures.shape != (len(self._cohort.sites), _SIGNATURE):
            raise MessageError("message refused: what the sites agreed to is not in it")
        signed = 0
        for peer, signature in zip(self._cohort.sites, signatures, strict=True):
            if signature.any():
                self._cohort.open(peer, question, {"body": _AGREED, "signature": signature})
                signed += 1
        if signed < self._threshold:
            raise MessageError(f"message refused: only {signed} sites have agreed, and {self._threshold} are needed")

    def _share_key(self, asked: Question, dealer: str, receiver: str) -> bytes:
        other = receiver if dealer == self._site else dealer
        return derived_key(self._pairs[other], self._cohort.context(asked, dealer, receiver))


def _agreement_on(question: Question, dealt: npt.NDArray[np.uint8]) -> dict[str, Value]:
    about: Message = {"run": question.run, "round": question.round, "secure.of": question.digest}
    return {**asked(about, AGREE_STEP), "secure.dealt": dealt}


def _digest(shares: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Of all that one site dealt."""
    return np.frombuffer(sha256(np.ascontiguousarray(shares).tobytes()).digest(), np.uint8)


def _lists(listed: Value | None, sites: tuple[str, ...], site: str, digest: bytes) -> bool:
    """Whether a list of what all sites dealt holds what this one did."""
    if not isinstance(listed, np.ndarray) or listed.dtype != np.uint8 or listed.shape != (len(sites), _HASH):
        return False
    return bool(listed[sites.index(site)].tobytes() == digest)


def _evaluate(secret: Residues, threshold: int, sites: int, random: Callable[[int], bytes]) -> Residues:
    """Random polynomials with the secrets at 0, at the points 1 ... `sites`: (sites, 4, n), by Horner's rule."""
    x = np.arange(1, sites + 1, dtype=np.uint64)[:, None, None]
    values = np.zeros((sites, *secret.shape), dtype=np.uint64)
    bound, steps = 2**64 // (sites + 1), 0
    for _ in range(threshold - 1):
        coefficients = residues.uniform((secret.shape[1],), random(residues.bytes_for(secret.shape[1])))
        values = (values + coefficients) * x
        steps += 1
        if 2**32 * (sites + 1) ** (steps + 1) > bound:  # reduce only when the next step could overflow
            values %= MODULI
            steps = 0
    return (values + secret) % MODULI


def _at_zero(points: list[tuple[int, Residues]]) -> Residues:
    """Lagrange interpolation at 0."""
    total = np.zeros_like(points[0][1])
    for x, values in points:
        for row, prime in enumerate(PRIMES):
            weight = 1
            for other, _ in points:
                if other != x:
                    weight = weight * other * pow(other - x, -1, prime) % prime
            total[row] = (total[row] + values[row] * np.uint64(weight)) % np.uint64(prime)
    return total


def _sealed(size: int) -> int:
    return len(PRIMES) * size * _SHARE.itemsize + _TAG


def _array(content: Mapping[str, Value], name: str, sender: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    value = content.get(name)
    if not isinstance(value, np.ndarray) or value.shape != shape:
        raise MessageError(f"the answer of {sender!r} holds no {name!r} of the expected size; stop it")
    return value
