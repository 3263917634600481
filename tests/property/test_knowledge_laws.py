"""Laws of prior knowledge: files hold it as it is, and whatever learns keeps to it, to the last bit."""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dagora
from dagora import ConvergenceWarning, Knowledge
from dagora.arrays import FloatArray
from dagora.graphs import ARROW, is_dag, skeleton
from dagora.interchange.knowledge_files import parse_csv, parse_tetrad, write_csv, write_tetrad
from dagora.learn import learn
from tests.helpers import ALGORITHMS, SERIES_ALGORITHMS, Case, small_series

D = 5
NAMES = tuple(f"x{j + 1}" for j in range(D))


@st.composite
def knowledge(draw: st.DrawFn, names: tuple[str, ...] = NAMES) -> Knowledge:
    """Consistent with some DAG: required edges follow an order, forbidden ones are others, tiers cut the order."""
    order = draw(st.permutations(names))
    pairs = [(a, b) for a in names for b in names if a != b]
    follows = [(a, b) for a, b in pairs if order.index(a) < order.index(b)]
    required = draw(st.lists(st.sampled_from(follows), max_size=4, unique=True)) if follows else []
    others = [pair for pair in pairs if pair not in required]
    forbidden = draw(st.lists(st.sampled_from(others), max_size=10, unique=True)) if others else []
    cuts = sorted(draw(st.lists(st.integers(0, len(names)), max_size=3)))
    mentioned = draw(st.lists(st.sampled_from(names), unique=True)) if cuts else []
    ends = [0, *cuts, len(names)]
    tiers = [[name for name in order[first:last] if name in mentioned] for first, last in pairwise(ends)]
    tier_of = {name: number for number, tier in enumerate(tiers, start=1) for name in tier}
    asked = draw(st.lists(st.integers(1, len(tiers)), unique=True))
    closed = [
        number
        for number in asked
        if tiers[number - 1] and not any(tier_of.get(a) == tier_of.get(b) == number for a, b in required)
    ]
    return Knowledge(required, forbidden, tiers, closed)


names_of_any_kind = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
    lambda name: name == name.strip()
)


@given(st.data(), st.lists(names_of_any_kind, min_size=1, max_size=6, unique=True))
def test_files_hold_knowledge_as_it_is(data: st.DataObject, names: list[str]) -> None:
    known = data.draw(knowledge(tuple(names)))
    assert parse_csv(write_csv(known)) == known
    assert parse_tetrad(write_tetrad(known), "here") == known


def sites_of(seed: int) -> list[FloatArray]:
    _, sites = dagora.simulate(D, 6, 120, 2, seed=seed, weight_range=(0.5, 1.5))
    return sites


def learned(sites: Any, known: Knowledge, case: Case) -> dagora.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # knowledge may be far from the data
        return learn(sites, knowledge=known, **case.arguments)


HEEDING = {
    name: case
    for name, case in ALGORITHMS.items()
    if "knowledge" not in case.extra and not case.networks and (case.method, case.preset) != ("admm", "paper")
}


@pytest.mark.parametrize("algorithm", HEEDING)
@settings(max_examples=8, deadline=None)
@given(known=knowledge(), seed=st.integers(0, 20))
def test_every_method_keeps_to_knowledge(algorithm: str, known: Knowledge, seed: int) -> None:
    result = learned(sites_of(seed), known, HEEDING[algorithm])
    constraints = known.constraints(NAMES)
    assert constraints.satisfied(result.adjacency == 1)
    assert (result.weights[constraints.forbidden] == 0.0).all()
    assert is_dag(result.adjacency)
    np.testing.assert_array_equal(skeleton(result.cpdag), skeleton(result.adjacency))
    assert (result.cpdag[constraints.known(result.adjacency == 1)] == ARROW).all()
    assert not (constraints.forbidden & (result.cpdag == ARROW)).any()
    assert not any("forbidden by knowledge" in text for text in result.warnings)


@pytest.mark.parametrize("algorithm", [name for name in SERIES_ALGORITHMS if name != "admm-paper"])
@settings(max_examples=2, deadline=None)
@given(known=knowledge(("x1", "x2", "x3", "x4")))
def test_effects_within_a_time_step_keep_to_knowledge(algorithm: str, known: Knowledge) -> None:
    result = learned(small_series(), known, SERIES_ALGORITHMS[algorithm])
    constraints = known.constraints(result.names)
    assert constraints.satisfied(result.adjacency == 1)
    assert (result.weights[constraints.forbidden] == 0.0).all()
    assert result.lag_adjacency is not None
    assert result.lag_adjacency.any()  # the past stays free
