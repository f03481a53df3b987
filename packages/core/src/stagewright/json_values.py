"""Which values are exact JSON, so that every store gives them back as they went in."""

import math
from typing import Final, cast

from typing_extensions import TypeAliasType

from stagewright.errors import ValueNotSerializableError

__all__ = ["Json", "child_path", "require_json", "text_problem"]

Json = TypeAliasType("Json", "None | bool | int | float | str | list[Json] | dict[str, Json]")

_DEEPEST: Final = 128
_LONGEST_INTEGER_BITS: Final = 14_000


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
    try:
        text.encode()
    except UnicodeEncodeError:
        return (
            "the text contains a lone surrogate, which is no Unicode text; decode it with the right encoding"
        )
    return None


def child_path(path: str, key: object) -> str:
    """The path of a member: `$.name`, `$[3]`, or `$["odd key"]`."""
    if isinstance(key, int) and not isinstance(key, bool):
        return f"{path}[{key}]"
    return f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{key!r}]"


def _walk(value: object, path: str, what: str, parents: list[object]) -> None:
    kind = type(value)
    if value is None or kind is bool:
        return
    if kind is str:
        _refuse(text_problem(cast(str, value)), path, what)
    elif kind is int:
        if cast(int, value).bit_length() > _LONGEST_INTEGER_BITS:
            _refuse("the integer has more than 4,200 digits; keep it as text", path, what)
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
        _refuse(f"the value is nested deeper than {_DEEPEST} levels", path, what)
    parents.append(value)
    if isinstance(value, dict):
        for key, member in value.items():
            member_path = child_path(path, key)
            if type(key) is not str:
                _refuse(
                    f"the key {key!r} is not text, and JSON keys are; convert it yourself", member_path, what
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
