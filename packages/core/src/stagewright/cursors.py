"""Where a listing goes on: opaque text around the sort key of the last item shown."""

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from stagewright.errors import InvalidCursorError
from stagewright.json_values import text_problem

__all__ = [
    "Position",
    "StepPosition",
    "cursor_after",
    "cursor_after_place",
    "cursor_after_step",
    "place_after",
    "position_after",
    "step_position_after",
]

Position: TypeAlias = tuple[datetime, str]
"""When an item was made, and its id."""


class StepPosition(NamedTuple):
    """Where a durable step stands among those of its run.

    Attributes:
        execution_group, stage_number, stage_record_id: Of its stage.
        seq: Of the step in its stage.
        id: The step record's id.
    """

    execution_group: int
    stage_number: int
    stage_record_id: str
    seq: int
    id: str


_LAST_PLACE: Final = 2**63 - 1
_LAST_NUMBER: Final = 2**31 - 1
_LONGEST: Final = 16_384
"""More characters than any id makes, and few enough to be looked at."""

_CHECKED: Final = 6


def cursor_after(listing: str, position: Position) -> str:
    """The cursor of a listing for what comes after a position."""
    moment, id = position
    return _encoded([listing, moment.astimezone(UTC).isoformat(), id])


def position_after(listing: str, cursor: str) -> Position:
    """Read a cursor of this listing.

    Raises:
        InvalidCursorError: If this listing never gave it.
    """
    parts = _parts(listing, cursor, (str, str))
    try:
        position = (datetime.fromisoformat(parts[0]), parts[1])
    except ValueError as error:
        raise InvalidCursorError(cursor) from error
    # In no other zone: a store would convert it, and at the ends of the calendar there is nothing to convert it to.
    if position[0].utcoffset() != timedelta(0) or cursor_after(listing, position) != cursor:
        raise InvalidCursorError(cursor)
    return position


def cursor_after_place(listing: str, place: int) -> str:
    """The cursor of a listing, whose items have numbers as their places, for what comes after one of them."""
    return _encoded([listing, place])


def place_after(listing: str, cursor: str) -> int:
    """Read a cursor of a listing whose items have numbers as their places.

    Raises:
        InvalidCursorError: If this listing never gave it.
    """
    (place,) = _parts(listing, cursor, (int,))
    if not 0 <= place <= _LAST_PLACE:
        raise InvalidCursorError(cursor)
    return int(place)


def cursor_after_step(run_id: str, position: StepPosition) -> str:
    """The cursor for the durable steps of a run that come after one of them."""
    return _encoded(["steps", run_id, *position])


def step_position_after(run_id: str, cursor: str) -> StepPosition:
    """Read a cursor of the durable steps of a run.

    Raises:
        InvalidCursorError: If their listing never gave it.
    """
    of_run, *parts = _parts("steps", cursor, (str, int, int, str, int, str))
    position = StepPosition(*parts)
    numbers = (position.execution_group, position.stage_number, position.seq)
    if of_run != run_id or not all(0 <= number <= _LAST_NUMBER for number in numbers):
        raise InvalidCursorError(cursor)
    return position


def _encoded(parts: list[Any]) -> str:
    written = json.dumps(parts).encode()
    return base64.urlsafe_b64encode(_check(written) + written).decode()


def _check(written: bytes) -> bytes:
    """What tells a cursor that was damaged or changed by hand from one that was given; it stops no forger."""
    return hashlib.sha256(written).digest()[:_CHECKED]


def _parts(listing: str, cursor: str, types: tuple[type, ...]) -> list[Any]:
    """What a cursor of a listing is made of, each part of its type."""
    if not isinstance(cursor, str) or len(cursor) > _LONGEST:
        raise InvalidCursorError(cursor)
    try:
        given = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        decoded = json.loads(given[_CHECKED:])
    except (ValueError, RecursionError) as error:
        raise InvalidCursorError(cursor) from error
    if not isinstance(decoded, list) or [type(part) for part in decoded] != [str, *types]:
        raise InvalidCursorError(cursor)
    name, *parts = decoded
    texts = [part for part in parts if isinstance(part, str)]
    # Written in another way, it isn't one that was given.
    if name != listing or any(map(text_problem, texts)) or _encoded(decoded) != cursor:
        raise InvalidCursorError(cursor)
    return parts
