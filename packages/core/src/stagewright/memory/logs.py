from collections.abc import Sequence

from stagewright.errors import RecordNotFoundError
from stagewright.memory.connection import Connection
from stagewright.records import LogRecord
from stagewright.records.copies import detached

__all__ = ["InMemoryLogStore"]


class InMemoryLogStore(Connection):
    """Log lines of runs; see `LogStore`."""

    async def append_logs(self, lines: Sequence[LogRecord]) -> None:
        """Insert log lines; a line whose id exists already is skipped."""
        logs = self._database.logs
        async with self._statement("append_logs") as tx:
            for line in sorted(lines, key=lambda line: line.id):
                if tx.get(self._database.runs, line.run_id) is None:
                    raise RecordNotFoundError("run", line.run_id)
                await tx.lock((logs.name, line.id))
                if tx.get(logs, line.id) is None:
                    tx.put(logs, detached(line))
