"""How a whole run grows: seconds, peak memory and bytes over d, K and streamed rows, each in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks import tables
from benchmarks.streaming import write
from benchmarks.tables import publish

D, K = (10, 20, 50, 100, 200, 500, 1000, 2000), (1, 10, 100, 1000)
LARGE = (("ADMM", 1000), ("covariance, notears", 1000), ("covariance, notears", 3000))  # and their variables
ROWS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
N, MANY, SITES = 2000, 10_000, 10  # rows over d, rows of the large runs, and sites of both
WIDTH, STREAMED = 50, 20  # variables over K (10 rows a site), and over rows
FROM, FAR, LIMIT = 50, 200, 900.0  # slopes are fitted from these d: below FAR much is overhead; seconds a cell may take

RUN = """
import json, sys, time, warnings
import dagora
warnings.simplefilter("ignore")
what = json.loads(sys.argv[1])
truth, sites = None, what.get("paths")
if sites is None:
    truth, sites = dagora.simulate(d=what["d"], edges=what["d"], n=what["n"], sites=what["k"], seed=0)
start = time.perf_counter()
result = dagora.learn(sites, **what["options"])
seconds = time.perf_counter() - start
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1.024e-3
sent = sum(entry.sent + entry.received for entry in result.ledger)
scores = {} if truth is None else {name: dagora.evaluate(truth, result)[name] for name in ("shd", "tpr", "fdr")}
print(json.dumps({"seconds": seconds, "peak": peak, "bytes": sent, "rounds": result.rounds, **scores}))
"""

ADMM: dict[str, str] = {}
COVARIANCE = {"method": "covariance", "learner": "notears"}
METHODS = {"ADMM": ADMM, "covariance, notears": COVARIANCE}


def cell(options: dict[str, str], **what: object) -> dict[str, float] | None:
    """One run; None if it took too long."""
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    call = [sys.executable, "-c", RUN, json.dumps({"options": options, **what})]
    try:
        done = subprocess.run(call, capture_output=True, check=True, env=os.environ | one, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, float] = json.loads(done.stdout)
    return found


def slope(cells: dict[int, dict[str, float] | None], start: int) -> tuple[float, int]:
    """Slope of log seconds over log size from `start` on, and the largest size that ended."""
    done = [(size, found["seconds"]) for size, found in cells.items() if found is not None and size >= start]
    if len(done) < 2:
        return float("nan"), 0
    sizes, seconds = zip(*done, strict=True)
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]), done[-1][0]


def main(runs: int, jobs: int) -> None:
    over_d = {label: {d: cell(options, d=d, n=N, k=SITES) for d in D} for label, options in METHODS.items()}
    large = {(label, d): cell(METHODS[label], d=d, n=MANY, k=SITES) for label, d in LARGE}
    over_k = {k: cell(ADMM, d=WIDTH, n=10 * k if k > 1 else 20, k=k) for k in K}
    over_n = {}
    for n in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "rows.parquet", n, STREAMED)
            over_n[n] = cell(COVARIANCE, paths=[str(Path(folder) / "rows.parquet")])
    table = [
        [f"{label}, d = {d}, n = {N}, K = {SITES}", *_row(found)]
        for label, cells in over_d.items()
        for d, found in cells.items()
    ]
    table += [[f"{label}, d = {d}, n = {MANY}, K = {SITES}", *_row(found)] for (label, d), found in large.items()]
    table += [[f"ADMM, K = {k}, d = {WIDTH}, 10 rows a site", *_row(found)] for k, found in over_k.items()]
    table += [[f"covariance, {n:,} rows streamed, d = {STREAMED}, K = 1", *_row(found)] for n, found in over_n.items()]
    slopes = {label: slope(cells, FROM) for label, cells in over_d.items()}
    far = {label: slope(cells, FAR)[0] for label, cells in over_d.items()}
    said = "; ".join(
        f"{label} {value:.2f} (d = {FROM} to {most}), {far[label]:.2f} (from {FAR})"
        for label, (value, most) in slopes.items()
    )
    publish(
        "growth",
        "A whole run: how time, memory and traffic grow",
        ["setting", "seconds", "peak MB", "MB sent and received", "rounds", "SHD", "TPR", "FDR"],
        table,
        f"Slope of seconds over d on logarithmic axes: {said}.  One run a row, one thread; with K = 1 there are 20 "
        f"rows.  A run that takes over {LIMIT:.0f} s, data included, is stopped.",
    )
    _draw(over_d, over_k, over_n, slopes)


def _row(found: dict[str, float] | None) -> list[object]:
    if found is None:
        return [f"over {LIMIT:.0f}", *[""] * 6]
    scores = [int(found["shd"]), f"{found['tpr']:.3f}", f"{found['fdr']:.3f}"] if "shd" in found else [""] * 3
    traffic = f"{found['bytes'] / 1e6:.3g}"
    return [f"{found['seconds']:.3f}", f"{found['peak']:.0f}", traffic, found["rounds"], *scores]


def _draw(
    over_d: dict[str, dict[int, dict[str, float] | None]],
    over_k: dict[int, dict[str, float] | None],
    over_n: dict[int, dict[str, float] | None],
    slopes: dict[str, tuple[float, int]],
) -> None:
    figure = Figure(figsize=(10, 3.4), dpi=150, layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for (label, cells), colour in zip(over_d.items(), ("#0072B2", "#D55E00"), strict=True):
        done = {d: found["seconds"] for d, found in cells.items() if found is not None}
        left.loglog(list(done), list(done.values()), "o-", color=colour, label=f"{label}: slope {slopes[label][0]:.2f}")
    left.set(xlabel="variables d", ylabel="seconds", title=f"n = {N}, K = {SITES}")
    for axes, cells, label, title in (
        (middle, over_k, "sites K", f"ADMM, d = {WIDTH}, 10 rows a site"),
        (right, over_n, "rows", f"covariance, d = {STREAMED}, streamed"),
    ):
        done = {size: found["seconds"] for size, found in cells.items() if found is not None}
        axes.loglog(list(done), list(done.values()), "o-", color="#0072B2", label="seconds")
        axes.set(xlabel=label, title=title)
    for axes in (left, middle, right):
        axes.legend(frameon=False, fontsize=8, loc="upper left")
        axes.grid(alpha=0.3)
    figure.savefig(tables.RESULTS / "growth.png")
