"""What a refusal says: the value that was given, the reason in plain words, and the fix."""

from datetime import date
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, Secret, SecretBytes, SecretStr, model_validator

from stagewright.definitions import Schema
from stagewright.errors import SchemaMismatchError, ValueNotSerializableError
from stagewright.json_values import Json, shortened_path, shown


class Line(BaseModel):
    sku: str
    amount: int = Field(ge=1)
    weight: float = 1.0


class Account(BaseModel):
    user: str
    level: int
    password: SecretStr = Field(min_length=10)


class Token(Secret[int]):
    pass


class Shade(Enum):
    DARK = "dark"


def messages(annotation: object, value: Json) -> list[str]:
    with pytest.raises(SchemaMismatchError) as caught:
        Schema.of(annotation).accept(value, what="x")
    return [problem.message for problem in caught.value.problems]


def refusal(annotation: object, value: object) -> ValueNotSerializableError:
    with pytest.raises(ValueNotSerializableError) as caught:
        Schema.of(annotation).dump(value, what="x")
    return caught.value


@pytest.mark.guarantee("values.mismatch-lists-problems")
def test_a_problem_shows_what_was_given() -> None:
    assert messages(Line, {"sku": "a", "amount": "abc"})[0].endswith("; got 'abc'")
    assert messages(Line, {"sku": "a", "amount": 0}) == ["Input should be greater than or equal to 1; got 0"]
    assert messages(Line, {"sku": ["a"], "amount": 1})[0].endswith("; got ['a']")
    assert messages(int, "a\nb\x1b[31m")[0].endswith(r"; got 'a\nb\x1b[31m'")
    assert messages(int | list[int], "x")[0].endswith("(as int); got 'x'")
    long = messages(int, "y" * 5000)[0]
    assert long.endswith(f"; got '{'y' * 56}...")


def test_what_is_missing_is_not_shown() -> None:
    assert messages(Line, {"amount": 1}) == ["Field required"]


@pytest.mark.guarantee("values.secrets-not-shown")
def test_no_part_of_a_type_that_holds_a_secret_is_shown() -> None:
    class Checked(Account):
        @model_validator(mode="after")
        def check(self) -> "Checked":
            raise ValueError("no such account")

    given: Json = {"user": "a", "level": "high", "password": "hunter2"}
    for annotation in (Account, list[Account], dict[str, Account | None], Checked):
        whole: Json = given if annotation in (Account, Checked) else [given]
        whole = {"a": given} if "dict" in str(annotation) else whole
        found = messages(annotation, whole)
        assert found
        assert not any("hunter2" in message or "got" in message for message in found)
    valid: Json = {"user": "a", "level": 1, "password": "hunter2hunter2"}
    assert not any("hunter2" in message for message in messages(Checked, valid))
    assert "hunter2" not in refusal(SecretStr, "hunter2").problem


@pytest.mark.guarantee("values.secrets-not-shown")
@pytest.mark.parametrize("secret", [SecretStr, SecretBytes, Secret[date], Secret[int], Token])
def test_every_kind_of_secret_is_hidden(secret: Any) -> None:
    for annotation in (dict[str, secret], list[dict[str, secret | None]]):
        whole: Json = {"a": {"token": "hunter2"}}
        assert not any("hunter2" in message for message in messages(annotation, whole))
        assert not any("hunter2" in message for message in messages(annotation, [whole]))


@pytest.mark.guarantee("values.secrets-not-shown")
def test_a_model_may_hide_its_input() -> None:
    class Hidden(BaseModel):
        model_config = ConfigDict(hide_input_in_errors=True)
        x: int

    assert "hunter2" not in messages(list[Hidden], [{"x": "hunter2"}])[0]


@pytest.mark.guarantee("values.secrets-not-shown")
def test_a_value_is_shown_in_few_safe_characters() -> None:
    assert shown("a\x00\u202e\ud800") == r"'a\x00\u202e\ud800'"
    assert shown({"a": [1, (2.5, None)], "b": {True}}) == "{'a': [1, (2.5, None)], 'b': {True}}"
    assert shown([[[[[1]]]]]) == "[[[[...]]]]"
    assert shown(10**5000) == "an integer of hundreds of digits or more"
    assert shown(SecretStr("hunter2")) == "<pydantic.types.SecretStr>"
    assert shown(Line(sku="hunter2", amount=1)).endswith(".Line>")
    assert shown(Shade.DARK) == "<Shade.DARK: 'dark'>"
    assert all(
        len(shown(value)) == 60 for value in ("x" * 99, b"x" * 99, [1] * 999, {n: n for n in range(99)})
    )

    class Loud(Enum):
        ONE = 1

        def __repr__(self) -> str:
            raise RuntimeError("don't show me")

    assert shown(Loud.ONE, 200).endswith("Loud>")


@pytest.mark.guarantee("values.refused-with-its-path")
def test_what_is_no_number_is_named_with_the_fix() -> None:
    for value in (float("nan"), Line(sku="a", amount=1, weight=float("nan")), {"a": [float("inf")]}):
        annotation = (
            float if isinstance(value, float) else Line if isinstance(value, Line) else dict[str, list[float]]
        )
        error = refusal(annotation, value)
        assert "is not a JSON number; use None or text" in error.problem
        assert "Input should" not in error.problem
    assert refusal(Line, Line(sku="a", amount=1, weight=float("nan"))).path == "$.weight"


def test_a_lone_surrogate_is_explained() -> None:
    for value in ("\ud800", Line(sku="\ud800", amount=1), {"\ud800": 1}, {"a": Line(sku="\udfff", amount=1)}):
        annotation: Any = (
            str if isinstance(value, str) else Line if isinstance(value, Line) else dict[str, int]
        )
        annotation = dict[str, Line] if isinstance(value, dict) and "a" in value else annotation
        error = refusal(annotation, value)
        assert "lone surrogate" in error.problem
        assert "codec" not in str(error)
    with pytest.raises(SchemaMismatchError, match="lone surrogate"):
        Schema.of(dict[str, str]).load({"a": "\ud800"}, what="x")


def test_a_secret_is_not_kept_and_the_fix_is_told() -> None:
    for annotation, value in (
        (SecretStr, SecretStr("a")),
        (Account, Account(user="a", level=1, password=SecretStr("a" * 10))),
    ):
        error = refusal(annotation, value)
        assert "a secret is not kept" in error.problem
        assert "declare the plain type" in error.problem
        assert error.path == ("$" if annotation is SecretStr else "$.password")


def test_a_value_without_json_form_is_named() -> None:
    assert (
        refusal(Any, {"a": object()}).problem
        == "object has no JSON form; declare its type, or convert it yourself"
    )


@pytest.mark.parametrize("annotation", [Any, list[Any], object])
def test_the_path_of_something_deep_stays_readable(annotation: object) -> None:
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    error = refusal(annotation, deep)
    assert error.path == shortened_path(error.path)
    assert len(error.path) < 70
    assert error.path.startswith("$[0][0]")
    assert "…" in error.path
    assert shortened_path("$.a") == "$.a"


def test_what_was_returned_is_shown_with_the_fix() -> None:
    problem = refusal(int, "5").problem
    assert problem == "'5', of type str, would become int; return the declared type, or declare str"
    assert "declare it, or leave it out" in refusal(Line, {"sku": "a", "amount": 1, "fee": 2}).problem
    assert "9007199254740993 is no exact float" in refusal(float, 2**53 + 1).problem
