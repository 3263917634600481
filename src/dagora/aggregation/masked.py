"""Secure sums by pairwise masks: every payload that leaves a site is uniformly random, and only the sum means anything.

    1. once a run: sites agree on a key for every two of them                      (agreement.py)
    2. site k encodes its summand v_k in Z_2^128                                   (fixed_point.py)
       and sends  y_k = v_k + sum over j after k of m_kj - sum over j before k of m_jk
    3. server: sum_k y_k = sum_k v_k, for every mask is added once and subtracted once

A mask m_kj is a ChaCha20 key stream under a key that HKDF makes of the pair's key for one run, round, attempt and
question (Bonawitz et al. 2017, without their recovery from dropouts).  So a mask hides one payload only; sites that
were asked different questions have masks that do not cancel; and a round in which a site is missing gives nothing: it
is an error that names the site, and a retry starts over with fresh masks.  A site makes K - 1 masks a round.

What leaves a site: uniform words, and the names and shapes of its summand's fields.  The server, alone or with up to
K - 2 sites, learns the total over the other sites and nothing else.

Words are 128 bits wide, but totals are mostly small.  So the server says, from the last total of the same phase, how
many bytes of the high word are enough for sixteen times as much, and sites send these only (narrow.py): sums modulo
2^(64 + 8 bytes) are still exact.  A site whose numbers need more says so, once a run, and wide words follow to its end.
"""

from collections.abc import Callable, Mapping

import numpy as np

from dagora.aggregation import fixed_point
from dagora.aggregation.agreement import KEYS_STEP, Agreement, Relay, derived_key, key_stream
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.layout import Layout, common_layout
from dagora.aggregation.narrow import WIDE, Widths, fits, high_bytes, packed, signed, unpacked
from dagora.aggregation.turns import Answered, Attempts
from dagora.errors import MessageError
from dagora.federated.message import Message
from dagora.federated.protocol import Summand, Total, Transport
from dagora.federated.vault import Vault

SUM_STEP = "sum"


class Masked:
    """Both halves.  The server's keeps the sites' public keys of the run and the number of the attempt."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._attempts = Attempts()
        self._relay = Relay(cohort)
        self._widths = Widths(len(cohort.sites))

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Mask a site's summands."""
        agreement, answered = Agreement(self._cohort, site, vault), Answered()
        wide_in = [""]  # the run in which the site has said that it needs wide words

        def protected(message: Message) -> Message:
            if message.get("secure.step") == KEYS_STEP:
                return agreement.offer(message)
            question = Question.of(message)
            if question.step != SUM_STEP:
                raise MessageError("message refused: it names no step of masked sums")
            keys = agreement.pairs(message)  # first: a question that is refused must not make the site forget others
            answered.once(question)
            summand = answer(message)
            words, layout = fixed_point.encode_summand(summand, len(self._cohort.sites)), Layout.of(summand).text
            high = high_bytes(message)
            if high < WIDE and not (question.run != wide_in[0] and fits(summand, high, len(self._cohort.sites))):
                wide_in[0] = question.run  # for the rest of it: more than one such answer could tell more than a bit
                return self._cohort.seal(site, question, {"layout": layout, "wide": True})
            _mask(words, site, keys, question)
            return self._cohort.seal(site, question, {"layout": layout, **packed(words, high)})

        return protected

    def total(self, transport: Transport, message: Message) -> Total:
        """Add the payloads of all sites of the cohort."""
        high = self._widths.of(message)
        asked = self._relay.with_keys(transport, self._attempts.of(message, SUM_STEP)) | {"secure.high": high}
        replies, question = transport.exchange(asked), Question.of(asked)
        contents = {site: self._cohort.open(site, question, replies[site]) for site in self._cohort.sites}
        if high < WIDE and any(content.get("wide") is True for content in contents.values()):
            self._widths.give_up(message)
            return self.total(transport, message)
        layout = common_layout(contents)
        total = np.zeros((2, layout.size), dtype=np.uint64)
        for site, content in contents.items():
            words = unpacked(content, high, layout.size)
            if words is None:
                raise MessageError(f"site {site!r}: its words are not those of its layout; stop it")
            fixed_point.add_to(*total, *words)
        found = fixed_point.decode(signed(total, high))
        self._widths.learn(message, found)
        return layout.split(found)


def _mask(words: fixed_point.Words, site: str, keys: Mapping[str, bytes], question: Question) -> None:
    low, high = words
    context = question.context("mask")
    for peer, pair in keys.items():
        mask = np.frombuffer(key_stream(derived_key(pair, context))(words.nbytes), np.uint64)
        move = fixed_point.add_to if site < peer else fixed_point.subtract_from
        move(low, high, mask[: len(low)], mask[len(low) :])
