"""Reading for people: what `kernel.runs` and a console show."""

from typing import Protocol, runtime_checkable

from stagewright.records import (
    EventRecord,
    LogLevel,
    LogRecord,
    Page,
    RunQuery,
    RunRecord,
    StageRecord,
    StepRecord,
)

__all__ = ["RunReader"]


@runtime_checkable
class RunReader(Protocol):
    """Runs and what belongs to them, as committed. Nothing here locks or waits."""

    async def list_runs(self, query: RunQuery, *, limit: int, cursor: str | None) -> Page[RunRecord]:
        """Runs by `created_at`, then by id, the newest first.

        Following `next_cursor` shows every run that existed at the start exactly once, also while runs are created.

        Raises:
            InvalidCursorError: If the cursor was not given by this method.
        """
        ...

    async def get_run(self, run_id: str) -> RunRecord | None:
        """The run, or None."""
        ...

    async def list_stages(self, run_id: str) -> list[StageRecord]:
        """The stages of a run, by execution group, then by stage number."""
        ...

    async def list_steps(self, run_id: str, *, limit: int | None, cursor: str | None) -> Page[StepRecord]:
        """The durable steps of a run, by the order of their stages, then by `seq`; all of them without a limit.

        Following `next_cursor` shows every step that is there throughout exactly once, also while steps are recorded
        and stages archived. A store reads no more rows than it answers with, and one.

        Raises:
            InvalidCursorError: If the cursor was not given by this method for this run.
        """
        ...

    async def list_logs(
        self, run_id: str, *, level: LogLevel | None, limit: int, cursor: str | None
    ) -> Page[LogRecord]:
        """The log lines of a run, or those of one level, the oldest first.

        Raises:
            InvalidCursorError: If the cursor was not given by this method.
        """
        ...

    async def list_events(self, run_id: str, *, after: int, limit: int) -> list[EventRecord]:
        """The events of a run with a sequence above `after`, published or not, by sequence."""
        ...
