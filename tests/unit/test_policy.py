"""A site's policy: every rule admits and refuses, and a file that is wrong is refused in one line."""

import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from dagora.errors import InputError
from dagora.federated.policy import Job, Policy, PolicyError, RowsPolicyError, Spent

ROWS = 1000
JOB = Job("run-1", "covariance", "masked", ("north", "south", "east"))
PRIVATE = replace(JOB, aggregation="gaussian", epsilon=0.5, delta=1e-6)
BUDGET = Policy(epsilon=1.0, delta=1e-5)
FRESH = Spent()


def refused(policy: Policy, job: Job = JOB, rows: int = ROWS, spent: Spent = FRESH) -> str:
    with pytest.raises(PolicyError) as caught:
        policy.admit(job, rows, spent)
    return one_line(caught.value)


def one_line(error: Exception) -> str:
    assert "\n" not in str(error)
    return str(error)


def test_a_method_is_admitted_or_named_with_those_allowed() -> None:
    policy = Policy(methods=("covariance",))
    policy.admit(JOB, ROWS, FRESH)
    text = refused(policy, replace(JOB, method="admm"))
    assert text == "policy: method 'admm' is not allowed here (allowed: covariance)"


def test_an_empty_list_admits_nothing() -> None:
    assert "(allowed: none)" in refused(Policy(methods=()))


def test_pooled_is_refused_by_every_policy() -> None:
    assert "would move rows" in refused(Policy(), replace(JOB, method="pooled"))
    with pytest.raises(InputError, match="pooled"):
        Policy(methods=("covariance", "pooled"))


def test_the_aggregation() -> None:
    plain = replace(JOB, aggregation="plain")
    Policy(aggregations=("plain",)).admit(plain, ROWS, FRESH)
    assert "aggregation 'plain'" in refused(Policy(), plain)  # refused unless the owner allows it


def test_the_number_of_sites() -> None:
    Policy(minimum_sites=3).admit(JOB, ROWS, FRESH)
    text = refused(Policy(minimum_sites=4))
    assert "3 sites" in text
    assert "minimum_sites: 4" in text


def test_the_number_of_rows_is_checked_and_not_told() -> None:
    Policy(minimum_rows=77).admit(JOB, 77, FRESH)
    text = refused(Policy(minimum_rows=77), rows=76)
    assert "76" not in text
    assert "77" not in text


def test_refusals_that_depend_on_the_rows_come_last_and_are_all_alike() -> None:
    strict = Policy(minimum_rows=77)
    few = {refused(strict, rows=76), refused(Policy(), replace(JOB, replicates=100), rows=150)}
    with pytest.raises(RowsPolicyError) as caught:
        Policy().release({"x": (50,)}, 100, 1)
    assert {one_line(caught.value)} == few
    # Whatever else is wrong is told first: only then do the rows decide.
    for job, spent in (
        (replace(JOB, method="other"), FRESH),
        (replace(JOB, replicates=201), FRESH),
        (JOB, Spent(runs=10)),
        (JOB, Spent(cohort=frozenset("ab"))),
    ):
        assert refused(strict, job, rows=76, spent=spent) == refused(strict, job, rows=1000, spent=spent)


def test_the_cohort_is_that_of_the_run_before() -> None:
    same = Spent(math.inf, 0.0, 1, frozenset(JOB.sites))
    Policy().admit(JOB, ROWS, same)
    Policy().admit(replace(JOB, sites=JOB.sites[::-1]), ROWS, same)
    for sites in (("north", "south", "west"), (*JOB.sites, "west"), ("north", "south", "east", "west", "up")):
        assert "(same_cohort)" in refused(Policy(), replace(JOB, sites=sites), spent=same)
        Policy(same_cohort=False).admit(replace(JOB, sites=sites), ROWS, same)


def test_noise_must_hold_against_enough_colluding_sites() -> None:
    job = replace(PRIVATE, colluders=1)
    Policy().admit(job, ROWS, FRESH)  # half of three, rounded down
    assert "noise that holds against 0 colluding sites of 3" in refused(Policy(), replace(job, colluders=0))
    assert "(colluders: 0.7)" in refused(Policy(colluders=0.7), job)
    Policy(colluders=0.0).admit(replace(job, colluders=0), ROWS, FRESH)


