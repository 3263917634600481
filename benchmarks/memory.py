"""Peak memory of learning from ten Parquet files of 1,000,000 rows x 20 columns each."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dagora
from benchmarks.tables import publish

FILES, ROWS, D = 10, 1_000_000, 20

LEARN = """
import json, sys, time
start = time.perf_counter()
import dagora
result = dagora.learn(sys.argv[1:])
# Not ru_maxrss: it survives exec, and so would be the peak of the process that made the files.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1.024e-3
print(json.dumps({"peak": peak, "seconds": time.perf_counter() - start, "edges": result.edges()}))
"""


def main(runs: int, jobs: int) -> None:
    truth, _ = dagora.simulate(d=D, edges=D, n=D, sites=1, seed=0)
    mixing = np.linalg.inv(np.eye(D) - truth.weights)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for site in range(FILES):
            noise = np.random.default_rng(site).standard_normal((ROWS, D))
            columns = dict(zip(truth.names, (noise @ mixing).T, strict=True))
            paths.append(Path(folder) / f"site-{site + 1:02d}.parquet")
            pq.write_table(pa.table(columns), paths[-1])
        size = sum(path.stat().st_size for path in paths) / 1e6
        # A process of its own: the peak is that of learning, not of making the files.
        done = subprocess.run([sys.executable, "-c", LEARN, *map(str, paths)], capture_output=True, check=True)
    report = json.loads(done.stdout)
    found = {(source, target) for source, target, _ in report["edges"]}
    true = {(truth.names[i], truth.names[j]) for i, j in zip(*truth.adjacency.nonzero(), strict=True)}
    publish(
        "memory",
        f"Learning from {FILES} Parquet files of {ROWS:,} rows x {D} columns ({size:.0f} MB on disk)",
        ["peak MB", "seconds", "edges found", "wrong or missing edges"],
        [[f"{report['peak']:.0f}", f"{report['seconds']:.1f}", len(found), len(found ^ true)]],
    )
