"""Masked, shared and encrypted sums: what they protect against, each attack tried with and without the protection."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import dagora
from dagora.aggregation import residues
from dagora.aggregation.agreement import SETTING_UP, Agreement, agree
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.encrypted import Encrypted
from dagora.aggregation.fixed_point import decode as decode_words
from dagora.aggregation.plain import Plain
from dagora.aggregation.registry import AGGREGATIONS
from dagora.aggregation.shared import Shared, _at_zero, _evaluate
from dagora.arrays import FloatArray
from dagora.errors import DagoraError, MessageError, MissingSiteError
from dagora.federated.message import Message, decode
from dagora.federated.protocol import Aggregation, Summand
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess

NAMES = ("ann", "bob", "cleo", "dan")
SECURE = ("masked", "shared", "encrypted")
FIRST_STEP = {"masked": "sum", "shared": "deal", "encrypted": "encrypt"}
ALL = pytest.mark.parametrize("name", SECURE)

Tamper = Callable[[Message, dict[str, Message]], dict[str, Message]]


class Echo:
    """A site part whose summand is its data plus what the message says."""

    def init(self, data: FloatArray) -> FloatArray:
        return data

    def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
        return state, {"value": state + float(message.get("shift", 0.0)), "sites": np.array(1.0)}


class Wire(InProcess):
    """A network that an attacker holds: sites that are cut off, and replies that are changed on the way."""

    def __init__(self, sites: Sequence[Site[Any, Any]]) -> None:
        super().__init__(sites)
        self.gone: set[str] = set()
        self.only_in_step: str | None = None
        self.tamper: Tamper | None = None
        self.log: list[tuple[Message, dict[str, Message]]] = []

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> dict[str, Message]:
        gone = self.gone if self.only_in_step in (None, message.get("secure.step")) else set()
        asked = own if own is not None else {site.name: {} for site in self._sites}
        replies = super().exchange(message, {site: extra for site, extra in asked.items() if site not in gone}, enough)
        self.log.append((message, replies))
        missing = [site for site in asked if site not in replies]
        if len(replies) < (len(asked) if enough is None else enough):
            raise MissingSiteError(missing)
        return replies if self.tamper is None else self.tamper(message, replies)


def data(size: int = 6) -> dict[str, FloatArray]:
    rng = np.random.default_rng(7)
    return {name: rng.normal(0.0, 100.0, size) for name in NAMES}


def federation(aggregation: Aggregation, values: Mapping[str, FloatArray] | None = None) -> Wire:
    return Wire([Site(name, Echo(), own, aggregation) for name, own in (values or data()).items()])


def made(name: str, cohort: Cohort | None = None) -> Aggregation:
    return AGGREGATIONS[name](cohort or Cohort.simulated(NAMES), None)


def ask(round: int = 1, run: str = "run", **fields: float) -> Message:
    return {"run": run, "round": round, **fields}


def payload(reply: Message) -> dict[str, Any]:
    return decode(np.asarray(reply["body"]).tobytes())


@ALL
def test_the_total_is_the_sum(name: str) -> None:
    aggregation, values = made(name), data()
    wire = federation(aggregation, values)
    for turn in (1, 2, 3):
        total = aggregation.total(wire, ask(turn, shift=float(turn)))
        np.testing.assert_allclose(total["value"], sum(values.values()) + 4.0 * turn, rtol=1e-14)
        assert total["sites"] == 4.0


@ALL
def test_one_site_alone_and_many_values(name: str) -> None:
    size = 4096 + 5 if name == "encrypted" else 300  # more than one ciphertext
    cohort = Cohort.simulated(("only",))
    aggregation, values = made(name, cohort), np.arange(float(size)) - 7.5
    wire = federation(aggregation, {"only": values})
    for turn in (1, 2):
        np.testing.assert_array_equal(aggregation.total(wire, ask(turn))["value"], values)


@pytest.mark.parametrize("name", ["masked", "shared"])
def test_seventy_sites(name: str) -> None:
    # More sites than a message may have fields.
    names = tuple(f"site-{k}" for k in range(70))
    aggregation, values = (
        made(name, Cohort.simulated(names)),
        {site: np.full(3, float(k)) for k, site in enumerate(names)},
    )
    total = aggregation.total(federation(aggregation, values), ask())
    np.testing.assert_array_equal(total["value"], np.full(3, 69 * 70 / 2))


# What the server sees.


def test_a_plain_payload_is_the_summand() -> None:
    wire = federation(Plain())
    Plain().total(wire, ask())
    np.testing.assert_array_equal(wire.log[0][1]["ann"]["value"], data()["ann"])


def test_a_masked_payload_is_uniform() -> None:
    values = {name: np.zeros(4000) for name in NAMES}  # the least random data there is
    aggregation = made("masked")
    wire = federation(aggregation, values)
    aggregation.total(wire, ask())
    for reply in wire.log[-1][1].values():
        words = payload(reply)["words"]
        counts = np.bincount(np.frombuffer(words.tobytes(), np.uint8), minlength=256)
        expected = words.nbytes / 256
        assert ((counts - expected) ** 2 / expected).sum() < 380.0  # 255 degrees of freedom: exceeded once in 1e6
        assert np.abs(decode_words(words)).max() > 1e15  # nothing like the zeros that it hides


@ALL
def test_equal_data_gives_other_payloads_every_time(name: str) -> None:
    seen: set[bytes] = set()
    for run in ("first", "second"):
        aggregation = made(name)
        wire = federation(aggregation)
        for turn in (1, 2):
            aggregation.total(wire, ask(turn, run))
            replies = next(r for m, r in reversed(wire.log) if m["secure.step"] == FIRST_STEP[name])
            seen.update(np.asarray(reply["body"]).tobytes() for reply in replies.values())
    assert len(seen) == 2 * 2 * len(NAMES)


def test_sites_that_were_asked_different_questions_give_nothing() -> None:
    # A server that singles a site out by asking it something else gets noise, not the difference.
    class Equivocal(Wire):
        def exchange(
            self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
        ) -> dict[str, Message]:
            if message.get("secure.step") in SETTING_UP:
                return super().exchange(message, own, enough)
            return super().exchange(message, {name: {"shift": 5.0 * (name == "ann")} for name in NAMES}, enough)

    def singled_out(aggregation: Aggregation) -> FloatArray:
        wire = Equivocal([Site(name, Echo(), own, aggregation) for name, own in data().items()])
        message = ask(shift=0.0)
        replies = wire.exchange(message) if isinstance(aggregation, Plain) else None
        if replies is not None:
            return np.sum([reply["value"] for reply in replies.values()], axis=0)  # type: ignore[no-any-return, arg-type]
        asked = {**message, "secure.attempt": 0, "secure.step": "sum"}
        keys = agree(aggregation._cohort, wire, "run")  # type: ignore[attr-defined]
        words = [payload(reply)["words"] for reply in wire.exchange({**asked, **keys}).values()]
        total = np.zeros_like(words[0])
        for part in words:
            total += part
        return decode_words(total)[:6]  # without the witness

    expected = sum(data().values()) + 5.0
    np.testing.assert_allclose(singled_out(Plain()), expected)
    assert np.abs(singled_out(made("masked")) - expected).min() > 1e9


# What the network may do.


def flip(part: str, position: int) -> Tamper:
    def tamper(message: Message, replies: dict[str, Message]) -> dict[str, Message]:
        changed = np.array(replies["bob"][part])
        changed[position] ^= 1
        return {**replies, "bob": {**replies["bob"], part: changed}} if "bob" in replies else replies

    return lambda message, replies: tamper(message, replies) if "bob" in replies else replies


def cut(message: Message, replies: dict[str, Message]) -> dict[str, Message]:
    return {**replies, "bob": {**replies["bob"], "body": np.asarray(replies["bob"]["body"])[:-8]}}


def swap(message: Message, replies: dict[str, Message]) -> dict[str, Message]:
    return {**replies, "bob": replies["cleo"], "cleo": replies["bob"]}


def drop_the_signature(message: Message, replies: dict[str, Message]) -> dict[str, Message]:
    return {**replies, "bob": {"body": replies["bob"]["body"]}}


def for_another(message: Message, replies: dict[str, Message]) -> dict[str, Message]:
    return {**replies, "bob": replies["cleo"]}


@ALL
@pytest.mark.parametrize(
    "tamper",
    [
        flip("body", 0),
        flip("body", -1),
        flip("body", 40),
        flip("signature", 0),
        flip("signature", 63),
        cut,
        swap,
        drop_the_signature,
        for_another,
    ],
)
def test_a_payload_that_was_tampered_with_is_not_used(
    name: str, tamper: Tamper, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregation = made(name)
    wire = federation(aggregation)
    aggregation.total(wire, ask(1))
    wire.tamper = lambda message, replies: tamper(message, replies) if len(replies) == 4 else replies
    opened: list[bytes] = []

    def noticed(body: bytes) -> dict[str, Any]:
        opened.append(body)
        return decode(body)

    monkeypatch.setattr("dagora.aggregation.cohort.decode", noticed)
    with pytest.raises(MessageError, match=r"'(bob|cleo)'.*not signed by the key pinned for it"):
        aggregation.total(wire, ask(2))
    assert len(opened) == 1  # ann's, whose turn came first
    wire.tamper = None
    assert aggregation.total(wire, ask(3))["sites"] == 4.0


@pytest.mark.parametrize(
    ("name", "when"),
    # A shared sum has one attempt a round, whose repetition is the same payload.
    [(name, when) for name in SECURE for when in ("round", "attempt", "run") if (name, when) != ("shared", "attempt")],
)
def test_a_replayed_payload_is_not_used(name: str, when: str) -> None:
    aggregation = made(name)
    wire = federation(aggregation)
    aggregation.total(wire, ask(1))
    old = next(replies for message, replies in wire.log if message["secure.step"] == FIRST_STEP[name])

    def replay(message: Message, replies: dict[str, Message]) -> dict[str, Message]:
        return {**replies, "bob": old["bob"]} if message["secure.step"] == FIRST_STEP[name] else replies

    wire.tamper = replay
    later = {"round": ask(2), "attempt": ask(1), "run": ask(1, "another")}[when]
    with pytest.raises(MessageError, match=r"'bob'.*not signed by the key pinned for it"):
        aggregation.total(wire, later)


@ALL
def test_a_stranger_is_refused(name: str) -> None:
    # Bob's messages are signed, but not with the key that is pinned for him.
    cohort = Cohort.simulated(NAMES)
    server = made(name, cohort)
    stranger = replace(cohort, private={**cohort.private, "bob": Ed25519PrivateKey.generate()})
    wire = federation(made(name, stranger))
    with pytest.raises(MessageError, match=r"'bob'.*not signed by the key pinned for it"):
        server.total(wire, ask())


@ALL
def test_a_site_outside_the_cohort_is_not_added(name: str) -> None:
    cohort = Cohort.simulated(NAMES[:3])
    aggregation = made(name, cohort)
    wire = Wire([Site(site, Echo(), data()[site], aggregation) for site in NAMES[:3]])
    wire.tamper = lambda message, replies: {**replies, "dan": replies["ann"]} if len(replies) > 1 else replies
    assert aggregation.total(wire, ask())["sites"] == 3.0
    with pytest.raises(MessageError, match="'dan' is not of this cohort"):
        cohort.open("dan", Question("run", 1, 0, "sum", ""), {})


# What the server may try with a site.


@ALL
def test_an_answer_is_given_once(name: str) -> None:
    aggregation = made(name)
    wire = federation(aggregation)
    aggregation.total(wire, ask(1))
    asked, replies = next((m, r) for m, r in wire.log if m["secure.step"] == FIRST_STEP[name])
    if name == "shared":  # the same bytes, which tell nothing new
        again = wire.exchange(asked)
        for site, reply in replies.items():
            np.testing.assert_array_equal(payload(again[site])["shares"], payload(reply)["shares"])
    else:
        with pytest.raises(MessageError, match="asked for before; an answer is given once"):
            wire.exchange(asked)
    with pytest.raises(MessageError, match="asked for before"):
        wire.exchange({**asked, "shift": 1.0})
    with pytest.raises(MessageError, match=r"has one attempt|asked before with another question"):
        wire.exchange({**asked, "secure.attempt": 9, "shift": 1.0})


@ALL
def test_the_server_cannot_put_itself_between_two_sites(name: str) -> None:
    cohort = Cohort.simulated(NAMES)
    aggregation = made(name, cohort)
    wire = federation(aggregation)
    known = aggregation._cohort  # type: ignore[attr-defined]
    impostor = replace(known, private={site: Ed25519PrivateKey.generate() for site in NAMES})
    own = {site: Agreement(impostor, site) for site in NAMES}
    asked: Message = {"run": "run", "round": 0, "secure.attempt": 0, "secure.step": "keys"}
    real = wire.exchange(asked)
    fake = {site: real[site] if site == "ann" else own[site].answer(asked) for site in NAMES}
    parts = {p: np.concatenate([np.asarray(fake[site][p]) for site in NAMES]) for p in ("body", "signature")}
    relayed = {f"secure.{part}": values for part, values in parts.items()}
    with pytest.raises(MessageError, match="not signed by the key pinned for it"):
        wire.exchange({**asked, "secure.step": "confirm", **relayed}, {"ann": {}})
    # Nor does she answer without a confirmation, or with one that others did not give.
    first: Message = {**ask(), "secure.attempt": 0, "secure.step": FIRST_STEP[name]}
    with pytest.raises(MessageError, match="was not shown the public keys of the run"):
        wire.exchange(first, {"ann": {}})
    offers = {p: np.concatenate([np.asarray(real[site][p]) for site in NAMES]) for p in ("body", "signature")}
    shown: Message = {**asked, "secure.step": "confirm", **{f"secure.{part}": v for part, v in offers.items()}}
    confirmed = wire.exchange(shown, {"ann": {}})["ann"]["signature"]
    with pytest.raises(MessageError, match="not signed by the key pinned for it"):
        wire.exchange({**first, "secure.confirmed": np.tile(np.asarray(confirmed), len(NAMES))}, {"ann": {}})


@ALL
def test_sites_that_were_told_different_cohorts_do_not_answer(name: str) -> None:
    # All keys are pinned, and all signatures are genuine: but what they sign is not the same run.
    whole = Cohort.simulated(NAMES)
    part = Cohort({site: whole.public[site] for site in NAMES[:3]}, whole.private)
    told = {"ann": made(name, part)} | {site: made(name, whole) for site in NAMES[1:]}
    wire = Wire([Site(site, Echo(), own, told[site]) for site, own in data().items()])
    with pytest.raises(MessageError, match="was told other terms of the run"):
        made(name, whole).total(wire, ask())


@ALL
def test_sites_that_were_told_different_terms_do_not_answer(name: str) -> None:
    cohort = Cohort.simulated(NAMES)
    told = {site: made(name, cohort.under(plan="other" if site == "ann" else "plan")) for site in NAMES}
    wire = Wire([Site(site, Echo(), own, told[site]) for site, own in data().items()])
    with pytest.raises(MessageError, match="was told other terms of the run"):
        made(name, cohort.under(plan="plan")).total(wire, ask())


def test_old_keys_and_missing_keys_are_refused() -> None:
    aggregation = made("masked")
    wire = federation(aggregation)
    with pytest.raises(MessageError, match="no keys were agreed upon for this run"):
        wire.exchange({**ask(), "secure.attempt": 0, "secure.step": "sum"})
    cohort = aggregation._cohort  # type: ignore[attr-defined]
    confirmed = agree(cohort, wire, "run")
    with pytest.raises(MessageError, match="what the sites confirmed is not in it"):
        wire.exchange({**ask(), "secure.attempt": 1, "secure.step": "sum"})
    agree(cohort, wire, "another")  # new key pairs at all sites
    with pytest.raises(MessageError, match="not signed by the key pinned"):
        wire.exchange({**ask(run="another"), "secure.attempt": 0, "secure.step": "sum", **confirmed})


@ALL
@pytest.mark.parametrize("step", ["", "total", "combine", "open"])
def test_steps_out_of_turn_are_refused(name: str, step: str) -> None:
    wire = federation(made(name))
    with pytest.raises(MessageError, match="refused"):
        wire.exchange({**ask(), "secure.attempt": 0, "secure.step": step}, {"bob": {}})


@ALL
def test_a_summand_out_of_range_turns_the_total_into_noise(name: str, caplog: pytest.LogCaptureFixture) -> None:
    aggregation, values = made(name), data()
    values["cleo"] = np.full(6, 1e19)
    wire = federation(aggregation, values)
    with pytest.raises(dagora.NumericalError, match=r"the total of 4 sites is noise.*2\^62 / 4") as caught:
        aggregation.total(wire, ask())
    assert "cleo" not in str(caught.value)
    assert "'value'" in caplog.text  # in the site's own log


@ALL
def test_a_site_that_balks_leaves_no_total_of_the_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Zeros in its place would make the total that of the others, and a retry would then reveal the site.
    aggregation, values = made(name), data()
    others = sum(own for site, own in values.items() if site != "cleo")
    values["cleo"] = np.full(6, 1e19)
    opened: list[FloatArray] = []
    for module in ("masked", "shared", "encrypted"):
        monkeypatch.setattr(f"dagora.aggregation.{module}.check_witness", lambda *_: None)
    wire = federation(aggregation, values)
    for turn in (1, 2):
        opened.append(np.asarray(aggregation.total(wire, ask(turn))["value"]))
        if turn == 1:  # and it goes on as it began, lest the server find out when it stops
            values["cleo"][:] = 1.0
    for total in opened:
        assert np.abs(total / others).min() > 1e3
    assert (opened[0] != opened[1]).all()


# Sites that are missing.


@ALL
def test_a_missing_site_ends_the_attempt_and_a_retry_is_protected_anew(name: str) -> None:
    aggregation, values = made(name), data()
    wire = federation(aggregation, values)
    wire.gone, wire.only_in_step = {"cleo"}, FIRST_STEP[name]
    with pytest.raises(MissingSiteError, match="no answer from site 'cleo'") as caught:
        aggregation.total(wire, ask())
    assert caught.value.sites == ("cleo",)
    first = wire.log[-1][1]["ann"]
    wire.gone = set()
    total = aggregation.total(wire, ask())
    np.testing.assert_allclose(total["value"], sum(values.values()), rtol=1e-14)
    second = next(r for m, r in reversed(wire.log) if m["secure.step"] == FIRST_STEP[name])["ann"]
    same = np.asarray(first["body"]).tobytes() == np.asarray(second["body"]).tobytes()
    assert same == (name == "shared")  # whose one attempt goes on


def test_two_attempts_at_a_round_do_not_uncover_a_site() -> None:
    # Were the masks of both attempts equal, a site's two payloads would differ by nothing.
    aggregation = made("masked")
    wire = federation(aggregation)
    wire.gone, wire.only_in_step = {"cleo"}, "sum"
    for _ in range(2):
        with pytest.raises(MissingSiteError):
            aggregation.total(wire, ask())
    one, two = (payload(replies["ann"])["words"] for _, replies in wire.log[-2:])
    assert np.abs(decode_words(one) - decode_words(two)).min() > 1e9


def test_shared_totals_survive_dropouts_after_dealing() -> None:
    names = (*NAMES, "eve", "fay", "gil")
    values = {name: np.random.default_rng(len(name) + k).normal(size=3) for k, name in enumerate(names)}
    aggregation = Shared(Cohort.simulated(names))
    assert aggregation.threshold == 5  # of seven
    wire = federation(aggregation, values)
    for turn, (step, gone) in enumerate(
        [("combine", {"ann"}), ("combine", {"ann", "dan"}), ("agree", {"bob", "cleo"}), ("agree", {"gil"})], start=1
    ):
        wire.gone, wire.only_in_step = gone, step
        total = aggregation.total(wire, ask(turn))
        np.testing.assert_allclose(total["value"], sum(values.values()), rtol=1e-12)
    for step in ("agree", "combine"):
        wire.gone, wire.only_in_step = {"ann", "bob", "cleo"}, step
        with pytest.raises(MissingSiteError, match="'ann', 'bob', 'cleo'"):
            aggregation.total(wire, ask(9))
    wire.gone = set()
    np.testing.assert_allclose(aggregation.total(wire, ask(9))["value"], sum(values.values()), rtol=1e-12)


def test_a_share_is_opened_only_after_enough_sites_have_signed() -> None:
    aggregation = Shared(Cohort.simulated(NAMES))
    wire = federation(aggregation)
    aggregation.total(wire, ask())
    combine, agree_on = (next(m for m, _ in wire.log if m["secure.step"] == step) for step in ("combine", "agree"))
    shares = next(r for m, r in wire.log if m["secure.step"] == "deal")
    own = {"ann": {"secure.shares": np.stack([payload(shares[site])["shares"][0] for site in NAMES])}}
    wire.exchange(combine, own)  # the same point once more: nothing new
    signed = np.array(combine["secure.agreed"])
    signed[1:3] = 0
    with pytest.raises(MessageError, match="only 2 sites have agreed, and 3 are needed"):
        wire.exchange({**combine, "secure.agreed": signed}, own)
    signed[1] = signed[3]
    with pytest.raises(MessageError, match="not signed by the key pinned"):
        wire.exchange({**combine, "secure.agreed": signed}, own)
    # Nor does a site agree to, or combine, other shares of the same question.
    other = np.array(agree_on["secure.dealt"])
    other[1] = 7
    with pytest.raises(MessageError, match="has agreed to other shares"):
        wire.exchange({**agree_on, "secure.dealt": other}, {"ann": {}})
    with pytest.raises(MessageError, match="has not agreed to what is to be combined"):
        wire.exchange({**combine, "secure.dealt": other}, own)


def test_fewer_shares_than_the_threshold_fit_every_secret() -> None:
    # Two shares of a polynomial of degree two and any third point at 0 determine a polynomial: nothing is ruled out.
    secret = residues.of_words(np.array([[5], [0]], dtype=np.uint64))
    shares = _evaluate(secret, 3, 4, os.urandom)
    points = [(1, shares[0]), (3, shares[2]), (4, shares[3])]
    np.testing.assert_array_equal(_at_zero(points), secret)
    for guess in (0, 1, 123456):
        other = np.full_like(secret, guess)
        # The share at 4 that would make the guess true exists in the field.
        missing = _lagrange([(0, other), (1, shares[0]), (3, shares[2])], 4)
        np.testing.assert_array_equal(_at_zero([(1, shares[0]), (3, shares[2]), (4, missing)]), other)
    assert (_evaluate(secret, 3, 4, os.urandom)[0] != shares[0]).all()  # and shares are random


def _lagrange(points: list[tuple[int, residues.Residues]], at: int) -> residues.Residues:
    total = np.zeros_like(points[0][1])
    for row, prime in enumerate(residues.PRIMES):
        value = 0
        for x, y in points:
            weight = 1
            for other, _ in points:
                if other != x:
                    weight = weight * (at - other) * pow(x - other, -1, prime) % prime
            value += int(y[row, 0]) * weight
        total[row] = value % prime
    return total


def test_shared_sums_of_a_part_are_refused() -> None:
    # A server that leaves dealers out would open a part of the sum: here bob's summand alone.
    aggregation = Shared(Cohort.simulated(NAMES))
    wire = federation(aggregation)

    class Selective(Wire):
        def exchange(
            self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
        ) -> dict[str, Message]:
            if message.get("secure.step") == "combine" and own is not None:
                kept = np.array([name == "bob" for name in NAMES])[:, None]
                own = {
                    site: {"secure.shares": np.where(kept, extra["secure.shares"], 0)} for site, extra in own.items()
                }
                own = {site: {"secure.shares": np.asarray(e["secure.shares"], np.uint8)} for site, e in own.items()}
            return super().exchange(message, own, enough)

    with pytest.raises(MessageError, match=r"site '\w+': the share that site '\w+' dealt is missing or was altered"):
        aggregation.total(Selective(wire._sites), ask())


@pytest.mark.parametrize("threshold", [0, 2, 5, -1])
def test_thresholds_that_make_no_sense(threshold: int) -> None:
    with pytest.raises(dagora.InputError, match="threshold: must lie between 3, which is more than two thirds"):
        Shared(Cohort.simulated(NAMES), threshold)


def test_the_server_cannot_open_ciphertexts() -> None:
    import tenseal

    aggregation = made("encrypted")
    assert isinstance(aggregation, Encrypted)
    wire = federation(aggregation)
    aggregation.total(wire, ask())
    contexts = aggregation._contexts
    assert all(not context.has_secret_key() for context in contexts)
    sent = payload(next(r for m, r in wire.log if m["secure.step"] == "encrypt")["ann"])
    first = sent["ciphertexts"][: int(sent["ciphertexts.sizes"][0])].tobytes()
    with pytest.raises(ValueError, match="secret"):
        tenseal.bfv_vector_from(contexts[0], first).decrypt()


def test_a_ciphertext_that_the_key_holder_opens_alone_is_noise() -> None:
    # Nobody can tell a sum from a single ciphertext.  Without masks under it, this would be bob's summand.
    import tenseal

    class Opening(Wire):
        def exchange(
            self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
        ) -> dict[str, Message]:
            if message.get("secure.step") == "open" and own is not None:
                own = {"ann": bobs}
            replies = super().exchange(message, own, enough)
            if message.get("secure.step") == "encrypt":
                sent = payload(replies["bob"])
                bobs.update({f"secure.sum{end}": sent[f"ciphertexts{end}"] for end in ("", ".sizes")})
            return replies

    assert tenseal is not None
    bobs: dict[str, Any] = {}
    aggregation, values = made("encrypted"), data()
    wire = Opening([Site(name, Echo(), own, aggregation) for name, own in values.items()])
    with pytest.raises(MessageError, match="not signed by the key pinned"):
        aggregation.total(wire, ask())
    opened = next(r for m, r in reversed(wire.log) if m["secure.step"] == "open")["ann"]
    found = residues.to_floats(payload(opened)["residues"][:, :6])
    assert np.abs(found / values["bob"]).min() > 1e6


def test_only_the_key_holder_opens_sums() -> None:
    aggregation = made("encrypted")
    wire = federation(aggregation)
    aggregation.total(wire, ask())
    opened = [set(replies) for message, replies in wire.log if message["secure.step"] in ("contexts", "open")]
    assert opened == [{"ann"}, {"ann"}]
    with pytest.raises(MessageError, match="that is this site's"):
        wire.exchange({**ask(2), "secure.attempt": 0, "secure.step": "open"}, {"bob": {}})


def test_missing_tenseal_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tenseal", None)
    with pytest.raises(dagora.InputError, match=r"needs tenseal: pip install 'dagora\[encrypted\]'"):
        made("encrypted")


# Rounds and retries of the only loop.


def test_a_retry_moves_a_sites_state_once() -> None:
    class Counting(Echo):
        calls = 0

        def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
            Counting.calls += 1
            return super().local_update(state, message)

    site = Site("ann", Counting(), np.ones(2), Plain())
    first, again = site.reply(ask()), site.reply({**ask(), "secure.attempt": 1})
    assert first == again
    assert Counting.calls == 1
    site.reply(ask(2))
    assert Counting.calls == 2


def test_the_loop_asks_again_for_missing_sites() -> None:
    class Flaky(InProcess):
        failures = 2

        def exchange(
            self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
        ) -> dict[str, Message]:
            replies = super().exchange(message, own, enough)
            if Flaky.failures > 0 and message.get("round") == 3:
                Flaky.failures -= 1
                raise MissingSiteError(["site-02"])
            return replies

    from tests.helpers import ALGORITHMS, learn_over, small_sites

    result, _ = learn_over(Flaky, small_sites(), ALGORITHMS["admm"], "masked")
    expected = dagora.learn(small_sites(), aggregation="masked")
    assert result.weights.tobytes() == expected.weights.tobytes()
    Flaky.failures = 3
    with pytest.raises(DagoraError, match="no answer from site 'site-02'"):
        learn_over(Flaky, small_sites(), ALGORITHMS["admm"], "masked")
