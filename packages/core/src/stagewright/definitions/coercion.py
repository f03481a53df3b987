"""Whether validating what a body returned made another value of it."""

from collections import deque
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from pydantic import AliasChoices, BaseModel, RootModel

from stagewright.definitions.exactness import Difference, class_name, find_difference
from stagewright.json_values import child_path, shown

__all__ = ["find_coercion", "find_inexact_float"]

_Mapping: TypeAlias = dict[object, object]

_ABSENT: Final = object()
_SCALARS: Final = (bool, int, float, str, bytes)


def find_coercion(given: object, validated: object, path: str = "$") -> Difference | None:
    """The first place where validating changed a Python value into another, or None.

    A dict may become the declared object when nothing of it is lost, and fields that it leaves out get their
    defaults; a whole number may become an equal float. Nothing else is parsed: text that looks like a number
    or a date stays text.
    """
    if given is validated:
        return None
    kind = type(given)
    if isinstance(validated, RootModel) and not isinstance(given, BaseModel):
        return find_coercion(given, validated.root, path)
    if kind is dict:
        members = cast(_Mapping, given)
        if type(validated) is dict:
            return _mapping_coercion(members, cast(_Mapping, validated), path)
        if isinstance(validated, BaseModel) or (is_dataclass(validated) and not isinstance(validated, type)):
            return _object_coercion(members, validated, path)
    if kind is not type(validated):
        return None if _is_equal_float(given, validated) else (path, _become(given, validated))
    if kind is list or kind is tuple:
        return _sequence_coercion(cast("list[object]", given), cast("list[object]", validated), path)
    return find_difference(given, validated, path)


def find_inexact_float(given: object, read: object, path: str = "$") -> Difference | None:
    """The first whole number in JSON that was read as a float of another value, or None.

    Only what lies in places that correspond is compared; what a validator of the author's own makes is the author's.
    """
    if type(given) is int:
        if type(read) is float and given != read:
            return path, f"{shown(given)} is no exact float and would become {read!r}; declare int"
        return None
    if isinstance(read, RootModel):
        return find_inexact_float(given, read.root, path)
    if type(given) is list:
        return _inexact_member(cast("list[object]", given), read, path)
    if type(given) is dict:
        kept = _members_by_key(read)
        for key, member in cast(_Mapping, given).items():
            if str(key) in kept:
                found = find_inexact_float(member, kept[str(key)], child_path(path, key))
                if found is not None:
                    return found
    return None


def _inexact_member(given: "list[object]", read: object, path: str) -> Difference | None:
    if isinstance(read, set | frozenset):
        members = cast("set[object]", read)
        # Equal numbers of different types are one member of a set.
        lost = [one for one in given if type(one) is int and one not in members]
        floats = sorted(one for one in members if type(one) is float)
        return find_inexact_float(lost[0], floats[-1], path) if lost and floats else None
    if not isinstance(read, list | tuple | deque):
        return None
    for index, (member, after) in enumerate(zip(given, cast("list[object]", read), strict=False)):
        found = find_inexact_float(member, after, child_path(path, index))
        if found is not None:
            return found
    return None


def _members_by_key(read: object) -> dict[str, object]:
    """What JSON keys have become, by every key that leads there."""
    if isinstance(read, dict):
        return {str(key): member for key, member in cast(_Mapping, read).items()}
    if not isinstance(read, BaseModel) and (not is_dataclass(read) or isinstance(read, type)):
        return {}
    names = _names_by_key(cast(Hashable, type(read)))
    members = {key: getattr(read, name, None) for key, name in names.items()}
    extra = cast(_Mapping, getattr(read, "__pydantic_extra__", None) or {})
    return {str(key): member for key, member in extra.items()} | members


def _is_equal_float(given: object, validated: object) -> bool:
    return type(given) is int and type(validated) is float and given == validated


def _become(given: object, validated: object) -> str:
    before, after = class_name(type(given)), class_name(type(validated))
    if type(given) is int and type(validated) is float:
        return (
            f"{shown(given)} is no exact float and would become {validated!r}; return a float, or declare int"
        )
    told = before
    if isinstance(given, _SCALARS) and not hasattr(validated, "get_secret_value"):
        told = f"{shown(given)}, of type {before},"
    return f"{told} would become {after}; return the declared type, or declare {before}"


def _sequence_coercion(given: "list[object]", validated: "list[object]", path: str) -> Difference | None:
    if len(given) != len(validated):
        return path, f"{len(given)} members become {len(validated)}"
    for index, (member, after) in enumerate(zip(given, validated, strict=True)):
        found = None if member is after else find_coercion(member, after, child_path(path, index))
        if found is not None:
            return found
    return None


def _mapping_coercion(given: _Mapping, validated: _Mapping, path: str) -> Difference | None:
    keys = {key: key for key in validated}
    for key, member in given.items():
        place = child_path(path, key)
        kept = keys.get(key, _ABSENT)
        if kept is _ABSENT:
            kept = next((one for one in keys if str(one) == str(key)), _ABSENT)
            if kept is _ABSENT:
                return place, _lost(key, "the declared type")
        found = find_coercion(key, kept, place) or find_coercion(member, validated[kept], place)
        if found is not None:
            return found
    return None


def _object_coercion(given: _Mapping, validated: object, path: str) -> Difference | None:
    names = _names_by_key(cast(Hashable, type(validated)))
    extra = cast(_Mapping, getattr(validated, "__pydantic_extra__", None) or {})
    for key, member in given.items():
        name = names.get(cast(str, key))
        after = extra.get(key, _ABSENT) if name is None else getattr(validated, name, _ABSENT)
        if after is _ABSENT:
            return child_path(path, key), _lost(key, class_name(type(validated)))
        found = None if member is after else find_coercion(member, after, child_path(path, key))
        if found is not None:
            return found
    return None


@lru_cache(maxsize=512)
def _names_by_key(kind: Any) -> dict[str, str]:
    """The attribute that each key of a dict goes to; a key that only leads towards one goes to none."""
    named: dict[str, Any] = dict(
        kind.model_fields if issubclass(kind, BaseModel) else getattr(kind, "__pydantic_fields__", {})
    )
    if is_dataclass(kind):
        named = {field.name: named.get(field.name) for field in fields(kind)}
    names = {name: name for name in named}
    for name, field in named.items():
        alias = getattr(field, "validation_alias", None)
        for choice in alias.choices if isinstance(alias, AliasChoices) else (alias,):
            if isinstance(choice, str):
                names[choice] = name
    return names


def _lost(key: object, owner: str) -> str:
    return f"{owner} has no {shown(key)}, so it would be lost; declare it, or leave it out"
