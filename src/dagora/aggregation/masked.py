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
2^(64 + 8 bytes) are still exact.  Whether they are enough is in the verdict that ends every summand, under its mask
(fixed_point.py): if they are not for some site, the server asks again for wide words, and keeps to these to the run's
end.  No answer of a single site depends on the size of its numbers.
"""

from collections.abc import Callable, Mapping

import numpy as np

from dagora.aggregation import fixed_point
from dagora.aggregation.agreement import KEYS_STEP, Agreement, Relay, derived_key, key_stream
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.layout import Layout, common_layout
from dagora.aggregation.narrow import Widths, high_bytes, packed, room, signed, unpacked
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

        def protected(message: Message) -> Message:
            if message.get("secure.step") == KEYS_STEP:
                return agreement.offer(message)
            question = Question.of(message)
            if question.step != SUM_STEP:
                raise MessageError("message refused: it names no step of masked sums")
            high = high_bytes(message)
            keys = agreement.pairs(message)  # first: a question that is refused must not make the site forget others
            answered.once(question)
            summand = answer(message)
            layout = Layout.of(summand).text
            words = fixed_point.encode_summand(summand, len(self._cohort.sites), room(high))
            _mask(words, site, keys, question)
            return self._cohort.seal(site, question, {"layout": layout, **packed(words, high)})

        return protected

    def total(self, transport: Transport, message: Message) -> Total:
        """Add the payloads of all sites of the cohort."""
        high = self._widths.of(message)
        asked = self._relay.with_keys(transport, self._attempts.of(message, SUM_STEP)) | {"secure.high": high}
        replies, question = transport.exchange(asked), Question.of(asked)
        contents = {site: self._cohort.open(site, question, replies[site]) for site in self._cohort.sites}
        layout = common_layout(contents)
        total = np.zeros((2, layout.length), dtype=np.uint64)
        for site, content in contents.items():
            words = unpacked(content, high, layout.length)
            if words is None:
                raise MessageError(f"site {site!r}: its words are not those of its layout; stop it")
            fixed_point.add_to(*total, *words)
        found = fixed_point.decode(signed(total, high))
        if not fixed_point.check_verdict(found[-1], len(contents), room(high)):
            self._widths.give_up(message)
            return self.total(transport, message)
        self._widths.learn(message, found[:-1])
        return layout.split(found[:-1])


def _mask(words: fixed_point.Words, site: str, keys: Mapping[str, bytes], question: Question) -> None:
    low, high = words
    context = question.context("mask")
    for peer, pair in keys.items():
        mask = np.frombuffer(key_stream(derived_key(pair, context))(words.nbytes), np.uint64)
        move = fixed_point.add_to if site < peer else fixed_point.subtract_from
        move(low, high, mask[: len(low)], mask[len(low) :])
