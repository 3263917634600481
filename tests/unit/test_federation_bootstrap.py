"""A bootstrap on a network: each site's key is its own, is kept for a restart, and goes with the run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.confidence import Confidence
from dagora.data.resample import counts
from dagora.errors import InputError
from dagora.federated.message import encode
from dagora.federated.policy import Policy, PolicyError
from dagora.federation import member
from dagora.federation.coordinator import say_goodbye
from dagora.federation.plan import Plan
from dagora.federation.results import from_bytes, to_bytes
from tests.federations import (
    ADMINISTRATOR,
    RUN,
    SITES,
    Hall,
    KilledError,
    Step,
    Wire,
    kill,
    learned,
    plan_for,
    without_waiting,
)
from tests.federations import written_sites as written

R = 5
METHODS: tuple[dict[str, Any], ...] = ({"method": "covariance"}, {"method": "admm"})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written(tmp_path_factory.mktemp("data"), rows=90)


def keys(patch: pytest.MonkeyPatch) -> list[bytes]:
    """Keys that differ from draw to draw, but not from one test run to the next; those that were drawn."""
    made: list[bytes] = []

    def token_bytes(size: int) -> bytes:
        made.append(bytes([len(made)]) * size)
        return made[-1]

    patch.setattr(member, "token_bytes", token_bytes)
    return made


def same(one: Confidence | None, other: Confidence | None) -> bool:
    assert one is not None
    assert other is not None
    return one.edge.tobytes() == other.edge.tobytes() and one.arrow.tobytes() == other.arrow.tobytes()


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_frequencies_are_those_of_the_keys(
    method: dict[str, Any], data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keys(monkeypatch)
    with Hall(tmp_path / "hall", data) as hall:
        result = hall.run(plan_for(bootstrap=R, **method))
    assert len(made) == len(SITES)
    rows = {site: np.loadtxt(path, delimiter=",", skiprows=1) for site, path in data.items()}
    found = np.zeros_like(result.weights)
    for r in range(1, R + 1):
        again = {
            site: np.repeat(own, np.concatenate(list(counts(key, r, len(own)))), axis=0)
            for (site, own), key in zip(rows.items(), made, strict=True)
        }
        one = dagora.learn(again, aggregation="masked", **method)
        found += (one.cpdag == 1) if method["method"] == "covariance" else one.adjacency
    assert result.confidence is not None
    np.testing.assert_allclose(result.confidence.arrow, found / R, atol=1e-12)
    alone = learned(data, aggregation="masked", **method)
    assert result.weights.tobytes() == alone.weights.tobytes()


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_restart_in_the_middle_draws_the_same_rows(
    method: dict[str, Any], data: dict[str, Path], tmp_path: Path
) -> None:
    plan = plan_for(bootstrap=R, **method)
    with pytest.MonkeyPatch.context() as patch, Hall(tmp_path / "undisturbed", data) as hall:
        keys(patch)
        expected = hall.run(plan)
    with pytest.MonkeyPatch.context() as patch, Hall(tmp_path / "disturbed", data) as hall:
        made, crashed = keys(patch), set()

        def crash(step: Step) -> None:
            replicate = step.message.get("replicate")
            if replicate in (1, 3) and (replicate, step.site) not in crashed:
                crashed.add((replicate, step.site))
                hall.crash(step.site)

        def stop(step: Step) -> None:
            if step.message.get("replicate") == 4:
                kill()

        with pytest.raises(KilledError):
            hall.run(plan, Wire(hall, before=stop, after=crash))
        for site in SITES:
            hall.crash(site)
        result = hall.run(plan)
        assert len(crashed) == 2 * len(SITES)
        assert len(made) == len(SITES)  # nothing was drawn again
    assert same(result.confidence, expected.confidence)
    assert result.weights.tobytes() == expected.weights.tobytes()
    assert result.history == expected.history


def test_keys_are_random_never_sent_and_gone_with_the_run(data: dict[str, Path], tmp_path: Path) -> None:
    plan = plan_for(bootstrap=R, method="covariance", aggregation="plain")
    found, kept, crossed = [], set(), b""
    for name in ("one", "two"):
        with Hall(tmp_path / name, data) as hall:
            wire = Wire(hall)
            found.append(hall.run(plan, wire))
            secrets = [path.read_bytes() for path in hall.folder.glob("*/state/runs/*/*.secret")]
            assert len(secrets) == len(SITES)
            assert {len(secret) for secret in secrets} == {32}
            kept |= set(secrets)
            crossed += b"".join(step.request for step in wire.steps) + to_bytes(found[-1])
            say_goodbye(RUN, "done", SITES, wire)
            assert list(hall.folder.glob("*/state/runs/*/*.secret")) == []
    assert len(kept) == 2 * len(SITES)
    assert not any(secret in crossed for secret in kept)
    # Other rows were drawn; five replicates of a small graph may come to the same frequencies all the same.
    assert len({np.concatenate(list(counts(secret, 1, 60))).tobytes() for secret in kept}) == len(kept)
    assert found[0].weights.tobytes() == found[1].weights.tobytes()


def test_a_seed_would_be_known_to_the_server() -> None:
    with pytest.raises(InputError, match="seed: in a federation each site draws rows by a secret of its own"):
        plan_for(bootstrap=5, seed=3)
    with pytest.raises(InputError, match="bootstrap: every replicate would spend epsilon"):
        plan_for(bootstrap=5, method="covariance", aggregation="gaussian", epsilon=1.0)
    assert "seed" not in plan_for(bootstrap=5).settings.settings
    assert Plan.from_json(plan_for(bootstrap=5).to_json()).job(RUN, ADMINISTRATOR).replicates == 5


def test_a_policy_is_asked_before_anyone_joins(data: dict[str, Path], tmp_path: Path) -> None:
    plan = plan_for(bootstrap=R, method="covariance")
    for policy, words in (
        (
            Policy(replicates=0, parameters_per_row=1.0),
            r"5 bootstrap replicates are not allowed .*replicates: 0",
        ),
        (Policy(replicates_per_row=0.1, parameters_per_row=1.0), "this site has too few rows for what is asked"),
    ):
        with Hall(tmp_path / str(policy.replicates), data, policy) as hall, pytest.raises(PolicyError, match=words):
            hall.run(plan)
    with Hall(tmp_path / "enough", data, Policy(rounds=3, parameters_per_row=1.0)) as hall:
        assert hall.run(plan).rounds == 2 + R  # an inspection, the answer, and replicates


def test_results_travel_with_frequencies() -> None:
    _, sites = dagora.simulate_series(3, sites=2, seed=0)
    result = dagora.learn(sites, model="dynamic", method="covariance", bootstrap=3)
    again = from_bytes(to_bytes(result))
    assert same(again.confidence, result.confidence)
    assert again.confidence is not None
    assert result.confidence is not None
    assert (again.confidence.replicates, again.confidence.failed) == (3, 0)
    assert again.confidence.lagged is not None
    assert result.confidence.lagged is not None
    assert again.confidence.lagged.tobytes() == result.confidence.lagged.tobytes()


def test_a_question_of_a_replicate_that_is_not_due_is_refused(data: dict[str, Path], tmp_path: Path) -> None:
    plan = plan_for(bootstrap=R, method="covariance", aggregation="plain")
    with Hall(tmp_path / "hall", data) as hall:
        wire = Wire(hall, before=lambda step: kill() if step.message.get("replicate") == 2 else None)
        with pytest.raises(KilledError):
            hall.run(plan, wire)
        asked = {**wire.steps[-1].message, "replicate": 4}
        with pytest.raises(dagora.MessageError, match="no replicate that is due"):
            hall.members["north"].answer("round", encode(asked))
        assert hall.run(plan).confidence is not None  # and the run goes on
