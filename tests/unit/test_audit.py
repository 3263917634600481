"""Attacks must work where messages are in the clear, and must not where they are noise."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.masked import Masked
from dagora.aggregation.plain import Plain
from dagora.algorithms.options import Options
from dagora.algorithms.presets import build
from dagora.algorithms.private_moments import sums
from dagora.arrays import FloatArray
from dagora.audit.differencing import differencing, differencing_row, sums_about
from dagora.audit.equations import Equations
from dagora.audit.finding import Finding
from dagora.audit.inversion import broadcast_setup, collusion, inversion
from dagora.audit.multi_round import consensus, multi_round
from dagora.audit.readings import readings
from dagora.audit.recovery import Recovered, recover
from dagora.audit.report import AuditReport
from dagora.audit.rows import reconstruct, rows
from dagora.audit.run import Played, audit, recorded
from dagora.audit.transcript import Recorder, Transcript
from dagora.data.moments import Moments
from dagora.errors import InputError
from dagora.federated.message import Message, decode, encode
from dagora.federated.protocol import Summand, Total, Transport
from dagora.federated.run import run
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess
from dagora.wide import LOW
from tests.helpers import finite_differences

PAPER: dict[str, Any] = {"preset": "paper"}
INTERCEPT: dict[str, Any] = {"preset": "paper", "intercept": True}
DEFAULT: dict[str, Any] = {"preset": "default"}
COVARIANCE: dict[str, Any] = {"method": "covariance"}


def site_rows(d: int, sizes: Sequence[int], seed: int = 0) -> dict[str, FloatArray]:
    _, sites = dagora.simulate(d, d, sum(sizes), len(sizes), seed=seed, split=list(sizes))
    return {f"s{k}": own + 0.3 for k, own in enumerate(sites)}


def play(data: Mapping[str, FloatArray], aggregation: Any = None, **options: Any) -> Played:
    d = next(iter(data.values())).shape[1]
    algorithm = build(Options(**options), tuple(f"x{j}" for j in range(d)))
    recorder = Recorder(aggregation or Plain())
    parts = [Site(site, algorithm.site, Moments.of_rows(own), recorder) for site, own in data.items()]
    run(algorithm.server, recorder, InProcess(parts))
    return Played(recorder.transcript, recorder.summands)


def moments_of(data: Mapping[str, FloatArray]) -> dict[str, Moments]:
    return {site: Moments.of_rows(own) for site, own in data.items()}


def with_replies(seen: Transcript, change: Callable[[Message], Message]) -> Transcript:
    """The same run with its replies seen through a protection; the totals stay."""
    changed = [replace(each, replies={s: change(r) for s, r in each.replies.items()}) for each in seen.rounds]
    return Transcript(tuple(changed))


def words_of(summand: Message) -> Message:
    """Fixed-point words, joined and sealed as secure aggregations do it, but without any mask."""
    fields = [np.ravel(np.asarray(field)) for name, field in summand.items() if not name.endswith(LOW)]
    values = np.append(np.concatenate(fields), 1.0)
    whole = np.floor(values)
    low = np.minimum(np.rint((values - whole) * 2.0**64), 2.0**64 - 2.0**12).astype(np.uint64)
    body = encode({"words": np.stack([low, whole.astype(np.int64).view(np.uint64)])})
    return {"body": np.frombuffer(body, np.uint8), "signature": np.zeros(64, np.uint8)}


def noise_like(rng: np.random.Generator) -> Callable[[Message], Message]:
    """Uniform words of the same size: what a mask leaves."""

    def change(summand: Message) -> Message:
        size = sum(np.asarray(field).size for field in summand.values())
        words = rng.integers(0, 2**64, (2, size), dtype=np.uint64)
        return {"body": np.frombuffer(encode({"words": words}), np.uint8), "signature": np.zeros(64, np.uint8)}

    return change


class Noisy(Plain):
    """Plain sums with noise on every total, as differential privacy would have it."""

    def __init__(self, seed: int, deviation: float) -> None:
        self.rng, self.deviation = np.random.default_rng(seed), deviation

    def total(self, transport: Transport, message: Message) -> Total:
        exact = super().total(transport, message)
        return {name: np.asarray(v + self.deviation * self.rng.standard_normal(v.shape)) for name, v in exact.items()}


@pytest.mark.parametrize("options", [PAPER, INTERCEPT, DEFAULT, COVARIANCE], ids=str)
@pytest.mark.parametrize(("d", "sizes"), [(5, (60, 40)), (8, (3, 50, 6))])
def test_plain_replies_give_every_covariance(options: dict[str, Any], d: int, sizes: tuple[int, ...]) -> None:
    data = site_rows(d, sizes)
    played = play(data, **options)
    for site in data:
        found = inversion(played.transcript, site, moments_of(data), played.summands)
        assert found.error < 1e-8 < found.blind
        assert found.succeeds


@pytest.mark.parametrize("options", [PAPER, DEFAULT, COVARIANCE], ids=str)
def test_uniform_payloads_give_nothing_that_a_guess_does_not(options: dict[str, Any]) -> None:
    data = site_rows(5, (60, 40, 30))
    played = play(data, **options)
    hidden = with_replies(played.transcript, noise_like(np.random.default_rng(0)))
    for site in data:
        found = inversion(hidden, site, moments_of(data), played.summands)
        assert np.isfinite(found.error)
        assert found.error > found.blind
        assert not found.succeeds


@pytest.mark.parametrize("options", [PAPER, DEFAULT, COVARIANCE], ids=str)
def test_words_without_a_mask_are_read(options: dict[str, Any]) -> None:
    """So that the test above fails for noise only, and not because nobody looks."""
    data = site_rows(5, (60, 40, 30))
    played = play(data, **options)
    encoded = with_replies(played.transcript, words_of)
    assert inversion(encoded, "s1", moments_of(data), played.summands).error < 1e-8


@pytest.mark.parametrize("reply", [{}, {"x": np.zeros(0, np.uint8)}, {"body": np.ones(999, np.uint8)}, {"t": "text"}])
def test_any_reply_can_be_read(reply: Message) -> None:
    like = {"a": np.zeros((2, 3)), "b": np.zeros(())}
    read = readings(reply, like)
    assert {name: values.shape for name, values in read.items()} == {"a": (2, 3), "b": ()}
    assert all(np.isfinite(values).all() for values in read.values())


def test_replies_are_those_that_carry_summands_and_not_keys() -> None:
    aggregation = Masked(Cohort.simulated(("s0", "s1")))
    played = play(site_rows(3, (20, 30)), aggregation, method="covariance")
    for reply in played.transcript.rounds[0].replies.values():
        body = reply["body"]
        assert isinstance(body, np.ndarray)
        assert "words" in decode(body.tobytes())
    assert played.summands["s1"][0]["rows"] == 30


def test_graphs_of_single_sites_are_read_off_votes() -> None:
    data = site_rows(4, (60, 5, 30))
    played = play(data, method="voting")
    assert inversion(played.transcript, "s1", moments_of(data), played.summands).error == 0.0
    hidden = with_replies(played.transcript, noise_like(np.random.default_rng(0)))
    assert not inversion(hidden, "s1", moments_of(data), played.summands).succeeds


@pytest.mark.parametrize("options", [INTERCEPT, DEFAULT, COVARIANCE], ids=str)
@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_rows_are_found_exactly(options: dict[str, Any], n: int) -> None:
    data = site_rows(5, (n, 40, 30))
    seen = play(data, **options).transcript
    found = rows(seen, "s0", moments_of(data), data["s0"])
    assert found.error < 1e-7
    assert found.blind == 1.0


def test_two_rows_are_found_from_the_mean_that_is_never_sent() -> None:
    data = site_rows(5, (2, 40, 30))
    assert rows(play(data, **PAPER).transcript, "s0", moments_of(data), data["s0"]).error < 1e-7


def test_three_rows_of_continuous_columns_stay_open() -> None:
    data = site_rows(5, (3, 40, 30))
    found = rows(play(data, **DEFAULT).transcript, "s0", moments_of(data), data["s0"])
    assert found.error > 0.1
    assert "2 dimensions stays open" in found.detail


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_binary_columns_pin_the_rows(n: int) -> None:
    """From a run: the replies' equations are solved first, which leaves rounding in every count."""
    rng = np.random.default_rng(n)

    def draw(count: int) -> FloatArray:
        return np.hstack([(rng.random((count, 7)) < 0.5).astype(float), rng.standard_normal((count, 3))])

    data = {"tiny": draw(n), "large": draw(60)}
    found = rows(play(data, **DEFAULT).transcript, "tiny", moments_of(data), data["tiny"])
    assert found.error < 1e-6
    assert "0 and 1" in found.detail


