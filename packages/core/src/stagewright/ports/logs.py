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

    async def create_log(self, line: LogRecord) -> None:
        """Insert one log line: what `append_logs` does with that line alone.

        Raises:
            RecordNotFoundError: If the line's run doesn't exist, at the latest at commit.
        """
        ...
