"""Secure sums by Shamir's secret sharing among the sites, so that a total survives sites that drop out.

    1. once a run: sites agree on a key for every two of them                       (agreement.py)
    2. deal: site k writes its summand as residues v_k and draws a polynomial f_k of degree t - 1 with f_k(0) = v_k;
       it sends f_k(j) for every site j, encrypted for j alone (ChaCha20-Poly1305), through the server
    3. combine: site j adds up what all sites dealt to it and answers with sum_k f_k(j), a point of the polynomial
       sum_k f_k, whose value at 0 is the total
    4. server: interpolates from any t answers

A site that has dealt counts in full even if it is gone in step 3, as long as t sites answer: up to K - t may drop out.
One that is missing before it has dealt ends the attempt with an error that names it, for a total without it would be
another total.  Fewer than t sites together, even with the server, learn nothing of another site's summand.  A site
sends K - 1 shares: traffic grows with K^2 over all sites, the price of surviving dropouts without trusting the server.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from dagora.aggregation import residues
from dagora.aggregation.agreement import Agreement, Relay, derived_key, key_stream
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.fixed_point import check_verdict, encode_summand
from dagora.aggregation.layout import Layout, common_layout
from dagora.aggregation.residues import MODULI, PRIMES, Residues
from dagora.aggregation.turns import Answered, Attempts
from dagora.errors import InputError, MessageError
from dagora.federated.message import Message, Value
from dagora.federated.protocol import Summand, Total, Transport
from dagora.federated.vault import Memory, Vault

DEAL_STEP = "deal"
COMBINE_STEP = "combine"

_NONCE = bytes(12)  # a key serves one share
_TAG, _KEY = 16, 32
_SHARE = np.dtype("<u4")


class Shared:
    """Both halves.  `threshold` sites (None: more than half) are needed, and enough, to open a total."""

    def __init__(self, cohort: Cohort, threshold: int | None = None) -> None:
        sites = len(cohort.sites)
        self.threshold = sites // 2 + 1 if threshold is None else threshold
        if not 1 <= self.threshold <= sites:
            raise InputError(f"threshold: must lie between 1 and the number of sites, {sites}")
        self._cohort = cohort
        self._attempts = Attempts()
        self._relay = Relay(cohort)

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Deal a site's summands, and add up what others dealt."""
        return _Dealer(self._cohort, site, self.threshold, answer, vault).reply

    def total(self, transport: Transport, message: Message) -> Total:
        """Have all sites deal, and enough of them combine."""
        asked = self._relay.with_keys(transport, self._attempts.of(message, DEAL_STEP))
        sites = self._cohort.sites
        replies, question = transport.exchange(asked), Question.of(asked)
        dealt = {site: self._cohort.open(site, question, replies[site]) for site in sites}
        layout = common_layout(dealt)
        shares = np.stack([_array(dealt[site], "shares", site, (len(sites), _sealed(layout.length))) for site in sites])
        follow = {name: asked[name] for name in ("run", "round", "secure.attempt")} | {"secure.step": COMBINE_STEP}
        own: dict[str, Message] = {site: {"secure.shares": shares[:, j]} for j, site in enumerate(sites)}
        answers, question = transport.exchange(follow, own, self.threshold), Question.of(follow)
        size = len(PRIMES), layout.length
        points = [
            (j + 1, _array(self._cohort.open(site, question, answers[site]), "point", site, size))
            for j, site in enumerate(sites)
            if site in answers
        ]
        found = residues.to_floats(_at_zero(points[: self.threshold]))
        check_verdict(found[-1], len(sites))
        return layout.split(found[:-1])


class _Dealer:
    """A site's half: between the two steps it keeps its own share and the size of what was dealt."""

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
        self._pairs: Mapping[str, bytes] = {}
        self._dealt: tuple[Question, Residues] | None = None

    def reply(self, message: Message) -> Message:
        """Answer the step that the message is in."""
        match message.get("secure.step"):
            case "keys":
                return self._agreement.offer(message)
            case "deal":
                return self._deal(message, Question.of(message))
            case "combine":
                return self._combine(message, Question.of(message))
        raise MessageError("message refused: it names no step of shared sums")

    def _deal(self, message: Message, question: Question) -> Message:
        self._pairs = self._agreement.pairs(message)  # first: a refused question must not make the site forget others
        self._answered.once(question)
        summand, sites = self._answer(message), self._cohort.sites
        secret = residues.of_words(encode_summand(summand, len(sites)))
        # The same question, asked again after a restart, must find the same polynomials: others hold their points.
        seed = self._vault.once(f"polynomials {question.run}", lambda: os.urandom(_KEY))
        stream = key_stream(derived_key(seed, question.context("polynomials")))
        shares = _evaluate(secret, self._threshold, len(sites), stream)
        sealed = np.zeros((len(sites), _sealed(secret.shape[1])), dtype=np.uint8)
        for j, peer in enumerate(sites):
            if peer == self._site:
                self._dealt = question, shares[j]
            else:
                cipher = ChaCha20Poly1305(derived_key(self._pairs[peer], question.context(self._site, peer)))
                sealed[j] = np.frombuffer(cipher.encrypt(_NONCE, shares[j].astype(_SHARE).tobytes(), None), np.uint8)
        return self._cohort.seal(self._site, question, {"layout": Layout.of(summand).text, "shares": sealed})

    def _combine(self, message: Message, question: Question) -> Message:
        if self._dealt is None or (self._dealt[0].run, *self._dealt[0].turn) != (question.run, *question.turn):
            raise MessageError("message refused: this site has not dealt in this attempt, or has answered already")
        (asked, point), self._dealt = self._dealt, None  # once only
        sites, size = self._cohort.sites, point.shape[1]
        received = _array(message, "secure.shares", "the server", (len(sites), _sealed(size)))
        for row, peer in zip(received, sites, strict=True):  # every site's, or a part of the sum would be opened
            if peer == self._site:
                continue
            cipher = ChaCha20Poly1305(derived_key(self._pairs[peer], asked.context(peer, self._site)))
            try:
                share = cipher.decrypt(_NONCE, row.tobytes(), None)
            except InvalidTag:
                raise MessageError(f"the share that site {peer!r} dealt is missing or was altered; not used") from None
            point = (point + np.frombuffer(share, _SHARE).reshape(point.shape)) % MODULI
        return self._cohort.seal(self._site, question, {"point": point})


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
