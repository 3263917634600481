"""The attacks that were found on 84e75ca, by name: each of them fails now."""

import numpy as np
import pytest

from dagora.audit.conversation import Stage, converse
from dagora.audit.harvest import harvest
from dagora.audit.lies import Script
from dagora.audit.lying_server import ATTACKS, EXACT
from tests.lying_server.kit import echo_stage, numbers, real_stage

CATALOGUE = [(name, own) for name, attack in ATTACKS.items() for own in attack.against if own != "plain"]


def stage_for(name: str, aggregation: str) -> Stage:
    """Data on which the attack has its best chance."""
    data = numbers(7 if name == "split cohorts" else 4, seed=1)
    if name == "narrow retry":  # the numbers of one site alone need wider words
        data = {site: values * (2.0 if site == "ann" else 0.25) for site, values in data.items()}
    return echo_stage(aggregation, data)


@pytest.mark.parametrize(("name", "aggregation"), CATALOGUE)
def test_the_attack_fails(name: str, aggregation: str) -> None:
    if aggregation == "encrypted":
        pytest.importorskip("tenseal")
    found = ATTACKS[name].on(stage_for(name, aggregation))
    assert [(each.site, each.error) for each in found if each.recovered] == []


@pytest.mark.parametrize("method", ["covariance", "admm"])
@pytest.mark.parametrize(("name", "aggregation"), [pair for pair in CATALOGUE if pair[1] in ("masked", "shared")])
def test_the_attack_fails_on_a_real_statistic(name: str, aggregation: str, method: str) -> None:
    found = ATTACKS[name].on(real_stage(aggregation, method))
    assert [(each.site, each.error) for each in found if each.recovered] == []


def test_the_attack_on_noise_fails_on_a_real_statistic() -> None:
    pytest.importorskip("opendp")
    found = ATTACKS["isolated noise"].on(real_stage("gaussian", "covariance"))
    assert [(each.site, each.error) for each in found if each.recovered] == []


@pytest.mark.parametrize("aggregation", EXACT)
def test_an_honest_run_in_which_one_sites_numbers_grow_gives_it_away_by_no_retry(aggregation: str) -> None:
    if aggregation == "encrypted":
        pytest.importorskip("tenseal")
    data = {site: np.linspace(1.0, 5.0, 6) for site in ("ann", "bob", "cleo", "dan")}
    data["ann"] = np.linspace(40.0, 60.0, 6)
    stage = echo_stage(aggregation, data, [{"scale": 0.01}, {"scale": 1.0}])
    heard = converse(stage, Script())
    assert len(heard.totals) == 2
    found = harvest([heard], stage.rows)
    assert [(each.site, each.error) for each in found.values() if each.recovered] == []


def test_the_harvest_finds_what_is_there() -> None:
    # The kit itself: what it searches is what a plain server sees, and a share of the total is no recovery.
    stage = echo_stage("plain", numbers(4, seed=1))
    found = ATTACKS["replies"].on(stage)
    assert {each.site for each in found if each.recovered} == set(stage.sites)
    for method in ("covariance", "admm"):
        real = real_stage("plain", method)
        assert {each.site for each in ATTACKS["replies"].on(real) if each.recovered} == set(real.sites)
    equal = echo_stage("plain", dict.fromkeys(stage.sites, np.arange(6.0)))
    assert not any(each.recovered for each in ATTACKS["replies"].on(equal))
