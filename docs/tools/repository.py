"""Links from pages to files of the repository, such as tables of benchmarks: the files come along.

So a link that works beside the sources works on the site, too, without a network.
"""

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

FOLDER = "repository"
PICTURES = (".png", ".svg")
_LINK = re.compile(r"(\]\()((?!\w+:)[^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file outside docs/ that some page, or an added page, links to."""
    root = Path(config.config_file_path).parent
    queue = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    done: set[Path] = set()
    while queue:
        page = queue.pop()
        for found in _LINK.finditer(page.read_text(encoding="utf-8")):
            path = (page.parent / found[2]).resolve()
            inside = path.is_relative_to(root) and not path.is_relative_to(config.docs_dir)
            if not inside or path in done or not path.is_file() or path.suffix == ".ipynb":
                continue  # mkdocs itself warns of links that lead nowhere; notebooks are pages already (notebooks.py)
            done.add(path)
            files.append(_added(path, root, config))
            if path.suffix == ".md":
                queue.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point these links to the added files."""
    docs = PurePosixPath(Path(config.docs_dir).name)
    uri = page.file.src_uri
    here = PurePosixPath(uri).relative_to(FOLDER) if uri.startswith(f"{FOLDER}/") else docs / uri

    def moved(found: re.Match[str]) -> str:
        place = _place(_normal(here.parent / found[2]), f"{docs}/")
        if files.get_file_from_path(place) is None:
            return found[0]
        return found[1] + "../" * uri.count("/") + place

    return _LINK.sub(moved, markdown)


def _added(path: Path, root: Path, config: MkDocsConfig) -> File:
    name = path.relative_to(root).as_posix()
    if path.suffix in PICTURES:
        return File.generated(config, f"{FOLDER}/{name}", abs_src_path=str(path))
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        language = {".py": "python", ".toml": "toml", ".service": "ini"}.get(path.suffix, "text")
        text = f"# {name}\n\n````{language}\n{text}\n````\n"
    text = f"---\nsearch:\n  exclude: true\n---\n{text}"  # tables of figures would bury the pages that explain them
    added = File.generated(config, f"{FOLDER}/{_name(name)}", content=text)
    added.inclusion = InclusionLevel.NOT_IN_NAV
    return added


def _place(target: str, docs: str) -> str:
    """Where a file of the repository is on the site."""
    if target.startswith(docs):
        return target.removeprefix(docs)
    path = PurePosixPath(target)
    return f"notebooks/{path.stem}.md" if path.suffix == ".ipynb" else f"{FOLDER}/{_name(target)}"


def _name(target: str) -> str:
    """What is shown as a page has a page's name."""
    return target if target.endswith((".md", *PICTURES)) else f"{target}.md"


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
