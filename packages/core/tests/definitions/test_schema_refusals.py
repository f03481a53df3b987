"""What can't be kept is refused at once, with the path inside the value."""

import dataclasses
import io
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ForwardRef, NamedTuple

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from stagewright.definitions import Schema
from stagewright.errors import DefinitionError, SchemaMismatchError, ValueNotSerializableError


class Base(BaseModel):
    x: int = 0


class Sub(Base):
    y: int = 1


class Bare(Base):
    pass


class Holder(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = "h"
    thing: Any = None
    base: Base = Base()


class Dropped(BaseModel):
    kept: int = 1
    dropped: int = Field(default=1, exclude=True)


class Lopsided(BaseModel):
    x: int = Field(validation_alias="in", serialization_alias="out")


class Audited(BaseModel):
    x: int = 0
    _audit: list[str] = PrivateAttr(default_factory=list)


class Fee(TypedDict):
    amount: int


@dataclasses.dataclass
class Point:
    x: float


@dataclasses.dataclass
class Loose:
    x: int = 0


class Pair(NamedTuple):
    left: object
    right: object


class Typed(NamedTuple):
    number: int


class Prickly:
    __hash__ = None  # type: ignore[assignment]  # it has an equality of its own

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Prickly):
            raise RuntimeError("don't compare me")
        return NotImplemented


def numbers() -> Iterator[int]:
    yield 1


def audited() -> Audited:
    value = Audited()
    value._audit = ["approved"]
    return value


def loosened() -> Loose:
    value = Loose()
    value.note = "approved"  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # on purpose
    return value


HUGE = 10**5000

REFUSED: list[tuple[str, object, object, str]] = [
    ("NaN", float, float("nan"), "$"),
    ("infinity in a model", Holder, Holder(thing=[float("inf")]), "$.thing[0]"),
    ("NaN under Any", Any, {"a": [float("nan")]}, "$.a[0]"),
    ("tuple under Any", Any, {"a": (1, 2)}, "$.a"),
    ("set under Any", Any, [{1}], "$[0]"),
    ("Decimal under Any", Any, Decimal("1.1"), "$"),
    ("datetime under Any", Any, datetime(2026, 1, 1), "$"),  # noqa: DTZ001 - naive on purpose
    ("bytes under Any", Any, b"x", "$"),
    ("model under Any", Any, {"a": Base()}, "$.a"),
    ("tuple in a bare dict", dict, {"a": (1,)}, "$.a"),
    ("integer key in a bare dict", dict, {1: "a"}, "$[1]"),
    ("integer key under Any", Any, {"a": {1: "a"}}, "$.a[1]"),
    ("subclass with more fields", Base, Sub(), "$"),
    ("subclass without more fields", Base, Bare(), "$"),
    ("subclass in a list", list[Base], [Base(), Sub()], "$[1]"),
    ("subclass in a field", Holder, Holder(base=Sub()), "$.base"),
    ("Decimal for a float", float, Decimal("1.1"), "$"),
    ("tuple for a list", list[int], (1, 2), "$"),
    ("set for a list", dict[str, list[int]], {"a": {1}}, "$.a"),
    ("NUL", str, "a\x00b", "$"),
    ("NUL in a model", Holder, Holder(name="\x00"), "$.name"),
    ("lone surrogate", list[str], ["\ud800"], "$[0]"),
    ("excluded field", Dropped, Dropped(dropped=2), "$.dropped"),
    ("secret", SecretStr, SecretStr("hunter2"), "$"),
    ("lambda", Any, {"f": [lambda: 1]}, "$.f[0]"),
    ("function in a model", Holder, Holder(thing=numbers), "$.thing"),
    ("generator", list[int], numbers(), "$"),
    ("generator in a dataclass field", list[Any], [Point(numbers())], "$[0].x"),  # type: ignore[arg-type]  # wrong
    ("iterator", Any, iter([1]), "$"),
    ("bytes buffer", Any, {"file": io.BytesIO()}, "$.file"),
    ("object", Any, [object()], "$[0]"),
    ("class", Any, {"a": int}, "$.a"),
    ("private attribute", list[Audited], [audited()], "$[0]._audit"),
    ("attribute beside the fields", Loose, loosened(), "$.note"),
    ("huge key", dict[int, int], {HUGE: 1}, "$[an integer of hundreds of digits or more]"),
    ("surrogate in a key", dict[str, int], {"\ud800": 1}, "$['\\ud800']"),
]

