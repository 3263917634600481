"""The demonstration: every method on the same simulated sites, side by side."""

import warnings
from pathlib import Path
from typing import Any

from dagora.data.simulate import simulate
from dagora.data.simulation_files import write_simulation
from dagora.errors import ResultWarning
from dagora.federated.run import Watcher
from dagora.learn import learn
from dagora.metrics import evaluate

METHODS = {
    "ADMM (default)": {"method": "admm"},
    "ADMM (paper)": {"method": "admm", "preset": "paper"},
    "one total (NOTEARS)": {"method": "covariance", "learner": "notears"},
    "voting": {"method": "voting"},
    "averaging": {"method": "average"},
    "pooled (oracle)": {"method": "pooled"},
}


def run_demo(
    folder: Path, *, d: int, n: int, sites: int, seed: int, watch: Watcher | None = None
) -> list[dict[str, Any]]:
    """Write data, the default method's result, its report and graph.png to the folder; return a row a method."""
    from dagora.report.figures import draw_beside_truth  # matplotlib is slow to import

    truth, rows = simulate(d, d, n, sites, seed=seed)
    write_simulation(folder, truth, rows)
    comparison: list[dict[str, Any]] = []
    for name, options in METHODS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResultWarning)  # a row of the table, not a result to rely on
            result = learn(rows, **options, watch=watch)  # type: ignore[arg-type]
        scores = evaluate(truth, result)
        comparison.append(
            {"method": name, "shd": scores["shd"], "tpr": scores["tpr"], "fdr": scores["fdr"]}
            | {"rounds": result.rounds, "sent": result.sent, "seconds": result.seconds}
        )
        if name == next(iter(METHODS)):
            result.save(folder)
            result.report(folder / "report.html", f"Learned from {sites} simulated sites")
            draw_beside_truth(
                truth.adjacency, result.adjacency, truth.names, folder / "graph.png", f"learned from {sites} sites"
            )
    return comparison
