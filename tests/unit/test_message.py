"""The codec: what goes in comes out, and bytes that are no message are refused in one line."""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dagora
from dagora.errors import MessageError
from dagora.federated.message import MAX_FIELDS, MAX_HEADER, Message, array, decode, encode, number

MAGIC = b"DAGORA1\n"


def raw(header: Any, body: bytes = b"") -> bytes:
    """A message with any header: an object to be written as JSON, or bytes as they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return MAGIC + struct.pack("<I", len(text)) + text + body


def refused(data: bytes, **limits: int) -> str:
    with pytest.raises(MessageError) as caught:
        decode(data, **limits)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    return text


EXAMPLE: Message = {
    "phase": "round",
    "W": np.arange(6.0).reshape(2, 3),
    "n": 7,
    "rho": 0.5,
    "flags": np.arange(3, dtype=np.uint8),
}


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64, np.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (3, 0, 2), (1, 2, 1, 2)])
def test_arrays_come_back(dtype: type, shape: tuple[int, ...]) -> None:
    values: npt.NDArray[Any] = (np.arange(np.prod(shape, dtype=int)) + 3).astype(dtype).reshape(shape)
    back = decode(encode({"values": values}))["values"]
    assert isinstance(back, np.ndarray)
    assert back.dtype == dtype
    assert back.shape == shape
    np.testing.assert_array_equal(back, values)


def test_every_bit_of_a_double_comes_back() -> None:
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, np.nextafter(1.0, 2.0)])
    back = decode(encode({"values": values}))["values"]
    assert isinstance(back, np.ndarray)
    assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", [">f8", ">i8", ">u8"])
def test_byte_order_is_settled(dtype: str) -> None:
    values = np.arange(6).astype(dtype)
    back = decode(encode({"values": values}))["values"]
    assert isinstance(back, np.ndarray)
    assert back.dtype.str == "<" + dtype[1:]
    np.testing.assert_array_equal(back, values)


def test_memory_layout_is_settled() -> None:
    values = np.arange(24.0).reshape(4, 6)
    for view in (values.T, values[::2, ::-1], np.asfortranarray(values), np.broadcast_to(values[0], (3, 6))):
        np.testing.assert_array_equal(decode(encode({"values": view}))["values"], view)
        assert encode({"values": view}) == encode({"values": view.copy(order="C")})


@pytest.mark.parametrize("value", [0, -1, 2**63, 1.5, -0.0, 1e-308, True, False, "", "text", "é\n\0😀", "\ud800"])
def test_scalars_and_texts_come_back_as_they_are(value: float | str) -> None:
    back = decode(encode({"value": value}))["value"]
    assert type(back) is type(value)
    assert repr(back) == repr(value)  # tells -0.0 from 0.0


def test_fields_keep_their_names_and_order() -> None:
    assert list(decode(encode(EXAMPLE))) == list(EXAMPLE)
    assert decode(encode({})) == {}


def test_received_arrays_cannot_be_written_to() -> None:
    W = array(decode(encode(EXAMPLE)), "W")
    with pytest.raises(ValueError, match="read-only"):
        W[0, 0] = 1.0


def test_equal_messages_give_equal_bytes() -> None:
    assert encode(EXAMPLE) == encode(dict(EXAMPLE))


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2, dtype=np.float32), np.zeros(2, dtype=bool), np.array(["a"]), np.array([object()]),
        np.zeros(2, dtype=complex), None, [1.0], {"a": 1}, b"bytes", object(), np.nan, np.inf, -np.inf,
    ],
)  # fmt: skip
def test_what_is_no_value_is_not_sent(value: Any) -> None:
    with pytest.raises(MessageError) as caught:
        encode({"value": value})
    assert "\n" not in str(caught.value)


def test_too_many_fields_or_too_long_a_header_are_not_sent() -> None:
    encode({str(i): 0 for i in range(MAX_FIELDS)})
    with pytest.raises(MessageError, match="limits"):
        encode({str(i): 0 for i in range(MAX_FIELDS + 1)})
    with pytest.raises(MessageError, match="limits"):
        encode({"text": "x" * MAX_HEADER})


def test_what_is_sent_can_be_received() -> None:
    values = np.zeros((1,) * 9)
    try:
        data = encode({"values": values})
    except MessageError:
        return
    decode(data)


def test_every_truncation_is_refused() -> None:
    data = encode(EXAMPLE)
    for length in range(len(data)):
        refused(data[:length])


def test_left_over_bytes_are_refused() -> None:
    assert "left over" in refused(encode(EXAMPLE) + b"\0")


def test_another_start_is_refused() -> None:
    for data in (b"", b"DAGORA2\n" + encode(EXAMPLE)[8:], b"\x80\x04" + encode(EXAMPLE), b"{}", MAGIC):
        refused(data)


def test_a_header_beyond_the_bytes_or_the_limit_is_refused() -> None:
    refused(MAGIC + struct.pack("<I", 3) + b"{}")
    refused(MAGIC + struct.pack("<I", 2**32 - 1) + b"{}")
    refused(raw(b'{"text":"' + b"x" * MAX_HEADER + b'"}'))


def test_size_limit_is_the_callers() -> None:
    data = encode(EXAMPLE)
    assert decode(data, max_bytes=len(data)).keys() == EXAMPLE.keys()
    assert "limit" in refused(data, max_bytes=len(data) - 1)


BAD_HEADERS = {
    "not text": b"\xff\xfe\xfd",
    "not JSON": b"{",
    "trailing text": b"{} {}",
    "a list": b"[]",
    "a number": b"3",
    "null": b"null",
    "null field": {"a": None},
    "object field": {"a": {}},
    "empty list field": {"a": []},
    "repeated field": b'{"a":1,"a":2}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":Infinity}',
    "-Infinity": b'{"a":-Infinity}',
    "an endless integer": b'{"a":' + b"9" * 5000 + b"}",
    "deep nesting": b'{"a":' + b"[" * 30000 + b"]" * 30000 + b"}",
    "deep objects": b'{"a":' * 10000 + b"1" + b"}" * 10000,
    "too many fields": {str(i): 0 for i in range(MAX_FIELDS + 1)},
    "type that is no text": {"a": [8, 2]},
    "type that is a list": {"a": [["<f8"], 0]},
    "type of objects": {"a": ["|O", 0]},
    "type of floats we do not send": {"a": ["<f4", 0]},
    "big-endian type": {"a": [">f8", 0]},
    "type with a structure": {"a": ["<f8,<f8", 0]},
    "negative size": {"a": ["<f8", -1]},
    "two negative sizes": {"a": ["<f8", -1, -1]},
    "size that is no integer": {"a": ["<f8", 1.0]},
    "size that is true": {"a": ["<f8", True]},
    "size that is text": {"a": ["<f8", "1"]},
    "size that is a list": {"a": ["<f8", [1]]},
    "size of 2**62": {"a": ["<f8", 2**62]},
    "size of 2**64": {"a": ["<f8", 2**64]},
    "sizes that overflow to zero": {"a": ["<f8", 2**32, 2**32]},
    "sizes within the limit, product far beyond": {"a": ["<f8"] + [2**29] * 8},
    "nine dimensions": {"a": ["<f8"] + [0] * 9},
    "missing body": {"a": ["|u1", 1]},
}  # fmt: skip


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_malformed_headers_are_refused(header: Any) -> None:
    refused(raw(header))
    refused(raw(header, bytes(8)))  # one number's worth: no size but 1 is right


def test_numbers_beyond_double_precision_are_refused() -> None:
    refused(raw(b'{"a":1e999}'))


def test_empty_arrays_of_absurd_shape_are_refused() -> None:
    refused(raw({"a": ["<f8", 0, 2**30, 2**30, 2**30]}))


def test_absurd_sizes_cost_no_memory() -> None:
    data = raw({"a": ["<f8", 2**27]})  # one gigabyte, if it were believed
    tracemalloc.start()
    refused(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_fields_are_taken_by_type() -> None:
    message = decode(encode(EXAMPLE))
    np.testing.assert_array_equal(array(message, "W"), np.arange(6.0).reshape(2, 3))
    assert number(message, "n") == 7.0
    assert number(message, "rho") == 0.5
    for name in ("phase", "n", "flags", "absent"):
        with pytest.raises(MessageError, match=name):
            array(message, name)
    for name in ("phase", "W", "absent"):
        with pytest.raises(MessageError, match=name):
            number(message, name)


def test_an_integer_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(MessageError):
        number(decode(raw(b'{"n":1' + b"0" * 400 + b"}")), "n")


def test_no_source_file_mentions_the_module_that_runs_what_it_reads() -> None:
    sources = list(Path(dagora.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    assert [path.name for path in sources if "pickle" in path.read_text(encoding="utf-8")] == []
