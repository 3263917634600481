"""Commands of a federation on a network: make kits, start a server and sites, run jobs.  Parse, call, print."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from dagora.aggregation.ledger import read, verify
from dagora.aggregation.registry import AGGREGATIONS
from dagora.algorithms.options import METHODS, MODELS, PRESETS
from dagora.cli_results import Bootstrap, check_report, print_cost, print_edges, write_report
from dagora.cli_series import print_lagged_edges
from dagora.errors import InputError
from dagora.federated.policy import MOVES_ROWS, Policy
from dagora.federation.requirements import require_nvflare
from dagora.files import check_folder
from dagora.result import Result
from dagora.terminal import JsonFlag, choices, count, err, out, print_json, watching

federation = typer.Typer(no_args_is_help=True, help="Learn over a network: each site and the server in its own place.")

KitOption = Annotated[
    Path, typer.Option("--kit", envvar="DAGORA_KIT", help="An administrator's kit (or the variable DAGORA_KIT).")
]
Report = Annotated[bool, typer.Option("--report", help="Write report.html to the folder of --out, too.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for edges.csv, weights.csv and result.json.")]


@federation.command("init")
def init_command(
    file: Annotated[Path, typer.Argument(help="federation.toml: name, server, sites, admins.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder for the kits.")] = Path("kits"),
    as_json: JsonFlag = False,
) -> None:
    """Make a startup kit for the server, for each site and for each administrator.

    Run again after adding sites to the file: only their kits are new.

    Example: dagora federation init federation.toml --out kits
    """
    from dagora.federation.provision import Federation, provision

    asked = Federation.read(file)
    check_folder(folder)
    made = provision(asked, folder)
    if as_json:
        print_json({"kits": [str(kit) for kit in made]})
        return
    for kit in made:
        out.print(f"made {kit}", highlight=False, soft_wrap=True)
    if not made:
        out.print(f"no new kits: everyone in {file} has one in {folder}", highlight=False, soft_wrap=True)
        return
    out.print(
        f"{count(len(made), 'new kit')}.  Hand each to its owner over a channel that you trust: it holds a private "
        f"key.  Keep {folder / 'authority'} to yourself: whoever has it can make kits.",
        highlight=False,
        soft_wrap=True,
    )


@federation.command("server")
def server_command(kit: Annotated[Path, typer.Argument(help="The server's kit.")]) -> None:
    """Run the server in the foreground; it goes on with a run that was under way.

    Example: dagora federation server kits/server
    """
    require_nvflare()
    from dagora.federation.server import serve

    serve(kit)


@federation.command("site")
def site_command(
    kit: Annotated[Path, typer.Argument(help="The site's kit.")],
    data: Annotated[Path, typer.Option("--data", help="The site's rows: CSV or Parquet.  They stay here.")],
    policy: Annotated[
        Path | None, typer.Option(help="What the site allows (TOML; see dagora policy).  Without: the defaults.")
    ] = None,
    no_policy: Annotated[bool, typer.Option("--no-policy", help="Allow all; for trials on data of no one.")] = False,
    data_set: Annotated[
        str | None, typer.Option(help="What you call these data (the site's name): their budget goes by it.")
    ] = None,
    ledgers: Annotated[
        Path | None,
        typer.Option(help="Folder with the records of your data sets (~/.local/state/dagora/ledgers).  Keep it."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="BLAS threads; one gives equal bits for equal input.")] = 1,
) -> None:
    """Run a site in the foreground; it answers the server of its kit, as far as its policy lets it.

    What left the data is recorded in LEDGERS/DATA_SET.jsonl.  Later runs are counted there, also with another kit or
    with new rows.

    Example: dagora federation site kits/north --data north.csv --policy policy.toml
    """
    require_nvflare()
    if no_policy and policy is not None:
        raise InputError("policy: --no-policy and --policy exclude each other; leave one out")
    from dagora.federation.site import serve_site

    rules = None if no_policy else Policy() if policy is None else Policy.read(policy)
    serve_site(kit, data, rules, threads, data_set, ledgers)


@federation.command("run")
def run_command(
    kit: KitOption,
    job: Annotated[Path | None, typer.Argument(help="job.toml: a method and its options by name.")] = None,
    resume: Annotated[
        str | None, typer.Option(help="A run to follow again; one that was stopped goes on where it was.")
    ] = None,
    folder: Out = None,
    report: Report = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit a job, follow its rounds, and write the result as `learn` does.

    Interrupted, it leaves the run at the server: follow it again with --resume.

    Example: dagora federation run job.toml --kit kits/ana@example.org --out result
    """
    if (job is None) == (resume is None):
        raise InputError("run: name a job.toml, or a run to --resume")
    require_nvflare()
    from dagora.federation.client import Client
    from dagora.federation.plan import Plan

    check_report(report, folder)
    plan = None if job is None else Plan.read(job)
    if folder is not None:
        check_folder(folder)
    with Client(kit) as client:
        run = client.submit(plan) if plan is not None else client.resume(str(resume))
        err.print(f"run {run}", highlight=False)
        with watching("Learning", quiet=as_json) as watch:
            result = client.follow(run, watch)
    _show(result, folder, report, as_json, {"run": run})


