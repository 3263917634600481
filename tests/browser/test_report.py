"""The report in headless Chromium, used by mouse and by keyboard."""

import csv
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dagora
from dagora.cells import bare

pytestmark = pytest.mark.xdist_group("browser")

Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def result() -> dagora.Result:
    _, sites = dagora.simulate(d=12, edges=14, n=400, sites=4, seed=0)
    return dagora.learn(sites, refit=True, aggregation="masked")


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """A page with a result's report; errors on the console, and requests, fail the test."""
    troubles: list[str] = []

    def open_(result: dagora.Result, **options: Any) -> Any:
        path = result.report(tmp_path / "report.html")
        page = browser.new_page(**options)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request", lambda request: troubles.extend([request.url] if not request.url.startswith("file:") else [])
        )
        page.goto(path.as_uri())
        page.wait_for_selector(".node")
        return page

    yield open_
    assert troubles == []


def visible_edges(page: Any) -> int:
    return int(page.evaluate("[...document.querySelectorAll('.arrow')].filter(e => e.style.display !== 'none').length"))


def set_slider(page: Any, value: int) -> None:
    page.evaluate(
        "v => { const s = document.getElementById('threshold'); s.value = v; s.dispatchEvent(new Event('input')); }",
        value,
    )


def test_the_slider_changes_the_edges(opened: Opened, result: dagora.Result) -> None:
    page = opened(result)
    learned = len(result.edges())
    assert visible_edges(page) == learned
    set_slider(page, 1000)
    assert visible_edges(page) == 0
    set_slider(page, 600)
    largest = max(abs(weight) for _, _, weight in result.edges())
    expected = sum(abs(weight) > 0.6 * largest for _, _, weight in result.edges())
    assert visible_edges(page) == page.locator("#table tbody tr").count() == expected
    set_slider(page, 0)
    assert visible_edges(page) >= learned
    page.click("#reset")
    assert visible_edges(page) == learned


def test_a_click_tells_parents_children_and_the_markov_blanket(opened: Opened, result: dagora.Result) -> None:
    page = opened(result)
    graph = result.graph()
    name = max(result.names, key=graph.degree)
    page.locator(f".node[aria-label='{name}']").click()
    panel = page.locator("#panel").inner_text()
    parents, children = set(graph.predecessors(name)), set(graph.successors(name))
    blanket = parents | children | {parent for child in children for parent in graph.predecessors(child)} - {name}
    listed = {text.strip() for text in page.locator("#panel li button").all_inner_texts()}
    assert listed == blanket
    assert f"Markov blanket: {len(blanket)} variable" in panel
    page.keyboard.press("Escape")
    assert page.locator("#panel li").count() == 0


def test_hovering_tells_weights(opened: Opened, result: dagora.Result) -> None:
    page = opened(result)
    source, target, weight = result.edges()[0]
    titles = page.evaluate("[...document.querySelectorAll('.hit title')].map(t => t.textContent)")
    (told,) = [title for title in titles if title.startswith(f"{source} → {target}\n")]
    assert f"weight {float(f'{weight:.4g}'):g}" in told
    assert "fitted coefficient" in told


def test_the_table_sorts_and_downloads(opened: Opened, result: dagora.Result, tmp_path: Path) -> None:
    page = opened(result)
    first = page.locator("#table tbody tr td").first
    assert first.inner_text() == result.edges()[0][0]
    page.locator("#table thead button", has_text="source").click()
    sources = page.locator("#table tbody tr td:first-child").all_inner_texts()
    assert sources == sorted(sources)
    assert page.locator("#table thead th").first.get_attribute("aria-sort") == "ascending"
    with page.expect_download() as download:
        page.click("#download")
    download.value.save_as(tmp_path / "edges.csv")
    lines = (tmp_path / "edges.csv").read_text().splitlines()
    assert lines[0].startswith("source,target,weight")
    assert len(lines) == len(result.edges()) + 1


def test_names_in_the_download_are_no_formulas(opened: Opened, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    table = pa.table([x[:, 0], 2 * x[:, 0] + x[:, 1]], names=["=1+2", "'@x\ry"])
    result = dagora.learn({"north": table}, method="pooled")
    page = opened(result)
    with page.expect_download() as download:
        page.click("#download")
    download.value.save_as(tmp_path / "edges.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "edges.csv").read_bytes().decode(), newline="")))
    assert {bare(cell) for cell in rows[1][:2]} == set(result.names)
    assert all(cell.startswith("'") for cell in rows[1][:2])


def test_search_finds_a_variable(opened: Opened, result: dagora.Result) -> None:
    page = opened(result)
    page.fill("#search", "x7")
    assert page.locator(".node.found").count() == 1
    page.press("#search", "Enter")
    assert page.locator("#chosen").inner_text() == "x7"


def test_by_keyboard_alone(opened: Opened, result: dagora.Result) -> None:
    page = opened(result)
    page.focus("#graph")
    before = page.locator("#graph > g").get_attribute("transform")
    for key in ("+", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.locator("#graph > g").get_attribute("transform") != before
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("#chosen").inner_text() == result.names[0]
    page.focus("#threshold")
    page.keyboard.press("End")
    assert visible_edges(page) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_screens_and_schemes(scheme: str, width: int, opened: Opened, result: dagora.Result) -> None:
    page = opened(result, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)")


def test_it_prints(opened: Opened, result: dagora.Result) -> None:
    page = opened(result)
    page.emulate_media(media="print")
    assert not page.locator(".controls").is_visible()
    assert page.locator("#table tbody tr").count() == len(result.edges())
    assert page.pdf().startswith(b"%PDF")


def test_a_hundred_variables_open_within_two_seconds(opened: Opened) -> None:
    _, sites = dagora.simulate(d=100, edges=150, n=2000, sites=4, seed=0)
    large = dagora.learn(sites, method="covariance", learner="notears")
    start = time.perf_counter()
    page = opened(large)
    assert page.locator(".node").count() == 100
    assert time.perf_counter() - start < 2.0


def test_time_series_and_results_without_edges(opened: Opened) -> None:
    _, series = dagora.simulate_series(4, sites=2, seed=1)
    page = opened(dagora.learn(series, model="dynamic"))
    assert page.locator(".node", has_text="before").count() > 0
    _, sites = dagora.simulate(d=3, edges=0, n=100, sites=2, seed=0)
    page = opened(dagora.learn(sites, method="covariance"))
    assert "0 edges" in page.locator("#count").inner_text()


def test_frequencies_are_shown(opened: Opened) -> None:
    _, sites = dagora.simulate(d=6, edges=7, n=60, sites=3, seed=2, weight_range=(0.3, 0.6))
    result = dagora.learn(sites, method="covariance", bootstrap=8)
    page, sure = opened(result), result.confidence
    assert sure is not None
    source, target, _ = result.edges()[0]
    i, j = result.names.index(source), result.names.index(target)
    cells = page.locator("#table tbody tr").first.locator("td").all_text_contents()
    assert cells[:2] == [source, target]
    assert float(cells[4]) == pytest.approx(sure.edge[i, j], abs=1e-3)
    assert float(cells[5]) == pytest.approx(sure.direction[i, j], abs=1e-3)
    assert "8 bootstrap replicates" in page.locator("#resamples").inner_text()
    said = page.locator(".hit title").all_text_contents()
    assert sum(f"joined in {round(100 * sure.edge[i, j])}% of replicates" in text for text in said) >= 1
    page.locator(".node", has_text=target).first.click()
    assert "joined in" in page.locator("#panel").inner_text()
