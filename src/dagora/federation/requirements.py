"""The network extra, asked for only where it is needed."""

import importlib.util

from dagora.errors import InputError


def require_nvflare() -> None:
    """Say in one line what to install."""
    if importlib.util.find_spec("nvflare") is None:
        raise InputError("a federation needs NVIDIA FLARE: pip install 'dagora[network]'")
