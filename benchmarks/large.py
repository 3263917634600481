"""The default learner on totals of 500 variables: time, peak memory and accuracy, in a process of its own."""

import json
import subprocess
import sys

from benchmarks import tables
from benchmarks.tables import publish

D, N, K = 500, 5000, 10

LEARN = """
import json, sys
import numpy as np
import dagora
d, n, k, seed = map(int, sys.argv[1:])
truth, sites = dagora.simulate(d=d, edges=d, n=n, sites=k, seed=seed, noise="gaussian-unequal")
units = 10.0 ** np.random.default_rng(seed).uniform(-3.0, 3.0, size=d)
result = dagora.learn([rows * units for rows in sites], method="covariance")
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1.024e-3
scores = dagora.evaluate(truth.adjacency, result.cpdag)
print(json.dumps({"peak": peak, "seconds": result.seconds, "sent": result.sent} | scores))
"""


def main(runs: int, jobs: int) -> None:
    table = []
    for seed in range(tables.first_seed, tables.first_seed + min(runs, 3)):
        done = subprocess.run(
            [sys.executable, "-c", LEARN, *map(str, (D, N, K, seed))], capture_output=True, check=True
        )
        found = json.loads(done.stdout)
        table.append(
            [seed, f"{found['seconds']:.1f}", f"{found['peak']:.0f}", f"{found['sent'] / 1e6:.1f}",
             f"{found['skeleton_f1']:.3f}", found["cpdag_shd"]]
        )  # fmt: skip
    publish(
        "large",
        f"The default learner on totals: ER graphs with d = {D} edges, unequal variances, random units, n = {N}, "
        f"K = {K}",
        ["seed", "seconds", "peak MB (data included)", "MB sent by all sites", "skeleton F1", "CPDAG-SHD"],
        table,
    )
