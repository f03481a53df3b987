"""Whether a value that came back from its JSON form is the value that went in."""

import io
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, time
from decimal import Decimal
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Final, TypeAlias, cast

from pydantic import BaseModel

from stagewright.errors import ValueNotSerializableError
from stagewright.json_values import child_path

__all__ = ["Difference", "find_coercion", "find_difference", "refuse_unkeepable"]

Difference: TypeAlias = tuple[str, str]
"""A path inside the value, and what is wrong there."""

_DEEPEST: Final = 128
_ATOMS: Final = (type(None), bool, int, float, str, bytes)
_LIVE: Final = (FunctionType, BuiltinFunctionType, MethodType, io.IOBase, Iterator, AsyncIterator, Awaitable)
_JSON_ATOMS: Final = (type(None), bool, int, float, str)


def refuse_unkeepable(value: object, *, what: str) -> None:
    """Refuse what validating or dumping would use up, follow for ever, or turn into something else.

    Raises:
        ValueNotSerializableError: For functions, generators, open files, awaitables, and a value inside itself.
    """
    _refuse_unkeepable(value, "$", what, [])


def _refuse_unkeepable(value: object, path: str, what: str, parents: list[object]) -> None:
    kind = type(value)
    if kind in _ATOMS:
        return
    if isinstance(value, _LIVE):
        problem = (
            f"{_name(kind)} is alive and has no JSON form; keep what it was made from, or what it yields"
        )
        raise ValueNotSerializableError(what, path, problem)
    members = _members(value)
    if members is None:
        return
    if any(parent is value for parent in parents):
        raise ValueNotSerializableError(what, path, "the value contains itself")
    if len(parents) >= _DEEPEST:
        raise ValueNotSerializableError(what, path, f"the value is nested deeper than {_DEEPEST} levels")
    parents.append(value)
    for key, member in members:
        if type(member) not in _ATOMS:
            _refuse_unkeepable(member, child_path(path, key), what, parents)
    parents.pop()


def _members(value: object) -> list[tuple[object, object]] | None:
    """The named or numbered parts of a container, or None for anything else."""
    if isinstance(value, dict):
        return list(cast("dict[object, object]", value).items())
    if isinstance(value, list | tuple | set | frozenset):
        return list(enumerate(cast("list[object]", value)))
    if isinstance(value, BaseModel):
        return list(_model_state(value).items())
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name, None)) for field in fields(value)]
    return None


def _model_state(model: BaseModel) -> dict[object, object]:
    declared = type(model).model_fields
    state: dict[object, object] = {name: value for name, value in model.__dict__.items() if name in declared}
    state.update(model.__pydantic_extra__ or {})
    return state


def find_difference(before: object, after: object, path: str = "$") -> Difference | None:
    """The first place where two values differ in value or in type, or None.

    A whole number where a float is declared counts as that float, as it does for type checkers; a date with a
    named zone counts as the same moment with the same offset.
    """
    kind = type(before)
    if kind is not type(after):
        if kind is int and type(after) is float and before == after:
            return None
        if kind is float and not math.isfinite(cast(float, before)):
            return path, _changed(before, after)
        return (
            path,
            f"{_name(kind)} comes back as {_name(type(after))}; declare its exact type, or convert it yourself",
        )
    if kind is dict:
        return _mapping_difference(
            cast("dict[object, object]", before), cast("dict[object, object]", after), path
        )
    if isinstance(before, list | tuple):
        return _sequence_difference(cast("list[object]", before), cast("list[object]", after), path)
    if isinstance(before, set | frozenset):
        same = before == after and _shapes(cast("set[object]", before)) == _shapes(cast("set[object]", after))
        return None if same else (path, "the members of the set come back changed; declare their exact type")
    if isinstance(before, BaseModel) or (is_dataclass(before) and not isinstance(before, type)):
        return _object_difference(before, after, path)
    return None if _is_same(before, after) else (path, _changed(before, after))


