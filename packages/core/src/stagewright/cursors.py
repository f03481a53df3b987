"""Where a listing goes on: opaque text around the sort key of the last item shown."""

import base64
import json
from datetime import datetime
from typing import TypeAlias

from stagewright.errors import InvalidCursorError

__all__ = ["Position", "cursor_after", "position_after"]

Position: TypeAlias = tuple[datetime, str]
"""When an item was made, and its id."""


def cursor_after(listing: str, position: Position) -> str:
    """The cursor of a listing for what comes after a position."""
    moment, id = position
    return base64.urlsafe_b64encode(json.dumps([listing, moment.isoformat(), id]).encode()).decode()


def position_after(listing: str, cursor: str) -> Position:
    """Read a cursor of this listing.

    Raises:
        InvalidCursorError: If this listing never gave it.
    """
    try:
        name, moment, id = json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
        position = (datetime.fromisoformat(moment), str(id))
        is_ours = (
            name == listing and position[0].tzinfo is not None and cursor_after(listing, position) == cursor
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidCursorError(cursor) from error
    if not is_ours:
        raise InvalidCursorError(cursor)
    return position
