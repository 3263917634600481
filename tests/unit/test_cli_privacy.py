"""Privacy as a user meets it: options of `learn`, policies, ledgers and audits."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dagora
from dagora.aggregation.ledger import Sent, read
from dagora.algorithms.private_covariance import PrivateCovarianceServer, PrivateCovarianceState
from dagora.data.moments import Moments
from dagora.federated.policy import Policy, PolicyError
from dagora.learners.base import Learned
from tests.helpers import small_sites
from tests.unit.test_cli import dagora as command

SITES = dict(zip(("north", "south", "east"), small_sites(), strict=True))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("privacy")
    done = command("simulate", "--d", 4, "--edges", 4, "--n", 240, "--sites", 3, "--out", ".", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


NAMES = ("site-01.csv", "site-02.csv", "site-03.csv")


def learned(folder: Path, *options: object) -> dict[str, object]:
    done = command("learn", *NAMES, "--json", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("aggregation", ["masked", "shared", "encrypted"])
def test_private_sums_find_the_same_edges(files: Path, aggregation: str) -> None:
    plain = learned(files, "--method", "covariance")
    private = learned(files, "--method", "covariance", "--aggregation", aggregation)
    assert private["edges"] == [
        {**edge, "weight": pytest.approx(edge["weight"])}
        for edge in plain["edges"]  # type: ignore[attr-defined]
    ]
    assert private["settings"]["aggregation"] == aggregation  # type: ignore[index]


def test_differential_privacy_is_reported_and_tells_no_counts(tmp_path: Path) -> None:
    _, sites = dagora.simulate(d=4, edges=4, n=4000, sites=3, seed=0)
    result = dagora.learn(sites, method="covariance", aggregation="gaussian", epsilon=2.0, delta=1e-6)
    assert result.settings["epsilon"] == 2.0
    assert result.settings["delta"] == 1e-6
    assert result.settings["colluders"] == 1
    assert 1.99 < result.settings["epsilon_spent"] <= 2.0
    assert result.site_rows == {}
    assert result.sites == ("site-01", "site-02", "site-03")
    assert 0 < result.settings["rows_worth"] == float(result.extras["rows_worth"]) < 4000
    again = dagora.learn(sites, method="covariance", aggregation="gaussian", epsilon=2.0, delta=1e-6)
    assert (again.weights != result.weights).any()  # noise is never the same


def test_differential_privacy_on_the_command_line(tmp_path: Path) -> None:
    command("simulate", "--d", 4, "--edges", 4, "--n", 4000, "--sites", 3, "--out", ".", cwd=tmp_path)
    options = ("--method", "covariance", "--aggregation", "gaussian", "--epsilon", 1)
    done = command("learn", *NAMES, *options, "--out", "result", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 sites, epsilon 1 at delta 1e-05 spent" in done.stdout
    assert json.loads((tmp_path / "result" / "result.json").read_text())["site_rows"] == {}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"aggregation": "gaussian"}, "epsilon: aggregation 'gaussian' needs it"),
        ({"aggregation": "masked", "epsilon": 1.0}, "epsilon: only aggregation 'gaussian' has a use for it"),
        ({"delta": 1e-5}, "delta: only aggregation 'gaussian'"),
        ({"colluders": 1}, "colluders: only aggregation 'gaussian'"),
        ({"aggregation": "gaussian", "epsilon": -1.0}, "epsilon: must be a finite number above 0"),
        ({"aggregation": "gaussian", "epsilon": 1.0, "delta": 2.0}, "delta: must lie between 0 and 1"),
        ({"aggregation": "gaussian", "epsilon": 1.0, "colluders": 3}, "colluders: must be 0 or more and below"),
        (
            {"aggregation": "gaussian", "epsilon": 1.0, "method": "admm"},
            "sensitivity.*use method 'covariance'",
        ),
        ({"aggregation": "gaussian", "epsilon": 1.0, "method": "voting"}, "states no sensitivity"),
        ({"aggregation": "secret"}, "there is no 'secret'; choose from plain, masked, shared, encrypted, gaussian"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], text: str) -> None:
    with pytest.raises(dagora.InputError, match=text):
        dagora.learn(SITES, **{"method": "covariance", **options})  # type: ignore[arg-type]


def test_one_site_has_nothing_to_hide_behind() -> None:
    with pytest.raises(dagora.InputError, match="'masked' hides nothing with one site"):
        dagora.learn([small_sites()[0]], aggregation="masked")


# Policies.


def test_a_policy_is_kept_before_anything_leaves(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"site 'south': policy: method 'admm' is not allowed here"):
        dagora.learn(SITES, policy={"south": Policy(methods=("covariance",), aggregations=("plain",))}, ledger=tmp_path)
    assert not any(isinstance(entry.what, Sent) for file in tmp_path.glob("*.jsonl") for entry in read(file))
    allowed = Policy(methods=("admm",), aggregations=("plain",), parameters_per_row=1.0)
    assert dagora.learn(SITES, policy=allowed).rounds == dagora.learn(SITES).rounds


def test_a_policy_limits_rounds_and_sizes_on_the_way() -> None:
    few = Policy(aggregations=("plain",), parameters_per_row=1.0, rounds=5)
    with pytest.raises(PolicyError, match=r"site 'north': policy: round 6 is not allowed here \(rounds: 5\)"):
        dagora.learn(SITES, policy=few)
    tight = Policy(aggregations=("plain",))
    with pytest.raises(PolicyError, match=r"site 'south': policy: this site has too few rows"):
        dagora.learn(SITES, policy={"south": replace(tight, parameters_per_row=0.09)})


def test_no_policy_allows_pooling() -> None:
    with pytest.raises(PolicyError, match="'pooled' is never allowed"):
        dagora.learn(SITES, method="pooled", policy=Policy(aggregations=("plain",)))


def test_a_policy_for_a_site_that_is_not_there() -> None:
    with pytest.raises(dagora.InputError, match="policy: there is no site 'west'; the sites are north, south, east"):
        dagora.learn(SITES, policy={"west": Policy()})


def test_a_budget_is_spent_over_runs(tmp_path: Path) -> None:
    _, sites = dagora.simulate(d=3, edges=3, n=6000, sites=3, seed=0)
    policy = Policy(epsilon=3.0, delta=1e-4)
    options = {"method": "covariance", "aggregation": "gaussian", "policy": policy, "ledger": tmp_path}
    dagora.learn(sites, epsilon=2.0, **options)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"epsilon 2.0 is not allowed here after 2.0 \(budget: epsilon 3.0"):
        dagora.learn(sites, epsilon=2.0, **options)  # type: ignore[arg-type]
    dagora.learn(sites, epsilon=1.0, **options)  # type: ignore[arg-type]


def test_the_policy_command(tmp_path: Path) -> None:
    done = command("policy", cwd=tmp_path)
    (tmp_path / "policy.toml").write_text(done.stdout)
    assert Policy.read(tmp_path / "policy.toml") == Policy()
    (tmp_path / "policy.toml").write_text("rounds = 7\n")
    assert json.loads(command("policy", "policy.toml", "--json", cwd=tmp_path).stdout)["rounds"] == 7
    (tmp_path / "policy.toml").write_text("round = 7\n")
    done = command("policy", "policy.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no key 'round'" in done.stderr


def test_learning_under_a_policy_file(files: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(Policy(minimum_sites=4).to_toml())
    done = command("learn", *NAMES, "--aggregation", "masked", "--policy", tmp_path / "policy.toml", cwd=files)
    assert done.returncode == 2
    assert "policy: 3 sites are too few here (minimum_sites: 4)" in done.stderr


# Ledgers.

PHASES = {
    "plain": "moments",
    "masked": "moments, sum",
    "shared": "moments, deal",
    "encrypted": "moments, encrypt",
}


@pytest.mark.parametrize("aggregation", ["plain", "masked", "shared", "encrypted"])
def test_the_ledger_adds_up_to_what_was_sent(aggregation: str, tmp_path: Path) -> None:
    result = dagora.learn(SITES, method="covariance", aggregation=aggregation, ledger=tmp_path)
    entries = [entry.what for site in SITES for entry in read(tmp_path / f"{site}.jsonl")]
    sent = [entry for entry in entries if isinstance(entry, Sent)]
    assert sum(entry.bytes for entry in sent) == result.sent
    assert {entry.protection for entry in sent} == {aggregation}
    assert {entry.phase for entry in sent if entry.fields} == {PHASES[aggregation]}
    assert [entry.fields for entry in sent if entry.fields] == 3 * [{"rows": (), "sum": (5,), "squares": (15,)}]


def test_the_ledger_holds_no_values(tmp_path: Path) -> None:
    dagora.learn(SITES, method="covariance", ledger=tmp_path)
    text = (tmp_path / "north.jsonl").read_text()
    total = np.sum(SITES["north"], axis=0)
    assert not any(repr(float(value))[:8] in text for value in [*total, *SITES["north"].ravel()])


def test_the_ledger_command(tmp_path: Path) -> None:
    for _ in range(2):
        dagora.learn(SITES, method="covariance", aggregation="masked", ledger=tmp_path)
    done = command("ledger", "north.jsonl", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["site"] == "north"
    assert [run["replies"] for run in told["runs"]] == [3, 3]  # its key, what all offered, and its summand
    shown = command("ledger", "north.jsonl", "--noted", told["head"], cwd=tmp_path)
    assert shown.returncode == 0
    assert f"8 lines, unbroken; head {told['head']}" in shown.stdout
    lines = (tmp_path / "north.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "north.jsonl").write_text("".join(lines[:2] + lines[3:]))
    broken = command("ledger", "north.jsonl", cwd=tmp_path)
    assert broken.returncode == 2
    assert "line 3 does not follow line 2" in broken.stderr


# Audits.


def test_the_audit_command(files: Path) -> None:
    done = command("audit", *NAMES, "--json", "--seconds", 5, cwd=files)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    inversions = [attack for attack in report["attacks"] if attack["name"] == "inversion"]
    assert [attack["target"] for attack in inversions] == [f"covariance of site-0{k}" for k in (1, 2, 3)]
    assert all(attack["relative_error"] < 1e-8 < attack["blind_error"] for attack in inversions)


@pytest.mark.parametrize("aggregation", ["masked", "shared", "encrypted"])
def test_the_audit_command_against_private_sums(files: Path, aggregation: str) -> None:
    options = ("--method", "covariance", "--aggregation", aggregation)
    report = json.loads(command("audit", *NAMES, "--json", *options, cwd=files).stdout)
    inversions = [attack for attack in report["attacks"] if attack["name"] == "inversion"]
    assert len(inversions) == 3
    assert all(attack["relative_error"] > attack["blind_error"] for attack in inversions)


def test_an_audit_in_words(files: Path) -> None:
    done = command("audit", *NAMES, "--aggregation", "masked", "--seconds", 5, cwd=files)
    assert "single replies" in done.stdout
    assert "ethod 'covariance' with aggregation 'masked'" in done.stdout
    refused = command("audit", *NAMES, "--method", "pooled", cwd=files)
    assert refused.returncode == 2
    assert "there is nothing to audit" in refused.stderr


# What must not cost a run.


def test_no_ledger_counts_a_run_that_a_site_refuses(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="site 'east': policy"):
        dagora.learn(SITES, policy={"east": Policy(methods=())}, ledger=tmp_path)
    assert [read(tmp_path / f"{site}.jsonl") for site in SITES] == [[], [], []]


def test_no_ledger_counts_a_run_whose_result_cannot_be_written(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "taken"
    out.write_text("")
    done = command("learn", *NAMES, "--ledger", tmp_path / "ledgers", "--out", out, cwd=files)
    assert done.returncode == 2
    assert "is a file; choose another" in done.stderr
    assert not (tmp_path / "ledgers").exists()


def test_a_policy_of_another_kind() -> None:
    with pytest.raises(dagora.InputError, match="policy: must be a Policy, the path of its file, or a mapping"):
        dagora.learn(SITES, policy=3)  # type: ignore[arg-type]


def test_columns_that_noise_cannot_centre_are_named() -> None:
    _, sites = dagora.simulate(d=3, edges=3, n=6000, sites=3, seed=0)
    far = [rows + np.array([0.0, 1e12, 0.0]) for rows in sites]
    with pytest.raises(dagora.NumericalError, match=r"column 'x2': the spread is too small.*subtract a constant"):
        dagora.learn(far, method="covariance", aggregation="gaussian", epsilon=4.0)


@pytest.mark.parametrize(("worth", "warns"), [(99, True), (100, False)])
def test_a_warning_tells_of_too_much_noise(worth: int, warns: bool) -> None:
    found = Learned(np.zeros((2, 2)), np.zeros((2, 2), dtype=bool))
    server = PrivateCovarianceServer(("a", "b"), lambda moments: found, noise=1.0)
    moments = Moments(worth, np.zeros(2), np.eye(2))
    estimate = server.estimate(PrivateCovarianceState(worth=worth, moments=moments, learned=found))
    assert any("worth 99 rows, too few for 2 columns" in text for text in estimate.warnings) == warns
