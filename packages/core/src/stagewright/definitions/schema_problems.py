"""What pydantic found wrong with a value, as problems with the engine's own paths."""

from collections.abc import Mapping
from typing import cast

from pydantic import ValidationError

from stagewright.errors import Problem
from stagewright.json_values import child_path

__all__ = ["problems_of"]


def problems_of(error: Exception, value: object) -> tuple[Problem, ...]:
    """Turn what validating `value` raised into problems.

    A step of pydantic's path that is no part of the value names the branch of a union, or a validator that was
    tried; it goes into the message, so that the path leads to the value itself.
    """
    if not isinstance(error, ValidationError):
        return (Problem(path="$", message=f"validating it raised {type(error).__name__}: {error}"),)
    problems: list[Problem] = []
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        location = detail["loc"]
        path, branches = _path(location, value, is_missing=detail["type"] == "missing")
        message = detail["msg"]
        problems.append(
            Problem(path=path, message=f"{message} (as {'.'.join(branches)})" if branches else message)
        )
    return tuple(problems)


def _path(location: tuple[int | str, ...], value: object, *, is_missing: bool) -> tuple[str, list[str]]:
    path, branches, current = "$", list[str](), value
    for position, step in enumerate(location):
        is_last = position == len(location) - 1
        found, member = _member(current, step)
        if found:
            path, current = child_path(path, step), member
        elif is_last and step == "[key]":
            branches.append("key")
        elif is_last and is_missing:
            path = child_path(path, step)
        else:
            branches.append(str(step))
    return path, branches


def _member(value: object, step: int | str) -> tuple[bool, object]:
    if isinstance(value, Mapping):
        for key, member in cast("Mapping[object, object]", value).items():
            if key == step or str(key) == step:
                return True, member
        return False, None
    if isinstance(value, list | tuple):
        members = cast("list[object]", value)
        if isinstance(step, int) and -len(members) <= step < len(members):
            return True, members[step]
        return False, None
    if isinstance(value, set | frozenset):
        return isinstance(step, int), None
    state: dict[str, object] = getattr(value, "__dict__", {})
    if isinstance(step, str) and step in state:
        return True, state[step]
    return False, None
