"""Where large arrays are worked on: by numpy on the CPU, or by torch on an accelerator; by the same code, in float64.

Solvers keep to what arrays of both have in common (operators, `.T`, `.sum()`, `.clip()`, `abs`); the little that has
two names is here.  Annotations say FloatArray for either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg

from dagora.arrays import FloatArray
from dagora.errors import InputError


class Device(Protocol):
    """Takes arrays of numpy's and gives them back."""

    def put(self, array: Any) -> Any:
        """There."""

    def get(self, array: Any) -> FloatArray:
        """Back here."""


@dataclass(frozen=True)
class Cpu:
    """Numpy's own: nothing moves."""

    def put(self, array: Any) -> Any:
        """As it is."""
        return array

    def get(self, array: Any) -> FloatArray:
        """As it is."""
        found: FloatArray = array
        return found


@dataclass(frozen=True)
class TorchDevice:
    """Tensors on a device that torch knows by this name."""

    name: str

    def put(self, array: Any) -> Any:
        """A tensor; a number stays one."""
        import torch  # an extra, and slow to import

        return torch.tensor(array, device=self.name) if isinstance(array, np.ndarray) else array

    def get(self, array: Any) -> FloatArray:
        """An array of numpy's."""
        found: FloatArray = array.cpu().numpy()
        return found


CPU = Cpu()
_BLOCK = 64  # columns


def device(name: str) -> Device:
    """By name: "cpu", or one of torch's, such as "cuda"; refused where torch cannot use it."""
    if name == "cpu":
        return CPU
    try:
        import torch
    except ImportError:
        raise InputError(
            f"device: {name!r} needs torch; install it with: pip install 'dagora[nonlinear]', or leave device out"
        ) from None
    try:
        torch.zeros(1, device=name, dtype=torch.float64).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:  # torch has no error of its own
        raise InputError(f"device: torch cannot use {name!r} here ({str(error).splitlines()[0]})") from None
    return TorchDevice(name)


def identity_like(W: FloatArray) -> FloatArray:
    """I, of W's size and where W is."""
    if isinstance(W, np.ndarray):
        return np.eye(len(W))
    import torch

    found: FloatArray = torch.eye(len(W), dtype=W.dtype, device=W.device)
    return found


def inverted(A: FloatArray) -> tuple[FloatArray, float] | None:
    """A's inverse and log |det A|, where A is; None if it is singular or not finite."""
    if isinstance(A, np.ndarray):
        factor, pivots, singular = scipy.linalg.lapack.dgetrf(A.T)  # Fortran's layout: the transpose
        if singular or not np.isfinite(factor).all():
            return None
        size = float(np.log(np.abs(factor.diagonal())).sum())
        # With scipy's default workspace it would work in blocks of three columns, and take three times as long.
        inverse, failed = scipy.linalg.lapack.dgetri(factor, pivots, lwork=_BLOCK * len(A), overwrite_lu=True)
        return None if failed else (inverse.T, size)
    import torch

    factor, pivots, singular = torch.linalg.lu_factor_ex(A)
    size = float(factor.diagonal().abs().log().sum())
    if int(singular) or not np.isfinite(size):
        return None
    return torch.linalg.lu_solve(factor, pivots, identity_like(A)), size


def diagonal(B: FloatArray) -> FloatArray:
    """The diagonal of B's first rows, or of each matrix that B has; a view: what is written there is written to B."""
    square = B[..., : B.shape[-1], :]
    if isinstance(B, np.ndarray):
        view: FloatArray = np.einsum("...ii->...i", square)
        return view
    import torch

    found: FloatArray = torch.diagonal(square, dim1=-2, dim2=-1)
    return found


def stack(arrays: Sequence[FloatArray]) -> FloatArray:
    """With a new axis first."""
    if isinstance(arrays[0], np.ndarray):
        return np.stack(arrays)
    import torch

    found: FloatArray = torch.stack(list(arrays))
    return found
