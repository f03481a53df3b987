"""A line of a run's log."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from stagewright.json_values import Json

__all__ = ["LogLevel", "LogRecord"]

LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARN", "ERROR"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One line that a body or the engine logged for a run.

    Attributes:
        id: The line's id; ids sort by the time they were made.
        run_id: The run.
        level: DEBUG, INFO, WARN or ERROR.
        message: The line, storable on every database.
        created_at: When, in UTC.
        stage_record_id: The stage record it was logged in, or None.
        stage_id: The stage it was logged in, or None.
        fields: JSON values that belong to the line.
    """

    id: str
    run_id: str
    level: LogLevel
    message: str
    created_at: datetime
    stage_record_id: str | None = None
    stage_id: str | None = None
    fields: dict[str, Json] = field(default_factory=dict)
