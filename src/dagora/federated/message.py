"""Messages as bytes: a JSON header that lists the fields, then the arrays' raw little-endian values.

    b"DAGORA1\\n" | header length, 4 bytes | header | arrays, in the header's order

A field is an array of float64, int64, uint64 or uint8, a finite number, a boolean or a string.  Decoding never runs
code, allocates nothing that the received bytes do not pay for, and gives arrays that cannot be written to.
"""

import json
import math
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dagora.errors import MessageError

Value: TypeAlias = npt.NDArray[Any] | float | int | str
Message: TypeAlias = Mapping[str, Value]

MAX_BYTES = 1 << 30  # one message; a 10,000 x 10,000 matrix of doubles fits
MAX_HEADER = 1 << 16
MAX_FIELDS = 64
MAX_DIMENSIONS = 8

_MAGIC = b"DAGORA1\n"
_START = len(_MAGIC) + 4
_ALIGNMENT = 16  # of the first array: where numbers lie must not depend on the header, as the order of sums may on it
_DTYPES = {code: np.dtype(code) for code in ("<f8", "<i8", "<u8", "|u1")}


def encode(message: Message) -> bytes:
    """Turn a message into bytes; the same message gives the same bytes."""
    header: dict[str, Any] = {}
    body: list[memoryview] = []
    for name, value in message.items():
        if isinstance(value, np.ndarray):
            little = value.dtype.newbyteorder("<") if value.dtype.byteorder == ">" else value.dtype
            if little.str not in _DTYPES or value.ndim > MAX_DIMENSIONS:
                kind = f"{value.ndim}-D arrays of {value.dtype.name}"
                raise MessageError(f"field {name!r}: {kind} are not sent; convert it")
            header[name] = [little.str, *value.shape]
            body.append(np.ascontiguousarray(value, little).reshape(-1).view(np.uint8).data)
        elif isinstance(value, bool | int | float | str):
            header[name] = value
        else:
            raise MessageError(f"field {name!r}: a {type(value).__name__} is not sent; use arrays, numbers, text")
    try:
        text = _ENCODER.encode(header).encode()
    except ValueError:
        raise MessageError("a number in the message is not finite; check the computation that made it") from None
    text += b" " * (-(_START + len(text)) % _ALIGNMENT)
    data = b"".join([_MAGIC, struct.pack("<I", len(text)), text, *body])
    if len(header) > MAX_FIELDS or len(text) > MAX_HEADER or len(data) > MAX_BYTES:
        raise MessageError(f"the message is over the limits: {len(header)} fields, {len(data)} bytes")
    return data


def decode(data: bytes, max_bytes: int = MAX_BYTES) -> dict[str, Value]:
    """Turn bytes back into a message, or say in one line why they are not one."""
    if len(data) > max_bytes:
        raise MessageError(f"message refused: {len(data)} bytes, over the limit of {max_bytes}")
    if data[: len(_MAGIC)] != _MAGIC or len(data) < _START:
        raise MessageError("message refused: it does not start as a Dagora message")
    (length,) = struct.unpack("<I", data[len(_MAGIC) : _START])
    if length > min(MAX_HEADER, len(data) - _START):
        raise MessageError("message refused: its header is cut off or too long")
    header = _header(data[_START : _START + length])
    message: dict[str, Value] = {}
    offset = _START + length
    for name, value in header.items():
        if isinstance(value, list):
            message[name], offset = _array(name, value, data, offset)
        elif isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
            message[name] = value
        else:
            raise MessageError("message refused: a field is neither an array, a finite number nor text")
    if offset != len(data):
        raise MessageError("message refused: bytes are left over after the last field")
    return message


def array(message: Message, name: str) -> npt.NDArray[np.float64]:
    """Take a float array out of a message, or say that it is missing."""
    value = message.get(name)
    if not isinstance(value, np.ndarray) or value.dtype != np.float64:
        raise MessageError(f"message refused: no float array {name!r} in it")
    return value


def number(message: Message, name: str) -> float:
    """Take a number out of a message, or say that it is missing."""
    value = message.get(name)
    try:
        return float(value) if isinstance(value, int | float) else _refuse(name)
    except (ValueError, OverflowError):
        raise MessageError(f"message refused: no number {name!r} in it") from None


@lru_cache(maxsize=32)  # most messages of a run share a few headers
def _header(text: bytes) -> dict[str, Any]:
    try:
        header = _DECODER.decode(text.decode())
    except (ValueError, RecursionError):
        raise MessageError("message refused: its header is not valid") from None
    if not isinstance(header, dict) or len(header) > MAX_FIELDS:
        raise MessageError("message refused: its header is not a list of fields, or has too many")
    return header


def _array(name: str, layout: list[Any], data: bytes, offset: int) -> tuple[npt.NDArray[Any], int]:
    kind, shape = (layout[0], layout[1:]) if layout else (None, [])
    valid = all(type(size) is int and 0 <= size <= MAX_BYTES for size in shape)
    if not isinstance(kind, str) or kind not in _DTYPES or not valid or len(shape) > MAX_DIMENSIONS:
        raise MessageError("message refused: an array's type or shape is not valid")
    dtype, count = _DTYPES[kind], math.prod(shape)
    end = offset + count * dtype.itemsize
    if end > len(data):
        raise MessageError("message refused: an array is cut off")
    if count == 0 and math.prod(max(size, 1) for size in shape) > MAX_BYTES:  # more than numpy can index
        raise MessageError("message refused: an array's type or shape is not valid")
    # frombuffer shares the message's memory and is read-only: nothing is copied.
    return np.frombuffer(data, dtype=dtype, count=count, offset=offset).reshape(shape), end


def _refuse(what: str) -> float:
    raise ValueError(what)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field appears twice")
    return fields


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_without_repeats)
