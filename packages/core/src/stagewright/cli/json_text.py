"""JSON as somebody wrote it: its numbers stay the text that they are."""

import json
from dataclasses import dataclass
from typing import Final, Never

from typing_extensions import TypeAliasType

__all__ = ["JsonTextError", "NumberText", "Written", "kind_of", "read_json_text"]

_KINDS: Final = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}


class JsonTextError(ValueError):
    """A text that is JSON to the letter, of which nobody could keep everything."""


@dataclass(frozen=True, slots=True)
class NumberText:
    """A number, digit for digit."""

    text: str
    is_integer: bool


Written = TypeAliasType("Written", "None | bool | NumberText | str | list[Written] | dict[str, Written]")


def read_json_text(text: str) -> Written:
    """Read JSON without reading its numbers.

    Raises:
        JsonTextError: If an object has one key twice, or the nesting is deeper than can be followed.
        ValueError: If it is no JSON; `NaN` and `Infinity` are none.
    """
    try:
        value: Written = json.loads(
            text,
            parse_int=lambda digits: NumberText(digits, is_integer=True),
            parse_float=lambda digits: NumberText(digits, is_integer=False),
            parse_constant=_refuse_constant,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise JsonTextError("it is nested too deeply") from None
    return value


def kind_of(written: Written) -> str:
    """The name that JSON Schema has for the type of a value."""
    if isinstance(written, NumberText):
        return "integer" if written.is_integer else "number"
    return _KINDS[type(written)]


def _object(pairs: list[tuple[str, Written]]) -> dict[str, Written]:
    members: dict[str, Written] = {}
    for key, value in pairs:
        if key in members:
            raise JsonTextError(f"an object has the key {key!r} twice")
        members[key] = value
    return members


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON number")
