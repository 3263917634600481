"""Laws of the codec: decode inverts encode, and no bytes whatever raise anything but MessageError."""

import json
import struct

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dagora.errors import MessageError
from dagora.federated.message import Message, decode, encode

pytestmark = pytest.mark.soak

ARRAYS = st.sampled_from(["<f8", ">f8", "<i8", ">i8", "<u8", ">u8", "|u1"]).flatmap(
    lambda code: arrays(np.dtype(code), array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
)
SCALARS = (
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9)
)
MESSAGES = st.dictionaries(st.text(max_size=9), ARRAYS | SCALARS, max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
SIZES = st.integers(-2, 9) | st.sampled_from([2**28, 2**30, 2**31, 2**32, 2**62, 2**63, 2**64, 10**400])
LAYOUTS = st.tuples(st.sampled_from(["<f8", "<i8", "<u8", "|u1", "|O", "<f4"]), st.lists(SIZES, max_size=3))


def refused_or_sound(data: bytes) -> None:
    """Decode; what is accepted must be a message that can be sent again with the same content."""
    try:
        message = decode(data)
    except MessageError as error:
        refusal = str(error)
    else:
        assert same(decode(encode(message)), message)
        return
    assert len(refusal.splitlines()) == 1


def same(left: Message, right: Message) -> bool:
    return list(left) == list(right) and all(equal(left[name], right[name]) for name in left)


def equal(a: npt.NDArray[np.generic] | float | str, b: npt.NDArray[np.generic] | float | str) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        native = b.dtype.newbyteorder("<")
        return a.dtype == native and a.shape == b.shape and a.tobytes() == b.astype(native).tobytes()
    return type(a) is type(b) and repr(a) == repr(b)


def framed(text: bytes, body: bytes) -> bytes:
    return b"DAGORA1\n" + struct.pack("<I", len(text)) + text + body


@given(MESSAGES)
def test_decoding_inverts_encoding(message: Message) -> None:
    assert same(decode(encode(message)), message)


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    refused_or_sound(data)


@given(st.binary(max_size=100), st.binary(max_size=50))
def test_arbitrary_headers(text: bytes, body: bytes) -> None:
    refused_or_sound(framed(text, body))


@given(JSON, st.binary(max_size=50))
def test_headers_of_any_json(header: object, body: bytes) -> None:
    refused_or_sound(framed(json.dumps(header).encode(), body))


@given(st.dictionaries(st.text(max_size=3), LAYOUTS, max_size=3), st.binary(max_size=80))
def test_headers_that_nearly_describe_the_body(layouts: dict[str, tuple[str, list[int]]], body: bytes) -> None:
    header = {name: [code, *shape] for name, (code, shape) in layouts.items()}
    refused_or_sound(framed(json.dumps(header).encode(), body))


@given(MESSAGES, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_mutated_messages(message: Message, changes: list[tuple[int, int]]) -> None:
    data = bytearray(encode(message))
    for place, value in changes:
        data[place % len(data)] = value
    refused_or_sound(bytes(data))


@given(MESSAGES, st.integers(0, 10**6), st.integers(0, 10**6), st.binary(max_size=9))
def test_spliced_messages(message: Message, start: int, stop: int, new: bytes) -> None:
    data = encode(message)
    start, stop = sorted((start % (len(data) + 1), stop % (len(data) + 1)))
    refused_or_sound(data[:start] + new + data[stop:])