def test_reconstruction_meets_its_sums_even_where_rows_stay_open() -> None:
    X = np.random.default_rng(0).standard_normal((4, 5))
    estimate, _ = reconstruct(4, X.sum(axis=0), X.T @ X, np.zeros(5))
    np.testing.assert_allclose(estimate.sum(axis=0), X.sum(axis=0))


@pytest.mark.parametrize("options", [PAPER, INTERCEPT, DEFAULT], ids=str)
def test_derivatives_of_the_rounds_equations(options: dict[str, Any]) -> None:
    seen = play(site_rows(3, (20, 30)), **options).transcript
    equations = Equations.of(Transcript(seen.rounds[:9]))
    rng = np.random.default_rng(0)
    p = equations.totals.shape[1]
    x = rng.standard_normal(p * (p + 1) + (2 if equations.by_rows else 0))
    x[: p * (p + 1)] += np.tile(np.eye(p)[np.tril_indices(p)], 2)  # off the singular matrices
    probe = rng.standard_normal(equations.totals.size)
    numeric = finite_differences(lambda z: probe @ equations.errors(z)[0], x, 1e-6)
    np.testing.assert_allclose(probe @ equations.errors(x)[1], numeric, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [PAPER, DEFAULT], ids=str)
def test_sequence_of_totals_gives_two_sites_away(options: dict[str, Any]) -> None:
    data = site_rows(4, (60, 90))
    found = multi_round(play(data, **options).transcript, moments_of(data), seconds=20.0)
    assert found is not None
    assert found.error < 1e-6 < found.blind


