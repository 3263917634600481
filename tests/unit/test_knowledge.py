"""Knowledge by name: contradictions are named, files are read in two forms, and what is asked reaches all who learn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dagora
from dagora import InputError, Knowledge
from dagora.algorithms.options import Options
from dagora.cli import app
from dagora.estimator import FederatedDAG
from dagora.federation.plan import Plan
from dagora.federation.results import from_bytes, to_bytes
from dagora.graphs import ARROW, UNDIRECTED, is_dag
from dagora.report.html import contents
from tests.helpers import small_sites

NAMES = ("x1", "x2", "x3", "x4", "x5")
TETRAD = """/knowledge

addtemporal
1 age sex
2* salt blood%20pressure

forbiddirect
salt weight

requiredirect
age salt
"""
CSV = """# what the ward knows
required, age, salt
forbidden,salt,weight

tier,1,age
tier,1,sex
tier,2,salt
tier,2,"blood pressure"
forbidden-within,2
"""


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"required": [("a", "b")], "forbidden": [("a", "b")]}, "'a' -> 'b' is both required and forbidden"),
        ({"required": [("c", "a"), ("a", "b"), ("b", "c")]}, "'c' -> 'a' -> 'b' -> 'c' form a cycle"),
        ({"required": [("b", "a")], "tiers": [["a"], ["b"]]}, "'b' -> 'a' is required, but leads from tier 2 back to"),
        ({"required": [("a", "b")], "tiers": [["a", "b"]], "forbidden_within": [1]}, "edges within tier 1 are forbid"),
        ({"tiers": [["a"], ["b", "a"]]}, "'a' is in tiers 1 and 2"),
        ({"forbidden": [("a", "a")]}, "'a' -> 'a' leads from a variable to itself"),
        ({"required": [("a", "a")]}, "'a' -> 'a' leads from a variable to itself"),
        ({"tiers": [["a"]], "forbidden_within": [2]}, "within tier 2, which is not there"),
        ({"tiers": [["a"]], "forbidden_within": ["1"]}, "forbidden_within must hold numbers"),
        ({"required": [("a",)]}, "required must be a list of pairs"),
        ({"required": "ab"}, "required must be a list"),
        ({"tiers": ["ab"]}, "tier 1 must be a list"),
        ({"tiers": [[1]]}, "tier 1 must hold names"),
    ],
)
def test_contradictions_are_named(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match="knowledge: ") as error:
        Knowledge(**asked)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_arrays_say_what_the_names_say() -> None:
    known = Knowledge([("a", "b"), ("b", "c")], [("d", "e")], [["e"], ["d", "f"]], [2]).constraints("abcdef")
    wanted = {"ba", "cb", "ca", "de", "fe", "df", "fd"}  # turned required edges and ways, forbidden, tiers, within
    found = {f"{'abcdef'[i]}{'abcdef'[j]}" for i, j in np.argwhere(known.forbidden) if i != j}
    assert found == wanted
    assert {tuple(pair) for pair in np.argwhere(known.required).tolist()} == {(0, 1), (1, 2)}
    assert known.forbidden.diagonal().all()


def test_both_forms_of_file_are_read(tmp_path: Path) -> None:
    wanted = Knowledge([("age", "salt")], [("salt", "weight")], [["age", "sex"], ["salt", "blood pressure"]], [2])
    for name, text in (("known.txt", TETRAD), ("known.csv", CSV)):
        (tmp_path / name).write_text(text)
        assert Knowledge.read(tmp_path / name) == wanted
        assert Knowledge.read(wanted.save(tmp_path / f"again-{name}")) == wanted
    assert str(wanted) == (
        "required age -> salt; forbidden salt -> weight; tiers age, sex | salt, blood pressure (none within)"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("required,a", "line 1: is not required,A,B or"),
        ("tier,1,a\ntier,zero,b", "line 2: is not required,A,B or"),
        ("required,a,b\nforbidden,a,b", "'a' -> 'b' is both required and forbidden"),
        ("/knowledge\na b", "line 2: stands before any section"),
        ("/knowledge\nforbiddengroup\n", "line 2: 'forbiddengroup' is none of addtemporal"),
        ("/knowledge\naddtemporal\n1*- a b", "line 3: is not a tier's number"),
        ("/knowledge\nrequiredirect\na b c", "line 3: is not a pair of variables"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "known").write_text(text)
    with pytest.raises(InputError, match="known'") as error:
        Knowledge.read(tmp_path / "known")
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="there is no file"):
        Knowledge.read(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"name one of \.csv, \.txt, \.tetrad"):
        Knowledge().save(tmp_path / "known.doc")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": "mlp"}, "choose from 'linear', 'additive', 'dynamic'"),
        ({"model": "masked"}, "choose from 'linear', 'additive', 'dynamic'"),
        ({"preset": "paper"}, "the paper's ADMM has no place for it"),
        ({"knowledge": 3}, "must be a dagora.Knowledge or the path"),
    ],
)
def test_what_no_method_heeds_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match="knowledge: ") as error:
        Options(**{"knowledge": "required,x1,x2\n", **options})
    assert told in str(error.value)


def test_nothing_known_changes_nothing() -> None:
    assert not Knowledge()
    plain, same = dagora.learn(small_sites()), dagora.learn(small_sites(), knowledge=Knowledge())
    assert plain.weights.tobytes() == same.weights.tobytes()
    assert same.knowledge is None
    assert "knowledge" not in same.settings


def test_a_variable_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="there is no variable 'age'; choose from 'x1', 'x2'"):
        dagora.learn(small_sites(), knowledge=Knowledge(forbidden=[("age", "x1")]))


def test_a_plan_carries_what_is_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "known.txt").write_text("/knowledge\naddtemporal\n1 x1\n2 x2\n")
    (tmp_path / "job.toml").write_text('method = "covariance"\nknowledge = "known.txt"\n')
    plan = Plan.read(tmp_path / "job.toml")
    (tmp_path / "known.txt").unlink()
    there = Plan.from_json(plan.to_json())
    assert there.settings.known == Knowledge(tiers=[["x1"], ["x2"]])
    assert Plan.of({"knowledge": Knowledge(tiers=[["x1"], ["x2"]])}).settings.known == there.settings.known
    with pytest.raises(InputError, match=r"there is no file .*known\.txt"):
        Plan.read(tmp_path / "job.toml")
    with pytest.raises(InputError, match="knowledge: is longer than"):
        Plan.of({"knowledge": "".join(f"forbidden,a{k},b\n" for k in range(60_000))})


def test_results_tell_what_was_known() -> None:
    known = Knowledge([("x1", "x2")], tiers=[["x3"], ["x1", "x2"]])
    result = from_bytes(to_bytes(dagora.learn(small_sites(), method="covariance", knowledge=known)))
    assert result.knowledge == known
    assert result.adjacency[0, 1] == result.cpdag[0, 1] == ARROW
    page = contents(result, "A title")
    assert ["knowledge", str(known)] in page["settings"]
    (edge,) = (edge for edge in page["edges"] if (edge["source"], edge["target"]) == (0, 1))
    assert page["directions"][edge["direction"]] == "direction given by prior knowledge"
    by_another = dagora.learn(small_sites(), knowledge=known)
    assert by_another.cpdag[0, 1] == ARROW
    assert is_dag(by_another.cpdag == ARROW)


def test_knowledge_orients_what_is_compelled_by_it() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 3))
    x[:, 1] += x[:, 0]
    x[:, 2] += x[:, 1]  # a chain: no direction is compelled
    free = dagora.learn([x], method="covariance")
    assert (free.cpdag == UNDIRECTED).sum() == 2
    told = dagora.learn([x], method="covariance", knowledge=Knowledge(required=[("x1", "x2")]))
    assert np.argwhere(told.cpdag == ARROW).tolist() == [[0, 1], [1, 2]]  # else a v-structure at x2
    assert told.undirected() == []


def test_the_command_line_and_the_estimator_take_it(tmp_path: Path) -> None:
    truth, sites = dagora.simulate(5, 5, 200, 2, seed=0)
    for place, rows in enumerate(sites):
        np.savetxt(tmp_path / f"{place}.csv", rows, delimiter=",", header=",".join(truth.names), comments="")
    (tmp_path / "known.csv").write_text("required,x5,x1\ntier,1,x5\ntier,2,x2\n")
    files = [str(tmp_path / "0.csv"), str(tmp_path / "1.csv")]
    shown = CliRunner().invoke(app, ["learn", *files, "--knowledge", str(tmp_path / "known.csv")])
    assert "-> (known)" in shown.stdout
    told = CliRunner().invoke(app, ["learn", *files, "--knowledge", str(tmp_path / "known.csv"), "--json"])
    edges = {(edge["source"], edge["target"]) for edge in json.loads(told.stdout)["edges"]}
    assert ("x5", "x1") in edges
    assert ("x2", "x5") not in edges
    fitted = FederatedDAG(knowledge=Knowledge([("x5", "x1")])).fit(sites)
    assert fitted.adjacency_[4, 0] == 1
