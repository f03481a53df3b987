"""Reading for people."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select, union_all

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
from stagewright.status import Status
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.rows import event_of, log_of, run_of, stage_record_of, step_of
from stagewright_persistence_sqlalchemy.statements import reads
from stagewright_persistence_sqlalchemy.tables import Tables

__all__ = ["RunReading"]


class RunReading(Connection):
    """`RunReader`; `get_run` is the run store's."""

    async def list_runs(self, query: RunQuery, *, limit: int, cursor: str | None) -> Page[RunRecord]:
        """Runs by `created_at`, then by id, the newest first."""
        before = None if cursor is None else position_after("runs", cursor)
        statuses = [None] if query.statuses is None else sorted(set(query.statuses))
        if not statuses:
            return Page(items=(), next_cursor=None)
        # Each status has its own range of an index; together they would be sorted, however many they are.
        ranges = [_newest(self._tables, query, status, before, limit + 1) for status in statuses]
        statement: Select[Any] = ranges[0]
        if len(ranges) > 1:
            found_runs = union_all(*(select(one.subquery()) for one in ranges)).subquery()
            newest = (found_runs.c.created_at.desc(), found_runs.c.id.desc())
            statement = select(found_runs).order_by(*newest).limit(limit + 1)
        found = [run_of(row) for row in await self._fetch(statement, {})]
        shown = tuple(found[:limit])
        more = len(found) > limit and bool(shown)
        return Page(
            items=shown,
            next_cursor=cursor_after("runs", (shown[-1].created_at, shown[-1].id)) if more else None,
        )

    async def list_stages(self, run_id: str) -> list[StageRecord]:
        """The stages of a run, by execution group, then by stage number."""
        return [
            stage_record_of(row)
            for row in await self._fetch(reads.stages_of_run(self._tables), {"run_id": run_id})
        ]

    async def list_steps(self, run_id: str) -> list[StepRecord]:
        """The durable steps of a run, by the order of their stages, then by `seq`."""
        steps, stages = self._tables.steps, self._tables.stages
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
        logs = self._tables.logs.c
        statement = select(self._tables.logs).where(logs.run_id == run_id)
        if level is not None:
            statement = statement.where(logs.level == level)
        if cursor is not None:
            moment, last = position_after("logs", cursor)
            later = and_(logs.created_at >= moment, or_(logs.created_at > moment, logs.id > last))
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
        events = self._tables.outbox.c
        statement = (
            select(self._tables.outbox)
            .where(events.run_id == run_id, events.sequence > after)
            .order_by(events.sequence)
            .limit(limit)
        )
        return [event_of(row) for row in await self._fetch(statement, {})]


def _lies_before(
    created_at: ColumnElement[Any], id: ColumnElement[Any], moment: datetime, last: str
) -> ColumnElement[bool]:
    # So it is a range of the index; a plain OR of both would be a filter behind all rows before it.
    return and_(created_at <= moment, or_(created_at < moment, id < last))


def _newest(
    tables: Tables, query: RunQuery, status: Status | None, before: tuple[datetime, str] | None, limit: int
) -> Select[Any]:
    """The newest runs of one status, or of any, that a query wants."""
    runs = tables.runs.c
    statement = select(tables.runs).order_by(runs.created_at.desc(), runs.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(_lies_before(runs.created_at, runs.id, *before))
    if query.workflow_id is not None:
        statement = statement.where(runs.workflow_id == query.workflow_id)
    if status is not None:
        statement = statement.where(runs.status == str(status))
    if query.definition_version is not None:
        statement = statement.where(runs.definition_version == query.definition_version)
    if query.created_from is not None:
        statement = statement.where(runs.created_at >= query.created_from)
    if query.created_to is not None:
        statement = statement.where(runs.created_at < query.created_to)
    return statement
