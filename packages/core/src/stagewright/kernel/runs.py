"""`kernel.runs`: reading runs and what belongs to them."""

import builtins
from collections.abc import Collection
from datetime import datetime
from typing import Final, get_args

from stagewright.duration import within_calendar
from stagewright.errors import InvalidCommandError, Problem, RunNotFoundError, StageOutputMissingError
from stagewright.json_values import Json, shown, text_problem
from stagewright.kernel.context import KernelPorts
from stagewright.ports import RunReader
from stagewright.records import (
    EventRecord,
    LogLevel,
    LogRecord,
    Page,
    RunQuery,
    RunRecord,
    SignalRecord,
    StageRecord,
    StepRecord,
)
from stagewright.runtime.claim_check import load_spilled
from stagewright.status import Status
from stagewright.system import HomeProcess

__all__ = ["Runs"]

_MOST: Final = 1_000
_LAST_SEQUENCE: Final = 2**63 - 1
_STATUSES: Final = tuple(status.value for status in Status)


class Runs:
    """The read side of a kernel; nothing here locks or changes anything."""

    def __init__(self, ports: KernelPorts, home: HomeProcess) -> None:
        self._ports = ports
        self._home = home

    @property
    def _reader(self) -> RunReader:
        self._home.require("this kernel")
        return self._ports.run_reader

    async def get(self, run_id: str) -> RunRecord | None:
        """The run, or None; also for an id that no run can have, such as text with a NUL character.

        Raises:
            InvalidCommandError: If the id isn't text, as everywhere here.
        """
        reader = self._reader
        return await reader.get_run(run_id) if _can_exist("run_id", run_id) else None

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
            InvalidCommandError: If the limit is out of range, a time has no zone, or anything is of another type.
        """
        reader = self._reader
        query = RunQuery(
            workflow_id=workflow_id,
            statuses=_statuses(statuses),
            definition_version=definition_version,
            created_from=_aware("created_from", created_from),
            created_to=_aware("created_to", created_to),
        )
        limit = _limit(limit)
        names = {"workflow_id": workflow_id, "definition_version": definition_version}
        known = [_can_exist(field, name) for field, name in names.items() if name is not None]
        if not all(known):
            return Page(items=())
        return await reader.list_runs(query, limit=limit, cursor=cursor)

    async def stages(self, run_id: str) -> builtins.list[StageRecord]:
        """The stages of a run, by execution group, then by stage number; nothing for an unknown run."""
        reader = self._reader
        return await reader.list_stages(run_id) if _can_exist("run_id", run_id) else []

    async def steps(self, run_id: str) -> builtins.list[StepRecord]:
        """All durable steps of a run, by the order of their stages, then as they were first asked for.

        A run may have tens of thousands; `step_page` shows them page by page.
        """
        reader = self._reader
        if not _can_exist("run_id", run_id):
            return []
        return [*(await reader.list_steps(run_id, limit=None, cursor=None)).items]

    async def step_page(
        self, run_id: str, *, limit: int = 200, cursor: str | None = None
    ) -> Page[StepRecord]:
        """The durable steps of a run in the order of `steps`, page by page; nothing for an unknown run.

        Args:
            run_id: The run.
            limit: At most so many, from 1 to 1,000.
            cursor: The `next_cursor` of the page before.

        Raises:
            InvalidCursorError: If the cursor is not one of this run's steps.
            InvalidCommandError: If the limit is out of range, or the id isn't text.
        """
        reader, limit = self._reader, _limit(limit)
        if not _can_exist("run_id", run_id):
            return Page(items=())
        return await reader.list_steps(run_id, limit=limit, cursor=cursor)

    async def signals(self, run_id: str) -> builtins.list[SignalRecord]:
        """The signals of a run that no step has taken yet, in the order in which they were accepted."""
        self._home.require("this kernel")
        return await self._ports.persistence.list_signals(run_id) if _can_exist("run_id", run_id) else []

    async def logs(
        self, run_id: str, *, level: LogLevel | None = None, limit: int = 200, cursor: str | None = None
    ) -> Page[LogRecord]:
        """The log lines of a run, the oldest first; only those of one level where it is given."""
        reader, limit = self._reader, _limit(limit)
        if level is not None and level not in get_args(LogLevel):
            raise _refused("level", f"must be one of {', '.join(get_args(LogLevel))}; got {shown(level)}")
        if not _can_exist("run_id", run_id):
            return Page(items=())
        return await reader.list_logs(run_id, level=level, limit=limit, cursor=cursor)

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> builtins.list[EventRecord]:
        """The events of a run with a sequence above `after`, in order, published or not."""
        reader, limit = self._reader, _limit(limit)
        if isinstance(after, bool) or not isinstance(after, int):
            raise _refused("after", f"must be a whole number; got {shown(after)}")
        if not _can_exist("run_id", run_id) or after >= _LAST_SEQUENCE:
            return []
        return await reader.list_events(run_id, after=max(after, 0), limit=limit)

    async def output_of(self, run_id: str, stage_id: str) -> Json:
        """The output of a COMPLETED stage, spilled or not.

        Raises:
            RunNotFoundError: If there is no such run.
            StageOutputMissingError: If the stage has no output, naming those that have one.
            SpilledPayloadUnavailableError: If its blob can't be read.
        """
        self._home.require("this kernel")
        if not _can_exist("run_id", run_id):
            raise RunNotFoundError(run_id)
        _can_exist("stage_id", stage_id)
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
        raise _refused("limit", f"{shown(limit)} is not from 1 to {_MOST}")
    return limit


def _can_exist(field: str, name: object) -> bool:
    """Whether a store can hold such a name at all."""
    if not isinstance(name, str):
        raise _refused(field, f"must be text; got {shown(name)}")
    return text_problem(name) is None


def _statuses(statuses: Collection[Status] | None) -> Collection[Status] | None:
    if statuses is None:
        return None
    given: object = statuses
    if isinstance(given, str) or not isinstance(given, Collection):
        raise _refused("statuses", f"must be a list of statuses; got {shown(given)}")
    for status in given:
        if not isinstance(status, str) or status not in _STATUSES:
            raise _refused("statuses", f"{shown(status)} is none of {', '.join(_STATUSES)}")
    return tuple(map(Status, statuses))


def _aware(field: str, moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise _refused(field, f"must be an aware datetime; got {shown(moment)}")
    if moment.utcoffset() is None:
        raise _refused(field, "has no time zone; give an aware time")
    return within_calendar(moment)


def _refused(field: str, message: str) -> InvalidCommandError:
    return InvalidCommandError("runs", (Problem(path=f"$.{field}", message=message),))
