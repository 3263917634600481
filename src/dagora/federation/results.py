"""A Result as bytes and back, so that an administrator has what `learn` would have given."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from dagora.confidence import Confidence
from dagora.errors import MessageError
from dagora.federated.message import Message, Value, decode, encode
from dagora.federated.run import Departure
from dagora.federation.texts import boxed, text_in
from dagora.gaussian_network import GaussianNetwork
from dagora.result import Result

_ARRAYS = ("weights", "adjacency")
_PARAMETERS = ("coefficients", "intercepts", "variances")
_OPTIONAL = ("identified", "lag_weights", "lag_adjacency")
_SHARES = ("edge", "arrow", "undirected", "lagged")


def to_bytes(result: Result) -> bytes:
    """All of it but fitted functions, which stay with the server's process."""
    about: dict[str, Any] = {
        "names": result.names,
        "history": [dict(entry) for entry in result.history],
        "ledger": [asdict(entry) for entry in result.ledger],
        "seconds": result.seconds,
        "settings": dict(result.settings),
        "warnings": result.warnings,
        "removed": [[int(i), int(j)] for i, j in result.removed],
        "sites": result.sites,
        "sortability": dict(result.sortability),
    }
    arrays = {name: getattr(result, name) for name in (*_ARRAYS, *_OPTIONAL)}
    if result.network is not None:
        arrays |= {f"network.{name}": getattr(result.network, name) for name in _PARAMETERS}
    if (sure := result.confidence) is not None:
        about["confidence"] = [sure.replicates, sure.failed]
        arrays |= {f"confidence.{name}": getattr(sure, name) for name in _SHARES}
    message: dict[str, Value] = {name: value for name, value in arrays.items() if value is not None}
    return encode({**message, "about": boxed(json.dumps(about))})


def from_bytes(data: bytes) -> Result:
    """The same result in another process."""
    message = decode(data)
    try:
        return _read(message)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise MessageError("message refused: it holds no result") from None


def _read(message: Message) -> Result:
    about = json.loads(text_in(message, "about"))
    arrays = {name: message[name] for name in (*_ARRAYS, *_OPTIONAL) if name in message}
    if not all(isinstance(value, np.ndarray) for value in arrays.values()):
        raise ValueError
    ledger = tuple(
        Departure(
            str(entry["phase"]),
            {name: tuple(map(int, shape)) for name, shape in entry["fields"].items()},
            *(int(entry[name]) for name in ("rounds", "sent", "received")),
        )
        for entry in about["ledger"]
    )
    parameters = [message.get(f"network.{name}") for name in _PARAMETERS]
    fitted = [np.array(value) for value in parameters if isinstance(value, np.ndarray) and value.dtype == np.float64]
    known: dict[str, Any] = {name: np.array(value) for name, value in arrays.items()}
    return Result(
        **known,
        names=tuple(about["names"]),
        history=tuple(map(dict, about["history"])),
        ledger=ledger,
        seconds=float(about["seconds"]),
        settings=dict(about["settings"]),
        site_rows={},  # the server never knew them
        warnings=tuple(about["warnings"]),
        removed=tuple((int(i), int(j)) for i, j in about["removed"]),
        sites=tuple(about["sites"]),
        sortability={str(kind): float(value) for kind, value in about["sortability"].items()},
        confidence=_confidence(message, about.get("confidence")),
        network=GaussianNetwork(tuple(about["names"]), *fitted) if len(fitted) == len(_PARAMETERS) else None,
    )


def _confidence(message: Message, counted: Any) -> Confidence | None:
    if counted is None:
        return None
    shares = {name: message.get(f"confidence.{name}") for name in _SHARES}
    known: dict[str, Any] = {name: np.array(value) for name, value in shares.items() if isinstance(value, np.ndarray)}
    replicates, failed = map(int, counted)
    return Confidence(replicates, failed, **known)
