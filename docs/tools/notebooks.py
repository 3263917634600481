"""The notebooks of examples/notebooks as pages.  They are run when the site is built, so that no output is ever stale."""

import html
import re
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

FOLDER = "notebooks"
_FRAME = re.compile(r'<iframe srcdoc="(.*?)"', re.DOTALL)
_TO_NOTEBOOK = re.compile(r"\]\((\w+)\.ipynb\)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Run every notebook, and add it as a page with what it showed."""
    for path in sorted((Path(config.config_file_path).parent / "examples" / FOLDER).glob("*.ipynb")):
        for file in pages(path, config):
            files.append(file)
    return files


def pages(path: Path, config: MkDocsConfig) -> Iterator[File]:
    """One page, and a file for every picture and report in it."""
    text = []
    for cell in run(path).cells:
        if cell.cell_type == "markdown":
            text.append(_TO_NOTEBOOK.sub(r"](\1.md)", cell.source))
            continue
        text.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            name = f"{path.stem}-{len(text)}"
            shown, content, suffix = _shown(output, name)
            text.append(shown)
            if content is not None:
                yield File.generated(config, f"{FOLDER}/{name}{suffix}", content=content)
    text.append(f"The notebook: `examples/{FOLDER}/{path.name}`. Its outputs were made when this page was built.")
    yield File.generated(config, f"{FOLDER}/{path.stem}.md", content="\n\n".join(text) + "\n")


def run(path: Path) -> Any:
    """The notebook with its outputs, run in a folder of its own; an error in a cell stops the build."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        quiet = ["--IPKernelApp.log_level=40"]  # else it warns that its sockets, on this machine, are not encrypted
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=120, resources=where, extra_arguments=quiet).execute()
    return notebook


def _shown(output: Any, name: str) -> tuple[str, str | bytes | None, str]:
    """An output as Markdown, and the content and suffix of the file that it needs, if it needs one."""
    if output.output_type == "stream":
        return _block(output.text), None, ""
    if "text/html" in output.data and (frame := _FRAME.search(output.data["text/html"])):
        shown = f'<iframe class="report" src="{name}.html" title="report"></iframe>'
        return shown, html.unescape(frame[1]), ".html"
    if "image/png" in output.data:
        return f"![figure]({name}.png)", b64decode(output.data["image/png"]), ".png"
    return _block(output.data["text/plain"]), None, ""


def _block(text: str) -> str:
    return "``` { .text .output }\n" + _COLOURS.sub("", text).rstrip() + "\n```"
