"""The protein data of Sachs et al. (2005), a real network with an accepted graph, inside the package."""

from importlib.resources import as_file, files

import numpy as np

from dagora.arrays import FloatArray
from dagora.data.tables import open_table
from dagora.interchange.named import NamedGraph
from dagora.interchange.registry import read_graph


def load_sachs() -> tuple[NamedGraph, FloatArray]:
    """The accepted graph of 17 edges (every weight 1) and the 853 observational rows, raw, of 11 proteins and lipids.

    Sachs et al., Science 308 (2005) 523-529.  For several sites, divide the rows: `np.array_split(rows, 8)`.
    Arrays have no names to match, so compare by position: `evaluate(truth.adjacency, result.adjacency)`.

    >>> truth, rows = dagora.load_sachs()
    >>> rows.shape, len(truth.edges()), truth.names[:3]
    ((853, 11), 17, ('Raf', 'Mek', 'Plcg'))
    """
    folder = files("dagora.data") / "sachs"
    # One file at a time: of a zipped package, Python 3.11 cannot give a folder.
    with as_file(folder / "sachs_observational.csv") as path:
        table = open_table("sachs", path)
        rows = np.concatenate(list(table.chunks(table.names)))
    with as_file(folder / "sachs_truth.csv") as path:
        return read_graph(path, table.names), rows
