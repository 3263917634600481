"""All learners on the paper's data, whose noise variances are equal, so that directions can be told: SHD of the DAG."""

from typing import Any

import numpy as np

import dagora
from benchmarks.tables import over_seeds, publish

D, N, K = (20, 50), 256, 8
RUNS: dict[str, dict[str, Any]] = {
    "NOTEARS as published, pooled": {"method": "pooled", "preset": "paper"},
    "the same, polished": {"method": "pooled", "preset": "paper", "polish": True},
    "notears, not polished": {"learner": "notears", "polish": False},
    "notears": {"learner": "notears"},
    "golem": {"learner": "golem"},
    "golem, likelihood": {"learner": "golem", "score": "likelihood"},
    "boss": {"learner": "boss"},
    "ges": {"learner": "ges"},
    "pc": {"learner": "pc"},
    "ADMM, not polished": {"method": "admm", "polish": False},
    "ADMM": {"method": "admm"},
}


def one(seed: int, d: int) -> dict[str, tuple[float, float, float]]:
    """SHD of the DAG, distance of the classes, and seconds."""
    truth, sites = dagora.simulate(d=d, edges=d, n=N, sites=K, seed=seed)
    found = {}
    for name, options in RUNS.items():
        result = dagora.learn(sites, **({"method": "covariance"} | options))
        scores = dagora.evaluate(truth, result)
        found[name] = (float(scores["shd"]), float(scores["cpdag_shd"]), result.seconds)
    return found


def main(runs: int, jobs: int) -> None:
    table = []
    for d in D:
        found = over_seeds(one, runs, jobs, d)
        for name in RUNS:
            shd, distance, seconds = (np.array([run[name][k] for run in found]) for k in range(3))
            errors = [values.std(ddof=1) / np.sqrt(runs) if runs > 1 else 0.0 for values in (shd, distance)]
            table.append(
                [d, name, f"{shd.mean():.2f} ± {errors[0]:.2f}", f"{distance.mean():.2f} ± {errors[1]:.2f}",
                 f"{np.median(seconds):.2f}"]
            )  # fmt: skip
    publish(
        "equal_variances",
        f"Learners on the paper's data: ER graphs with d edges, equal variances, n = {N}, {runs} seeds",
        ["d", "learner", "SHD ± standard error", "CPDAG-SHD ± standard error", "median seconds"],
        table,
        f"Method covariance over {K} sites unless the name says otherwise.  boss, ges and pc give classes: SHD is of "
        "one DAG of the class.",
    )
