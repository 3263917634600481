"""Docstrings as Markdown: lines of the form "name: what it is", with more indented lines below, become a list."""

import re
from typing import Any

import griffe

_ENTRY = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): ")


class Lists(griffe.Extension):
    """For griffe, which reads the sources for the reference pages."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The same text, with lists where there were entries."""
    lines: list[str] = []
    listing = False
    for line in docstring.splitlines():
        if _ENTRY.match(line):
            if not listing:
                lines.append("")
            lines.append(_ENTRY.sub(lambda found: f"- `{found[1]}`: ", line))
            listing = True
        elif listing and line.startswith(" "):
            lines.append("    " + line.strip())
        else:
            listing = listing and not line
            lines.append(line)
    return "\n".join(lines)
