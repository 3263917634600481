"""Divide rows among sites."""

from collections.abc import Callable, Sequence

import numpy as np

from dagora.arrays import FloatArray
from dagora.errors import InputError


def partition(rows: FloatArray, sites: int, split: str | Sequence[int], rng: np.random.Generator) -> list[FloatArray]:
    """Give each row to exactly one of the sites, in blocks of consecutive rows; `rng` draws the sizes only.

    `split` is "even", "uneven" (Dirichlet proportions), "few" (2 to 5 rows a site, the first has the rest),
    or the sizes themselves.  Shuffle the rows first if their order means something.
    """
    ends = np.cumsum(_sizes(len(rows), sites, split, rng))
    return [block.copy() for block in np.split(rows, ends[:-1])]


def _sizes(n: int, sites: int, split: str | Sequence[int], rng: np.random.Generator) -> list[int]:
    if sites < 1:
        raise InputError(f"sites={sites} is too small; give at least 1.")
    if n < sites:
        raise InputError(f"{n} rows are too few for {sites} sites; give each site at least one row.")
    if not isinstance(split, str):
        return _checked_sizes(n, sites, split)
    if split not in SPLITS:
        raise InputError(f"split={split!r} is unknown; choose one of {', '.join(SPLITS)}, or give the sizes.")
    return SPLITS[split](n, sites, rng)


def _checked_sizes(n: int, sites: int, sizes: Sequence[int]) -> list[int]:
    if len(sizes) != sites or sum(sizes) != n or min(sizes) < 1:
        raise InputError(f"split must hold {sites} sizes of at least 1 that sum to {n}, one size a site.")
    return list(sizes)


def _even(n: int, sites: int, rng: np.random.Generator) -> list[int]:
    """Sizes that differ by at most one row."""
    each, left = divmod(n, sites)
    return [each + (site < left) for site in range(sites)]


def _uneven(n: int, sites: int, rng: np.random.Generator) -> list[int]:
    """Uniform Dirichlet proportions, over a floor of 2 rows a site where the rows allow it (else 1)."""
    floor = min(2, n // sites)
    extra = rng.multinomial(n - floor * sites, rng.dirichlet(np.ones(sites)))
    return [floor + int(size) for size in extra]


def _few(n: int, sites: int, rng: np.random.Generator) -> list[int]:
    """2 to 5 rows a site (fewer where an equal share is less), and the rest to the first site."""
    most = min(5, n // sites)
    small = rng.integers(min(2, most), most, size=sites - 1, endpoint=True).tolist()
    return [n - sum(small), *small]


SPLITS: dict[str, Callable[[int, int, np.random.Generator], list[int]]] = {
    "even": _even,
    "uneven": _uneven,
    "few": _few,
}
