"""The notebooks of examples/notebooks as pages.  They are run when the site is built, so that no output is stale."""

import asyncio
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
    paths = sorted((Path(config.config_file_path).parent / "examples" / FOLDER).glob("*.ipynb"))
    for path, notebook in zip(paths, asyncio.run(run(paths)), strict=True):
        for file in pages(path, notebook, config):
            files.append(file)
    return files


async def run(paths: list[Path]) -> list[Any]:
    """Notebooks with their outputs, side by side, each in a folder of its own; an error in a cell stops the build."""
    return await asyncio.gather(*map(_run, paths))


async def _run(path: Path) -> Any:
    notebook: Any = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        await NotebookClient(
            notebook,
            timeout=120,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--IPKernelApp.log_level=40"],  # else it warns that local sockets are not encrypted
        ).async_execute()
    return notebook


def pages(path: Path, notebook: Any, config: MkDocsConfig) -> Iterator[File]:
    """One page, and a file for every picture and report in it."""
    text = []
    for cell in notebook.cells:
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
