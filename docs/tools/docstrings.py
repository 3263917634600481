"""Docstrings as Markdown, as the house writes them.

Lines of the form "name: what it is", with more indented below, become a list; examples after >>> become code; and a
field's docstring is the comment at the end of its line.
"""

import re
from typing import Any

import griffe

_ENTRY = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): ")


class House(griffe.Extension):
    """For griffe, which reads the sources for the reference pages."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Take a field's comment for its docstring."""
        if attr.docstring is None and attr.lineno and attr.parent and attr.parent.is_class:
            lines = attr.source.splitlines() or [""]
            comment = lines[0].partition("  # ")[2]
            if comment and not comment.startswith(("noqa", "type:")):
                attr.docstring = griffe.Docstring(comment[0].upper() + comment[1:] + ".", parent=attr)


def as_markdown(docstring: str) -> str:
    """The same text, with lists where there were entries, and code where there were examples."""
    lines: list[str] = []
    listing = example = False
    for line in [*docstring.splitlines(), ""]:
        if line.startswith(">>> ") and not example:
            lines.append("```pycon")
            example, listing = True, False
        if example:
            if not line:
                lines.append("```")
            lines.append(line)
            example = bool(line)
        elif _ENTRY.match(line):
            if not listing:
                lines.append("")
            lines.append(_ENTRY.sub(lambda found: f"- `{found[1]}`: ", line))
            listing = True
        elif listing and line.startswith(" "):
            lines.append("    " + line.strip())
        else:
            listing = listing and not line
            lines.append(line)
    return "\n".join(lines).rstrip("\n")
