"""Claiming runs, jobs and events: whoever takes a row locks it, and passes over rows that others hold."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    Table,
    Text,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    true,
)

from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.statements.paths import along
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables
from stagewright_persistence_sqlalchemy.taking import Changes, Taking, taking_chosen

__all__ = ["any_of", "claim_pending_runs", "delivery", "dequeue_jobs", "is_served", "serves_parameters"]

_CHAIN: Final = 800


def serves_parameters(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The parameters of a `serves` filter of so many pairs."""
    parameters: dict[str, Any] = {}
    for number, (workflow_id, version) in enumerate(pairs):
        parameters |= {f"served_workflow_{number}": workflow_id, f"served_version_{number}": version}
    return parameters


def any_of(conditions: Sequence[ColumnElement[bool]]) -> ColumnElement[bool]:
    """Whether one of any number of conditions holds; SQLite reads no chain of more than a thousand."""
    while len(conditions) > _CHAIN:
        starts = range(0, len(conditions), _CHAIN)
        groups = [or_(*conditions[start : start + _CHAIN]) for start in starts]
        # SQLAlchemy would make one chain of chains; what is inside a CASE has a depth of its own.
        conditions = [case((group, true()), else_=false()) for group in groups]
    return or_(*conditions)


def is_served(table: Table, pairs: int | None) -> ColumnElement[bool] | None:
    """Whether a run or a job is of one of so many pairs, or of no version and one of their workflows."""
    if pairs is None:
        return None
    rows = []
    for number in range(pairs):
        workflow_id = bindparam(f"served_workflow_{number}", type_=Text())
        version = bindparam(f"served_version_{number}", type_=Text())
        fits = or_(table.c.definition_version.is_(None), table.c.definition_version == version)
        rows.append(and_(table.c.workflow_id == workflow_id, fits))
    return any_of(rows)


@for_tables(maxsize=64)
def claim_pending_runs(tables: Tables, kind: DatabaseKind, pairs: int | None) -> Taking:
    """Make PENDING runs RUNNING: higher priority first, then the older, then the smaller id.

    Where it costs no more, a column `has_stages` tells whether there are stages of the run already.
    """
    runs = tables.runs
    now = bindparam("now", type_=Moment())
    pending = (
        select(runs.c.id)
        .where(runs.c.status == literal_column("'PENDING'"))
        .order_by(runs.c.priority.desc(), runs.c.created_at, runs.c.id)
        .limit(bindparam("limit", type_=Integer()))
        # By itself it takes all PENDING runs out of the index by status, and sorts them.
        .with_hint(runs, f"INDEXED BY {tables.names.of('ix_workflow_runs_pending')}", "sqlite")
    )
    served = is_served(runs, pairs)
    if served is not None:
        pending = pending.where(served)
    pending = along(pending, runs, "ix_workflow_runs_pending")
    changes = (
        (runs.c.status, "RUNNING"),
        (runs.c.started_at, func.coalesce(runs.c.started_at, now)),
        (runs.c.updated_at, now),
        (runs.c.version, runs.c.version + 1),
    )
    told: list[ColumnElement[Any]] = list(runs.c)
    if kind.composes:
        told.append(exists().where(tables.stages.c.run_id == runs.c.id).label("has_stages"))
    return taking_chosen(
        pending.with_for_update(skip_locked=True), runs.c.id, changes, told, candidates=pending
    )


@for_tables(maxsize=64)
def dequeue_jobs(tables: Tables, kind: DatabaseKind, pairs: int | None) -> Taking:
    """Make due PENDING jobs RUNNING under a worker: higher priority first, then the earlier enqueued."""
    jobs = tables.jobs
    now = kind.now(bindparam("now", type_=Moment()))
    chosen = (
        select(jobs.c.position)
        # Spelled out, not bound, here and above: only so a planner sees that the partial index fits.
        .where(
            jobs.c.status == literal_column("'PENDING'"), or_(jobs.c.due_at.is_(None), jobs.c.due_at <= now)
        )
        .order_by(jobs.c.priority.desc(), jobs.c.position)
        .limit(bindparam("limit", type_=Integer()))
        .with_for_update(skip_locked=True)
    )
    served = is_served(jobs, pairs)
    if served is not None:
        chosen = chosen.where(served)
    chosen = along(chosen, jobs, "ix_job_queue_pending")
    return taking_chosen(chosen, jobs.c.position, delivery(tables, kind), tables.told_of_jobs)


def delivery(tables: Tables, kind: DatabaseKind) -> Changes:
    """What becomes of a job that is delivered."""
    jobs = tables.jobs.c
    now = kind.now(bindparam("now", type_=Moment()))
    return (
        (jobs.status, "RUNNING"),
        (jobs.worker_id, bindparam("by_worker", type_=Text())),
        (jobs.deliveries, jobs.deliveries + 1),
        (jobs.started_at, now),
        (jobs.locked_at, now),
        (jobs.updated_at, now),
        (jobs.due_at, None),
    )
