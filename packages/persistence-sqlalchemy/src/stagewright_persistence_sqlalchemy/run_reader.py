"""Reading for people."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select, union_all

from stagewright.cursors import (
    StepPosition,
    cursor_after,
    cursor_after_step,
    position_after,
    step_position_after,
)
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

    async def list_steps(self, run_id: str, *, limit: int | None, cursor: str | None) -> Page[StepRecord]:
        """The durable steps of a run, by the order of their stages, then by `seq`; all of them without a limit."""
        steps, stages = self._tables.steps, self._tables.stages
        place = (stages.c.execution_group, stages.c.stage_number, stages.c.id, steps.c.seq, steps.c.id)
        statement = (
            select(steps, *(column.label(f"place_{column.name}") for column in place[:2]))
            .join(stages, stages.c.id == steps.c.stage_record_id)
            .where(stages.c.run_id == run_id)
            .order_by(*place)
        )
        if cursor is not None:
            statement = statement.where(_comes_after(place, step_position_after(run_id, cursor)))
        if limit is not None:
            statement = statement.limit(limit + 1)
        rows = await self._fetch(statement, {})
        shown = rows[:limit]
        next_cursor = None
        if shown and len(shown) < len(rows):
            last, row = step_of(shown[-1]), shown[-1]
            stage = (row["place_execution_group"], row["place_stage_number"], last.stage_record_id)
            next_cursor = cursor_after_step(run_id, StepPosition(*stage, last.seq, last.id))
        return Page(items=tuple(step_of(row) for row in shown), next_cursor=next_cursor)

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


def _comes_after(columns: Sequence[ColumnElement[Any]], position: StepPosition) -> ColumnElement[bool]:
    """Whether a row comes after a position in the order of those columns."""
    *earlier, last = zip(columns, position, strict=True)
    later: ColumnElement[bool] = last[0] > last[1]
    for column, value in reversed(earlier):
        later = and_(column >= value, or_(column > value, later))
    return later


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
