"""The audit against a lying server, as a user meets it."""

import json
import time
from pathlib import Path

import pytest

import dagora
from dagora.audit.run import audit
from tests.unit.test_cli import dagora as command


def rows(d: int = 4, sites: int = 4) -> dict[str, object]:
    _, data = dagora.simulate(d=d, edges=d, n=400, sites=sites, seed=0)
    return dict(zip(("north", "south", "east", "west"), data, strict=False))


@pytest.mark.parametrize("method", ["covariance", "admm", "voting"])
def test_under_plain_sums_the_server_has_all(method: str) -> None:
    report = audit(rows(), method=method, aggregation="plain", adversary="lying-server")  # type: ignore[arg-type]
    assert [finding.name for finding in report.findings if finding.succeeds] == ["replies"]
    assert "A server that deviates from the protocol finds out by replies: summand of" in report.words
    assert "use aggregation 'masked'" in report.words


@pytest.mark.parametrize("aggregation", ["masked", "shared"])
@pytest.mark.parametrize("method", ["covariance", "admm"])
def test_a_lying_server_finds_nothing_out(method: str, aggregation: str) -> None:
    begun = time.perf_counter()
    report = audit(rows(d=10), method=method, aggregation=aggregation, adversary="lying-server")  # type: ignore[arg-type]
    assert time.perf_counter() - begun < 30.0
    assert len(report.findings) >= 7
    assert [finding.name for finding in report.findings if finding.succeeds] == []
    assert "A server that deviates from the protocol does not find out" in report.words


def test_a_lying_server_does_not_isolate_noise() -> None:
    pytest.importorskip("opendp")
    options = {"method": "covariance", "learner": "notears", "epsilon": 3.0}
    report = audit(rows(), aggregation="gaussian", adversary="lying-server", **options)  # type: ignore[arg-type]
    assert "isolated noise" in {finding.name for finding in report.findings}
    assert not any(finding.succeeds for finding in report.findings)


def test_an_unknown_adversary_is_refused() -> None:
    with pytest.raises(dagora.InputError, match="there is no 'liar'; choose from honest, lying-server"):
        audit(rows(), adversary="liar")  # type: ignore[arg-type]


def test_the_command(tmp_path: Path) -> None:
    done = command("simulate", "--d", 4, "--edges", 4, "--n", 400, "--sites", 4, "--out", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in tmp_path.glob("site-*.csv"))
    options = ("--method", "covariance", "--aggregation", "plain", "--adversary", "lying-server")
    report = json.loads(command("audit", *files, *options, "--json", cwd=tmp_path).stdout)
    assert report["adversary"] == "lying-server"
    assert {attack["adversary"] for attack in report["attacks"]} == {"a lying server"}
    shown = command("audit", *files, *options, cwd=tmp_path)
    assert "a lying server" in " ".join(shown.stdout.split())
