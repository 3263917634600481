"""The documentation site: it builds without a warning, is whole, and fetches nothing."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dagora

pytestmark = pytest.mark.xdist_group("docs")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_every_page_is_in_the_menu() -> None:
    menu = set(re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    notebooks = {f"notebooks/{path.stem}.md" for path in NOTEBOOKS}
    assert pages | notebooks == menu, "name each page of docs/ and each notebook in the nav of mkdocs.yml"


class Fetched(HTMLParser):
    """Addresses that a browser loads by itself: links are for the reader to follow."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        if tag == "link" and own.get("rel") in ("canonical", "prev", "next"):
            return
        self.found += [own[name] or "" for name in ("src", "href", "srcset") if name in own and tag != "a"]


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        fetched = Fetched()
        fetched.feed(page.read_text(encoding="utf-8"))
        elsewhere = [address for address in fetched.found if re.match(r"(\w+:)?//", address)]
        assert elsewhere == [], page.name
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles) == []


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference.html").read_text(encoding="utf-8")
    for name in set(dagora.__all__) - {"__version__"}:
        assert re.search(rf'<h3 id="[\w.]*\.{name}"', page), name
    assert "&gt;&gt;&gt;" in page  # examples are code, and not quotations


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_keep_no_outputs_and_pages_have_them(path: Path, site: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    page = (site / "notebooks" / f"{path.stem}.html").read_text(encoding="utf-8")
    says = {
        "several_sites": ("the very graph of pooled rows: True", 'src="several_sites-5.html"'),
        "trust": ("covariance: 0 entries of the graph change with the units", 'src="trust-2.png"'),
        "privacy": ("covariance of north", "is not allowed here (runs: 1)", "unbroken; head"),
    }
    plain = re.sub(r"</?(?:span|a)\b[^>]*>", "", page)
    assert all(text in plain for text in says[path.stem])


def test_pages_open_from_a_folder_search_included(site: Path, browser: Any) -> None:
    troubles: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: troubles.extend([request.url] if re.match("http", request.url) else []))
    for name in ("notebooks/several_sites.html", "reference.html", "index.html"):
        page.goto((site / name).as_uri())
    page.click("[data-md-component=search-query]")
    page.keyboard.type("epsilon")
    page.wait_for_selector(".md-search-result__item")
    page.close()
    assert troubles == []


def test_lists_and_tables_begin_after_a_blank_line() -> None:
    """Else the site shows them as one paragraph, though other readers of Markdown do not."""
    begins, goes_on = re.compile(r"(- |\d+\. |\|)"), re.compile(r"(- |\d+\. |\||  |#|$)")
    for page in (ROOT / "docs").glob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for before, line in pairwise(text.splitlines()):
            assert not begins.match(line) or goes_on.match(before), f"{page.name}: a blank line before {line[:40]!r}"
