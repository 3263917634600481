"""What `fuzz` does to valid inputs: to bytes, to text (JSON, mostly) and to messages, whose length it puts right again.

All take a source of randomness, the input and other valid inputs, and give back another input.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

import numpy as np

from dagora.federated.message import MAX_FIELDS, MAX_HEADER, decode, encode
from dagora.federation.texts import text_in

Mutation: TypeAlias = Callable[[Random, bytes, Sequence[bytes]], bytes]

_LONG = 4096  # bytes of text in which a token is looked for
_START = 12  # of a message's header, after the magic and its length


def blindly(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One of a few changes to bytes, whatever they mean; once or more often."""
    return _several(draw, data, others, draw.choice(_BLIND))


def as_text(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Numbers, words, strings and brackets give way to what a reader may not expect."""
    return _several(draw, data, others, _token) if draw.random() < 0.8 else blindly(draw, data, others)


def as_message(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """The header as text, with its length put right and often with as many bytes of arrays as it asks for."""
    kind = draw.random()
    if kind < 0.3:
        return blindly(draw, data, others)
    header, body = _parts(data)
    if kind < 0.4:
        return _framed(header, _parts(draw.choice(others))[1])
    header = as_text(draw, header, [_parts(other)[0] for other in others])
    return _framed(header, _fitting(header, body) if kind < 0.8 else body)


def as_text_within(draw: Random, data: bytes, others: Sequence[bytes], name: str) -> bytes:
    """The text in a field of the message, all else left as it is."""
    message, *rest = (decode(one) for one in (data, *others))
    text = as_text(draw, text_in(message, name).encode(), [text_in(one, name).encode() for one in rest])
    return encode({**message, name: np.frombuffer(text, np.uint8)})


def _several(draw: Random, data: bytes, others: Sequence[bytes], mutation: Mutation) -> bytes:
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        data = mutation(draw, data, others)
    return data


def _many(draw: Random, digits: float) -> int:
    """A number of up to so many digits, small ones as likely as large ones."""
    return int(10 ** draw.uniform(0, digits))


def _span(draw: Random, data: bytes) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(len(data), start + _many(draw, 2))


def _overwritten(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, stop = _span(draw, data)
    return data[:start] + draw.randbytes(stop - start) + data[stop:]


def _flipped(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data or b"\0")
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _lengths(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, size = draw.choice((0, 8, 16, draw.randrange(len(data) + 1))), draw.choice((1, 2, 4, 8))
    value = draw.choice((0, 1, 127, 128, 1 << 16, 1 << 30, (1 << 31) - 1, 1 << 31, 1 << 62, -1)) % (1 << 8 * size)
    return data[:start] + value.to_bytes(size, "little") + data[start + size :]


def _removed(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, stop = _span(draw, data)
    return data[:start] + data[stop:]


def _inserted(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, _ = _span(draw, data)
    return data[:start] + draw.randbytes(_many(draw, 2)) + data[start:]


def _repeated(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    (start, stop), (to, _) = _span(draw, data), _span(draw, data)
    return data[:to] + data[start:stop] * draw.choice((1, 2, 50)) + data[to:]


def _truncated(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _extended(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data + draw.randbytes(_many(draw, 3))


def _spliced(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = draw.choice(others)
    return data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]


def _random(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return draw.choice((b"", data[: _START - 4], data[:_START])) + draw.randbytes(_many(draw, 3))


_BLIND = (
    _overwritten, _flipped, _lengths, _removed, _inserted, _repeated, _truncated, _extended, _spliced, _random
)  # fmt: skip
_TOKEN = re.compile(rb'-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|"(?:[^"\\]|\\.)*"|[\[\]{}:,;]|\w+')
_NUMBERS = (
    b"-1", b"0", b"1", b"2", b"8", b"-0", b"+1", b"1_0", b"01", b"0.5", b"1.0", b"1e3", b"1e308", b"1e999", b"5e-324",
    b"NaN", b"Infinity", b"-Infinity", b"2147483648", b"4294967296", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551616", b"9" * 400, b"9" * 4300, b"9" * 4301, "٣".encode(),
    b"0,4611686018427387904,4611686018427387904", b"4294967296,4294967296", b"1,1,1,1,1,1,1,1,1", b"1," * 99 + b"1",
)  # fmt: skip
_STRINGS = (
    b'""', b'"a"', b'"<f8"', b'"<i8"', b'"<u8"', b'"|u1"', b'"|O"', b'">f8"', b'"<f4"', b'"<f8,<f8"', b'"\\ud800"',
    b'"\\u0000"', b'"\\ud83d\\ude00"', '"é😀"'.encode(), b'"a\\nb"', b'"run"', b'"round"', b'"layout"',
    b'"secure.step"', b'"gaussian"', b'"covariance"', b'"dynamic"', b'"mlp"', b'"sites"', b'"lam"',
)  # fmt: skip
_WORDS = (
    b"true", b"false", b"null", b"None", b"[]", b"{}", b'"a":1,"a"', b'["<f8",2,2]', b'["|u1",9]', b'["<f8",1,0]',
    b'["<f8",0,1073741824,1073741824]', b"[[[]]]", b'{"a":[1,{"b":null}]}', b"[1,2]", b'["a","a"]', b'{"a":[]}',
)  # fmt: skip
_UNITS = (b"[],", b"{},", b'{"":0},', b"[0],", b'"",', b"0.5,", b'"\\u00e9",', b"a:1;", b",", b'{"a":{"a":1}},')
_BRACKETS = ((b"[", b"]"), (b'{"a":', b"}"), (b"[{},", b"]"), (b"[0,[", b"]]"))


def _token(draw: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, stop = _some_token(draw, data)
    kind, first = draw.random(), data[start : start + 1]
    if kind < 0.4 and (first == b'"' or first.isdigit()):  # like for like: what surrounds it is valid still
        new = draw.choice(_STRINGS if first == b'"' else _NUMBERS)
    elif kind < 0.5:
        new = draw.choice((_nested, _swarm, _fields, _digits))(draw)
    elif kind < 0.6:
        other = draw.choice(others)
        new = other[slice(*_some_token(draw, other))]
    else:
        new = draw.choice((*_NUMBERS, *_STRINGS, *_WORDS))
    return data[:start] + new + data[stop if draw.random() < 0.9 else start :]


def _some_token(draw: Random, data: bytes) -> tuple[int, int]:
    start = draw.randrange(len(data)) if len(data) > _LONG else 0
    found = [match.span() for match in _TOKEN.finditer(data, start, start + _LONG)]
    values = [span for span in found if data[span[0]] not in b",:;[]{}"]
    return draw.choice((values if draw.random() < 0.8 else found) or [(0, 0)])


def _nested(draw: Random) -> bytes:
    depth, (left, right) = _many(draw, 4.3), draw.choice(_BRACKETS)
    return left * depth + draw.choice(_WORDS) + right * (depth if draw.random() < 0.8 else depth // 2)


def _swarm(draw: Random) -> bytes:
    """Much to be allocated for few bytes."""
    return draw.choice((b"[%b0]", b"%b")) % (draw.choice(_UNITS) * _many(draw, 4.1))


def _fields(draw: Random) -> bytes:
    count = draw.choice((2, MAX_FIELDS, MAX_FIELDS + 1, 2000))
    return b",".join(b'"%d":%b' % (i, draw.choice(_NUMBERS[:5])) for i in range(count)) + b',"last"'


def _digits(draw: Random) -> bytes:
    return draw.choice((b"", b"-", b"0.", b"1e")) + b"9" * _many(draw, 4.8)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    end = _START + int.from_bytes(data[_START - 4 : _START], "little")
    return data[_START:end], data[end:]


def _framed(header: bytes, body: bytes) -> bytes:
    return encode({})[: _START - 4] + len(header).to_bytes(4, "little") + header + body


def _fitting(header: bytes, body: bytes) -> bytes:
    """As many bytes as the header asks for, if it is valid and they are few."""
    try:
        arrays = [value for value in json.loads(header).values() if isinstance(value, list)]
        sizes = [(1 if kind == "|u1" else 8) * math.prod(map(_small, shape)) for kind, *shape in arrays]
    except (ValueError, AttributeError, RecursionError):
        return body
    return (body + bytes(sum(sizes)))[: sum(sizes)] if sum(sizes) < MAX_HEADER else body


def _small(size: object) -> int:
    if not isinstance(size, int) or not 0 <= size < MAX_HEADER:
        raise ValueError
    return size
