"""What every command is, and how one is checked before anything is done."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

from pydantic import AfterValidator, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from stagewright.errors import InvalidCommandError, Problem
from stagewright.json_values import child_path, text_problem

__all__ = ["Command", "Id", "StorableText", "adapter_of", "checked_command"]

R_co = TypeVar("R_co", covariant=True)


def _storable(text: str) -> str:
    problem = text_problem(text)
    if problem is not None:
        raise ValueError(problem)
    return text


StorableText: TypeAlias = Annotated[str, AfterValidator(_storable)]
"""Text that every store can hold."""

Id: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(_storable)]
"""A name or key of 1 to 255 characters."""


class Command(Generic[R_co]):
    """Something a kernel is asked to do; dispatching a `Command[R]` answers an `R`."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    type: ClassVar[str]


def checked_command(kind: type[Command[Any]], command: "Command[Any] | Mapping[str, Any]") -> Command[Any]:
    """The command with its fields checked and read, from an instance or from a dict without its `type`.

    Raises:
        InvalidCommandError: Naming every field that is wrong.
    """
    if isinstance(command, Command):
        # A shallow dict: the values themselves, such as a caller's input, are looked at by the handler.
        values = {field.name: getattr(command, field.name) for field in fields(command)}  # type: ignore[arg-type]  # commands are dataclasses
    else:
        values = dict(command)
    try:
        checked: Command[Any] = adapter_of(cast(Any, kind)).validate_python(values)
    except ValidationError as error:
        raise InvalidCommandError(kind.type, _problems(error)) from error
    return checked


def _problems(error: ValidationError) -> tuple[Problem, ...]:
    found = []
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        path = "$"
        for part in detail["loc"]:
            path = child_path(path, part)
        found.append(Problem(path=path, message=detail["msg"]))
    return tuple(found)


@cache
def adapter_of(
    kind: Any,
) -> TypeAdapter[Any]:  # Any: a class whose instances hash isn't seen as hashable itself
    """The adapter that reads and writes a command or a result, made once."""
    return TypeAdapter(kind)
