from collections.abc import Sequence
from dataclasses import fields
from typing import TypeVar

from stagewright.cursors import (
    Position,
    StepPosition,
    cursor_after,
    cursor_after_step,
    position_after,
    step_position_after,
)
from stagewright.memory.runs import InMemoryRunStore
from stagewright.records import (
    EventRecord,
    LogLevel,
    LogRecord,
    Page,
    RunQuery,
    RunRecord,
    StageRecord,
    StepRecord,
    StoredStage,
)
from stagewright.records.copies import detached

__all__ = ["InMemoryRunReader"]

Item = TypeVar("Item", RunRecord, LogRecord)

_STAGE_FIELDS = tuple(field.name for field in fields(StageRecord))


class InMemoryRunReader(InMemoryRunStore):
    """Runs and what belongs to them, for people; see `RunReader`."""

    async def list_runs(self, query: RunQuery, *, limit: int, cursor: str | None) -> Page[RunRecord]:
        """Runs by `created_at`, then by id, the newest first."""
        before = None if cursor is None else position_after("runs", cursor)
        async with self._statement("list_runs") as tx:
            runs = [
                run
                for run in tx.all(self._database.runs)
                if _fits(run, query) and (before is None or _position(run) < before)
            ]
        runs.sort(key=_position, reverse=True)
        return _page("runs", runs, limit)

    async def list_stages(self, run_id: str) -> list[StageRecord]:
        """The stages of a run, by execution group, then by stage number."""
        async with self._statement("list_stages") as tx:
            stages = tx.where(self._database.stages, "run", run_id)
        return [_public(detached(stage)) for stage in sorted(stages, key=_stage_order)]

    async def list_steps(self, run_id: str, *, limit: int | None, cursor: str | None) -> Page[StepRecord]:
        """The durable steps of a run, by the order of their stages, then by `seq`; all of them without a limit."""
        after = None if cursor is None else step_position_after(run_id, cursor)
        async with self._statement("list_steps") as tx:
            stages = tx.where(self._database.stages, "run", run_id)
            steps = {
                StepPosition(*_stage_order(stage), step.seq, step.id): step
                for stage in stages
                for step in tx.where(self._database.steps, "stage", stage.id)
            }
        positions = sorted(position for position in steps if after is None or position > after)
        shown = positions if limit is None else positions[: max(limit, 0)]
        more = 0 < len(shown) < len(positions)
        return Page(
            items=tuple(detached(steps[position]) for position in shown),
            next_cursor=cursor_after_step(run_id, shown[-1]) if more else None,
        )

    async def list_logs(
        self, run_id: str, *, level: LogLevel | None, limit: int, cursor: str | None
    ) -> Page[LogRecord]:
        """The log lines of a run, or those of one level, the oldest first."""
        after = None if cursor is None else position_after("logs", cursor)
        async with self._statement("list_logs") as tx:
            lines = [
                line
                for line in tx.where(self._database.logs, "run", run_id)
                if level in (None, line.level) and (after is None or _position(line) > after)
            ]
        lines.sort(key=_position)
        return _page("logs", lines, limit)

    async def list_events(self, run_id: str, *, after: int, limit: int) -> list[EventRecord]:
        """The events of a run with a sequence above `after`, published or not, by sequence."""
        async with self._statement("list_events") as tx:
            records = [row.record for row in tx.where(self._database.outbox, "run", run_id)]
        records = sorted(
            (record for record in records if record.sequence > after), key=lambda record: record.sequence
        )
        return [detached(record) for record in records[: max(limit, 0)]]


def _fits(run: RunRecord, query: RunQuery) -> bool:
    return (
        query.workflow_id in (None, run.workflow_id)
        and (query.statuses is None or run.status in query.statuses)
        and query.definition_version in (None, run.definition_version)
        and (query.created_from is None or run.created_at >= query.created_from)
        and (query.created_to is None or run.created_at < query.created_to)
    )


def _position(item: RunRecord | LogRecord) -> Position:
    return (item.created_at, item.id)


def _stage_order(stage: StoredStage) -> tuple[int, int, str]:
    return (stage.execution_group, stage.stage_number, stage.id)


def _public(stage: StoredStage) -> StageRecord:
    return StageRecord(**{name: getattr(stage, name) for name in _STAGE_FIELDS})


def _page(listing: str, items: Sequence[Item], limit: int) -> Page[Item]:
    shown = tuple(detached(item) for item in items[: max(limit, 0)])
    has_more = 0 < len(shown) < len(items)
    return Page(items=shown, next_cursor=cursor_after(listing, _position(shown[-1])) if has_more else None)
