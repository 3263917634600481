"""Laws of layouts: reading inverts writing, and whatever a site states is refused or can be made room for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dagora.aggregation.layout import MAX_NUMBERS, Layout, common_layout
from dagora.errors import MessageError
from dagora.federated.message import Value

pytestmark = pytest.mark.soak

NAMES = st.text("abcé_", max_size=3)
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
SIZES = st.sampled_from(["", "0", "1", "3", "-1", "+1", "01", "1_0", " 1", "٣", "4294967296", "9" * 30, "9" * 4301])
PARTS = st.tuples(NAMES, st.lists(SIZES, max_size=10).map(",".join)).map(":".join)
TEXTS = st.lists(PARTS, max_size=4).map(";".join) | st.text("a1,:;-", max_size=12) | st.text(max_size=9)
VALUES = (
    TEXTS
    | st.integers()
    | st.floats(allow_nan=False)
    | st.booleans()
    | arrays(np.float64, st.integers(0, 3), elements=st.floats(0, 1))
    | arrays(np.uint8, ())
)


@given(st.dictionaries(NAMES, SHAPES, min_size=1, max_size=4))
def test_reading_inverts_writing(shapes: dict[str, tuple[int, ...]]) -> None:
    layout = Layout(shapes)
    assert Layout.read(layout.text, "a") == layout
    split = layout.split(np.arange(float(layout.size)))
    assert Layout.of(split) == layout
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in split.values()]), np.arange(layout.size))


@given(TEXTS)
def test_what_is_read_can_be_made_room_for(text: str) -> None:
    try:
        layout = Layout.read(text, "a")
    except MessageError:
        return
    assert layout.text == text
    assert Layout.of(layout.split(np.zeros(layout.size))) == layout


@given(VALUES, VALUES)
def test_sites_agree_on_a_layout_or_are_named(mine: Value, yours: Value) -> None:
    try:
        layout = common_layout({"a": {"layout": mine}, "b": {"layout": yours}})
    except MessageError as error:
        refusal = str(error)
    else:
        assert layout.text == mine == yours
        return
    assert "'a'" in refusal or "'b'" in refusal


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a:1:1", "a:-1", "a:1;a:1", "a: 1", "a:1_0", "a:01", "a:" + "1," * 8 + "1", "a:4294967296,4294967296",
        "a:0,4611686018427387904,4611686018427387904", f"a:{MAX_NUMBERS + 1}", f"a:{MAX_NUMBERS};b:1",
    ],
)  # fmt: skip
def test_layouts_that_no_answer_can_have_are_refused(text: str) -> None:
    with pytest.raises(MessageError, match="site 'x' did not say"):
        Layout.read(text, "x")


def test_the_largest_layout_is_read() -> None:
    assert Layout.read(f"a:{MAX_NUMBERS}", "x").size == MAX_NUMBERS
