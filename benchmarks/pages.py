"""Put tables into pages that ask for them: between  <!-- table NAME -->  and  <!-- end -->  stands results/NAME.md.

python -m benchmarks.pages; `python -m benchmarks` does it too, when it has made a table.
"""

import re
from pathlib import Path

from benchmarks.tables import RESULTS

_DOCS = Path(__file__).parents[1] / "docs"
PAGES = tuple(_DOCS / f"{page}.md" for page in ("benchmarks", "learners", "nonlinear", "privacy"))
_PLACE = re.compile(r"<!-- table (\S+) -->\n.*?<!-- end -->", re.DOTALL)


def filled(page: str, results: Path = RESULTS) -> str:
    """The page with the tables as they are now, each without its title."""

    def table(place: "re.Match[str]") -> str:
        _, text = (results / f"{place[1]}.md").read_text(encoding="utf-8").split("\n\n", 1)
        return f"<!-- table {place[1]} -->\n{text}<!-- end -->"

    return _PLACE.sub(table, page)


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