def test_equations_too_many_for_memory_are_not_tried() -> None:
    data = site_rows(30, (60, 90))
    first = play(data, **DEFAULT).transcript
    assert multi_round(first, moments_of(data)) is None


def test_one_total_gives_no_site_away() -> None:
    data = site_rows(4, (60, 90))
    assert multi_round(play(data, **COVARIANCE).transcript, moments_of(data)) is None


@pytest.mark.parametrize(("options", "close"), [(PAPER, 1e-6), (DEFAULT, 1e-2), (COVARIANCE, 1e-12)], ids=str)
def test_totals_give_the_pooled_covariance(options: dict[str, Any], close: float) -> None:
    data = site_rows(6, (60, 40, 50))
    found = consensus(play(data, **options).transcript, moments_of(data))
    assert found is not None
    assert found.error < close < found.blind


@pytest.mark.parametrize(("options", "close"), [(PAPER, 1e-4), (DEFAULT, 0.1), (COVARIANCE, 1e-9)], ids=str)
def test_two_runs_give_a_site_and_a_row_away(options: dict[str, Any], close: float) -> None:
    data = site_rows(5, (60, 40, 50))
    data["s1"] += 3.0  # so that the two runs have different means
    full = play(data, **options)
    without = play({site: own for site, own in data.items() if site != "s1"}, **options)
    found = differencing(full.transcript, without.transcript, "s1", moments_of(data), full.summands["s1"])
    assert found.error < close
    assert found.succeeds
    fewer = play({**data, "s2": data["s2"][:-1]}, **options)
    row = differencing_row(full.transcript, fewer.transcript, data["s2"][-1])
    if options == PAPER:
        assert row is None  # no sums are sent
    else:
        assert row is not None
        assert row.error < 1e-9


def test_sums_move_from_one_point_to_another() -> None:
    rng = np.random.default_rng(0)
    X, own, centre = rng.standard_normal((9, 3)), rng.standard_normal(3), rng.standard_normal(3)
    about = Recovered(9.0, X.mean(axis=0), (X - own).T @ (X - own) / 9.0)
    n, total, squares = sums_about(about, own, centre)
    assert n == 9.0
    np.testing.assert_allclose(total, (X - centre).sum(axis=0))
    np.testing.assert_allclose(squares, (X - centre).T @ (X - centre))


