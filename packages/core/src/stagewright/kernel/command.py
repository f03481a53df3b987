"""What every command is, and how one is checked before anything is done."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from stagewright.definitions.schema_problems import problems_of
from stagewright.duration import Duration, parse_duration, within_calendar
from stagewright.errors import InvalidCommandError, InvalidDurationError
from stagewright.json_values import shown, text_problem
from stagewright.records import ServedDefinition

__all__ = [
    "Command",
    "CommandDuration",
    "Count",
    "Id",
    "Moment",
    "PositiveCount",
    "ServedDefinitions",
    "StorableText",
    "adapter_of",
    "checked_command",
]

_MOST: Final = 1_000_000
_PAIR: Final = "ServedDefinition(workflow_id, version)"

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


def _duration(value: object) -> timedelta:
    try:
        return parse_duration(cast(Duration, value), field="duration")
    except InvalidDurationError as error:
        # The path before it names the field.
        raise ValueError(f"it {error.problem}") from error


CommandDuration: TypeAlias = Annotated[Duration, PlainValidator(_duration)]
"""A length of time; once checked it is a `timedelta`."""


Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
"""How many at most: from 0 to 1,000,000."""

PositiveCount: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=_MOST)]
"""How many at most: from 1 to 1,000,000."""


def _moment(value: object) -> datetime:
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        raise ValueError(
            f"{shown(value)} is no point in time; give an aware datetime, "
            "such as datetime.now(UTC) - timedelta(days=30)"
        )
    if moment.utcoffset() is None:
        raise ValueError(
            f"{shown(value)} has no time zone; give an aware datetime, such as datetime.now(UTC)"
        )
    return within_calendar(moment)


Moment: TypeAlias = Annotated[datetime, PlainValidator(_moment)]
"""A point in time, given as an aware datetime or as its ISO 8601 text; once checked it is in UTC."""


def _served(value: object) -> Sequence[ServedDefinition] | Literal["all"] | None:
    if value is None:
        return None
    if value == "all":
        return "all"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ValueError(f'must be None, "all" or a list of {_PAIR}')
    return tuple(_pair(member) for member in cast("Sequence[object]", value))


def _pair(member: object) -> ServedDefinition:
    if isinstance(member, Mapping):
        named = cast("Mapping[str, object]", member)
        names: list[object] = [named.get("workflow_id"), named.get("version")] if len(named) == 2 else []
    else:
        names = [member.workflow_id, member.version] if isinstance(member, ServedDefinition) else []
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{shown(member)} is no {_PAIR}")
    workflow_id, version = cast("list[str]", names)
    return ServedDefinition(_storable(workflow_id), _storable(version))


ServedDefinitions: TypeAlias = Annotated[
    Sequence[ServedDefinition] | Literal["all"] | None, PlainValidator(_served)
]
"""Which definitions: pairs, as such or as dicts of their fields; None is what the kernel's registry lists."""


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
    adapter = adapter_of(cast(Any, kind))
    try:
        checked: Command[Any] = adapter.validate_python(values)
    except ValidationError as error:
        raise InvalidCommandError(
            kind.type, problems_of(error, values, schema=adapter.core_schema)
        ) from error
    return checked


@cache
def adapter_of(
    kind: Any,
) -> TypeAdapter[Any]:  # Any: a class whose instances hash isn't seen as hashable itself
    """The adapter that reads and writes a command or a result, made once."""
    return TypeAdapter(kind)
