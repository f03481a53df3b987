"""`kernel.runs`: reading runs and what belongs to them."""

import builtins
from collections.abc import Collection
from datetime import datetime
from typing import Final

from stagewright.errors import InvalidCommandError, Problem, RunNotFoundError, StageOutputMissingError
from stagewright.json_values import Json
from stagewright.kernel.context import KernelPorts
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
from stagewright.runtime.claim_check import load_spilled
from stagewright.status import Status

__all__ = ["Runs"]

_MOST: Final = 1_000


class Runs:
    """The read side of a kernel; nothing here locks or changes anything."""

    def __init__(self, ports: KernelPorts) -> None:
        self._ports = ports
        self._reader = ports.run_reader

    async def get(self, run_id: str) -> RunRecord | None:
        """The run, or None."""
        return await self._reader.get_run(run_id)

    async def list(
        self,
        *,
        workflow_id: str | None = None,
        statuses: Collection[Status] | None = None,
        definition_version: str | None = None,
        created_from: datetime | None = None,
        created_to: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[RunRecord]:
        """Runs, the newest first.

        Args:
            workflow_id: Only runs of this workflow.
            statuses: Only runs in one of these.
            definition_version: Only runs pinned to this version.
            created_from: Only runs created at or after.
            created_to: Only runs created before.
            limit: At most so many, from 1 to 1,000.
            cursor: The `next_cursor` of the page before.

        Raises:
            InvalidCursorError: If the cursor is not one of this listing.
            InvalidCommandError: If the limit is out of range, or a time has no zone.
        """
        query = RunQuery(
            workflow_id=workflow_id,
            statuses=statuses,
            definition_version=definition_version,
            created_from=_aware("created_from", created_from),
            created_to=_aware("created_to", created_to),
        )
        return await self._reader.list_runs(query, limit=_limit(limit), cursor=cursor)

    async def stages(self, run_id: str) -> builtins.list[StageRecord]:
        """The stages of a run, by execution group, then by stage number; nothing for an unknown run."""
        return await self._reader.list_stages(run_id)

    async def steps(self, run_id: str) -> builtins.list[StepRecord]:
        """The durable steps of a run, by the order of their stages, then as they were first asked for."""
        return await self._reader.list_steps(run_id)

    async def logs(
        self, run_id: str, *, level: LogLevel | None = None, limit: int = 200, cursor: str | None = None
    ) -> Page[LogRecord]:
        """The log lines of a run, the oldest first; only those of one level where it is given."""
        return await self._reader.list_logs(run_id, level=level, limit=_limit(limit), cursor=cursor)

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> builtins.list[EventRecord]:
        """The events of a run with a sequence above `after`, in order, published or not."""
        return await self._reader.list_events(run_id, after=after, limit=_limit(limit))

    async def output_of(self, run_id: str, stage_id: str) -> Json:
        """The output of a COMPLETED stage, spilled or not.

        Raises:
            RunNotFoundError: If there is no such run.
            StageOutputMissingError: If the stage has no output, naming those that have one.
            SpilledPayloadUnavailableError: If its blob can't be read.
        """
        stages = await self._ports.persistence.get_stages_by_run(run_id)
        done = {stage.stage_id: stage for stage in stages if stage.status is Status.COMPLETED}
        stage = done.get(stage_id)
        if stage is None:
            if not stages and await self.get(run_id) is None:
                raise RunNotFoundError(run_id)
            raise StageOutputMissingError(stage_id, tuple(done))
        if stage.output_claim is not None:
            return await load_spilled(self._ports.blob_store, stage.output_claim)
        return stage.output


def _limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST:
        raise InvalidCommandError(
            "runs", (Problem(path="$.limit", message=f"{limit!r} is not from 1 to {_MOST}"),)
        )
    return limit


def _aware(field: str, moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise InvalidCommandError(
            "runs", (Problem(path=f"$.{field}", message="has no time zone; give an aware time"),)
        )
    return moment
