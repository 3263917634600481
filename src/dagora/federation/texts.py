"""Texts in messages: a header has room for short ones only, so that longer ones travel as bytes."""

import numpy as np

from dagora.errors import MessageError
from dagora.federated.message import Message, Value


def boxed(text: str) -> Value:
    """A text of any length as a field."""
    return np.frombuffer(text.encode(), np.uint8)


def text_in(message: Message, name: str) -> str:
    """Take a text out of a message, or say that it is missing."""
    value = message.get(name)
    try:
        if isinstance(value, np.ndarray) and value.dtype == np.uint8:
            return value.tobytes().decode()
        if isinstance(value, str):
            return value
    except UnicodeDecodeError:
        pass
    raise MessageError(f"message refused: no text {name!r} in it")