def _is_same(before: object, after: object) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        if math.isnan(before):
            return math.isnan(after)
        return before == after and math.copysign(1, before) == math.copysign(1, after)
    if isinstance(before, Decimal):
        return str(before) == str(after)
    if isinstance(before, datetime) and isinstance(after, datetime):
        if before.utcoffset() is None or after.utcoffset() is None:
            return before.tzinfo is None and before == after
        return before.utcoffset() == after.utcoffset() and before.replace(tzinfo=None) == after.replace(
            tzinfo=None
        )
    if isinstance(before, time) and isinstance(after, time):
        return before == after and before.utcoffset() == after.utcoffset()
    try:
        if before == after:
            return True
    except Exception:  # a comparison is the author's code; one that raises shows no equality
        return False
    if type(before).__eq__ is object.__eq__ and hasattr(before, "__dict__"):
        return find_difference(dict(vars(before)), dict(vars(after))) is None
    return False


def _changed(before: object, after: object) -> str:
    if isinstance(before, float) and not math.isfinite(before):
        return f"{before} is not a JSON number; use None or text"
    return f"{_short(before)} comes back as {_short(after)}"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        return _name(type(value))
    return text if len(text) <= 80 else text[:77] + "..."


def _shapes(members: "set[object]") -> Counter[tuple[type, str]]:
    return Counter((type(member), str(member) if isinstance(member, Decimal) else "") for member in members)


def _mapping_difference(
    before: dict[object, object], after: dict[object, object], path: str
) -> Difference | None:
    if len(before) != len(after):
        return path, f"{len(before)} keys come back as {len(after)}"
    for (key, member), (key_after, member_after) in zip(before.items(), after.items(), strict=True):
        place = child_path(path, key)
        if type(key) is not type(key_after):
            return (
                place,
                f"the key {_short(key)} comes back as {_short(key_after)}; declare the type of the keys",
            )
        found = find_difference(key, key_after, place) or find_difference(member, member_after, place)
        if found is not None:
            return found
    return None


def _sequence_difference(before: "list[object]", after: "list[object]", path: str) -> Difference | None:
    if len(before) != len(after):
        return path, f"{len(before)} members come back as {len(after)}"
    for index, (member, member_after) in enumerate(zip(before, after, strict=True)):
        if type(member) in _JSON_ATOMS and type(member) is type(member_after) and member == member_after:
            continue
        found = find_difference(member, member_after, child_path(path, index))
        if found is not None:
            return found
    return None


def _object_difference(before: object, after: object, path: str) -> Difference | None:
    state = dict(_members(before) or ())
    state_after = dict(_members(after) or ())
    for key in state.keys() | state_after.keys():
        if key not in state or key not in state_after:
            return child_path(
                path, key
            ), "this field is not kept; a field that is left out of its dump can't be stored"
    for key, member in state.items():
        found = find_difference(member, state_after[key], child_path(path, key))
        if found is not None:
            return found
    return None


def find_coercion(given: object, validated: object, path: str = "$") -> Difference | None:
    """The first place where validating changed a Python value into another, or None.

    JSON values may become whatever is declared, and a dict may become the declared object: that is parsing.
    Anything else, such as a Decimal that becomes a float or a subclass that becomes its base, is a change.
    """
    kind = type(given)
    if given is validated or kind in _JSON_ATOMS:
        return None
    if kind is dict:
        if type(validated) is not dict:
            return None
        return _mapping_coercion(
            cast("dict[object, object]", given), cast("dict[object, object]", validated), path
        )
    if kind is list:
        if not isinstance(validated, list | tuple):
            return None
        members = enumerate(zip(cast("list[object]", given), cast("list[object]", validated), strict=False))
        differences = (
            find_coercion(member, after, child_path(path, index)) for index, (member, after) in members
        )
        return next((difference for difference in differences if difference is not None), None)
    if kind is not type(validated):
        return (
            path,
            f"{_name(kind)} becomes {_name(type(validated))}; return the declared type, or declare this one",
        )
    return None


def _mapping_coercion(
    given: dict[object, object], validated: dict[object, object], path: str
) -> Difference | None:
    for (key, member), (key_after, after) in zip(given.items(), validated.items(), strict=False):
        place = child_path(path, key)
        found = find_coercion(key, key_after, place) or find_coercion(member, after, place)
        if found is not None:
            return found
    return None


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
