"""Secure sums by pairwise masks: every payload that leaves a site is uniformly random, and only the sum means anything.

    1. once a run: sites agree on a key for every two of them                      (agreement.py)
    2. site k encodes its summand v_k in Z_2^128                                   (encoding.py, fixed_point.py)
       and sends  y_k = v_k + sum over j after k of m_kj - sum over j before k of m_jk
    3. server: sum_k y_k = sum_k v_k, for every mask is added once and subtracted once

A mask m_kj is a ChaCha20 key stream under a key that HKDF makes of the pair's key over the run's transcript and all of
the question: run, round, attempt and every field (Bonawitz et al. 2017, without their recovery from dropouts).  So a
mask hides one payload only; sites that were told or asked anything different have masks that do not cancel; and a
round in which a site is missing gives nothing: it is an error that names the site, and a retry starts over with fresh
masks.  A site makes K - 1 masks a round.

What leaves a site: uniform words, and the names and shapes of its summand's fields.  The server, alone or with up to
K - 2 sites, learns the total over the other sites and nothing else.  All words are 128 bits wide: how wide they need to
be depends on the data, and no answer of a single site may.
"""

from collections.abc import Callable, Mapping

import numpy as np

from dagora.aggregation import fixed_point
from dagora.aggregation.agreement import SETTING_UP, Agreement, Relay, derived_key, key_stream, noise_stream
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.encoding import Encoder, check_witness
from dagora.aggregation.layout import Layout, common_layout
from dagora.aggregation.turns import Answered, Attempts
from dagora.errors import MessageError
from dagora.federated.message import Message
from dagora.federated.protocol import Summand, Total, Transport
from dagora.federated.vault import Memory, Vault

SUM_STEP = "sum"


class Masked:
    """Both halves.  The server's keeps what the sites confirmed in the run and the number of the attempt."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort.under(aggregation="masked")
        self._attempts = Attempts()
        self._relay = Relay(self._cohort)

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Mask a site's summands."""
        vault = Memory() if vault is None else vault
        agreement, answered = Agreement(self._cohort, site, vault), Answered()
        encoder = Encoder(len(self._cohort.sites))

        def protected(message: Message) -> Message:
            if message.get("secure.step") in SETTING_UP:
                return agreement.answer(message)
            question = Question.of(message)
            if question.step != SUM_STEP:
                raise MessageError("message refused: it names no step of masked sums")
            keys = agreement.pairs(message)  # first: a question that is refused must not make the site forget others
            answered.once(question)
            summand = answer(message)
            layout = Layout.of(summand)
            words = encoder.words(question.run, summand)
            if words is None:
                random = noise_stream(vault, question.run, self._cohort.context(question, "noise"))
                words = np.frombuffer(random(16 * layout.length), np.uint64).reshape(2, -1)
            else:
                self._mask(words, site, keys, question)
            return self._cohort.seal(site, question, {"layout": layout.text, "words": words})

        return protected

    def total(self, transport: Transport, message: Message) -> Total:
        """Add the payloads of all sites of the cohort."""
        asked = self._relay.with_keys(transport, self._attempts.of(message, SUM_STEP))
        replies, question = transport.exchange(asked), Question.of(asked)
        contents = {site: self._cohort.open(site, question, replies[site]) for site in self._cohort.sites}
        layout = common_layout(contents)
        total = np.zeros((2, layout.length), dtype=np.uint64)
        for site, content in contents.items():
            words = content.get("words")
            if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.shape != total.shape:
                raise MessageError(f"site {site!r}: its words are not those of its layout; stop it")
            fixed_point.add_to(*total, *words)
        check_witness(fixed_point.decode(total[:, -1:])[0], len(contents))
        return layout.total(fixed_point.decode_wide(total[:, :-1]))

    def _mask(self, words: fixed_point.Words, site: str, keys: Mapping[str, bytes], question: Question) -> None:
        low, high = words
        context = self._cohort.context(question, "mask")
        for peer, pair in keys.items():
            mask = np.frombuffer(key_stream(derived_key(pair, context))(words.nbytes), np.uint64)
            move = fixed_point.add_to if site < peer else fixed_point.subtract_from
            move(low, high, mask[: len(low)], mask[len(low) :])
