"""The page and what it is made of: the layout, the words, the data within."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dagora
from dagora.graphs import is_dag
from dagora.report.html import contents, page
from dagora.report.layout import layered
from tests.helpers import small_sites


@st.composite
def dags(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    d = draw(st.integers(1, 14))
    upper = np.triu(draw(st.lists(st.booleans(), min_size=d * d, max_size=d * d).map(np.array)).reshape(d, d), 1)
    order = draw(st.permutations(range(d)))
    return upper[np.ix_(order, order)].astype(np.int64)


@given(dags())
@settings(deadline=None)
def test_causes_stand_above_effects_and_nobody_on_another(dag: np.ndarray[Any, Any]) -> None:
    assert is_dag(dag)
    layout = layered(dag)
    x, y = layout.places.T
    for i, j in np.argwhere(dag).tolist():
        assert y[i] < y[j]
        heights = [height for _, height in layout.bends[i, j]]
        assert heights == list(range(int(y[i]) + 1, int(y[j])))  # a bend in every layer between
    for height in np.unique(y):
        gaps = np.diff(np.sort(x[y == height]))
        assert (gaps > 0.999).all()
    again = layered(dag)
    assert (again.places == layout.places).all()
    assert again.bends == layout.bends


def test_few_edges_cross() -> None:
    # Two chains side by side, whose vertices are numbered in turn: no crossing is needed.
    dag = np.zeros((8, 8), dtype=np.int64)
    for k in range(6):
        dag[k, k + 2] = 1
    layout = layered(dag)
    for chain in ((0, 2, 4, 6), (1, 3, 5, 7)):
        assert np.ptp(layout.places[list(chain), 0]) < 1e-6


def learned(**options: Any) -> dagora.Result:
    return dagora.learn(small_sites(), **options)


def test_the_page_is_a_file_of_its_own(tmp_path: Path) -> None:
    path = learned().report(tmp_path / "report.html", "Our network")
    text = path.read_text()
    assert re.findall(r"(?:src|href)=[\"'](?!#)", text) == []
    assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "default-src 'none'" in text


def test_names_are_data_and_never_markup() -> None:
    rows = np.random.default_rng(0).standard_normal((60, 2))
    rows[:, 1] += 2 * rows[:, 0]
    pd = pytest.importorskip("pandas")
    evil = "</script><script>alert(1)</script>"
    result = dagora.learn([pd.DataFrame(rows, columns=[evil, "/*SCRIPT*/"])])
    text = page(result)
    assert evil not in text
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["names"] == [evil, "/*SCRIPT*/"]


def test_edges_tell_what_their_directions_rest_on() -> None:
    for options, kinds in (
        ({}, {"compelled", "assumed"}),
        ({"method": "covariance"}, {"compelled", "open"}),
    ):
        result = learned(**options)
        edges = [edge for edge in contents(result, "")["edges"] if edge["learned"]]
        assert {edge["direction"] for edge in edges} <= kinds
        for edge in edges:
            compelled = result.cpdag[edge["source"], edge["target"]] == 1
            assert (edge["direction"] == "compelled") == compelled
        assert {(e["source"], e["target"]) for e in edges} == set(map(tuple, np.argwhere(result.adjacency).tolist()))


def test_the_slider_has_what_is_below_the_threshold() -> None:
    result = learned(threshold=1.0)
    below = [edge for edge in contents(result, "")["edges"] if not edge["learned"]]
    assert below
    assert all(0 < abs(edge["weight"]) <= 1.0 for edge in below)
    assert contents(result, "")["threshold"] == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["No row left any site", "in each of", "Nothing hid a single site's contribution"]),
        ({"aggregation": "masked"}, ["hidden by random masks", "nothing of a single one", "Not protected"]),
        ({"method": "covariance", "aggregation": "shared"}, ["sums of the variables and of their products", "split"]),
        ({"method": "voting"}, ["the graph or the weights that the site has learned alone"]),
        ({"method": "pooled"}, ["nothing was federated"]),
        ({"refit": True}, ["within each family of the learned graph"]),
    ],
)
def test_what_left_is_told_in_words(options: dict[str, Any], words: list[str]) -> None:
    told = contents(learned(**options), "")["ledger"]
    text = " ".join(entry["text"] for entry in told)
    for word in words:
        assert word in text
    assert "sums that the method needs" not in text  # every phase has words of its own


def test_how_many_sites_bytes_have_left_is_told() -> None:
    told = contents(learned(), "")["ledger"]
    left = [entry["text"] for entry in told if "Each site sent" in entry["text"]]
    assert left
    assert all(text.endswith("B left 3 sites.") for text in left)
    assert not any("{" in entry["text"] for entry in told)


def test_every_phase_of_every_model_has_words() -> None:
    pytest.importorskip("torch")
    results = [
        learned(model="mlp", hidden=2),
        learned(model="additive", method="covariance"),
        learned(model="masked", hidden=2),
        dagora.learn(dagora.simulate_series(3, sites=2, seed=0)[1], model="dynamic"),
    ]
    for result in results:
        assert all("sums that the method needs" not in entry["text"] for entry in contents(result, "")["ledger"])


def test_the_past_of_time_series_is_drawn() -> None:
    result = dagora.learn(dagora.simulate_series(4, sites=2, seed=1)[1], model="dynamic")
    about = contents(result, "")
    past = [edge for edge in about["edges"] if edge["direction"] == "time"]
    assert len(past) == len(result.lagged_edges())
    for edge in past:
        assert about["names"][edge["source"]].endswith(", 1 before")


def test_curves_are_those_of_the_history() -> None:
    result = learned(preset="paper")
    curves = {curve["title"].split(":")[0]: curve["values"] for curve in contents(result, "")["curves"]}
    assert {"h", "residual", "rho1", "rho2"} <= set(curves)
    assert curves["h"] == [float(entry["h"]) for entry in result.history]


def test_a_hundred_variables_fit() -> None:
    _, sites = dagora.simulate(d=100, edges=150, n=2000, sites=4, seed=0)
    text = page(dagora.learn(sites, method="covariance", learner="notears"))
    assert len(text.encode()) < 2_000_000


def test_counts_that_were_not_shown_are_not_in_the_page() -> None:
    pytest.importorskip("opendp")
    _, sites = dagora.simulate(d=3, n=6000, sites=3, seed=0)
    about = contents(dagora.learn(sites, method="covariance", aggregation="gaussian", epsilon=8.0), "")
    assert all(site["rows"] is None for site in about["sites"])
    assert "not shown" in about["siteText"]
    assert any("Spent: epsilon" in entry["text"] for entry in about["ledger"])


def test_notebooks_show_the_page() -> None:
    shown = learned()._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown  # it is escaped within


def test_plots_have_an_arrow_for_every_edge() -> None:
    from matplotlib import pyplot
    from matplotlib.patches import FancyArrowPatch

    result = learned()
    axes = result.plot()
    assert sum(isinstance(patch, FancyArrowPatch) for patch in axes.patches) == len(result.edges())
    _, own = pyplot.subplots()
    assert result.plot(own) is own
    pyplot.close("all")