RETURNED: list[tuple[str, object, object, str]] = [
    ("text for bytes", bytes, "test", "$"),
    ("text for bytes in a dict", dict[str, bytes], {"a": "test"}, "$.a"),
    ("text for an integer", int, "5", "$"),
    ("text for a truth value", bool, "no", "$"),
    ("text for a date", list[datetime], ["2026-03-01T00:00:00Z"], "$[0]"),
    ("text for a field", Base, {"x": "5"}, "$.x"),
    ("text that a validator changes", Annotated[str, StringConstraints(strip_whitespace=True)], " a ", "$"),
    ("truth value for an integer", list[int], [1, True], "$[1]"),
    ("truth value for a float", float, True, "$"),
    ("float for an integer", int, 5.0, "$"),
    ("integer that no float is", float, 2**53 + 1, "$"),
    ("integer that no float is, in a field", Point, {"x": 2**53 + 1}, "$.x"),
    ("integer for a Decimal", Decimal, 5, "$"),
    ("list for a set", set[int], [1, 1, 2], "$"),
    ("list for a tuple", dict[str, tuple[int, int]], {"a": [1, 2]}, "$.a"),
    ("member of a set", set[int], {"1"}, "$"),
    ("member of a named tuple", Typed, Typed("1"), "$[0]"),  # type: ignore[arg-type]  # wrong on purpose
    ("key of a dict", dict[int, str], {"1": "a"}, "$['1']"),
    ("key that a typed dict lacks", Fee, {"amount": 1, "fee": 250}, "$.fee"),
    ("key that a typed dict in a list lacks", list[Fee], [{"amount": 1, "fee": 250}], "$[0].fee"),
    ("key that a model lacks", Base, {"x": 1, "fee": 250}, "$.fee"),
    ("key that a model in a model lacks", Holder, {"base": {"y": 1}}, "$.base.y"),
    ("key that a dataclass lacks", Point, {"x": 1.5, "y": 1}, "$.y"),
    ("dict for an ordered dict", OrderedDict[str, int], {"a": 1}, "$"),
]


@pytest.mark.guarantee("values.nothing-parsed-on-the-way-out")
@pytest.mark.parametrize(
    ("annotation", "value", "path"), [case[1:] for case in RETURNED], ids=[case[0] for case in RETURNED]
)
def test_what_a_body_returns_is_not_parsed_into_something_else(
    annotation: object, value: object, path: str
) -> None:
    with pytest.raises(ValueNotSerializableError) as caught:
        Schema.of(annotation).dump(value, what="x")
    assert caught.value.path == path


@pytest.mark.guarantee("values.refused-with-its-path")
@pytest.mark.parametrize("annotation", [int, float, Any, object, Decimal, list[int], Base])
def test_an_integer_that_no_store_reads_is_refused_with_its_path(annotation: object) -> None:
    cases: dict[object, tuple[object, str]] = {
        list: ([1, HUGE], "$[1]"),
        dict: ({"x": HUGE}, "$.x"),
        int: (HUGE, "$"),
    }
    kind = list if annotation == list[int] else dict if annotation is Base else int
    value, path = cases[kind]
    for attempt in (Schema.of(annotation).accept, Schema.of(annotation).dump):
        with pytest.raises(ValueNotSerializableError) as caught:
            attempt(value, what="x")
        assert caught.value.path == path
        if annotation is not Decimal:
            assert "more than 4,200 digits" in caught.value.problem
    with pytest.raises(ValueNotSerializableError, match="more than 4,200 digits"):
        Schema.of(Base).dump(Base(x=10**4250), what="x")


