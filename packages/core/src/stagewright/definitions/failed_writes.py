"""Why a value could not be written as JSON, or not be read back from what was written."""

from collections.abc import Iterator, Sequence

import pydantic_core

from stagewright.definitions.exactness import Difference, class_name, members_of, unwritable_problem
from stagewright.errors import Problem
from stagewright.json_values import child_path

__all__ = ["why_unread", "why_unwritten"]


def why_unwritten(value: object, error: Exception) -> Difference:
    """The first member whose kind no JSON holds, else the smallest one that can't be written by itself."""
    return next(_unwritable(value, "$"), None) or _first_unwritten(value, "$", error)


def why_unread(value: object, problems: Sequence[Problem]) -> Difference:
    """The member whose kind no JSON holds, else what reading said.

    Args:
        value: The value that was written.
        problems: What was wrong with reading it.
    """
    first = problems[0]
    found = list(_unwritable(value, "$"))
    if found:
        return next((one for one in found if one[0] == first.path), found[0])
    fix = "let its validators take what its serializers write, under the same names"
    return first.path, f"what is written can't be read back ({first.message}); {fix}"


def _unwritable(value: object, path: str) -> Iterator[Difference]:
    members = members_of(value)
    if members is None:
        problem = unwritable_problem(value)
        if problem is not None:
            yield path, problem
        return
    for key, member in members:
        place = child_path(path, key)
        problem = unwritable_problem(key) if isinstance(key, str) else None
        if problem is not None:
            yield place, problem
        yield from _unwritable(member, place)


def _first_unwritten(value: object, path: str, error: Exception) -> Difference:
    members = members_of(value)
    if members is None:
        members = [] if isinstance(value, type) else list(getattr(value, "__dict__", {}).items())
    for key, member in members:
        try:
            pydantic_core.to_json(member, by_alias=True, bytes_mode="base64")
        except Exception as inner:
            return _first_unwritten(member, child_path(path, key), inner)
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if text.startswith("Unable to serialize unknown type"):
        return path, f"{class_name(type(value))} has no JSON form; declare its type, or convert it yourself"
    return path, f"it can't be written as JSON: {text}"
