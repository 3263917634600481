"""Published Gaussian networks of genes and crops, with realistic weights, variances and units; n = 2,000, K = 10.

The networks are those of the bnlearn repository (ECOLI70, MAGIC-NIAB, MAGIC-IRRI, ARTH150), as files of the package
pgmpy, of which nothing else is needed: pip install --no-deps pgmpy==1.1.2
"""

import importlib.util
import json
from pathlib import Path

import numpy as np

from benchmarks.score_search import HEADER, Scores, compare, rows_of
from benchmarks.tables import over_seeds, publish
from dagora.arrays import FloatArray
from dagora.graphs import threshold, topological_order

NETWORKS, N = ("ecoli70", "magic-niab", "magic-irri", "arth150"), 2000


def folder() -> Path:
    """Where pgmpy keeps its networks."""
    spec = importlib.util.find_spec("pgmpy")
    if spec is None or spec.origin is None:
        raise SystemExit("benchmarks networks: needs the files of pgmpy: pip install --no-deps pgmpy==1.1.2")
    return Path(spec.origin).parent / "utils" / "example_models"


def sample(network: Path, n: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Weights of a network, and rows drawn from it."""
    model = json.loads(network.read_text())
    place = {name: j for j, name in enumerate(model["nodes"])}
    W = np.zeros((len(place), len(place)))
    X = np.random.default_rng(seed).standard_normal((n, len(place)))
    for child, distribution in model["cpds"].items():
        coefficients = {name: values[0] for name, values in distribution["coefficients"].items()}
        X[:, place[child]] *= np.sqrt(distribution["variance"][0])
        X[:, place[child]] += coefficients.pop("(Intercept)")
        for parent, weight in coefficients.items():
            W[place[parent], place[child]] = weight
    for j in topological_order(W):
        X[:, j] += X @ W[:, j]
    return W, X


def one(seed: int, network: Path) -> dict[str, Scores]:
    W, X = sample(network, N, seed)
    return compare(threshold(W, 0.0), X, X, [])


def main(runs: int, jobs: int) -> None:
    runs = min(runs, 5)
    table: list[list[object]] = []
    for name in NETWORKS:
        network = folder() / f"{name}.json"
        d = len(json.loads(network.read_text())["nodes"])
        table += rows_of(f"{name}, {d}", over_seeds(one, runs, 1, network))
    publish(
        "networks",
        f"Learners on totals: published Gaussian networks, n = {N}, K = 10, {runs} seeds",
        ["network, d", *HEADER[1:]],
        table,
    )
