"""The common answers of `exactness`, without the paths that only a refusal needs.

Every value of every stage passes here. What is not plainly fine is left to the thorough walk, which decides and
explains.
"""

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from operator import is_
from typing import Any, Final, cast
from uuid import UUID

from pydantic import BaseModel

from stagewright.json_values import text_problem

__all__ = ["is_exact_json", "is_plainly_kept", "is_plainly_same"]

_DEEP: Final = 64
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, date, timedelta, UUID})
_COMPARED: Final = _PLAIN - {float}
_SMALL: Final = 2**63


def is_exact_json(value: object, depth: int = 0) -> bool:
    """Whether a value is exact JSON beyond doubt."""
    kind = type(value)
    if kind is str:
        return text_problem(cast(str, value)) is None
    if value is None or kind is bool:
        return True
    if kind is int:
        return -_SMALL <= cast(int, value) <= _SMALL
    if kind is float:
        return math.isfinite(cast(float, value))
    if depth >= _DEEP:
        return False
    if kind is list:
        return all(is_exact_json(member, depth + 1) for member in cast("list[object]", value))
    if kind is dict:
        for key, member in cast("dict[object, object]", value).items():
            if type(key) is not str or text_problem(key) is not None or not is_exact_json(member, depth + 1):
                return False
        return True
    return False


def is_plainly_kept(value: object, depth: int = 0) -> bool:
    """Whether a value holds nothing alive and doesn't hold itself, beyond doubt."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if depth >= _DEEP:
        return False
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return all(
            type(member) in _PLAIN or is_plainly_kept(member, depth + 1)
            for member in cast("list[object]", value)
        )
    if kind is dict:
        members = cast("dict[object, object]", value)
        return all(type(key) in _PLAIN for key in members) and all(
            type(member) in _PLAIN or is_plainly_kept(member, depth + 1) for member in members.values()
        )
    state = _state(value)
    return state is not None and all(
        type(member) in _PLAIN or is_plainly_kept(member, depth + 1) for member in state.values()
    )


def is_plainly_same(before: object, after: object) -> bool:
    """Whether two values, of which one is not inside itself, are equal in value and in type beyond doubt."""
    if before is after:
        return True
    kind = type(before)
    if kind is not type(after):
        return False
    if kind in _COMPARED:
        return before == after
    if kind is float:
        return before == after and (
            before != 0 or math.copysign(1, cast(float, before)) == math.copysign(1, cast(float, after))
        )
    if kind is list or kind is tuple:
        one, other = cast("list[object]", before), cast("list[object]", after)
        return len(one) == len(other) and _are_same(one, other)
    if kind is dict:
        return _is_same_mapping(cast("dict[object, object]", before), cast("dict[object, object]", after))
    state, state_after = _state(before), _state(after)
    return state is not None and state_after is not None and _is_same_mapping(state, state_after)


def _is_same_mapping(before: dict[Any, object], after: dict[Any, object]) -> bool:
    if len(before) != len(after):
        return False
    return _are_same(before, after) and _are_same(before.values(), after.values())


def _are_same(before: Iterable[object], after: Iterable[object]) -> bool:
    return all(map(is_, before, after)) or all(map(is_plainly_same, before, after))


def _state(value: object) -> dict[Any, object] | None:
    """The fields of a model or dataclass that holds nothing else, or None."""
    if isinstance(value, BaseModel):
        members: dict[Any, object] = vars(value)
        extra, hidden = value.__pydantic_extra__, value.__pydantic_private__
        plain = not extra and not hidden and len(members) == len(type(value).model_fields)
        return members if plain else None
    if is_dataclass(value) and not isinstance(value, type):
        state = cast("dict[Any, object]", getattr(value, "__dict__", {}))  # a dataclass with slots has none
        return state if len(state) == len(fields(value)) else None
    return None
