"""A summand as one vector, and a total back from one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dagora.arrays import FloatArray
from dagora.errors import MessageError
from dagora.federated.message import MAX_BYTES, MAX_DIMENSIONS, Value
from dagora.federated.protocol import Summand, Total
from dagora.wide import LOW, Wide, without_low

_WIDE = "~"

MAX_NUMBERS = MAX_BYTES // 16  # two words each: more would not fit into a message


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a summand's fields.  They travel openly: they follow from the method and the variables."""

    shapes: Mapping[str, tuple[int, ...]]
    wide: frozenset[str] = frozenset()  # fields with twice a double's digits (dagora/wide.py)

    @classmethod
    def of(cls, summand: Summand) -> "Layout":
        """As a summand has them."""
        whole = without_low(summand)
        wide = frozenset(name for name in whole if name + LOW in summand)
        return cls({name: np.shape(values) for name, values in whole.items()}, wide)

    @classmethod
    def read(cls, text: Value | None, site: str) -> "Layout":
        """As a site states them: in the words of `text`, and no more than it could send."""
        try:
            named = (part.split(":") for part in str(text).split(";"))
            shapes = {name: tuple(map(int, sizes.split(",") if sizes else ())) for name, sizes in named}
            wide = frozenset(name.removesuffix(_WIDE) for name in shapes if name.endswith(_WIDE))
            found = cls({name.removesuffix(_WIDE): shape for name, shape in shapes.items()}, wide)
            plain = not any(_WIDE in name or name.endswith(LOW) for name in found.shapes)
            if isinstance(text, str) and found.text == text and plain and _possible(found):
                return found
        except ValueError:
            pass
        raise MessageError(f"site {site!r} did not say what its answer consists of; stop it")

    @property
    def text(self) -> str:
        """For a message: "rows:;sum~:5;squares~:5,5", with a mark at fields that are wide."""
        marked = {name: name + _WIDE * (name in self.wide) for name in self.shapes}
        return ";".join(f"{marked[name]}:{','.join(map(str, shape))}" for name, shape in self.shapes.items())

    @property
    def size(self) -> int:
        """How many numbers."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    @property
    def length(self) -> int:
        """How many numbers travel: these, and the witness that ends them (encoding.py)."""
        return self.size + 1

    def total(self, found: Wide) -> Total:
        """The fields again, with all digits of those that are wide."""
        whole, below = self.split(found.high), self.split(found.low)
        return {**whole, **{name + LOW: below[name] for name in self.wide}}

    def split(self, vector: FloatArray) -> Total:
        """Numbers by field."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        parts = zip(self.shapes.items(), np.split(vector, ends[:-1]), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in parts}


def common_layout(contents: Mapping[str, Mapping[str, Value]]) -> Layout:
    """The layout that all sites state, or an error that names one that differs."""
    (first, layout), *others = ((site, Layout.read(content.get("layout"), site)) for site, content in contents.items())
    for site, other in others:
        if other.text != layout.text:
            raise MessageError(f"site {site!r} answered with other fields or shapes than site {first!r}; stop it")
    return layout


def _possible(layout: Layout) -> bool:
    """Whether there can be such arrays; empty ones, too, have shapes that numpy cannot index."""
    shapes = layout.shapes.values()
    if any(len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0 for shape in shapes):
        return False
    return sum(math.prod(max(size, 1) for size in shape) for shape in shapes) <= MAX_NUMBERS
