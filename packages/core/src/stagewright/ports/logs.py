"""Where the log lines of runs are kept."""

from collections.abc import Sequence
from typing import Protocol

from stagewright.records import LogRecord

__all__ = ["LogStore"]


class LogStore(Protocol):
    """Log lines; rows are only added."""

    async def append_logs(self, lines: Sequence[LogRecord]) -> None:
        """Insert log lines; a line whose id exists already is skipped.

        Raises:
            RecordNotFoundError: If a line's run doesn't exist, at the latest at commit.
        """
        ...
