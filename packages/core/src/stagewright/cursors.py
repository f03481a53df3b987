"""Where a listing goes on: opaque text around the sort key of the last item shown."""

import base64
import json
from datetime import datetime
from typing import Any, Final, TypeAlias

from stagewright.errors import InvalidCursorError
from stagewright.json_values import text_problem

__all__ = ["Position", "cursor_after", "cursor_after_place", "place_after", "position_after"]

Position: TypeAlias = tuple[datetime, str]
"""When an item was made, and its id."""

_LAST_PLACE: Final = 2**63 - 1


def cursor_after(listing: str, position: Position) -> str:
    """The cursor of a listing for what comes after a position."""
    moment, id = position
    return _encoded([listing, moment.isoformat(), id])


def position_after(listing: str, cursor: str) -> Position:
    """Read a cursor of this listing.

    Raises:
        InvalidCursorError: If this listing never gave it.
    """
    if not isinstance(cursor, str):
        raise InvalidCursorError(cursor)
    try:
        name, moment, id = _decoded(cursor)
        position = (datetime.fromisoformat(moment), str(id))
        is_ours = (
            name == listing
            and position[0].tzinfo is not None
            and text_problem(position[1]) is None
            and cursor_after(listing, position) == cursor
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidCursorError(cursor) from error
    if not is_ours:
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
    try:
        name, place = _decoded(cursor)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidCursorError(cursor) from error
    is_place = type(place) is int and 0 <= place <= _LAST_PLACE
    if name != listing or not is_place or cursor_after_place(listing, place) != cursor:
        raise InvalidCursorError(cursor)
    return int(place)


def _encoded(parts: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


def _decoded(cursor: str) -> Any:
    return json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
