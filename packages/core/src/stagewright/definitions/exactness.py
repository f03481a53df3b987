"""Whether a value that came back from its JSON form is the value that went in."""

import io
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, time
from decimal import Decimal
from functools import cached_property
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, TypeAlias, cast

from pydantic import BaseModel

from stagewright.errors import ValueNotSerializableError
from stagewright.json_values import child_path, integer_problem, shortened_path, shown, text_problem

__all__ = [
    "Difference",
    "class_name",
    "find_difference",
    "members_of",
    "refuse_unkeepable",
    "unwritable_problem",
]

Difference: TypeAlias = tuple[str, str]
"""A path inside the value, and what is wrong there."""

_Mapping: TypeAlias = dict[object, object]

_DEEPEST: Final = 128
_LONGEST_SHOWN: Final = 80
_ATOMS: Final = (type(None), bool, int, float, str, bytes)
_LIVE: Final = (FunctionType, BuiltinFunctionType, MethodType, io.IOBase, Iterator, AsyncIterator, Awaitable)
_ABSENT: Final = object()
_JSON_ATOMS: Final = (type(None), bool, int, float, str)


def refuse_unkeepable(value: object, *, what: str, with_integers: bool = False) -> None:
    """Refuse what validating or dumping would use up, follow for ever, or turn into something else.

    Args:
        value: The value.
        what: What it is, for the error.
        with_integers: Whether to refuse integers that are too long too, which takes a look at every number.

    Raises:
        ValueNotSerializableError: For functions, generators, open files, awaitables, and a value inside itself.
    """
    _refuse_unkeepable(value, "$", what, [], with_integers)


def _refuse_unkeepable(
    value: object, path: str, what: str, parents: list[object], with_integers: bool
) -> None:
    kind = type(value)
    if kind in _ATOMS:
        if with_integers and kind is int:
            _refuse(integer_problem(cast(int, value)), path, what)
        return
    if isinstance(value, _LIVE):
        problem = "is alive and has no JSON form; keep what it was made from, or what it yields"
        _refuse(f"{class_name(kind)} {problem}", path, what)
    members = members_of(value)
    if members is None:
        return
    if any(parent is value for parent in parents):
        _refuse("the value contains itself", path, what)
    if len(parents) >= _DEEPEST:
        _refuse(f"the value is nested deeper than {_DEEPEST} levels", shortened_path(path), what)
    parents.append(value)
    for key, member in members:
        if with_integers and type(key) is int:
            _refuse(integer_problem(key), child_path(path, key), what)
        if with_integers or type(member) not in _ATOMS:
            _refuse_unkeepable(member, child_path(path, key), what, parents, with_integers)
    parents.pop()


def _refuse(problem: str | None, path: str, what: str) -> None:
    if problem is not None:
        raise ValueNotSerializableError(what, path, problem)


def members_of(value: object) -> list[tuple[object, object]] | None:
    """The named or numbered parts of a container, or None for anything else."""
    if isinstance(value, dict):
        return list(cast("dict[object, object]", value).items())
    if isinstance(value, list | tuple | set | frozenset | deque):
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


def find_difference(
    before: object, after: object, path: str = "$", *, fields_only: bool = False
) -> Difference | None:
    """The first place where two values differ in value or in type, or None.

    A whole number where a float is declared counts as that float, as it does for type checkers; a date with a
    named zone counts as the same moment with the same offset.

    Args:
        before: The value that went in.
        after: The value that came back.
        path: Where they stand.
        fields_only: Whether to leave out what objects hold beside their fields.
    """
    kind = type(before)
    if kind is not type(after):
        if kind is int and type(after) is float and before == after:
            return None
        if kind is float and not math.isfinite(cast(float, before)):
            return path, _changed(before, after)
        fix = "declare its exact type, or convert it yourself"
        return path, f"{class_name(kind)} comes back as {class_name(type(after))}; {fix}"
    if kind is dict:
        before_members, after_members = cast(_Mapping, before), cast(_Mapping, after)
        return _mapping_difference(before_members, after_members, path, fields_only=fields_only)
    if isinstance(before, list | tuple | deque):
        one, other = cast("list[object]", before), cast("list[object]", after)
        return _sequence_difference(one, other, path, fields_only=fields_only)
    if isinstance(before, set | frozenset):
        same = before == after and _have_same_shapes(cast("set[object]", before), cast("set[object]", after))
        return None if same else (path, "the members of the set come back changed; declare their exact type")
    if isinstance(before, BaseModel) or (is_dataclass(before) and not isinstance(before, type)):
        return _object_difference(before, after, path, fields_only=fields_only)
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
    problem = unwritable_problem(before)
    if problem is not None:
        return problem
    texts = shown(before, _LONGEST_SHOWN), shown(after, _LONGEST_SHOWN)
    if texts[0] == texts[1]:
        fix = "; give the type an __eq__" if type(before).__eq__ is object.__eq__ else ""
        return f"{class_name(type(before))} comes back as one that is not equal to it{fix}"
    return f"{texts[0]} comes back as {texts[1]}"


