import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.errors import ValueNotSerializableError
from stagewright.json_values import child_path, require_json, text_problem

TEXT = st.text().filter(lambda text: "\x00" not in text)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_exact_json_is_returned_itself(value: object) -> None:
    assert require_json(value, what="a value") is value


class Text(str):
    __slots__ = ()


@pytest.mark.guarantee("values.exact-json-only")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "$.a[1]"),
        (math.inf, "$"),
        ({"a": (1,)}, "$.a"),
        ([{1}], "$[0]"),
        ({"a": {1: "x"}}, "$.a[1]"),
        ({"two words": Decimal(1)}, "$['two words']"),
        ("a\x00b", "$"),
        ({"a\x00": 1}, "$['a\\x00']"),
        (["\ud800"], "$[0]"),
        (b"bytes", "$"),
        ([Text("text")], "$[0]"),
        pytest.param(10**5000, "$", id="5001 digits"),
        pytest.param({10**5000: 1}, "$[an integer of hundreds of digits or more]", id="a key of 5001 digits"),
    ],
)
def test_anything_else_is_refused_with_its_path(value: object, path: str) -> None:
    with pytest.raises(ValueNotSerializableError) as caught:
        require_json(value, what="the input")
    assert caught.value.path == path
    assert str(caught.value).startswith("the input can't be stored: ")


def test_a_value_inside_itself_is_refused() -> None:
    value: dict[str, object] = {}
    value["again"] = [value]
    with pytest.raises(ValueNotSerializableError, match="contains itself"):
        require_json(value, what="the input")


def test_a_value_may_stand_twice_side_by_side() -> None:
    shared = [1]
    assert require_json({"a": shared, "b": shared}, what="the input") == {"a": [1], "b": [1]}


def test_nesting_has_a_limit() -> None:
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueNotSerializableError, match="128"):
        require_json(deep, what="the input")


def test_paths_read_like_json_paths() -> None:
    assert child_path("$", "name") == "$.name"
    assert child_path("$.orders", 2) == "$.orders[2]"
    assert child_path("$", "a-b") == "$['a-b']"


def test_text_that_every_store_holds_has_no_problem() -> None:
    assert text_problem("grün 🙂") is None
    assert text_problem("\ud800") is not None
