"""Streaming a Parquet file of 10,000,000 rows x 50 columns for the covariance method, beside a yardstick.

The yardstick: pyarrow reads the same file, numpy forms x'x of each batch, columns assembled in the cheapest way.  It
centres nothing and checks nothing, so a pass that does more cannot be faster, unless the yardstick is held back.  By
pyarrow's default it is: it buffers whole row groups, and in a fresh process spends more time on new memory than on
reading.  So it runs with and without that, every process makes a first pass that is not timed, and the share is of the
faster one.  All run in turn, in processes of their own, on one thread; the file is in the system's cache.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dagora
from benchmarks.tables import publish

N, D, REPEATS = 10_000_000, 50, 3
PIECE = 250_000  # rows written at a time, as one row group

COMMON = """
import json, sys, time
from threadpoolctl import threadpool_limits
def report(seconds, **more):
    # Not ru_maxrss: it survives exec, and so would be the peak of the process that made the file.
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1.024e-3
    print(json.dumps({"peak": peak, "seconds": seconds, **more}))
"""

YARDSTICK = (
    COMMON
    + """
import numpy as np, pyarrow.parquet as pq
with threadpool_limits(1):
    for _ in range(2):
        start, total = time.perf_counter(), 0.0
        file = pq.ParquetFile(sys.argv[1], pre_buffer=sys.argv[2] == "buffered")
        for batch in file.iter_batches(use_threads=False):
            x = np.empty((batch.num_columns, batch.num_rows))
            for j in range(batch.num_columns):
                x[j] = batch.column(j).to_numpy()
            total = total + x @ x.T
        seconds = time.perf_counter() - start
report(seconds)
"""
)

PASS = (
    COMMON
    + """
from dagora.data.summary import summarise
from dagora.data.tables import open_tables
with threadpool_limits(1):
    for _ in range(2):
        start = time.perf_counter()
        table = open_tables(sys.argv[1:])[0]
        summarise(table, table.names)
        seconds = time.perf_counter() - start
report(seconds)
"""
)

LEARN = (
    COMMON
    + """
import dagora
start = time.perf_counter()
result = dagora.learn(sys.argv[1:], method="covariance", learner="notears")
report(time.perf_counter() - start, edges=int(result.adjacency.sum()))
"""
)


def write(path: Path, n: int, d: int, seed: int = 0) -> None:
    """A Parquet file of a linear network's rows, made piece by piece."""
    truth, _ = dagora.simulate(d=d, edges=d, n=d, sites=1, seed=seed)
    mixing, rng = np.linalg.inv(np.eye(d) - truth.weights), np.random.default_rng(seed)
    with pq.ParquetWriter(path, pa.schema([(name, pa.float64()) for name in truth.names])) as file:
        for start in range(0, n, PIECE):
            rows = rng.standard_normal((min(PIECE, n - start), d)) @ mixing
            file.write_table(pa.table(dict(zip(truth.names, rows.T, strict=True))))


def measure(script: str, path: Path, *more: str) -> dict[str, float]:
    """Run in a process of its own, on one thread."""
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), *more], capture_output=True, check=True, env=os.environ | one
    )
    report: dict[str, float] = json.loads(done.stdout)
    return report


def main(runs: int, jobs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path, N, D)
        size = path.stat().st_size / 1e6
        turns = [
            (measure(YARDSTICK, path, "buffered"), measure(YARDSTICK, path, "plain"), measure(PASS, path))
            for _ in range(min(runs, REPEATS))
        ]
        learned = measure(LEARN, path)
    labels = ("pyarrow and x'x", "the same without pyarrow's pre-buffering", "one pass of Dagora")
    table = []
    for label, reports in zip(labels, zip(*turns, strict=True), strict=True):
        seconds = float(np.median([report["seconds"] for report in reports]))
        table.append(_row(label, seconds, max(report["peak"] for report in reports)))
    table.append(_row("covariance method in all, first pass (learner notears)", learned["seconds"], learned["peak"]))
    shares = [min(a["seconds"], b["seconds"]) / ours["seconds"] for a, b, ours in turns]
    publish(
        "streaming",
        f"Streaming {N:,} rows x {D} columns from Parquet ({size:.0f} MB on disk), one thread",
        ["what", "seconds", "million rows a second", "peak MB"],
        table,
        f"The pass of Dagora runs at {np.median(shares):.0%} of the rate of the faster yardstick of its turn (least "
        f"{min(shares):.0%}, {len(shares)} turns).  It centres, and looks for missing cells and for constant and equal "
        "columns besides.",
    )


def _row(label: str, seconds: float, peak: float) -> list[str]:
    return [label, f"{seconds:.2f}", f"{N / seconds / 1e6:.2f}", f"{peak:.0f}"]
