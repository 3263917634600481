"""No promise without a test: every test that docs/privacy.md names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(?:(test_\w+\.py))?(?:::(test_\w+))?`")


def test_every_test_that_the_page_on_privacy_names_exists() -> None:
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    page, named, current = (ROOT / "docs" / "privacy.md").read_text(), 0, ""
    for file, test in NAMED.findall(page):
        current = file or current
        if current:
            assert current in files, current
            assert not test or f"def {test}(" in files[current], f"{current}::{test}"
            named += bool(test)
    assert named > 20


def test_every_number_in_the_table_of_adversaries_is_a_test_below_it() -> None:
    page = (ROOT / "docs" / "privacy.md").read_text()
    section = page.split("## Who can learn what")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    asked = {
        int(number) for line in table for group in re.findall(r"\[([\d, ]+)\]", line) for number in group.split(",")
    }
    assert asked == {int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)}
