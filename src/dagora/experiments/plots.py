"""The paper's arrangement: SHD, TPR and FDR side by side, a line a method, standard errors as bars."""

from dataclasses import asdict
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from dagora.experiments.figures import Figure
from dagora.experiments.runner import Row
from dagora.experiments.summary import SHOWN, summarise

# Okabe and Ito's colours, which colour-blind readers can tell apart, and a mark of its own for each.
STYLES = {
    "ADMM (default)": ("#D55E00", "o", "-"),
    "ADMM (paper)": ("#0072B2", "s", "-"),
    "Voting": ("#009E73", "^", "--"),
    "Averaging": ("#CC79A7", "v", "--"),
    "Best": ("#E69F00", "D", "--"),
    "PC-Voting": ("#56B4E9", "P", ":"),
    "FGES-Voting": ("#7F7F7F", "X", ":"),
    "NOTEARS, pooled": ("#000000", "*", "-."),
    "Pooled (default)": ("#000000", "*", "-."),
    "MLP-ADMM (default)": ("#882255", "o", "-"),
    "MLP-ADMM (paper)": ("#0072B2", "s", "-"),
    "MLP-Voting": ("#009E73", "^", "--"),
    "MLP-Averaging": ("#CC79A7", "v", "--"),
    "MLP-Best": ("#E69F00", "D", "--"),
    "MLP, pooled (default)": ("#000000", "*", "-."),
    "Additive sieve": ("#44AA99", "<", "-"),
    "NOTEARS-MLP, pooled": ("#000000", "*", "-."),
}
_OTHERS = (("#332288", ">", "-"), ("#999933", "h", "-"), ("#AA4499", "p", "-"))
_AXES = {"d": "number of variables", "n": "number of rows", "sites": "number of sites"}


def draw(figure: Figure, rows: list[Row], folder: Path) -> list[Path]:
    """Write FIGURE.png, .svg and .pdf."""
    means = summarise(rows)
    xs = [asdict(setting)[figure.axis] for setting in figure.settings]
    styles = _styles(figure)
    with rc_context({"font.size": 8, "svg.hashsalt": "dagora", "svg.fonttype": "none", "pdf.fonttype": 42}):
        canvas = Canvas(figsize=(7.0, 2.6), layout="constrained")
        panels = canvas.subplots(1, 3)
        for panel, (name, label) in zip(panels, SHOWN.items(), strict=True):
            for place, method in enumerate(figure.methods):
                shown = [(k, means[s, method][name]) for k, s in enumerate(figure.settings) if (s, method) in means]
                colour, mark, line = styles[method]
                # Side by side by a hair: bars that lie on each other cannot be read.
                shift = 0.03 * (place - (len(figure.methods) - 1) / 2)
                panel.errorbar(
                    [k + shift for k, _ in shown], [mean.value for _, mean in shown], [mean.error for _, mean in shown],
                    color=colour, marker=mark, linestyle=line, label=method,
                    linewidth=1.0, markersize=3.5, capsize=1.5, elinewidth=0.7,
                )  # fmt: skip
            panel.set_xticks(range(len(xs)), [str(x) for x in xs])
            panel.set_xlabel(_AXES[figure.axis])
            panel.set_title(label)
            top = min(panel.get_ylim()[1], figure.shd_top) if name == "shd" else 1.0
            panel.set_ylim(-0.03 * top, 1.03 * top)  # marks at 0 and 1 are whole
            panel.grid(axis="y", linewidth=0.3, color="#CCCCCC")
            panel.spines[["top", "right"]].set_visible(False)
        handles, labels = panels[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False)
        canvas.suptitle(figure.title, fontsize=9)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{figure.name}.{kind}" for kind in ("png", "svg", "pdf")]
        for path in paths:
            # No dates in the files: equal results make equal files.
            metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
            canvas.savefig(path, dpi=200, metadata=metadata)
    return paths


def _styles(figure: Figure) -> dict[str, tuple[str, str, str]]:
    unknown = [method for method in figure.methods if method not in STYLES]
    return STYLES | {method: _OTHERS[k % len(_OTHERS)] for k, method in enumerate(unknown)}
