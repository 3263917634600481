"""Peers that need an environment of their own: asked in a process each (peer_worker.py), with one thread.

DAGORA_PEERS_PYTHON names a Python that has dagma and gcastle, DAGORA_XGES_PYTHON one that has xges (which needs an
older numpy); else the Python that runs the benchmark is asked.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.peer_worker import PEERS
from dagora.arrays import FloatArray

_INSTALLED = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


def python(peer: str) -> str:
    """The Python that has the peer."""
    name = "DAGORA_XGES_PYTHON" if PEERS[peer][0] == "xges" else "DAGORA_PEERS_PYTHON"
    return os.environ.get(name, sys.executable)


def version(peer: str) -> str | None:
    """The version of a peer's package; None where it is not installed."""
    call = [python(peer), "-c", _INSTALLED, PEERS[peer][0]]
    done = subprocess.run(call, capture_output=True, text=True, env=_environment())
    return None if done.returncode else done.stdout.strip()


def ask(peer: str, rows: FloatArray, limit: float) -> tuple[float, FloatArray] | None:
    """Seconds and answer of a peer; None where it took longer than the limit or failed."""
    worker = Path(__file__).with_name("peer_worker.py")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rows.npy", Path(folder) / "answer.npy"
        np.save(source, rows, allow_pickle=False)
        call = [python(peer), str(worker), peer, str(source), str(target)]
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=limit, check=True, env=_environment())
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
            return None
        return json.loads(done.stdout)["seconds"], np.load(target, allow_pickle=False)


def _environment() -> dict[str, str]:
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | one
