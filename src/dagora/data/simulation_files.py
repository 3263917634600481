"""Simulated sites as files."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from dagora.arrays import FloatArray
from dagora.cells import write_rows
from dagora.data.simulate import Truth
from dagora.files import write_edges, write_files, write_lagged_edges

SERIES, TIME = "series", "time"  # columns of a long table


def write_simulation(folder: str | os.PathLike[str], truth: Truth, sites: Sequence[FloatArray]) -> list[Path]:
    """Write site-01.csv, site-02.csv, ... and truth.csv (source, target, weight), in full precision."""
    digits = max(2, len(str(len(sites))))
    writers: dict[str, Callable[[TextIO], None]] = {
        f"site-{number:0{digits}d}.csv": partial(_write_rows, truth.names, rows)
        for number, rows in enumerate(sites, start=1)
    }
    return write_files(folder, writers | {"truth.csv": partial(_write_truth, truth)})


def write_series_simulation(
    folder: str | os.PathLike[str], truth: Truth, sites: Sequence[Sequence[FloatArray]]
) -> list[Path]:
    """The same for time series: long tables with columns `series` and `time`; truth.csv has a lag, 0 within a step."""
    digits = max(2, len(str(len(sites))))
    writers: dict[str, Callable[[TextIO], None]] = {}
    first = 1
    for number, own in enumerate(sites, start=1):
        writers[f"site-{number:0{digits}d}.csv"] = partial(_write_series, truth.names, own, first)
        first += len(own)
    return write_files(folder, writers | {"truth.csv": partial(_write_dynamic_truth, truth)})


def _write_series(names: tuple[str, ...], own: Sequence[FloatArray], first: int, out: TextIO) -> None:
    write_rows(out, [(SERIES, TIME, *names)])
    for number, rows in enumerate(own, start=first):
        write_rows(out, ((f"s{number}", time, *row) for time, row in enumerate(rows.tolist(), start=1)))


def _write_dynamic_truth(truth: Truth, out: TextIO) -> None:
    assert truth.lag_weights is not None
    weights = [truth.weights, *truth.lag_weights]
    write_lagged_edges(
        out,
        [
            (truth.names[i], truth.names[j], lag, float(own[i, j]))
            for lag, own in enumerate(weights)
            for i, j in zip(*own.nonzero(), strict=True)
        ],
    )


def _write_rows(names: tuple[str, ...], rows: FloatArray, out: TextIO) -> None:
    write_rows(out, [names, *rows.tolist()])


def _write_truth(truth: Truth, out: TextIO) -> None:
    pairs = zip(*truth.adjacency.nonzero(), strict=True)
    write_edges(out, [(truth.names[i], truth.names[j], float(truth.weights[i, j])) for i, j in pairs])
