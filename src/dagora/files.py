"""Output files: written whole or not at all, in full precision."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from dagora.arrays import FloatArray
from dagora.cells import write_rows
from dagora.confidence import Frequency
from dagora.errors import InputError


def write_edges(out: TextIO, edges: Iterable[tuple[str, str, float]]) -> None:
    """A header row, then a row an edge."""
    write_rows(out, [("source", "target", "weight"), *edges])


def write_lagged_edges(out: TextIO, edges: Iterable[tuple[str, str, int, float]]) -> None:
    """The same with how many steps before its effect the source is observed: 0 within a time step."""
    write_rows(out, [("source", "target", "lag", "weight"), *edges])


def write_lag_matrices(out: TextIO, names: tuple[str, ...], matrices: FloatArray) -> None:
    """A header row of names, then for every lag a row a variable: the lag and its name first; full precision."""
    write_rows(out, [("lag", "", *names)])
    for lag, matrix in enumerate(matrices.tolist(), start=1):
        write_rows(out, ((lag, name, *values) for name, values in zip(names, matrix, strict=True)))


def write_confidence(
    out: TextIO, pairs: Iterable[Frequency], past: Iterable[tuple[str, str, int, float]] | None = None
) -> None:
    """A header row, then two rows a pair, one for each direction; of time series, with lags and effects of the past."""
    lag = [] if past is None else [0]
    write_rows(out, [("source", "target", *(["lag"] if lag else []), "edge", "arrow", "undirected", "direction")])
    write_rows(out, ((p.source, p.target, *lag, *p[2:]) for p in pairs))
    write_rows(out, ((s, t, steps, share, share, 0.0, 1.0) for s, t, steps, share in past or ()))


def write_matrix(out: TextIO, names: tuple[str, ...], matrix: FloatArray) -> None:
    """A header row of names, then a row a variable, its name first; full precision."""
    write_rows(out, [("", *names)])
    write_rows(out, ((name, *values) for name, values in zip(names, matrix.tolist(), strict=True)))


def write_files(folder: str | os.PathLike[str], writers: Mapping[str, Callable[[TextIO], None]]) -> list[Path]:
    """Write all files beside their places first, then move each there: a failure leaves nothing half-written."""
    folder = make_folder(folder)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".dagora-") as scratch:
            for name, write in writers.items():
                with (Path(scratch) / name).open("w", encoding="utf-8", newline="") as out:
                    write(out)
            for name in writers:
                os.replace(Path(scratch) / name, folder / name)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return [folder / name for name in writers]


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write one file, whole or not at all."""

    def put(out: TextIO) -> None:
        out.write(text)

    path = Path(path)
    return write_files(path.parent, {path.name: put})[0]


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, made if it is not there."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return folder


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Whether the folder can be made and written to; nothing is written yet."""
    nearest = Path(folder).absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise InputError(f"cannot write to {os.fspath(folder)!r}: {os.fspath(nearest)!r} is a file; choose another")
    if not os.access(nearest, os.W_OK):
        raise InputError(f"cannot write to {os.fspath(folder)!r}: permission denied; choose another folder")


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(f"cannot write to {str(folder)!r}: {error.strerror}; choose another folder")


def plain(value: Any) -> Any:
    """The value with numbers that JSON lacks (NaN, infinities) as None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value