@pytest.mark.guarantee("values.refused-with-its-path")
@pytest.mark.parametrize(
    ("annotation", "value", "path"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_would_change_is_refused_with_its_path(annotation: object, value: object, path: str) -> None:
    with pytest.raises(ValueNotSerializableError) as caught:
        Schema.of(annotation).dump(value, what="the output of stage 'price'")
    assert caught.value.path == path
    assert str(caught.value).startswith("the output of stage 'price' can't be stored: ")
    with pytest.raises((ValueNotSerializableError, SchemaMismatchError)):
        Schema.of(annotation).accept(value, what="the input")


@pytest.mark.guarantee("values.refused-with-its-path")
def test_an_open_file_is_refused_and_stays_open(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+") as file:
        with pytest.raises(ValueNotSerializableError) as caught:
            Schema.of(dict[str, Any]).dump({"log": file}, what="x")
        assert not file.closed
    assert caught.value.path == "$.log"


def test_a_refused_generator_is_not_used_up() -> None:
    waiting = numbers()
    with pytest.raises(ValueNotSerializableError):
        Schema.of(list[int]).dump(waiting, what="x")
    assert next(waiting) == 1


async def test_a_coroutine_is_refused() -> None:
    async def work() -> None: ...

    coroutine = work()
    with pytest.raises(ValueNotSerializableError):
        Schema.of(Any).dump({"later": coroutine}, what="x")
    await coroutine


@pytest.mark.guarantee("values.refused-with-its-path")
@pytest.mark.parametrize("annotation", [Any, list, list[Any], object, Holder])
def test_a_value_inside_itself_is_refused(annotation: object) -> None:
    loop: list[object] = []
    loop.append({"again": loop})
    value: object = loop if annotation is not Holder else Holder.model_construct(thing=loop)
    with pytest.raises(ValueNotSerializableError, match="contains itself"):
        Schema.of(annotation).dump(value, what="x")


def test_a_value_nested_without_end_is_refused() -> None:
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(ValueNotSerializableError, match="128"):
        Schema.of(Any).dump(deep, what="x")
    with pytest.raises(ValueNotSerializableError, match="128"):
        Schema.of(list[Any]).dump([*deep, Pair(1, 2)], what="x")


def test_fields_that_are_written_under_another_name_are_refused() -> None:
    value = Lopsided.model_validate({"in": 1})
    with pytest.raises(ValueNotSerializableError, match="can't be read back"):
        Schema.of(Lopsided).dump(value, what="x")


@pytest.mark.guarantee("values.refused-with-its-path")
def test_a_serializer_that_raises_ends_in_the_same_error() -> None:
    class Broken(BaseModel):
        fine: int = 1
        bad: int = 2

        @field_serializer("bad")
        def write(self, value: int) -> int:
            raise RuntimeError("disk on fire")

    with pytest.raises(ValueNotSerializableError, match="disk on fire") as caught:
        Schema.of(list[Broken]).dump([Broken()], what="x")
    assert caught.value.path == "$[0]"


def test_a_serializer_that_loses_something_is_refused() -> None:
    class Rounded(BaseModel):
        x: float

        @field_serializer("x")
        def write(self, value: float) -> float:
            return round(value)

    assert Schema.of(Rounded).dump(Rounded(x=2.0), what="x") == {"x": 2.0}
    with pytest.raises(ValueNotSerializableError) as caught:
        Schema.of(Rounded).dump(Rounded(x=2.5), what="x")
    assert caught.value.path == "$.x"


def test_a_type_without_equality_is_compared_by_its_attributes() -> None:
    class Handle:
        def __init__(self, number: int) -> None:
            self.number = number

    class Holding(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        handle: Handle

        @field_validator("handle", mode="before")
        @classmethod
        def read(cls, value: object) -> object:
            return Handle(value) if isinstance(value, int) else value

        @field_serializer("handle")
        def write(self, value: Handle) -> int:
            return value.number if value.number < 10 else 0

    schema = Schema.of(Holding)
    assert schema.keep(Holding(handle=Handle(3)), what="x")[1].handle.number == 3
    with pytest.raises(ValueNotSerializableError, match="give the type an __eq__"):
        schema.dump(Holding(handle=Handle(30)), what="x")


@pytest.mark.guarantee("values.mismatch-lists-problems")
def test_a_value_that_does_not_fit_lists_every_problem() -> None:
    class Line(BaseModel):
        sku: str
        amount: int

    class Order(BaseModel):
        model_config = ConfigDict(extra="forbid")
        lines: list[Line]
        note: str | None = None

    schema = Schema.of(Order)
    value = {"lines": [{"sku": 1, "amount": "many"}, {"sku": "a"}], "extra": 1}
    for attempt in (schema.accept, schema.dump, schema.load):
        with pytest.raises(SchemaMismatchError) as caught:
            attempt(value, what="the input of workflow 'orders'")  # type: ignore[arg-type]  # json for load
        paths = sorted(problem.path for problem in caught.value.problems)
        assert paths == ["$.extra", "$.lines[0].amount", "$.lines[0].sku", "$.lines[1].amount"]
        assert "the input of workflow 'orders'" in str(caught.value)


def test_the_branch_of_a_union_is_no_part_of_the_path() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        Schema.of(dict[str, int | list[int]]).load({"a": ["x"]}, what="x")
    assert [problem.path for problem in caught.value.problems] == ["$.a", "$.a[0]"]
    assert "(as int)" in caught.value.problems[0].message


def test_a_validator_that_raises_anything_is_a_mismatch() -> None:
    class Odd(BaseModel):
        x: int

        @model_validator(mode="after")
        def check(self) -> "Odd":
            raise KeyError("no such thing")

    with pytest.raises(SchemaMismatchError, match="KeyError"):
        Schema.of(Odd).load({"x": 1}, what="x")
    with pytest.raises(SchemaMismatchError, match="KeyError"):
        Schema.of(Odd).dump({"x": 1}, what="x")


def test_an_instance_that_was_changed_to_something_else_is_refused() -> None:
    value: Base = Base()
    value.x = "not a number"  # type: ignore[assignment]  # wrong on purpose
    with pytest.raises(ValueNotSerializableError) as caught:
        Schema.of(Base).dump(value, what="x")
    assert caught.value.path == "$.x"


def test_a_caller_may_give_exact_json_or_rich_values() -> None:
    class Order(BaseModel):
        placed: datetime
        amounts: list[float] = []

    schema = Schema.of(Order)
    as_json = {"placed": "2026-03-01T12:00:00Z", "more": [1]}
    assert schema.accept(as_json, what="x") is as_json
    moment = datetime.fromisoformat("2026-03-01T12:00:00+00:00")
    expected = {"placed": "2026-03-01T12:00:00Z", "amounts": []}
    assert schema.accept(Order(placed=moment), what="x") == expected
    assert schema.accept({"placed": moment}, what="x") == expected


def test_a_comparison_that_raises_shows_no_equality() -> None:
    class Touchy(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        x: Any = None

        @field_validator("x", mode="before")
        @classmethod
        def read(cls, value: object) -> object:
            return Prickly() if value == "prickly" else value

        @field_serializer("x")
        def write(self, value: object) -> str:
            return "prickly"

    with pytest.raises(ValueNotSerializableError) as caught:
        Schema.of(Touchy).dump(Touchy(x=Prickly()), what="x")
    assert caught.value.path == "$.x"


def test_nothing_is_accepted_where_nothing_is_taken() -> None:
    given: list[object] = [1, {"a": 1}, [], "", False]
    for value in given:
        with pytest.raises(SchemaMismatchError):
            Schema.none().accept(value, what="x")
        with pytest.raises(SchemaMismatchError):
            Schema.none().dump(value, what="x")


def test_a_type_that_pydantic_does_not_know_is_a_definition_error() -> None:
    class Opaque:
        pass

    with pytest.raises(DefinitionError, match="Opaque"):
        Schema.of(Opaque)
    with pytest.raises(DefinitionError, match="isn't defined"):
        Schema.of(list[ForwardRef("Nowhere")]).load([], what="x")  # type: ignore[misc]  # wrong on purpose


def test_no_warning_is_given_on_the_way() -> None:
    # Warnings are errors in this suite, and pydantic warns about values that aren't of the declared type.
    value = Base.model_construct(x=1.0)
    with pytest.raises(ValueNotSerializableError):
        Schema.of(Base).dump(value, what="x")