def test_noise_stops_differencing() -> None:
    data = site_rows(5, (300, 200, 250))
    full = play(data, Noisy(0, 30.0), **COVARIANCE)
    fewer = play({**data, "s2": data["s2"][:-1]}, Noisy(1, 30.0), **COVARIANCE)
    found = differencing_row(full.transcript, fewer.transcript, data["s2"][-1])
    assert found is not None
    assert not found.succeeds


@pytest.mark.parametrize("options", [PAPER, DEFAULT, COVARIANCE, {"method": "average"}], ids=str)
def test_all_others_and_the_server_find_the_last_site(options: dict[str, Any]) -> None:
    """From totals only: replies are noise to them, too."""
    data = site_rows(5, (30, 40, 50))
    played = play(data, **options)
    hidden = with_replies(played.transcript, noise_like(np.random.default_rng(0)))
    found = collusion(hidden, "s0", moments_of(data), played.summands)
    assert found.error < 1e-8 < found.blind


def test_first_broadcast_of_the_default_preset_tells_a_site_about_the_only_other() -> None:
    data = site_rows(5, (30, 40))
    found = broadcast_setup(play(data, **DEFAULT).transcript, "s0", moments_of(data))
    assert found is not None
    assert found.adversary == "one site"
    assert found.error < 1e-9 < found.blind
    assert broadcast_setup(play(data, **PAPER).transcript, "s0", moments_of(data)) is None


def test_private_sums_are_read_back_but_for_their_noise() -> None:
    rng = np.random.default_rng(0)
    X, centre, whiten = rng.standard_normal((50, 3)), rng.standard_normal(3), rng.standard_normal((3, 3))
    message: Message = {"phase": "moments", "centre": centre, "whiten": whiten, "radius": 100.0}
    answer: Summand = sums([X], centre, whiten, 100.0)
    found = recover([message], [answer])
    np.testing.assert_allclose(found.second, (X - centre).T @ (X - centre) / 50, rtol=0.02, atol=0.02)


def test_an_audit_in_words_and_as_json() -> None:
    data = site_rows(4, (2, 40, 30))
    report = audit(data, method="covariance")
    assert {finding.name for finding in report.findings} == {
        "inversion", "rows", "consensus", "collusion", "differencing"
    }  # fmt: skip
    assert all(finding.succeeds for finding in report.findings)
    attacks = json.loads(json.dumps(report.to_json()))["attacks"]
    assert all({"name", "target", "relative_error", "blind_error"} <= attack.keys() for attack in attacks)
    assert "rows of s0" in report.words
    assert any("'masked'" in advice for advice in report.advice)


def test_an_audit_of_masked_sums_finds_totals_only() -> None:
    report = audit(site_rows(4, (2, 40, 30)), method="covariance", aggregation="masked")
    succeeded = {finding.name for finding in report.findings if finding.succeeds}
    assert succeeded == {"consensus", "collusion", "differencing"}
    assert "does not find out from single replies: rows of s0" in report.words


def test_an_audit_takes_its_runs_from_elsewhere() -> None:
    calls: list[int] = []

    def counted(data: Mapping[str, FloatArray]) -> Played:
        calls.append(len(data))
        return recorded(Options(method="average"), "plain")(data)

    report = audit(site_rows(4, (20, 40, 30)), method="average", play=counted)
    assert calls == [3, 2, 3]  # all; without a site; without a row
    assert {finding.target for finding in report.findings} >= {"graph of s0", "graph of s1", "graph of s2"}


def test_what_cannot_be_audited_is_refused() -> None:
    data = site_rows(4, (20, 40))
    with pytest.raises(InputError, match="pooled"):
        audit(data, method="pooled")
    with pytest.raises(InputError, match="aggregation"):
        audit(data, aggregation="none")


def test_success_needs_to_be_clearly_better_than_a_guess() -> None:
    finding = Finding("rows", "server", "rows", 0.3, 1.0, "")
    assert finding.succeeds
    assert not replace(finding, blind=0.5).succeeds
    nothing = AuditReport("admm", "paper", "masked", 2, (replace(finding, blind=0.5),))
    assert nothing.advice[-1] == "No attack did clearly better than a guess."
