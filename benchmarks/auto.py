"""lam="auto" and threshold="auto" beside every fixed value, on the paper's data: d in {10, 20, 50}, K in {2, 8, 64}."""

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish

D, K, N = (10, 20, 50), (2, 8, 64), 256
LAM, THRESHOLD = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4)

Found = dict[tuple[str, str, str], float]  # by method, lam and threshold


def one(seed: int, d: int) -> Found:
    """SHD of fixed values, of "auto" and of either one alone."""
    truth, (rows,) = dagora.simulate(d=d, edges=d, n=N, sites=1, seed=seed)
    found: Found = {}
    for name, sites in {"pooled": [rows], **{f"ADMM, K = {k}": np.array_split(rows, k) for k in K}}.items():
        method = "pooled" if name == "pooled" else "admm"
        for lam in LAM:
            W = dagora.learn(sites, method=method, lam=lam).weights
            for threshold in THRESHOLD:  # of a DAG's weights: one solution serves all
                graph = (np.abs(W) > threshold).astype(int)
                found[name, str(lam), str(threshold)] = dagora.evaluate(truth, graph)["shd"]
        for lam_, threshold_ in (("auto", "auto"), ("auto", 0.3), (0.1, "auto")):
            result = dagora.learn(sites, method=method, lam=lam_, threshold=threshold_)
            found[name, str(lam_), str(threshold_)] = dagora.evaluate(truth, result)["shd"]
    return found


def main(runs: int, jobs: int) -> None:
    table = []
    for d in D:
        seeds = over_seeds(one, runs, jobs, d)
        mean = {key: float(np.mean([found[key] for found in seeds])) for key in seeds[0]}
        for name in dict.fromkeys(key[0] for key in mean):
            fixed = {key: value for key, value in mean.items() if key[0] == name and "auto" not in key}
            best = min(fixed, key=fixed.__getitem__)
            table.append(
                [
                    d,
                    name,
                    f"{fixed[best]:.2f} ({best[1]}, {best[2]})",
                    f"{mean[name, '0.1', '0.3']:.2f}",
                    f"{mean[name, 'auto', 'auto']:.2f}",
                    f"{mean[name, 'auto', '0.3']:.2f}",
                    f"{mean[name, '0.1', 'auto']:.2f}",
                    f"{mean[name, 'auto', 'auto'] - fixed[best]:+.2f}",
                ]
            )
    publish(
        "auto",
        f"Mean SHD over {runs} seeds, n = {N}: lam and threshold chosen by the extended BIC, and fixed",
        [
            "d",
            "method",
            "best fixed (lam, threshold)",
            "0.1, 0.3",
            "auto",
            "lam auto",
            "threshold auto",
            "auto - best",
        ],
        table,
        f"Fixed: lam in {LAM}, threshold in {THRESHOLD}; the best is chosen by the truth, on the same seeds.",
    )
