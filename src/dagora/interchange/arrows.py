"""DOT (Graphviz) and DAGitty: vertices and arrows between braces.

    digraph { "blood pressure"; age -> "blood pressure" [effect="0.5"]; a -> b [dir=none] }
    dag { "blood pressure"; age -> "blood pressure" [beta=0.5] }              pdag { a -- b }

Names are always quoted; a quote or a backslash in one is escaped by a backslash.  Read is what such files hold of
graphs: vertices, edges, chains of edges and attributes; not subgraphs, and of edges with two heads only that there are
none here.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from dagora.errors import InputError
from dagora.interchange.named import NamedEdge, NamedGraph

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/            # blanks and comments
    |(?P<quoted>"(?:[^"\\]|\\.)*"|'[^']*')
    |(?P<mark><->|->|<-|--|[{}\[\];,=])
    |(?P<word>(?:[^\s"'{}\[\];,=<>\-]|-(?![->]))+)""",
    re.VERBOSE | re.DOTALL,
)
_KINDS = ("digraph", "graph", "dag", "pdag")
_WEIGHTS = ("effect", "beta")
_EDGES = ("->", "<-", "--", "<->")
_ATTRIBUTE_STATEMENTS = ("node", "edge", "graph")


def write_dot(graph: NamedGraph) -> str:
    """For Graphviz; `effect` is the weight, and the label shows it."""
    lines = [f"  {_quoted(name)};" for name in graph.names]
    for edge in graph.edges():
        arrow = "" if edge.directed else ", dir=none"
        told = f'effect="{edge.weight!r}", label="{edge.weight:.3g}"{arrow}'
        lines.append(f"  {_quoted(edge.source)} -> {_quoted(edge.target)} [{told}];")
    return "\n".join(["digraph dagora {", *lines, "}", ""])


def write_dagitty(graph: NamedGraph) -> str:
    """For DAGitty; `beta` is the weight, as its simulations read it."""
    kind = "dag" if graph.lines is None else "pdag"
    lines = [_quoted(name) for name in graph.names]
    for edge in graph.edges():
        mark = "->" if edge.directed else "--"
        lines.append(f"{_quoted(edge.source)} {mark} {_quoted(edge.target)} [beta={edge.weight!r}]")
    return "\n".join([f"{kind} {{", *lines, "}", ""])


def read_arrows(path: Path, text: str) -> NamedGraph:
    """Either of them."""
    where = f"{str(path)!r}"
    tokens = list(_tokens(where, text))
    start = tokens.index(("mark", "{")) if ("mark", "{") in tokens else len(tokens)
    head = [word.lower() for _, word in tokens[:start]]
    if not any(kind in head for kind in _KINDS) or tokens[-1] != ("mark", "}"):
        raise InputError(f"{where}: is no graph of the form dag {{ ... }} or digraph {{ ... }}; check it")
    return _Statements(where, tokens[start + 1 : -1]).graph()


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tokens(where: str, text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            line = text.count("\n", 0, at) + 1
            raise InputError(f"{where}, line {line}: cannot be read as a graph; check it")
        at = found.end()
        if found.lastgroup == "quoted":
            body = found.group()[1:-1]
            yield "name", re.sub(r'\\(["\\])', r"\1", body) if found.group()[0] == '"' else body
        elif found.lastgroup is not None:
            yield found.lastgroup, found.group()


class _Statements:
    """Vertices and edges, in the order of the file."""

    def __init__(self, where: str, tokens: list[tuple[str, str]]) -> None:
        self._where, self._tokens, self._at = where, tokens, 0
        self._names: dict[str, None] = {}
        self._edges: list[NamedEdge] = []

    def graph(self) -> NamedGraph:
        while self._at < len(self._tokens):
            kind, text = self._next()
            if kind == "mark":
                if text not in (";", ","):
                    raise InputError(f"{self._where}: {text!r} where a name is expected; check it")
            elif kind == "word" and text in _ATTRIBUTE_STATEMENTS and self._peek() == ("mark", "["):
                self._attributes()
            elif self._peek() == ("mark", "="):  # an attribute of the graph itself
                self._at += 2
            else:
                self._chain(text)
        return NamedGraph.of(self._edges, tuple(self._names))

    def _chain(self, name: str) -> None:
        chain, marks = [name], []
        while (after := self._peek()) is not None and after[0] == "mark" and after[1] in _EDGES:
            marks.append(self._next()[1])
            if self._peek() is None or self._peek()[0] == "mark":  # type: ignore[index]
                raise InputError(f"{self._where}: an edge of {chain[-1]!r} has no end; check it")
            chain.append(self._next()[1])
        attributes = self._attributes() if self._peek() == ("mark", "[") else {}
        self._names.update(dict.fromkeys(chain))
        for source, mark, target in zip(chain, marks, chain[1:], strict=False):
            if mark == "<->" or attributes.get("dir") == "both":
                raise InputError(f"{self._where}: {source!r} and {target!r} have an edge with two heads; remove it")
            if mark == "<-" or attributes.get("dir") == "back":
                source, target = target, source
            directed = mark != "--" and attributes.get("dir") != "none"
            self._edges.append(NamedEdge(source, target, self._weight(attributes), directed))

    def _attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self._at += 1
        while (token := self._next()) != ("mark", "]"):
            if token[0] != "mark" and self._peek() == ("mark", "="):
                self._at += 1
                found[token[1]] = self._next()[1]
        return found

    def _weight(self, attributes: dict[str, str]) -> float:
        for name in _WEIGHTS:
            if name in attributes:
                try:
                    return float(attributes[name])
                except ValueError:
                    raise InputError(f"{self._where}: {name} is not a number; check it") from None
        return 1.0

    def _peek(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise InputError(f"{self._where}: ends in the middle of a statement; check it")
        self._at += 1
        return self._tokens[self._at - 1]
