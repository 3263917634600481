"""Servers, networks and coordinators that cheat: what they try, and that it fails."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.aggregation import fixed_point
from dagora.aggregation.agreement import agree
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.encrypted import _packed, _vectors
from dagora.aggregation.gaussian import Gaussian
from dagora.aggregation.ledger import Ledger
from dagora.aggregation.plain import Plain
from dagora.aggregation.registry import Privacy
from dagora.aggregation.residues import PRIMES
from dagora.aggregation.shared import Shared
from dagora.algorithms.options import Options
from dagora.algorithms.private_covariance import PrivateCovarianceSite
from dagora.arrays import FloatArray
from dagora.assembly import assemble
from dagora.audit.run import recorded
from dagora.data.moments import Moments
from dagora.data.rows import Rows
from dagora.data.tables import open_tables
from dagora.errors import DagoraError, InputError, MessageError
from dagora.federated.guard import Guard
from dagora.federated.message import Message
from dagora.federated.policy import Job, Policy, PolicyError
from dagora.federated.protocol import Summand
from dagora.federated.run import run
from dagora.federated.site import Site
from tests.unit.test_private_sums import NAMES, Echo, Wire, ask, data, federation, made, payload


def forget(wire: Wire, step: str, site: str) -> None:
    """A question of a run without keys is refused; it must not make the site forget what it has answered."""
    with pytest.raises(MessageError):
        wire.exchange({**ask(1, "no such run"), "secure.attempt": 0, "secure.step": step}, {site: {}})


# 1. Masks and nonces used twice.


def test_a_masked_question_is_never_answered_twice() -> None:
    aggregation = made("masked")
    wire = federation(aggregation)
    aggregation.total(wire, ask(1))
    asked, _ = wire.log[-1]
    forget(wire, "sum", "bob")
    with pytest.raises(MessageError, match="an answer is given once"):
        wire.exchange(asked, {"bob": {}})


def test_a_server_that_cheats_does_not_learn_a_sites_covariance_from_masked_admm() -> None:
    _, rows = dagora.simulate(d=3, edges=3, n=300, sites=4, seed=0)
    tables = open_tables(rows)
    parts = assemble(Options(method="admm", preset="paper"), "masked", None, tables, tables[0].names)
    wire = Wire([Site(s, parts.algorithm.site, own, parts.protection) for s, own in parts.data.items()])
    run(parts.algorithm.server, parts.protection, wire)
    target = next(m for m, _ in wire.log if m.get("phase") == "consensus" and np.size(m["mix"]) == 1)

    def answer(turn: int, W: FloatArray) -> Any:
        forget(wire, "sum", "site-02")
        # With so large a rho the site's position is W: it is hidden on the wire, but the server knows it.
        wire.exchange({**target, "round": turn, "W": W, "rho": 1e12, "mix": np.zeros(0)}, {"site-02": {}})
        forget(wire, "sum", "site-02")
        return payload(wire.exchange(target, {"site-02": {}})["site-02"])["words"]

    try:
        none, some = answer(10**6, np.zeros((3, 3))), answer(10**6 + 1, 1000.0 * np.eye(3))
    except MessageError:
        return
    change = fixed_point.decode(fixed_point.add(some, fixed_point.negative(none)))[:9].reshape(3, 3)
    rho, rescale = float(target["rho"]), float(target["rescale"])
    P = (np.eye(3) - 4.0 * change / (1000.0 * rescale)) / rho
    found, truth = np.linalg.inv(P) - rho * np.eye(3), Moments.of_rows(np.asarray(rows[1])).covariance
    assert np.linalg.norm(found - truth) > 0.1 * np.linalg.norm(truth)  # 4e-9 where a mask serves twice


def test_a_nonce_is_used_once() -> None:
    aggregation = Shared(Cohort.simulated(NAMES))
    wire = federation(aggregation)
    aggregation.total(wire, ask(1))
    asked, replies = next((m, r) for m, r in wire.log if m["secure.step"] == "deal")
    forget(wire, "deal", "bob")
    again = wire.exchange(asked, {"bob": {}})["bob"]  # one message under one nonce, however often
    np.testing.assert_array_equal(payload(again)["shares"], payload(replies["bob"])["shares"])
    with pytest.raises(MessageError, match="an answer is given once"):
        wire.exchange({**asked, "shift": 1.0}, {"bob": {}})


def test_held_shares_for_different_questions_cannot_be_combined() -> None:
    aggregation = Shared(Cohort.simulated(NAMES))

    class Equivocal(Wire):
        def exchange(
            self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
        ) -> dict[str, Message]:
            if message.get("secure.step") == "deal":
                own = {name: {"shift": 5.0 * (name == "ann")} for name in NAMES}
                replies = super().exchange(message, own, enough)
                # The cheating server does not check signatures; let this one see what it expects.
                self.dealt = {name: payload(reply) for name, reply in replies.items()}
                return replies
            return super().exchange(message, own, enough)

    wire = Equivocal([Site(name, Echo(), own, aggregation) for name, own in data().items()])
    with pytest.raises(MessageError):
        aggregation.total(wire, ask(shift=0.0))
    shares = np.stack([wire.dealt[name]["shares"] for name in NAMES])
    follow: Message = {"run": "run", "round": 1, "secure.attempt": 0, "secure.step": "combine"}
    for j, name in enumerate(NAMES):
        with pytest.raises(MessageError, match="has not agreed to what is to be combined"):
            wire.exchange(follow, {name: {"secure.shares": shares[:, j]}})


# 2. Encrypted sums: what the key holder is asked to open is not bound to what the server asked.


def test_a_sum_that_was_altered_on_its_way_to_the_key_holder_is_not_used() -> None:
    tenseal = pytest.importorskip("tenseal")
    aggregation = made("encrypted")

    class Altering(Wire):
        def exchange(
            self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
        ) -> dict[str, Message]:
            if message.get("secure.step") == "open" and own is not None:
                contexts = aggregation._contexts  # type: ignore[attr-defined] # public: they went over the wire
                vectors = _vectors(contexts, own["ann"], "secure.sum", "the attacker")
                more = [
                    tenseal.bfv_vector(c, [1000 * 2**64 % p, *[0] * 7]) for c, p in zip(contexts, PRIMES, strict=True)
                ]
                parts = [(vector + extra).serialize() for vector, extra in zip(vectors, more, strict=True)]
                own = {"ann": _packed(parts, "secure.sum")}
            return super().exchange(message, own, enough)

    wire = Altering([Site(name, Echo(), own, aggregation) for name, own in data().items()])
    with pytest.raises(MessageError):
        aggregation.total(wire, ask())  # the total, plus 1000, where nothing tells what was opened


def test_a_second_request_for_keys_does_not_turn_the_total_into_noise() -> None:
    pytest.importorskip("tenseal")
    aggregation, values = made("encrypted"), data()
    wire = federation(aggregation, values)
    aggregation.total(wire, ask(1))
    wire.exchange({"run": "run", "round": 0, "secure.attempt": 0, "secure.step": "contexts"}, {"ann": {}})
    np.testing.assert_allclose(aggregation.total(wire, ask(2))["value"], sum(values.values()))


# 3. Differential privacy against a server that chooses what it asks.


def private_site(n: int) -> tuple[Site[Any, Any], Gaussian]:
    X = np.random.default_rng(0).normal(size=(n, 3))
    gaussian = Gaussian(Plain(), 1, epsilon=1.0)
    return Site("s", PrivateCovarianceSite(), Rows(lambda: [X], 3), gaussian), gaussian


def test_refusals_do_not_tell_the_exact_number_of_rows() -> None:
    pytest.importorskip("opendp")
    site, gaussian = private_site(1234)
    low, high, turn = 1, 2**20, 0
    while low < high:
        middle, turn = (low + high) // 2, turn + 1
        radius = math.sqrt(2.0**28 / (45 / 32) / (middle + 0.5))
        asked: Message = {"centre": np.zeros(3), "whiten": np.eye(3), "radius": radius, "share": 1e-9}
        try:
            site.reply({"run": "r", "round": turn, "phase": "moments", **asked})
            high = middle
        except InputError:
            low = middle + 1
        except DagoraError:
            return  # refused for a reason that does not depend on the rows
    assert low != 1234, f"found with {sum(gaussian.shares.values()):.0e} of the budget"


@pytest.mark.parametrize(
    "asked",
    [
        {"phase": "positions", "low": np.zeros((5, 3)), "high": np.ones((5, 3))},
        {"phase": "moments", "centre": np.zeros((3, 7)), "whiten": np.eye(3), "radius": 2.0},
        {"phase": "moments", "centre": np.zeros(2), "whiten": np.eye(2), "radius": 2.0},
    ],
)
def test_arrays_of_other_shapes_are_refused_without_naming_the_rows(asked: Message) -> None:
    site, _ = private_site(1234)
    with pytest.raises(MessageError) as caught:
        site.reply({"run": "r", "round": 1, "share": 0.1, **asked})
    assert "1234" not in str(caught.value)


def test_one_row_does_not_decide_whether_a_private_run_happens() -> None:
    pytest.importorskip("opendp")
    _, rows = dagora.simulate(d=4, edges=4, n=8000, sites=2, seed=0)
    sites = [np.array(own) for own in rows]
    for own in sites:
        own[:, 2] = 7.0
    neighbour = [sites[0].copy(), sites[1]]
    neighbour[0][0, 2] = 8.0

    def outcome(data: list[FloatArray]) -> str:
        try:
            dagora.learn(data, method="covariance", aggregation="gaussian", epsilon=1.0)
        except InputError as error:
            return f"refused: {error}"
        except DagoraError:
            pass  # from noisy totals
        return "ran"

    assert outcome(sites) == outcome(neighbour)


# 4. Policies and ledgers.


def guarded(policy: Policy) -> tuple[Any, Wire]:
    aggregation, job = made("masked"), Job("run", "admm", "masked", NAMES)
    sites = [Site(n, Echo(), own, aggregation, Guard(job, 1000, policy, Ledger(n))) for n, own in data().items()]
    return aggregation, Wire(sites)


def test_the_limit_on_rounds_counts_rounds() -> None:
    aggregation, wire = guarded(Policy(rounds=2))
    keys = agree(aggregation._cohort, wire, "run")
    with pytest.raises(PolicyError):  # noqa: PT012
        for turn in range(-50, 0):
            wire.exchange({**ask(turn), "secure.attempt": 0, "secure.step": "sum", **keys})


def test_only_the_run_that_was_joined_is_answered() -> None:
    aggregation, wire = guarded(Policy())
    with pytest.raises(DagoraError):
        aggregation.total(wire, ask(1, "another"))


def test_a_budget_over_the_life_of_the_data_needs_a_ledger() -> None:
    _, rows = dagora.simulate(d=3, edges=3, n=300, sites=3, seed=0)
    with pytest.raises(DagoraError):  # noqa: PT012
        for _ in range(2):
            dagora.learn(rows, aggregation="masked", policy=Policy(runs=1))


def test_the_default_policy_allows_noise() -> None:
    pytest.importorskip("opendp")
    _, rows = dagora.simulate(d=5, edges=5, n=6000, sites=3, seed=0)
    dagora.learn(rows, method="covariance", aggregation="gaussian", epsilon=2.0, policy=Policy())


def test_a_ledger_stays_in_its_folder(tmp_path: Path) -> None:
    _, rows = dagora.simulate(d=3, edges=3, n=90, sites=3, seed=0)
    try:
        dagora.learn(dict(zip(("../out", "b", "c"), rows, strict=True)), aggregation="masked", ledger=tmp_path / "in")
    except InputError:
        return
    assert not (tmp_path / "out.jsonl").exists()


# 5. The audit.


def test_a_coalition_knows_its_own_noise() -> None:
    pytest.importorskip("opendp")
    _, rows = dagora.simulate(d=3, edges=3, n=6000, sites=3, seed=0)
    options = Options(method="covariance", learner="notears")
    played = recorded(options, "gaussian", Privacy(3.0))({str(k): np.asarray(own) for k, own in enumerate(rows)})
    total = played.transcript.totals[-1]["squares"]
    known = np.sum([own[-1]["squares"] for own in played.summands.values()], axis=0)
    np.testing.assert_allclose(total, known)  # all sites together know all noise


# 6. Small things.


def test_a_summand_without_numbers() -> None:
    pytest.importorskip("tenseal")

    class Empty(Echo):
        def local_update(self, state: FloatArray, message: Message) -> tuple[FloatArray, Summand]:
            return state, {"nothing": np.zeros(0)}

    aggregation = made("encrypted")
    wire = Wire([Site(name, Empty(), own, aggregation) for name, own in data().items()])
    assert aggregation.total(wire, ask())["nothing"].shape == (0,)
