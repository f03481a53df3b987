"""Which values are exact JSON, so that every store gives them back as they went in."""

import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Final, cast
from uuid import UUID

from typing_extensions import TypeAliasType

from stagewright.errors import ValueNotSerializableError

__all__ = ["Json", "child_path", "integer_problem", "require_json", "shortened_path", "shown", "text_problem"]

Json = TypeAliasType("Json", "None | bool | int | float | str | list[Json] | dict[str, Json]")

_DEEPEST: Final = 128
_LONGEST_INTEGER_BITS: Final = 14_000
_LONGEST_PATH: Final = 60
_SHOWN_WHOLE: Final[frozenset[type]] = frozenset(
    {type(None), bool, float, Decimal, datetime, date, time, timedelta, UUID}
)
_BRACKETS: Final[Mapping[type, tuple[str, str]]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
    dict: ("{", "}"),
}


def require_json(value: object, *, what: str) -> Json:
    """Return `value` itself if it is exact JSON that every store can hold.

    Exact means: None, booleans, finite numbers, text, lists, and dicts with text keys, of those very types;
    no NUL or lone surrogate in any text; no value inside itself; no deeper than 128 levels.

    Args:
        value: Any value.
        what: What it is, for the error, such as `the input of workflow 'orders'`.

    Raises:
        ValueNotSerializableError: With the path of the first thing that isn't.
    """
    _walk(value, "$", what, [])
    return cast(Json, value)


def text_problem(text: str) -> str | None:
    """Say why a text can't be stored, or return None when it can."""
    if "\x00" in text:
        return "the text contains a NUL character, which PostgreSQL can't store; remove it or encode the text"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return (
            "the text contains a lone surrogate, which is no Unicode text; decode it with the right encoding"
        )
    return None


def integer_problem(number: int) -> str | None:
    """Say why an integer can't be stored, or return None when it can."""
    if number.bit_length() > _LONGEST_INTEGER_BITS:
        return "the integer has more than 4,200 digits; keep it as text"
    return None


def child_path(path: str, key: object) -> str:
    """The path of a member: `$.name`, `$[3]`, or `$["odd key"]`."""
    if isinstance(key, str):
        return f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"
    return f"{path}[{shown(key)}]"


def shortened_path(path: str) -> str:
    """The path itself, or its beginning and its end when it is too long to read."""
    if len(path) <= _LONGEST_PATH:
        return path
    half = _LONGEST_PATH // 2
    return f"{path[:half]}…{path[-half:]}"


def shown(value: object, longest: int = 60) -> str:
    """A value in a few printable characters, for a message.

    Of an object that is no plain data only the class is named, so that no secret it holds gets into a message.
    """
    try:
        text = _text_of(value, longest, depth=0)
    except Exception:  # a subclass's own repr is the author's code
        text = _class_of(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _text_of(value: object, longest: int, *, depth: int) -> str:
    kind = type(value)
    if kind is str or kind is bytes:
        return repr(cast(str, value)[: longest + 1])
    if kind is int:
        number = cast(int, value)
        return repr(number) if number.bit_length() <= 1_000 else "an integer of hundreds of digits or more"
    if kind in _SHOWN_WHOLE or isinstance(value, Enum | PurePath):
        return repr(value)
    if kind in _BRACKETS:
        opening, closing = _BRACKETS[kind]
        members = cast("list[object]", value)
        if depth > 2 and members:
            return f"{opening}...{closing}"
        return opening + ", ".join(_texts_of(members, longest, depth=depth + 1)) + closing
    return _class_of(value)


def _texts_of(members: "list[object]", longest: int, *, depth: int) -> list[str]:
    enough = longest // 3 + 1
    if isinstance(members, dict):
        return [
            f"{_text_of(key, longest, depth=depth)}: {_text_of(member, longest, depth=depth)}"
            for key, member in islice(cast("dict[object, object]", members).items(), enough)
        ]
    return [_text_of(member, longest, depth=depth) for member in islice(members, enough)]


def _class_of(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"<{name}>"


def _walk(value: object, path: str, what: str, parents: list[object]) -> None:
    kind = type(value)
    if value is None or kind is bool:
        return
    if kind is str:
        _refuse(text_problem(cast(str, value)), path, what)
    elif kind is int:
        _refuse(integer_problem(cast(int, value)), path, what)
    elif kind is float:
        if not math.isfinite(cast(float, value)):
            _refuse(f"{value} is not a JSON number; use None or text", path, what)
    elif kind is list or kind is dict:
        _walk_container(cast("list[object] | dict[object, object]", value), path, what, parents)
    else:
        _refuse(
            f"{kind.__module__}.{kind.__qualname__} is not JSON; declare its type, or convert it yourself",
            path,
            what,
        )


def _walk_container(
    value: "list[object] | dict[object, object]", path: str, what: str, parents: list[object]
) -> None:
    if any(parent is value for parent in parents):
        _refuse("the value contains itself", path, what)
    if len(parents) >= _DEEPEST:
        _refuse(f"the value is nested deeper than {_DEEPEST} levels", shortened_path(path), what)
    parents.append(value)
    if isinstance(value, dict):
        for key, member in value.items():
            member_path = child_path(path, key)
            if type(key) is not str:
                _refuse(
                    f"the key {shown(key)} is not text, and JSON keys are; convert it yourself",
                    member_path,
                    what,
                )
            _refuse(text_problem(cast(str, key)), member_path, what)
            _walk(member, member_path, what, parents)
    else:
        for index, member in enumerate(value):
            _walk(member, child_path(path, index), what, parents)
    parents.pop()


def _refuse(problem: str | None, path: str, what: str) -> None:
    if problem is not None:
        raise ValueNotSerializableError(what, path, problem)
