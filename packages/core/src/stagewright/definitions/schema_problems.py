"""What pydantic found wrong with a value, as problems with the engine's own paths."""

from collections.abc import Mapping
from typing import Final, cast

from pydantic import ValidationError

from stagewright.errors import Problem
from stagewright.json_values import child_path, shown

__all__ = ["problems_of"]

_USER_DATA: Final = frozenset({"default", "expected", "metadata", "context"})


def problems_of(error: Exception, value: object, *, schema: object) -> tuple[Problem, ...]:
    """Turn what validating `value` raised into problems that show what was given.

    A step of pydantic's path that is no part of the value names the branch of a union, or a validator that was
    tried; it goes into the message, so that the path leads to the value itself.

    Args:
        error: What was raised.
        value: The value that was validated.
        schema: pydantic's core schema of the type. Nothing is shown if any part of it is a secret, or is set up
            with `hide_input_in_errors`.
    """
    if not isinstance(error, ValidationError):
        return (Problem(path="$", message=f"validating it raised {type(error).__name__}: {error}"),)
    problems: list[Problem] = []
    is_hidden = _hides_values(schema)
    for detail in error.errors(include_url=False, include_context=False):
        location, is_missing = detail["loc"], detail["type"] == "missing"
        path, branches = _path(location, value, is_missing=is_missing)
        message = detail["msg"].removeprefix("Value error, ")
        if branches:
            message = f"{message} (as {'.'.join(branches)})"
        if not is_missing and not is_hidden:
            message += f"; got {shown(detail['input'])}"
        problems.append(Problem(path=path, message=message))
    return tuple(problems)


def _hides_values(node: object) -> bool:
    if isinstance(node, dict):
        mapping = cast("dict[str, object]", node)
        if mapping.get("hide_input_in_errors"):
            return True
        return any(_hides_values(member) for key, member in mapping.items() if key not in _USER_DATA)
    if isinstance(node, list | tuple):
        return any(_hides_values(member) for member in cast("list[object]", node))
    # A secret is known by its class, or by the functions of it that validate and serialize.
    return callable(node) and (
        hasattr(node, "get_secret_value") or "secret" in str(getattr(node, "__qualname__", "")).lower()
    )


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