def unwritable_problem(value: object) -> str | None:
    """Why no JSON form can give back a value that has no members, when its kind says so; else None."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a JSON number; use None or text"
    if isinstance(value, str):
        return text_problem(value)
    if hasattr(value, "get_secret_value"):
        return (
            f"a secret is not kept: {class_name(type(value))} is written as asterisks; store the name under which "
            "the secret is found, or declare the plain type if it may be stored in the open"
        )
    return None


def _have_same_shapes(before: "set[object]", after: "set[object]") -> bool:
    restored = Counter(map(_shape, after))
    if Counter(map(_shape, before)) == restored:
        return True
    return Counter((float, "") if type(one) is int else _shape(one) for one in before) == restored


def _shape(member: object) -> tuple[type, str]:
    return type(member), str(member) if isinstance(member, Decimal) else ""


def _mapping_difference(
    before: _Mapping, after: _Mapping, path: str, *, fields_only: bool
) -> Difference | None:
    if len(before) != len(after):
        return path, f"{len(before)} keys come back as {len(after)}"
    for (key, member), (key_after, member_after) in zip(before.items(), after.items(), strict=True):
        place = child_path(path, key)
        if type(key) is not type(key_after):
            return (
                place,
                f"the key {shown(key)} comes back as {shown(key_after)}; declare the type of the keys",
            )
        found = find_difference(key, key_after, place, fields_only=fields_only) or find_difference(
            member, member_after, place, fields_only=fields_only
        )
        if found is not None:
            return found
    return None


def _sequence_difference(
    before: "list[object]", after: "list[object]", path: str, *, fields_only: bool
) -> Difference | None:
    if len(before) != len(after):
        return path, f"{len(before)} members come back as {len(after)}"
    for index, (member, member_after) in enumerate(zip(before, after, strict=True)):
        if type(member) in _JSON_ATOMS and type(member) is type(member_after) and member == member_after:
            continue
        found = find_difference(member, member_after, child_path(path, index), fields_only=fields_only)
        if found is not None:
            return found
    return None


def _object_difference(before: object, after: object, path: str, *, fields_only: bool) -> Difference | None:
    state = dict(members_of(before) or ())
    state_after = dict(members_of(after) or ())
    for key in state.keys() | state_after.keys():
        if key not in state or key not in state_after:
            return child_path(
                path, key
            ), "this field is not kept; a field that is left out of its dump can't be stored"
    for key, member in state.items():
        found = find_difference(member, state_after[key], child_path(path, key), fields_only=fields_only)
        if found is not None:
            return found
    return None if fields_only else _hidden_difference(_hidden_state(before), _hidden_state(after), path)


def _hidden_state(value: object) -> dict[str, object]:
    """What an object holds beside its fields: private attributes of a model, other attributes of a dataclass."""
    if isinstance(value, BaseModel):
        return cast("dict[str, object]", value.__pydantic_private__ or {})
    kind, declared = type(value), {field.name for field in fields(cast(Any, value))}
    return {
        name: member
        for name, member in cast("dict[str, object]", getattr(value, "__dict__", {})).items()
        if name not in declared and not isinstance(getattr(kind, name, None), cached_property)
    }


def _hidden_difference(before: dict[str, object], after: dict[str, object], path: str) -> Difference | None:
    for name, member in before.items():
        restored = after.get(name, _ABSENT)
        if type(member) is type(restored) and type(member).__eq__ is object.__eq__:
            continue  # a lock or a client that each instance makes for itself
        try:
            # Children may point at their parents here: what they hold beside their fields is not followed.
            found = find_difference(member, restored, fields_only=True)
        except RecursionError:
            continue
        if found is not None:
            problem = "this attribute is no field, and what it holds is not kept; declare a field for it"
            return child_path(path, name), problem
    return None


def class_name(kind: type) -> str:
    """A class as people write it: with its module, unless it is built in."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
