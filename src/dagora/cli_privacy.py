"""Commands about privacy: audit a method, read a ledger, start or check a policy.  Parse, call, print."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from dagora.aggregation.ledger import Noted, Sent, read, verify
from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.options import METHODS, PRESETS
from dagora.federated.policy import Job, Policy
from dagora.learners.registry import LEARNERS
from dagora.terminal import JsonFlag, choices, count, err, in_bytes, out, print_json
from dagora.visible import visible

Epsilon = Annotated[
    float | None, typer.Option(help="gaussian: the privacy loss of a row in the whole run, for instance 1.")
]
Delta = Annotated[float | None, typer.Option(help="gaussian: the chance that the loss is larger (1e-5).")]
Colluders = Annotated[int | None, typer.Option(help="gaussian: how many sites may pool what they know (half of them).")]

ADVERSARIES = ("honest", "lying-server")  # those of dagora.audit.run, which is slow to import
_NOTES = 20  # shown in a terminal


def audit_command(
    files: Annotated[list[Path], typer.Argument(help="One CSV or Parquet file a site, with the same columns.")],
    method: Annotated[
        str, typer.Option(help=choices("How sites work together", [name for name in METHODS if name != "pooled"]))
    ] = "admm",
    preset: Annotated[str, typer.Option(help=choices("The best we know, or the paper's text", PRESETS))] = "default",
    aggregation: Annotated[str, typer.Option(help=choices("How summands are added", AGGREGATIONS))] = "plain",
    learner: Annotated[str | None, typer.Option(help=choices("What learns", LEARNERS))] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    colluders: Colluders = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time for the attack on sequences of totals.")] = 60.0,
    adversary: Annotated[
        str,
        typer.Option(help=choices("Who attacks: all who keep to the protocol, or a server that does not", ADVERSARIES)),
    ] = "honest",
    as_json: JsonFlag = False,
) -> None:
    """Run a method on all sites' data in one place, attack what crossed, and say who would learn what.

    It needs all rows, so it is for test data or simulations of the sizes that you plan with.

    Example: dagora audit north.csv south.csv east.csv --method admm --aggregation masked
    """
    from dagora.audit.run import audit  # slow to import

    with err.status("Running and attacking ..."):
        report = audit(
            files,
            method=method,
            preset=preset,
            aggregation=aggregation,
            epsilon=epsilon,
            delta=delta,
            colluders=colluders,
            seconds=seconds,
            adversary=adversary,
            learner=learner,
        )
    if as_json:
        print_json(report.to_json())
        return
    table = Table("who", "from what", "target", "error", "guess", "found out", title=report.title, expand=True)
    for column in table.columns[3:5]:
        column.justify = "right"
    for finding in report.findings:
        found = "yes" if finding.succeeds else "known anyway" if finding.blind < 1e-9 else "no"
        table.add_row(
            finding.adversary, report.means(finding), finding.target, f"{finding.error:.0e}", f"{finding.blind:.0e}",
            Text(found, style="bold" if finding.succeeds else ""),
        )  # fmt: skip
    out.print(table)
    out.print("error: the attacker's, relative to the target; guess: without what is attacked here.")
    out.print()
    for advice in report.advice:
        out.print(f"- {advice}", highlight=False, soft_wrap=True)


def ledger_command(
    file: Annotated[Path, typer.Argument(help="A site's ledger, SITE.jsonl.")],
    noted: Annotated[str | None, typer.Option(help="A head that was noted earlier; it must still be there.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Verify a ledger and say what left the site, run by run, and what else was noted.

    Example: dagora ledger ledgers/north.jsonl
    """
    head, entries = verify(file, noted), read(file)
    opened = [entry for entry in entries if isinstance(entry.what, Job)]
    sent = [entry.what for entry in entries if isinstance(entry.what, Sent)]
    rows: list[dict[str, Any]] = []
    for entry in opened:
        assert isinstance(entry.what, Job)
        own = [item for item in sent if item.run == entry.what.run]
        rows.append(
            {
                "time": entry.time,
                "run": entry.what.run,
                "method": entry.what.method,
                "aggregation": entry.what.aggregation,
                "sites": len(entry.what.sites),
                "by": entry.what.by or None,
                "epsilon": entry.what.epsilon,
                "delta": entry.what.delta,
                "replies": len(own),
                "bytes": sum(item.bytes for item in own),
            }
        )
    notes = [{"time": entry.time, **vars(entry.what)} for entry in entries if isinstance(entry.what, Noted)]
    if as_json:
        print_json({"site": entries[0].site if entries else None, "head": head, "runs": rows, "notes": notes})
        return
    table = Table("day", "method", "aggregation", "sites", "epsilon", "replies", "sent")
    for row in rows:
        day = str(row["time"])[:10]
        table.add_row(
            day, row["method"], row["aggregation"], str(row["sites"]), str(row["epsilon"] or "-"), str(row["replies"]),
            in_bytes(float(row["bytes"])),
        )  # fmt: skip
    if rows:
        out.print(table)
    for who, runs in Counter(row["by"] for row in rows if row["by"]).items():
        out.print(f"{count(runs, 'run')} ordered by {who}", highlight=False, soft_wrap=True)
    if notes:
        told = Table("time", "event", "who", "run", "detail", title=count(len(notes), "note"))
        for note in notes[-_NOTES:]:
            told.add_row(str(note["time"])[:19], *(str(note[name]) for name in ("event", "who", "run", "detail")))
        out.print(told)
        if len(notes) > _NOTES:
            out.print(f"the last {_NOTES} of {len(notes)} notes; --json shows all", highlight=False, soft_wrap=True)
    out.print(f"{count(len(entries), 'line')}, unbroken; head {head}", highlight=False, soft_wrap=True)


def policy_command(
    file: Annotated[Path | None, typer.Argument(help="A policy to check; none for one to start from.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a policy: the defaults, to start from, or a file's rules as they are in force.

    Example: dagora policy > policy.toml
    """
    policy = Policy() if file is None else Policy.read(file)
    if as_json:
        print_json({name: list(v) if isinstance(v, tuple) else v for name, v in vars(policy).items()})
        return
    print("\n".join(map(visible, policy.to_toml().split("\n"))), end="")
