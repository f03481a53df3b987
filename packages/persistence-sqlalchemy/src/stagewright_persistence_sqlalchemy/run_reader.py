"""Reading for people."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, literal, or_, select

from stagewright.cursors import cursor_after, position_after
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
from stagewright_persistence_sqlalchemy import tables
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.rows import event_of, log_of, run_of, stage_record_of, step_of
from stagewright_persistence_sqlalchemy.statements import reads

__all__ = ["RunReading"]


class RunReading(Connection):
    """`RunReader`; `get_run` is the run store's."""

    async def list_runs(self, query: RunQuery, *, limit: int, cursor: str | None) -> Page[RunRecord]:
        """Runs by `created_at`, then by id, the newest first."""
        runs = tables.runs.c
        statement = _filtered(query).order_by(runs.created_at.desc(), runs.id.desc()).limit(limit + 1)
        if cursor is not None:
            moment, last = position_after("runs", cursor)
            statement = statement.where(_lies_before(runs.created_at, runs.id, moment, last))
        found = [run_of(row) for row in await self._fetch(statement, {})]
        shown = tuple(found[:limit])
        more = len(found) > limit and bool(shown)
        return Page(
            items=shown,
            next_cursor=cursor_after("runs", (shown[-1].created_at, shown[-1].id)) if more else None,
        )

    async def list_stages(self, run_id: str) -> list[StageRecord]:
        """The stages of a run, by execution group, then by stage number."""
        return [stage_record_of(row) for row in await self._fetch(reads.stages_of_run(), {"run_id": run_id})]

    async def list_steps(self, run_id: str) -> list[StepRecord]:
        """The durable steps of a run, by the order of their stages, then by `seq`."""
        steps, stages = tables.steps, tables.stages
        statement = (
            select(steps)
            .join(stages, stages.c.id == steps.c.stage_record_id)
            .where(stages.c.run_id == run_id)
            .order_by(stages.c.execution_group, stages.c.stage_number, stages.c.id, steps.c.seq, steps.c.id)
        )
        return [step_of(row) for row in await self._fetch(statement, {})]

    async def list_logs(
        self, run_id: str, *, level: LogLevel | None, limit: int, cursor: str | None
    ) -> Page[LogRecord]:
        """The log lines of a run, or those of one level, the oldest first."""
        logs = tables.logs.c
        statement = select(tables.logs).where(logs.run_id == run_id)
        if level is not None:
            statement = statement.where(logs.level == level)
        if cursor is not None:
            moment, last = position_after("logs", cursor)
            later = or_(logs.created_at > moment, and_(logs.created_at == moment, logs.id > last))
            statement = statement.where(later)
        rows = await self._fetch(statement.order_by(logs.created_at, logs.id).limit(limit + 1), {})
        found = [log_of(row) for row in rows]
        shown = tuple(found[:limit])
        more = len(found) > limit and bool(shown)
        return Page(
            items=shown,
            next_cursor=cursor_after("logs", (shown[-1].created_at, shown[-1].id)) if more else None,
        )

    async def list_events(self, run_id: str, *, after: int, limit: int) -> list[EventRecord]:
        """The events of a run with a sequence above `after`, published or not, by sequence."""
        events = tables.outbox.c
        statement = (
            select(tables.outbox)
            .where(events.run_id == run_id, events.sequence > after)
            .order_by(events.sequence)
            .limit(limit)
        )
        return [event_of(row) for row in await self._fetch(statement, {})]


def _lies_before(
    created_at: ColumnElement[Any], id: ColumnElement[Any], moment: datetime, last: str
) -> ColumnElement[bool]:
    return or_(created_at < moment, and_(created_at == moment, id < last))


def _filtered(query: RunQuery) -> Select[Any]:
    runs = tables.runs.c
    statement = select(tables.runs)
    if query.workflow_id is not None:
        statement = statement.where(runs.workflow_id == query.workflow_id)
    if query.statuses is not None:
        statement = statement.where(runs.status.in_([literal(str(status)) for status in query.statuses]))
    if query.definition_version is not None:
        statement = statement.where(runs.definition_version == query.definition_version)
    if query.created_from is not None:
        statement = statement.where(runs.created_at >= query.created_from)
    if query.created_to is not None:
        statement = statement.where(runs.created_at < query.created_to)
    return statement
