"""A federated bootstrap: its draws, its frequencies against learning again by hand, and what replicates give away."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagora
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.ledger import Ledger
from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.bootstrap import BootstrapSite, SiteState
from dagora.algorithms.covariance import CovarianceSite
from dagora.algorithms.options import Options
from dagora.arrays import FloatArray, IntArray
from dagora.assembly import assemble
from dagora.audit.finding import Finding
from dagora.audit.resampling import few_rows, resampling
from dagora.audit.run import audit
from dagora.audit.transcript import Recorder, Transcript
from dagora.confidence import Confidence
from dagora.data import resample
from dagora.data.moments import Moments
from dagora.data.resample import Resamples, RowsError, counts, key_of, resampled
from dagora.data.rows import Rows
from dagora.data.tables import ArrayTable, open_tables
from dagora.errors import ConvergenceWarning, InputError, MessageError
from dagora.federated.guard import Guard
from dagora.federated.message import encode
from dagora.federated.policy import Job, Policy, PolicyError
from dagora.federated.run import run
from dagora.federated.site import Site
from dagora.graphs import ARROW, UNDIRECTED
from dagora.learn import open_sites
from dagora.report.html import contents
from dagora.transport.in_process import InProcess
from tests.helpers import small_series, small_sites

R = 6
KEYS = st.binary(min_size=1, max_size=40)


def wavering() -> list[FloatArray]:
    """Three sites with few rows of weak effects, about which replicates differ."""
    return dagora.simulate(5, 6, 75, 3, seed=4, weight_range=(0.3, 0.6))[1]


def drawn(key: bytes, replicate: int, n: int) -> IntArray:
    return np.concatenate(list(counts(key, replicate, n)))


def named(sites: list[FloatArray]) -> dict[str, FloatArray]:
    return {f"site-0{k}": rows for k, rows in enumerate(sites, start=1)}


# What is drawn.


@given(KEYS, st.integers(1, 1000), st.integers(1, 400), st.integers(1, 50))
def test_counts_are_of_as_many_draws_as_rows(key: bytes, replicate: int, n: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resample, "_BLOCK", block)
        found = drawn(key, replicate, n)
        assert len(found) == found.sum() == n
        assert (found >= 0).all()
        assert (found == drawn(key, replicate, n)).all()  # whenever it is asked for


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 7))
def test_how_rows_are_cut_changes_nothing(sizes: list[int], replicate: int) -> None:
    n, key = sum(sizes), b"key"
    rows = np.arange(2.0 * n).reshape(n, 2)
    cut = np.split(rows, np.cumsum(sizes)[:-1])
    again = resampled(Rows(lambda: cut, 2), n, key, replicate)
    expected = np.repeat(rows, drawn(key, replicate, n), axis=0)
    for _ in range(2):  # it can be streamed twice
        assert (np.concatenate(list(again.chunks())) == expected).all()


@pytest.mark.parametrize("block", [3, 1 << 16])
def test_counts_are_multinomial(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resample, "_BLOCK", block)
    n, times = 7, 20_000
    found = np.array([drawn(b"key", r, n) for r in range(times)])
    # Mean 1, variance 1 - 1/n, covariance -1/n; five standard errors of a mean of 20,000.
    np.testing.assert_allclose(found.mean(axis=0), 1.0, atol=5 * np.sqrt(1 / times))
    np.testing.assert_allclose(np.cov(found.T), np.eye(n) - 1 / n, atol=5 * np.sqrt(3 / times))


def test_sites_and_seeds_draw_differently() -> None:
    found = {tuple(drawn(key_of(seed, site), r, 50)) for seed in (0, 1) for site in "ab" for r in (1, 2)}
    assert len(found) == 8


def test_rows_that_have_changed_are_noticed() -> None:
    for there in (4, 6):
        rows = Rows(lambda there=there: [np.zeros((there, 2))], 2)  # type: ignore[misc]
        with pytest.raises(RowsError, match="when the run began"):
            list(resampled(rows, 5, b"key", 1).chunks())


# Frequencies, against learning again by hand.


def by_hand(sites: Mapping[str, Any], arguments: dict[str, Any], seed: int = 0) -> list[dagora.Result]:
    """`learn` on rows that were drawn outside, replicate by replicate."""
    found = []
    for r in range(1, R + 1):
        again = {site: np.repeat(rows, drawn(key_of(seed, site), r, len(rows)), axis=0) for site, rows in sites.items()}
        found.append(dagora.learn(again, **arguments))
    return found


def shares(results: list[dagora.Result]) -> Confidence:
    if results[0].identified is None:
        arrow = np.mean([result.adjacency for result in results], axis=0)
        undirected = np.zeros_like(arrow)
    else:
        arrow = np.mean([result.cpdag == ARROW for result in results], axis=0)
        once = np.mean([result.cpdag == UNDIRECTED for result in results], axis=0)
        undirected = once + once.T
    return Confidence(len(results), 0, arrow + arrow.T + undirected, arrow, undirected)


def assert_same(found: Confidence | None, expected: Confidence) -> None:
    assert found is not None
    assert (found.replicates, found.failed) == (expected.replicates, expected.failed)
    for name in ("edge", "arrow", "undirected"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"method": "covariance"},
        {"method": "covariance", "learner": "ges"},
        {"method": "voting"},
        {"method": "average"},
        {"model": "additive", "method": "covariance"},
    ],
    ids=str,
)
def test_frequencies_are_those_of_learning_again(arguments: dict[str, Any]) -> None:
    sites = named(wavering())
    result = dagora.learn(sites, bootstrap=R, **arguments)
    assert_same(result.confidence, shares(by_hand(sites, arguments)))
    assert result.confidence is not None
    assert ((result.confidence.edge > 0.0) & (result.confidence.edge < 1.0)).any()
    assert result.weights.tobytes() == dagora.learn(sites, **arguments).weights.tobytes()  # the answer is as without


def test_pooled_rows_are_drawn_together() -> None:
    sites = wavering()
    result = dagora.learn(sites, method="pooled", bootstrap=R, seed=3)
    assert_same(result.confidence, shares(by_hand({"pooled": np.concatenate(sites)}, {"method": "pooled"}, seed=3)))


def test_networks_are_learned_again() -> None:
    pytest.importorskip("torch")
    sites = named(small_sites(3))
    arguments: dict[str, Any] = {"model": "mlp", "hidden": 2, "polish": False}
    result = dagora.learn(sites, bootstrap=1, **arguments)
    again = {site: np.repeat(rows, drawn(key_of(0, site), 1, len(rows)), axis=0) for site, rows in sites.items()}
    assert_same(result.confidence, shares([dagora.learn(again, **arguments)]))


def test_effects_of_the_past_have_frequencies(tmp_path: Path) -> None:
    series = {"a": small_series()[0], "b": small_series()[1]}
    result = dagora.learn(series, model="dynamic", lags=1, method="covariance", bootstrap=R)
    assert result.confidence is not None
    assert result.confidence.lagged is not None
    # The oracle: moments of stacked rows that were drawn outside, and the same learner.
    options = Options("dynamic", "covariance", lags=1)
    found = np.zeros((1, 4, 4))
    for r in range(1, R + 1):
        moments = Moments.none(8)
        for site, own in series.items():
            stacked = np.concatenate([np.hstack([one[1:], one[:-1]]) for one in own])
            moments += Moments.of_rows(np.repeat(stacked, drawn(key_of(0, site), r, len(stacked)), axis=0))
        server = assemble(options, "plain", None, *_opened(series)).algorithm.server
        _, answer = CovarianceSite().local_update(moments, {"phase": "moments", "centre": np.zeros(8)})
        state = server.global_update(server.init(), answer)
        found += server.estimate(state).edges[4:].reshape(1, 4, 4)
    np.testing.assert_allclose(result.confidence.lagged, found / R, atol=1e-12)
    result.save(tmp_path)
    header, *lines = (tmp_path / "confidence.csv").read_text().splitlines()
    assert header == "source,target,lag,edge,arrow,undirected,direction"
    assert {line.split(",")[2] for line in lines} == {"0", "1"}


def _opened(series: Any) -> tuple[Any, tuple[str, ...]]:
    tables = open_sites(series, Options("dynamic", "covariance", lags=1), None, None)
    return tables, tables[0].names


@pytest.mark.parametrize("arguments", [{}, {"method": "covariance"}, {"method": "voting", "learner": "boss"}], ids=str)
def test_private_sums_give_the_same_frequencies(arguments: dict[str, Any]) -> None:
    sites = named(small_sites())
    plain, masked = (dagora.learn(sites, bootstrap=R, aggregation=a, **arguments) for a in ("plain", "masked"))
    assert plain.confidence is not None
    assert_same(masked.confidence, plain.confidence)


def test_the_order_of_sites_is_irrelevant_and_the_seed_is_not() -> None:
    a, b, c = wavering()
    first = dagora.learn({"a": a, "b": b, "c": c}, bootstrap=R)
    other = dagora.learn({"c": c, "a": a, "b": b}, bootstrap=R)
    assert first.confidence is not None
    assert_same(other.confidence, first.confidence)
    reseeded = dagora.learn({"a": a, "b": b, "c": c}, bootstrap=R, seed=1).confidence
    assert reseeded is not None
    assert (reseeded.arrow != first.confidence.arrow).any()
    assert first.settings["bootstrap"] == R
    assert first.settings["seed"] == 0


def test_parameters_are_of_the_rows_as_they_are() -> None:
    sites = small_sites()
    result, without = dagora.learn(sites, refit=True, bootstrap=3), dagora.learn(sites, refit=True)
    assert result.network is not None
    assert without.network is not None
    assert result.network.coefficients.tobytes() == without.network.coefficients.tobytes()
    (asked,) = [entry for entry in result.ledger if entry.phase == "parameters"]
    assert asked.rounds == 1


def test_rows_are_read_once_a_replicate(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, read = [], ArrayTable.read

    def counted(self: ArrayTable, *arguments: Any) -> Any:
        passes.append(self)
        return read(self, *arguments)

    monkeypatch.setattr(ArrayTable, "read", counted)
    for method in ("admm", "covariance"):
        passes.clear()
        dagora.learn(small_sites(), method=method, bootstrap=R)
        assert len(passes) == 3 * (1 + R)


def test_progress_goes_from_nothing_to_all_and_history_is_of_the_answer() -> None:
    seen: list[Mapping[str, float]] = []
    result = dagora.learn(small_sites(), bootstrap=3, watch=seen.append)
    assert seen == list(result.history)
    done = [figures["done"] for figures in seen]
    assert 0.0 <= done[0] < 0.25
    assert done[-1] == 1.0
    assert all(b >= a - 0.25 for a, b in pairwise(done))  # the algorithm's own may falter, within a replicate
    at = [figures["replicate"] for figures in seen]
    assert at == sorted(at)
    assert set(at) == {0, 1, 2, 3}
    alone = dagora.learn(small_sites()).history
    assert [{**figures, "done": 0, "replicate": 0} for figures in seen[: len(alone)]] == [
        {**figures, "done": 0, "replicate": 0} for figures in alone
    ]
    assert set(seen[-1]) == {"round", "replicate", "done"}


# What cannot be learned.


def test_replicates_without_a_graph_are_counted_and_told() -> None:
    _, (rows,) = dagora.simulate(4, 4, 11, 1, seed=0)
    with pytest.warns(ConvergenceWarning, match="1 of 20 bootstrap replicates gave no graph"):
        result = dagora.learn([rows[:5], rows[5:]], method="covariance", bootstrap=20)  # fewer than 5 different rows
    assert result.confidence is not None
    assert (result.confidence.replicates, result.confidence.failed) == (20, 1)
    assert result.confidence.edge.max() <= 1.0
    assert (result.confidence.edge * 19).round(9).tolist() == (result.confidence.edge * 19).round().tolist()


def test_a_site_that_cannot_learn_alone_does_not_end_the_run() -> None:
    _, (rows,) = dagora.simulate(4, 4, 11, 1, seed=0)
    with pytest.warns(ConvergenceWarning, match="none of 5 bootstrap replicates gave a graph"):
        result = dagora.learn([rows[:5], rows[5:]], method="voting", learner="boss", bootstrap=5)
    assert result.confidence is not None
    assert np.isnan(result.confidence.edge).all()
    assert result.summary()["confidence"]["edges"] == []
    (entry,) = result.ledger
    assert entry.fields["failed"] == ()


def test_columns_that_do_not_vary_in_a_draw() -> None:
    _, (rows,) = dagora.simulate(3, 3, 4, 1, seed=0)
    rows = np.hstack([rows, np.eye(4)[:, :1]])  # in a third of all draws the one 1 is not there
    with pytest.warns(ConvergenceWarning, match="bootstrap"):
        result = dagora.learn([rows[:3], rows[3:]], bootstrap=20)
    assert result.confidence is not None
    assert 0 < result.confidence.failed < 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bootstrap": 0}, "bootstrap: must be a whole number"),
        ({"bootstrap": True}, "bootstrap: must be a whole number"),
        ({"bootstrap": 2.5}, "bootstrap: must be a whole number"),
        ({"bootstrap": 10**6}, "1 to 10000"),
        ({"bootstrap": 5, "seed": -1}, "seed: must be"),
        ({"seed": 1}, "seed: .* has no use for it"),
        (
            {"bootstrap": 5, "method": "covariance", "aggregation": "gaussian", "epsilon": 1.0},
            "bootstrap: every replicate would spend epsilon again",
        ),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        dagora.learn(small_sites(), **arguments)


def test_audits_are_of_single_runs() -> None:
    with pytest.raises(InputError, match="bootstrap: the attacks"):
        audit(small_sites(), bootstrap=5)


# What a site answers.


def site_part(replicates: int = 2) -> tuple[BootstrapSite, SiteState]:
    rows = Rows(lambda: [np.random.default_rng(0).standard_normal((9, 2))], 2)
    data = Resamples(Moments.of(rows.chunks(), 2), rows, 9, lambda r: Moments.of(r.chunks(), 2), lambda: b"key")
    part = BootstrapSite(CovarianceSite(), CovarianceSite(), replicates)
    return part, part.init(data)


@pytest.mark.parametrize("asked", [[2], [0, 2], [1, 0], [0, 1, 0], [0, 1, 2, 3], [True], [None], [0.0]])
def test_replicates_come_one_after_the_other(asked: list[Any]) -> None:
    part, state = site_part()
    for replicate in asked[:-1]:
        state, _ = part.local_update(state, {"phase": "moments", "centre": np.zeros(2), "replicate": replicate})
    with pytest.raises(MessageError, match="no replicate that is due"):
        part.local_update(state, {"phase": "moments", "centre": np.zeros(2), "replicate": asked[-1]})


def test_rounds_are_limited_in_each_replicate() -> None:
    sites = small_sites()
    alone = dagora.learn(sites).rounds
    allowed: dict[str, Any] = {"aggregations": ("plain",), "parameters_per_row": 1.0}
    result = dagora.learn(sites, bootstrap=4, policy=Policy(rounds=alone + 20, **allowed))
    assert result.rounds > 2 * (alone + 20)
    with pytest.raises(PolicyError, match=r"round 4 is not allowed here \(rounds: 3\)"):
        dagora.learn(sites, bootstrap=4, policy=Policy(rounds=3, **allowed))
    with pytest.raises(PolicyError, match=r"5 bootstrap replicates are not allowed here \(replicates: 4\)"):
        dagora.learn(sites, bootstrap=5, policy=Policy(replicates=4, **allowed))
    with pytest.raises(PolicyError, match="this site has too few rows for what is asked"):
        dagora.learn(sites, bootstrap=5, policy=Policy(replicates_per_row=0.05, **allowed))


def test_a_server_cannot_count_rounds_anew_in_a_run_without_replicates() -> None:
    job = Job("run-1", "covariance", "plain", ("a",))
    policy = Policy(aggregations=("plain",), rounds=2, minimum_sites=1, parameters_per_row=10.0)
    guard = Guard(job, 9, policy, Ledger("a"))
    moments = Moments.of_rows(np.random.default_rng(0).standard_normal((9, 2)))
    site = Site("a", CovarianceSite(), moments, AGGREGATIONS["plain"](Cohort.simulated(("a",)), None), guard)

    def ask(round: int, **more: int) -> None:
        site.handle(encode({"run": "run-1", "round": round, "phase": "moments", "centre": np.zeros(2), **more}))

    ask(1)
    ask(2, replicate=0)
    with pytest.raises(PolicyError, match="no round of the run"):
        ask(3, replicate=1)
    with pytest.raises(MessageError, match="no replicate that is due"):
        ask(4, replicate=7)
    with pytest.raises(PolicyError, match="no round of the run"):
        ask(5, replicate=1)


# What totals of replicates give away.


def recorded(sites: Mapping[str, FloatArray], replicates: int, seed: int) -> Transcript:
    tables = open_tables(sites)
    options = Options(method="covariance", learner="notears", bootstrap=replicates, seed=seed)
    assembly = assemble(options, "masked", None, tables, tables[0].names)
    recorder = Recorder(assembly.protection)
    parts = [Site(site, assembly.algorithm.site, own, recorder) for site, own in assembly.data.items()]
    run(assembly.algorithm.server, recorder, InProcess(parts))
    return recorder.transcript


def attacked(replicates: int, known: bool) -> Finding:
    """Masked sums of 30 rows at three sites; the server knows the seed by which they drew, or only guesses one."""
    _, rows = dagora.simulate(3, 3, 30, 3, seed=0)
    sites = {site: own + 2.0 for site, own in named(rows).items()}
    believed = {site: key_of(11 if known else 12, site) for site in sites}
    return resampling(recorded(sites, replicates, seed=11), believed, sites)


def test_known_counts_give_single_rows_away() -> None:
    found = attacked(replicates=40, known=True)
    assert found.error < 1e-8
    assert found.succeeds


def test_keys_that_sites_keep_to_themselves_do_not() -> None:
    found = attacked(replicates=40, known=False)
    assert found.error > 0.5
    assert not found.succeeds


def test_known_counts_take_as_many_replicates_as_rows() -> None:
    found = attacked(replicates=15, known=True)
    assert found.error > 0.1


def attacked_by_spread(n: int, d: int) -> Finding:
    rows = np.random.default_rng(0).standard_normal((n, d)) + 1.0
    sites = named(np.array_split(rows, 3))
    return few_rows(recorded(sites, 20, seed=11), sites)


def test_no_key_helps_fewer_rows_than_columns() -> None:
    found = attacked_by_spread(n=6, d=6)
    assert found.error < 1e-6
    assert found.succeeds


def test_more_rows_than_values_have_no_direction_of_their_own() -> None:
    assert not attacked_by_spread(n=30, d=4).succeeds  # a summand of (d + 1)(d + 2) / 2 = 15 values


def test_the_default_policy_asks_for_more_rows_than_values() -> None:
    rows = np.random.default_rng(0).standard_normal((18, 6))
    policy = Policy(aggregations=("plain",))
    with pytest.raises(PolicyError, match="parameters_per_row"):
        dagora.learn(np.array_split(rows, 3), method="covariance", bootstrap=3, policy=policy)


def test_an_extreme_row_shows_even_so() -> None:
    """Sums move by whole multiples of it from replicate to replicate: no key hides that (docs/privacy.md)."""
    _, rows = dagora.simulate(3, 3, 90, 3, seed=0)
    sites = named(rows)
    extreme = sites["site-02"][7] = np.array([900.0, -500.0, 300.0])
    totals = np.array([each.total["sum"] for each in recorded(sites, 40, seed=11).rounds])
    moved = totals - totals.mean(axis=0)
    along = moved @ np.linalg.svd(moved)[2][0]  # the way that totals move
    along *= np.sign((along**3).sum())  # counts have their tail above
    often = np.rint((along - along.min()) / np.diff(np.sort(along)).max())
    step = np.linalg.lstsq(np.column_stack([often, np.ones(len(often))]), totals)[0][0]
    assert np.linalg.norm(step - extreme) < 0.02 * np.linalg.norm(extreme)


# What is shown.


@pytest.fixture(scope="module")
def result() -> dagora.Result:
    return dagora.learn(named(wavering()), method="covariance", bootstrap=R)


def test_files_tell_frequencies(result: dagora.Result, tmp_path: Path) -> None:
    written = result.save(tmp_path / "with")
    assert [path.name for path in written] == ["edges.csv", "weights.csv", "confidence.csv", "result.json"]
    sure = result.confidence
    assert sure is not None
    header, *lines = (tmp_path / "with" / "confidence.csv").read_text().splitlines()
    assert header == "source,target,edge,arrow,undirected,direction"
    assert len(lines) == int((sure.edge > 0.0).sum())
    for line in lines:
        source, target, *found = line.split(",")
        i, j = result.names.index(source), result.names.index(target)
        expected = [sure.edge[i, j], sure.arrow[i, j], sure.undirected[i, j], sure.direction[i, j]]
        assert list(map(float, found)) == expected
        assert expected[3] == expected[1] / expected[0]
    about = json.loads((tmp_path / "with" / "result.json").read_text())["confidence"]
    assert (about["replicates"], about["failed"], len(about["edges"])) == (R, 0, len(lines))
    assert (tmp_path / "with" / "edges.csv").read_text().startswith("source,target,weight\n")


def test_without_a_bootstrap_there_is_nothing_of_it(tmp_path: Path) -> None:
    without = dagora.learn(small_sites())
    assert without.confidence is None
    assert "confidence" not in without.summary()
    assert "confidence.csv" not in [path.name for path in without.save(tmp_path)]


def test_shares_add_up(result: dagora.Result) -> None:
    sure = result.confidence
    assert sure is not None
    assert (sure.edge == sure.edge.T).all()
    np.testing.assert_allclose(sure.edge, sure.arrow + sure.arrow.T + sure.undirected)
    joined = sure.edge > 0.0
    assert np.isnan(sure.direction[~joined]).all()
    rest = (sure.undirected / np.where(joined, sure.edge, 1.0))[joined]
    np.testing.assert_allclose((sure.direction + sure.direction.T)[joined] + rest, 1.0)


def test_the_report_tells_frequencies(result: dagora.Result) -> None:
    about, sure = contents(result, ""), result.confidence
    assert sure is not None
    assert f"{R} bootstrap replicates" in about["resamples"]
    for edge in about["edges"]:
        i, j = edge["source"], edge["target"]
        expected = [sure.edge[i, j], sure.arrow[i, j], sure.arrow[j, i], sure.undirected[i, j]]
        np.testing.assert_allclose(edge["shares"], expected, atol=1e-4)
    assert f"{R} times" in " ".join(entry["text"] for entry in about["ledger"])
    admm = contents(dagora.learn(small_sites(), bootstrap=2), "")
    assert len(admm["curves"][0]["values"]) == dagora.learn(small_sites()).rounds


def test_the_estimator_takes_it() -> None:
    pytest.importorskip("sklearn")
    fitted = dagora.FederatedDAG(bootstrap=2, seed=5).fit(small_sites())
    assert fitted.result_.confidence is not None
    assert fitted.result_.confidence.replicates == 2
