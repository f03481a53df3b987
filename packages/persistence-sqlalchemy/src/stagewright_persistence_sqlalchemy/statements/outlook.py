"""What there is to do, in one statement."""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Executable,
    Table,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = ["current_outlook"]


@for_tables(maxsize=1)
def current_outlook(tables: Tables) -> Executable:
    """One row of what waits, each part read from an index."""
    now = bindparam("now", type_=Moment())
    runs, stages, jobs, outbox = tables.runs.c, tables.stages.c, tables.jobs.c, tables.outbox.c
    waiting = jobs.status == literal_column("'PENDING'")
    due = or_(jobs.due_at.is_(None), jobs.due_at <= now)
    offered = or_(outbox.retry_at.is_(None), outbox.retry_at <= now)
    # A long queue is not looked through for the first job that is due later.
    later = select(func.min(jobs.due_at)).where(waiting).scalar_subquery()
    return select(
        _any(tables.runs, runs.status == literal_column("'PENDING'")).label("pending_runs"),
        _any(tables.runs, runs.status == literal_column("'RUNNING'")).label("running_runs"),
        _any(tables.jobs, jobs.status == literal_column("'RUNNING'")).label("held_jobs"),
        _any(tables.outbox, tables.is_pending(), offered).label("undelivered_events"),
        case((_any(tables.jobs, waiting, due), now), else_=later).label("next_job_at"),
        select(func.min(stages.next_poll_at))
        .where(stages.status == literal_column("'SUSPENDED'"))
        .scalar_subquery()
        .label("next_poll_at"),
    )


def _any(table: Table, *conditions: ColumnElement[Any]) -> ColumnElement[bool]:
    return exists().select_from(table).where(*conditions)