def test_introductions_are_limited() -> None:
    Policy(introductions=5).introduce(Spent(introductions=4))
    with pytest.raises(PolicyError, match="introductions: 5"):
        Policy(introductions=5).introduce(Spent(introductions=5))


def test_parts_of_a_cohort_and_what_is_left_hold_enough_sites() -> None:
    policy, cohort = Policy(minimum_sites=2), tuple("abcdef")
    policy.check_parts(cohort, [frozenset("ab")])
    policy.check_parts(cohort, [frozenset(cohort)])
    policy.check_parts(cohort, [frozenset("ab"), frozenset("cd"), frozenset("abef")])
    for subsets in (["a"], ["abcde"], ["ab", "abc"], ["abc", "bcd"], ["abc", "cde"]):
        with pytest.raises(PolicyError, match="minimum_sites"):
            policy.check_parts(cohort, [frozenset(one) for one in subsets])


def test_the_number_of_runs() -> None:
    Policy(runs=2).admit(JOB, ROWS, Spent(math.inf, 0.0, 1))
    assert "runs: 2" in refused(Policy(runs=2), spent=Spent(math.inf, 0.0, 2))
    assert "runs: 10" in refused(Policy(), spent=Spent(math.inf, 0.0, 10))


def test_a_budget_admits_only_differential_privacy() -> None:
    BUDGET.admit(PRIVATE, ROWS, FRESH)
    assert "without differential privacy" in refused(BUDGET)


@pytest.mark.parametrize(
    ("spent", "rule"), [(Spent(0.6, 0.0, 1), "epsilon 0.5"), (Spent(0.0, 9.5e-6, 1), "delta 1e-06")]
)
def test_the_budget_adds_up_over_runs(spent: Spent, rule: str) -> None:
    BUDGET.admit(PRIVATE, ROWS, Spent(0.5, 9e-6, 1))  # exactly the budget, in epsilon and in delta
    text = refused(BUDGET, PRIVATE, spent=spent)
    assert rule in text
    assert "budget: epsilon 1.0, delta 1e-05" in text


def test_a_run_without_privacy_has_spent_any_budget() -> None:
    assert "no budget is left" in refused(BUDGET, PRIVATE, spent=Spent(math.inf, 0.0, 1))


def test_rounding_takes_no_run_from_a_budget() -> None:
    tenth = replace(PRIVATE, epsilon=0.1, delta=0.0)
    assert 0.1 + 0.1 + 0.1 > 0.3
    Policy(epsilon=0.3, delta=0.0).admit(tenth, ROWS, Spent(0.1 + 0.1, 0.0, 2))


def test_values_per_row(caplog: pytest.LogCaptureFixture) -> None:
    policy = Policy(parameters_per_row=0.33)
    policy.release({"n": (), "x": (2, 16)}, 100, 1)  # 1 + 32 = 33 values from 100 rows
    with pytest.raises(RowsPolicyError) as caught:
        policy.release({"n": (), "x": (33,)}, 100, 1)
    assert "100" not in one_line(caught.value)  # the number of rows is the site's own
    assert "the rule parameters_per_row" in caplog.text  # which rule it was is told to the site alone


def test_a_site_without_rows_sends_nothing() -> None:
    Policy().release({"x": (0,)}, 0, 1)
    with pytest.raises(PolicyError):
        Policy().release({"n": ()}, 0, 1)


def test_rounds() -> None:
    policy = Policy(rounds=5)
    policy.release({"n": ()}, ROWS, 5)
    with pytest.raises(PolicyError, match=r"round 6 .*rounds: 5"):
        policy.release({"n": ()}, ROWS, 6)


