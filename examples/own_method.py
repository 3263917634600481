"""A method of your own beside the paper's, on the paper's data.

As a script it runs a small figure; from a shell: dagora reproduce mine.toml --methods examples/own_method.py
"""

import tempfile

import numpy as np

from dagora.experiments.figures import Figure, Setting
from dagora.experiments.methods import method
from dagora.experiments.runner import run_figure
from dagora.experiments.summary import markdown
from dagora.experiments.trial import Trial


@method("Largest correlations")
def largest_correlations(trial: Trial) -> object:
    """Join the d pairs with the largest mean correlation over sites, from the less to the more variable one."""
    strength = np.abs(np.mean([np.corrcoef(rows.T) for rows in trial.sites], axis=0))
    variance = np.mean([rows.var(axis=0) for rows in trial.sites], axis=0)
    strength[variance[:, None] >= variance] = 0.0
    return (strength >= np.sort(strength, axis=None)[-trial.setting.d]).astype(int)


if __name__ == "__main__":
    figure = Figure(
        name="mine",
        title="A method of one's own",
        data="linear",
        axis="sites",
        settings=(Setting(d=8, n=256, sites=2), Setting(d=8, n=256, sites=16)),
        methods=("ADMM (default)", "Voting", "Largest correlations"),
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = run_figure(figure, folder, runs=3)
    print(markdown(figure, rows, "python examples/own_method.py"))
