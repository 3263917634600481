"""How an attacker reads a reply: a plain summand as it is, a protected one as if its protection were not there.

If masks cancelled, keys were weak or a site forgot to protect its summand, these readings would be the summand.
Otherwise they are noise, and the attacks that use them show that they are.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from dagora.arrays import FloatArray
from dagora.errors import MessageError
from dagora.federated.message import Message, Value, decode
from dagora.federated.protocol import Summand, Total
from dagora.wide import without_low

_WORD = 2.0**64


def readings(reply: Message, like: Total) -> Summand:
    """A number for every entry of the total that the reply was added to, whatever the reply is made of."""
    content, like = opened(reply), without_low(like)
    shapes = {name: values.shape for name, values in like.items()}
    if all(_fits(content.get(name), shape) for name, shape in shapes.items()):
        return {name: _numbers(content[name], shape) for name, shape in shapes.items()}
    return _split(_as_one_vector(content, sum(values.size for values in like.values())), shapes)


def opened(reply: Message) -> Mapping[str, Value]:
    """What is inside a signed or sealed envelope, if it opens."""
    body = reply.get("body")
    if not isinstance(body, np.ndarray):
        return reply
    try:
        return decode(body.tobytes())
    except MessageError:
        return reply


def _fits(value: Value | None, shape: tuple[int, ...]) -> bool:
    """Whether a field holds one float, or two words, for every entry."""
    if not isinstance(value, np.ndarray):
        return False
    return value.shape == shape if value.dtype.kind == "f" else value.shape == (2, *shape)


def _numbers(value: Value, shape: tuple[int, ...]) -> FloatArray:
    """Floats as they are; two words as a fixed-point number with 64 fractional bits, low word first."""
    assert isinstance(value, np.ndarray)
    if value.dtype.kind == "f":
        return np.nan_to_num(value.astype(np.float64))
    low, high = value.astype(np.uint64)
    numbers: FloatArray = high.view(np.int64).astype(np.float64) + low.astype(np.float64) / _WORD
    return numbers.reshape(shape)


def _as_one_vector(content: Mapping[str, Value], size: int) -> FloatArray:
    """All fields joined to two rows of words, or else any bytes there are, repeated or cut to the size wanted."""
    arrays = [value for value in content.values() if isinstance(value, np.ndarray)]
    for value in arrays:
        in_words = value.dtype.kind == "u" and value.dtype.itemsize == 8 and value.ndim == 2 and len(value) == 2
        if in_words and value.shape[1] in (size, size + 1):  # with or without a witness at the end
            return _numbers(value[:, :size], (size,))
    data = b"".join(np.ascontiguousarray(value).tobytes() for value in arrays)
    words = np.frombuffer(data[: len(data) // 8 * 8], np.int64)
    if len(words) == 0:
        return np.zeros(size)
    repeated: npt.NDArray[np.int64] = np.resize(words, size)
    return repeated / (_WORD / 2.0)


def _split(vector: FloatArray, shapes: Mapping[str, tuple[int, ...]]) -> Summand:
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    parts = np.split(vector, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