def test_attempts_at_a_round() -> None:
    policy = Policy(attempts=2)
    policy.release({"n": ()}, ROWS, 1, 2)
    with pytest.raises(PolicyError, match=r"not answered 3 times here \(attempts: 2\)"):
        policy.release({"n": ()}, ROWS, 1, 3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": -1.0}, "epsilon must be over 0"),  # would give back budget
        ({"epsilon": math.nan}, "epsilon must be over 0"),
        ({"epsilon": math.inf}, "epsilon must be over 0"),
        ({"delta": -1e-6}, "delta from 0"),
        ({"delta": 1.0}, "delta from 0"),
        ({"delta": None}, "together"),
        ({"aggregation": "masked"}, "adds no noise"),  # a claim of privacy that nothing keeps
        ({"sites": ("a", "b", "b")}, "same name"),  # would count one site twice
        ({"sites": "abc"}, "names of 1 to"),
        ({"run": ""}, "names of 1 to"),
        ({"run": "x" * 201}, "names of 1 to"),
        ({"method": 3}, "names of 1 to"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        replace(PRIVATE, **change)


def test_what_a_coordinator_names_stays_on_one_line() -> None:
    refused(Policy(), replace(JOB, method="a\nb"))


FULL = Policy(10, 0.1, 5, False, ("covariance",), ("masked", "plain"), 7, 4, 3, 9, 0.25, 2.0, 1e-9)


@pytest.mark.parametrize("policy", [Policy(), FULL, replace(FULL, epsilon=None, delta=None)])
def test_a_written_policy_reads_back(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(policy.to_toml())
    assert Policy.read(path) == policy


def test_every_rule_has_a_line_with_a_comment() -> None:
    lines = Policy().to_toml().splitlines()
    assert [line.removeprefix("# ").split(" = ")[0] for line in lines] == [rule.name for rule in fields(Policy)]
    assert all(re.search(r"  # \w", line.replace('"', "")) and len(line) <= 120 for line in lines)


def test_what_a_file_leaves_out_has_its_default(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("minimum_rows = 50\n")
    assert Policy.read(path) == Policy(minimum_rows=50)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("minimum_row = 3", "there is no key 'minimum_row'"),
        ("[minimum_rows]\nx = 1", "minimum_rows must be a whole number"),
        ("minimum_rows = 0", "minimum_rows must be a whole number"),
        ("minimum_rows = 3.0", "minimum_rows must be a whole number"),
        ("minimum_rows = true", "minimum_rows must be a whole number"),
        ('minimum_rows = "3"', "minimum_rows must be a whole number"),
        ("parameters_per_row = 0", "parameters_per_row must be a number over 0"),
        ("parameters_per_row = nan", "parameters_per_row must be a number over 0"),
        ("parameters_per_row = inf", "parameters_per_row must be a number over 0"),
        ("parameters_per_row = true", "parameters_per_row must be a number over 0"),
        ("minimum_sites = -1", "minimum_sites must be"),
        ('methods = "covariance"', "methods must be a list"),
        ("methods = [1]", "methods must be a list"),
        ('methods = ["admm", "pooled"]', "'pooled', which would move rows"),
        ('aggregations = [""]', "aggregations must be a list"),
        ("rounds = 0", "rounds must be"),
        ("runs = 0", "runs must be"),
        ("attempts = 0", "attempts must be"),
        ("introductions = 0", "introductions must be"),
        ("colluders = 1", "colluders must be"),
        ("same_cohort = 1", "same_cohort must be true or false"),
        ("epsilon = 0\ndelta = 0.1", "epsilon must be"),
        ("epsilon = 1.0\ndelta = 1.0", "delta must be"),
        ("epsilon = 1.0", "delta is missing"),
        ("delta = 1e-6", "epsilon is missing"),
        ("rounds = ", "is not valid TOML"),
        ("\udcff", "is not valid TOML"),  # a byte that is not UTF-8
    ],
)
def test_a_wrong_file_is_refused_by_name_and_key(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError) as caught:
        Policy.read(path)
    assert says in one_line(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml.*check the path"):
        Policy.read(tmp_path / "none.toml")


def test_the_documentation_shows_the_default_policy() -> None:
    text = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    assert re.findall(r"```toml\n(.*?)```", text, re.DOTALL) == [Policy().to_toml()]
