"""Totals over parts of a cohort: sites outside a part add nothing, and no totals together leave a small part bare."""

from itertools import pairwise

import numpy as np
import pytest

from dagora.aggregation.cohort import Cohort
from dagora.aggregation.ledger import Ledger, Sent, read
from dagora.aggregation.registry import AGGREGATIONS
from dagora.arrays import FloatArray
from dagora.errors import DagoraError, MessageError
from dagora.federated.guard import Guard
from dagora.federated.message import Message
from dagora.federated.policy import Job, Policy, PolicyError
from dagora.federated.protocol import Aggregation
from dagora.federated.site import Site, subset_in, with_subset
from dagora.transport.in_process import InProcess
from tests.unit.test_private_sums import Echo, ask

SITES = tuple("abcdefg")
DATA = {site: np.random.default_rng(k).normal(size=4) for k, site in enumerate(SITES)}


class Partial(Echo):
    """An Echo whose totals may be over a part of the sites."""

    adds_over_subsets = True


def federation(name: str, policy: Policy | None = None, part: Echo | None = None) -> tuple[Aggregation, InProcess]:
    aggregation = AGGREGATIONS[name](Cohort.simulated(SITES), None)
    job = Job("run", "admm", name, SITES)
    return aggregation, InProcess(
        [
            Site(
                site,
                Partial() if part is None else part,
                own,
                aggregation,
                None if policy is None else Guard(job, 100, policy, Ledger(site)),
            )
            for site, own in DATA.items()
        ]
    )


def expected(part: str) -> FloatArray:
    total: FloatArray = np.sum([DATA[site] for site in part], axis=0)
    return total


@pytest.mark.parametrize("name", ["plain", "masked", "shared", "encrypted"])
def test_sites_outside_a_part_add_nothing(name: str) -> None:
    aggregation, wire = federation(name)
    for turn, part in enumerate(("abc", "cdefg", "abcdefg"), start=1):
        total = aggregation.total(wire, with_subset(ask(turn), part))
        np.testing.assert_allclose(total["value"], expected(part), rtol=1e-12)
        assert total["sites"] == len(part)


def test_a_statistic_that_does_not_say_so_is_not_added_over_parts() -> None:
    aggregation, wire = federation("masked", part=Echo())
    with pytest.raises(MessageError, match="its total is over all sites or none"):
        aggregation.total(wire, with_subset(ask(), "abc"))


@pytest.mark.parametrize("part", ["a", "ab", "abcdef", "abcde"])
def test_parts_that_leave_few_sites_on_either_side_are_refused(part: str) -> None:
    aggregation, wire = federation("masked", Policy())
    with pytest.raises(PolicyError, match=r"3 sites or more on either side.*\(minimum_sites\)"):
        aggregation.total(wire, with_subset(ask(), part))


def test_two_parts_that_differ_by_a_site_are_not_both_answered() -> None:
    # Each would do; their difference is one site's summand.
    aggregation, wire = federation("masked", Policy())
    first = aggregation.total(wire, with_subset(ask(1), "abc"))
    np.testing.assert_allclose(first["value"], expected("abc"), rtol=1e-12)
    with pytest.raises(PolicyError, match="together with all earlier ones"):
        aggregation.total(wire, with_subset(ask(2), "abcd"))
    aggregation, wire = federation("masked")  # nobody guards these sites
    totals = [aggregation.total(wire, with_subset(ask(k), part)) for k, part in enumerate(("abc", "abcd"), start=1)]
    np.testing.assert_allclose(totals[1]["value"] - totals[0]["value"], DATA["d"], rtol=1e-9)


def test_parts_are_remembered_in_the_ledger(tmp_path: object) -> None:
    path = f"{tmp_path}/a.jsonl"
    for run, part, allowed in (("one", "abc", True), ("two", "abcd", False), ("three", "defg", True)):
        aggregation = AGGREGATIONS["masked"](Cohort.simulated(SITES), None)
        with Ledger("a", path) as ledger:
            guard = Guard(Job(run, "admm", "masked", SITES), 100, Policy(), ledger)
            sites = [Site(s, Partial(), own, aggregation, guard if s == "a" else None) for s, own in DATA.items()]
            message = with_subset(ask(run=run), part)
            if allowed:
                aggregation.total(InProcess(sites), message)
            else:
                with pytest.raises(PolicyError, match="minimum_sites"):
                    aggregation.total(InProcess(sites), message)
    found = [entry.what.subset for entry in read(path) if isinstance(entry.what, Sent) and entry.what.subset]
    assert found == [tuple("abc"), tuple("defg")]


@pytest.mark.parametrize(
    "field", [np.frombuffer(b"[", np.uint8), np.frombuffer(b"[]", np.uint8), np.frombuffer(b"[1]", np.uint8), "abc", 3]
)
def test_a_malformed_list_of_sites_is_refused(field: object) -> None:
    message: Message = {**ask(), "subset": field}  # type: ignore[dict-item]
    with pytest.raises(MessageError, match="the list of sites in it is malformed"):
        subset_in(message)
    aggregation, wire = federation("masked", Policy())
    with pytest.raises(DagoraError):
        aggregation.total(wire, message)


def test_a_part_is_a_set() -> None:
    messages = [with_subset(ask(), part) for part in ("abc", "cab", "aabbcc")]
    assert all(subset_in(one) == subset_in(other) for one, other in pairwise(messages))


def test_attempts_at_a_round_are_limited_and_each_is_masked_anew() -> None:
    aggregation, wire = federation("masked", Policy(attempts=3))
    for _ in range(3):
        np.testing.assert_allclose(aggregation.total(wire, ask(1))["value"], expected("abcdefg"), rtol=1e-12)
    with pytest.raises(PolicyError, match=r"a round is not answered 4 times here \(attempts: 3\)"):
        aggregation.total(wire, ask(1))
    aggregation.total(wire, ask(2))
