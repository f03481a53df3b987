"""Claiming runs, jobs and events: whoever takes a row locks it, and passes over rows that others hold."""

from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Executable,
    Integer,
    Table,
    Text,
    and_,
    bindparam,
    func,
    or_,
    select,
    update,
)

from stagewright_persistence_sqlalchemy import tables
from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind

__all__ = ["claim_pending_runs", "dequeue_jobs", "serves_parameters"]


def serves_parameters(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The parameters of a `serves` filter of so many pairs."""
    parameters: dict[str, Any] = {}
    for number, (workflow_id, version) in enumerate(pairs):
        parameters |= {f"served_workflow_{number}": workflow_id, f"served_version_{number}": version}
    return parameters


def _is_served(table: Table, pairs: int | None) -> ColumnElement[bool] | None:
    if pairs is None:
        return None
    rows = []
    for number in range(pairs):
        workflow_id = bindparam(f"served_workflow_{number}", type_=Text())
        version = bindparam(f"served_version_{number}", type_=Text())
        fits = or_(table.c.definition_version.is_(None), table.c.definition_version == version)
        rows.append(and_(table.c.workflow_id == workflow_id, fits))
    return or_(*rows)


@lru_cache(maxsize=64)
def claim_pending_runs(pairs: int | None) -> Executable:
    """Make PENDING runs RUNNING: higher priority first, then the older, then the smaller id."""
    runs = tables.runs
    now = bindparam("now", type_=Moment())
    chosen = (
        select(runs.c.id)
        .where(runs.c.status == "PENDING")
        .order_by(runs.c.priority.desc(), runs.c.created_at, runs.c.id)
        .limit(bindparam("limit", type_=Integer()))
        .with_for_update(skip_locked=True)
    )
    served = _is_served(runs, pairs)
    if served is not None:
        chosen = chosen.where(served)
    # A common table expression is evaluated once; as a plain subquery the planner may evaluate it row by row.
    taken = chosen.cte("taken")
    return (
        update(runs)
        .where(runs.c.id.in_(select(taken.c.id)))
        .values(
            status="RUNNING",
            started_at=func.coalesce(runs.c.started_at, now),
            updated_at=now,
            version=runs.c.version + 1,
        )
        .returning(*runs.c)
    )


@lru_cache(maxsize=64)
def dequeue_jobs(kind: DatabaseKind, pairs: int | None) -> Executable:
    """Make due PENDING jobs RUNNING under a worker: higher priority first, then the earlier enqueued."""
    jobs = tables.jobs
    now = kind.now(bindparam("now", type_=Moment()))
    chosen = (
        select(jobs.c.position)
        .where(jobs.c.status == "PENDING", or_(jobs.c.due_at.is_(None), jobs.c.due_at <= now))
        .order_by(jobs.c.priority.desc(), jobs.c.position)
        .limit(bindparam("limit", type_=Integer()))
        .with_for_update(skip_locked=True)
    )
    served = _is_served(jobs, pairs)
    if served is not None:
        chosen = chosen.where(served)
    taken = chosen.cte("taken")
    return (
        update(jobs)
        .where(jobs.c.position.in_(select(taken.c.position)))
        .values(
            status="RUNNING",
            worker_id=bindparam("worker_id", type_=Text()),
            deliveries=jobs.c.deliveries + 1,
            started_at=now,
            locked_at=now,
            updated_at=now,
            due_at=None,
        )
        .returning(*jobs.c)
    )