@federation.command("status")
def status_command(kit: KitOption, as_json: JsonFlag = False) -> None:
    """Say which sites are connected, and how the newest runs stand."""
    require_nvflare()
    from dagora.federation.client import Client

    with Client(kit) as client:
        status = client.status()
    if as_json:
        print_json(status)
        return
    there = ", ".join(f"{site} {'connected' if up else 'away'}" for site, up in status["sites"].items())
    out.print(f"federation {status['federation']}, server {status['server']}", highlight=False, soft_wrap=True)
    out.print(f"sites: {there}", highlight=False, soft_wrap=True)
    if not status["runs"]:
        out.print("no runs yet")
        return
    table = Table("run", "by", "state", "rounds")
    table.columns[0].min_width = max(map(len, status["runs"]))  # it is typed to abort or to resume
    table.columns[3].justify = "right"
    for run, about in status["runs"].items():
        table.add_row(run, about["by"], about["state"], str(about["round"]))
    out.print(table)
    for run, about in status["runs"].items():
        if about.get("waiting for"):
            out.print(f"{run}: waiting for {', '.join(about['waiting for'])}", highlight=False, soft_wrap=True)
        if about["detail"]:
            out.print(f"{run}: {about['detail']}", highlight=False, soft_wrap=True)


@federation.command("abort")
def abort_command(
    run: Annotated[str, typer.Argument(help="The run's name, as `run` and `status` show it.")], kit: KitOption
) -> None:
    """End a run for good; sites delete what they kept for it."""
    require_nvflare()
    from dagora.federation.client import Client

    with Client(kit) as client:
        client.abort(run)
    out.print(f"run {run} is aborted", highlight=False)


@federation.command("local")
def local_command(
    files: Annotated[list[Path], typer.Argument(help="One CSV or Parquet file a site, with the same columns.")],
    folder: Out = None,
    report: Report = False,
    job: Annotated[Path | None, typer.Option(help="job.toml; the options below override it.")] = None,
    model: Annotated[str | None, typer.Option(help=choices("What a site fits (linear)", MODELS))] = None,
    method: Annotated[
        str | None,
        typer.Option(help=choices("How sites work together (admm)", [m for m in METHODS if m != MOVES_ROWS])),
    ] = None,
    preset: Annotated[str | None, typer.Option(help=choices("default, or the paper's text", PRESETS))] = None,
    aggregation: Annotated[
        str | None, typer.Option(help=choices("How summands are added (masked)", AGGREGATIONS))
    ] = None,
    bootstrap: Bootstrap = None,
    policy: Annotated[Path | None, typer.Option(help="A policy (TOML) that all sites keep to.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Folder for kits, logs and audit logs, which else are deleted.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Try a whole federation on this machine: a server and a process a site, over loopback with mutual TLS.

    Example: dagora federation local north.csv south.csv east.csv --out result
    """
    require_nvflare()
    from dagora.federation.local import LocalFederation, site_names
    from dagora.federation.plan import Plan
    from dagora.federation.process import unwind_on_signals
    from dagora.federation.trial import learn_locally

    unwind_on_signals()

    check_report(report, folder)
    given = {
        "model": model, "method": method, "preset": preset, "aggregation": aggregation, "bootstrap": bootstrap
    }  # fmt: skip
    overrides = {name: value for name, value in given.items() if value is not None}
    plan = Plan.of(overrides) if job is None else Plan.read(job).with_changes(overrides)
    if folder is not None:
        check_folder(folder)
    with ExitStack() as stack:
        place = keep if keep is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dagora-")))
        with err.status("Making kits, starting a server and sites ..."):
            local = stack.enter_context(LocalFederation(place, site_names(files), policy))
        with watching("Learning", quiet=as_json) as watch:
            result = learn_locally(local, plan, watch)
    _show(result, folder, report, as_json, {})


@federation.command("verify-log")
def verify_log_command(
    places: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Audit logs (LEDGERS/*.jsonl), or the server's kit.")
    ],
    noted: Annotated[str | None, typer.Option(help="A head that was noted earlier; it must still be there.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check that nobody has changed an audit log; `dagora ledger` shows what is in it.

    Example: dagora federation verify-log ledgers/north.jsonl kits/server
    """
    if noted is not None and len(places) > 1:
        raise InputError("noted: a head is that of one log; name one")
    rows: list[dict[str, Any]] = []
    for place in places:
        file = place / "state" / "ledger.jsonl" if place.is_dir() else place
        rows.append({"file": str(file), "lines": len(read(file)), "head": verify(file, noted)})
    if as_json:
        print_json({"logs": rows})
        return
    for row in rows:
        text = f"{row['file']}: {count(row['lines'], 'line')}, unbroken; head {row['head']}"
        out.print(text, highlight=False, soft_wrap=True)


def _show(result: Result, folder: Path | None, report: bool, as_json: bool, more: dict[str, Any]) -> None:
    written = result.save(folder) if folder is not None else []
    written += write_report(result, folder, report)
    if as_json:
        print_json({**result.summary(), **more})
        return
    print_edges(result)
    print_lagged_edges(result)
    print_cost(result)
    for path in written:
        out.print(f"wrote {path}", highlight=False, soft_wrap=True)
