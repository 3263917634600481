"""What networks ask of data: enough rows, and columns that vary by about one."""

import numpy as np

from dagora.arrays import BoolArray, FloatArray
from dagora.errors import InputError

FEWEST_ROWS = 11  # as for additive effects: fewer fit any network
_WARNED, _REFUSED = 2.0, 4.0  # powers of ten between a deviation and 1
_OFF_CENTRE = 10.0  # deviations


def check_rows(rows: float) -> None:
    """Refuse what any graph would fit."""
    if rows < FEWEST_ROWS:
        raise InputError(f"too few rows for networks: {rows:.0f}, but {FEWEST_ROWS} or more are needed; add rows")


def check_scale(names: tuple[str, ...], variances: FloatArray) -> tuple[str, ...]:
    """Refuse columns that no unit of a random network would follow; warn of those that fare badly.

    Weights start at order one, and the l1 penalty and the threshold are in the columns' units.
    """
    if wild := _named(names, np.abs(np.log10(variances)) > 2.0 * _REFUSED):
        raise InputError(f"columns {wild}: deviations too far from 1 for networks; standardise or rescale them")
    wild = _named(names, np.abs(np.log10(variances)) > 2.0 * _WARNED)
    return (f"columns {wild}: deviations far from 1, where networks do worse; rescale them",) if wild else ()


def check_centre(names: tuple[str, ...], mean: FloatArray, variances: FloatArray) -> tuple[str, ...]:
    """Warn of columns that the paper's preset, which does not centre rows, will hardly learn."""
    off = _named(names, np.abs(mean) > _OFF_CENTRE * np.sqrt(variances))
    return (f"columns {off}: means far from 0, which preset 'paper' leaves as they are; centre them",) if off else ()


def _named(names: tuple[str, ...], which: BoolArray) -> str:
    return ", ".join(repr(name) for name, chosen in zip(names, which, strict=True) if chosen)
