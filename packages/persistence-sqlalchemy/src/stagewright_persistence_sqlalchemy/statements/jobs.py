"""Jobs by id and by run, and their leases."""

from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Executable,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)

from stagewright_persistence_sqlalchemy import tables
from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.statements.reads import numbered
from stagewright_persistence_sqlalchemy.statements.writes import (
    ACKNOWLEDGEMENT_COLUMNS,
    acknowledge_jobs,
    row_source,
)

__all__ = [
    "acknowledge_at_once",
    "cancel_by_run",
    "delete_jobs",
    "depth",
    "expire_runaway",
    "jobs_of_run",
    "release_stale",
    "touch",
]


def _now(kind: DatabaseKind) -> ColumnElement[Any]:
    return kind.now(bindparam("now", type_=Moment()))


def _before(kind: DatabaseKind) -> ColumnElement[Any]:
    """The moment that lies an age before now, on the clock that stamps leases."""
    if not kind.has_clock:
        return bindparam("before", type_=Moment())
    age = bindparam("age_us", type_=BigInteger()) * literal_column("interval '1 microsecond'")
    # The statement's own time, unlike the running clock, lets an index be used.
    return func.statement_timestamp(type_=Moment) - age


@lru_cache(maxsize=8)
def acknowledge_at_once(kind: DatabaseKind) -> Executable:
    """Settle one job."""
    return acknowledge_jobs(kind, row_source(ACKNOWLEDGEMENT_COLUMNS))


@lru_cache(maxsize=8)
def touch(kind: DatabaseKind) -> Executable:
    """Renew a lease under its fence."""
    jobs = tables.jobs.c
    return (
        update(tables.jobs)
        .where(
            jobs.id == bindparam("of_id", type_=Text()),
            jobs.status == "RUNNING",
            jobs.started_at == bindparam("fence_started_at", type_=Moment()),
            jobs.deliveries == bindparam("fence_deliveries", type_=Integer()),
        )
        .values(locked_at=_now(kind))
    )


@lru_cache(maxsize=8)
def release_stale(kind: DatabaseKind) -> Executable:
    """End leases that were not renewed in time: PENDING again, or FAILED when the budget is spent."""
    jobs = tables.jobs.c
    lost = (
        select(jobs.position)
        .where(jobs.status == literal_column("'RUNNING'"), jobs.locked_at < _before(kind))
        .with_for_update(skip_locked=True)
        .cte("lost")
    )
    spent = jobs.worker_losses + 1 >= jobs.max_worker_losses
    now = _now(kind)
    return (
        update(tables.jobs)
        .where(jobs.position.in_(select(lost.c.position)))
        .values(
            status=case((spent, "FAILED"), else_="PENDING"),
            worker_losses=jobs.worker_losses + 1,
            last_error=bindparam("prefix", type_=Text()).concat(func.coalesce(jobs.worker_id, "(unknown)")),
            completed_at=case((spent, now), else_=None),
            worker_id=case((spent, jobs.worker_id), else_=None),
            locked_at=None,
            updated_at=now,
        )
        .returning(*tables.jobs.c)
    )


@lru_cache(maxsize=8)
def expire_runaway(kind: DatabaseKind) -> Executable:
    """Fail jobs that were delivered too long ago."""
    jobs = tables.jobs.c
    late = (
        select(jobs.position)
        .where(jobs.status == literal_column("'RUNNING'"), jobs.started_at < _before(kind))
        .with_for_update(skip_locked=True)
        .cte("late")
    )
    now = _now(kind)
    return (
        update(tables.jobs)
        .where(jobs.position.in_(select(late.c.position)))
        .values(
            status="FAILED",
            last_error=bindparam("error", type_=Text()),
            completed_at=now,
            locked_at=None,
            updated_at=now,
        )
        .returning(*tables.jobs.c)
    )


@lru_cache(maxsize=8)
def cancel_by_run(kind: DatabaseKind) -> Executable:
    """Cancel a run's waiting jobs, but for those that a claimer is taking."""
    jobs = tables.jobs.c
    waiting = (
        select(jobs.position)
        .where(
            jobs.run_id == bindparam("of_run", type_=Text()),
            jobs.status.in_([literal("PENDING"), literal("SUSPENDED")]),
        )
        .with_for_update(skip_locked=True)
        .cte("waiting")
    )
    now = _now(kind)
    return (
        update(tables.jobs)
        .where(jobs.position.in_(select(waiting.c.position)))
        .values(status="CANCELLED", completed_at=now, updated_at=now)
        .returning(jobs.id)
    )


@lru_cache(maxsize=64)
def delete_jobs(count: int) -> Executable:
    """Delete the jobs of so many stages of a run."""
    jobs = tables.jobs.c
    return delete(tables.jobs).where(
        jobs.run_id == bindparam("run_id", type_=Text()), jobs.stage_id.in_(numbered(count))
    )


@lru_cache(maxsize=1)
def jobs_of_run() -> Select[Any]:
    """The jobs of a run, by the time they were enqueued."""
    jobs = tables.jobs.c
    return select(tables.jobs).where(jobs.run_id == bindparam("run_id", type_=Text())).order_by(jobs.position)


@lru_cache(maxsize=8)
def depth(kind: DatabaseKind) -> Select[Any]:
    """How many jobs are PENDING and due."""
    jobs = tables.jobs.c
    due = or_(jobs.due_at.is_(None), jobs.due_at <= _now(kind))
    return select(func.count().label("depth")).where(and_(jobs.status == literal_column("'PENDING'"), due))
