"""Commands for graphs in other tools' files.  Parse, call, print."""

from pathlib import Path
from typing import Annotated

import typer

from dagora.errors import InputError
from dagora.files import check_folder
from dagora.interchange.registry import FORMATS, format_of, read_class, read_estimate, write_graph
from dagora.terminal import JsonFlag, choices, count, out, print_json

_ENDS = ", ".join(known.suffixes[0] for known in FORMATS.values())

Exports = Annotated[
    list[Path] | None,
    typer.Option("--export", help=f"Write the graph for another tool, too ({_ENDS}); may be given again."),
]


def check_exports(model: str, exports: list[Path] | None) -> None:
    """Before the work."""
    for path in exports or ():
        if model == "dynamic":
            raise InputError("export: these formats have no place for effects of earlier times; use --out")
        format_of(path)
        check_folder(path.parent)


def convert_command(
    source: Annotated[Path, typer.Argument(help="A folder that `learn` wrote, or a file of a graph.")],
    target: Annotated[Path, typer.Argument(help=f"The file to write ({_ENDS}).")],
    format: Annotated[
        str | None, typer.Option("--to", help=choices("Its format, where its name does not tell", FORMATS))
    ] = None,
    whole_class: Annotated[
        bool, typer.Option("--class", help="The equivalence class, which leaves directions open, instead of the DAG.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a graph for another tool: networkx, Graphviz, DAGitty, Tetrad, ...

    Example: dagora convert result graph.dagitty
    """
    format_of(target, format)
    graph = read_class(source) if whole_class else read_estimate(source)
    written = write_graph(graph, target, format)
    if as_json:
        print_json({"file": str(written), "variables": len(graph.names), "edges": len(graph.edges())})
        return
    told = f"{count(len(graph.names), 'variable')}, {count(len(graph.edges()), 'edge')}"
    out.print(f"wrote {written}: {told}", highlight=False, soft_wrap=True)
