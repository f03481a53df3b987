"""Stages that are due or want a job, whose runs are locked by whoever takes them; and runs that stand still."""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Executable,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    exists,
    literal_column,
    or_,
    select,
)

from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.statements.claims import is_served
from stagewright_persistence_sqlalchemy.statements.paths import PRIMARY, along
from stagewright_persistence_sqlalchemy.statements.reads import numbered
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = ["due_stages", "lock_running_runs", "owed_stages", "still_due", "still_owed", "stuck_runs"]

_BEFORE = bindparam("before", type_=Moment())


def _is_due(tables: Tables) -> ColumnElement[bool]:
    stages = tables.stages.c
    # Spelled out, not bound: only so the planner sees that the partial index fits.
    return and_(stages.status == literal_column("'SUSPENDED'"), stages.next_poll_at <= _BEFORE)


def _is_owed(tables: Tables) -> ColumnElement[bool]:
    stages = tables.stages.c
    return and_(tables.wants_a_job(), stages.updated_at <= _BEFORE)


@for_tables(maxsize=64)
def due_stages(tables: Tables, pairs: int | None, *, lock: bool, without: int = 0) -> Executable:
    """SUSPENDED stages that are due, the earliest first; none of so many runs."""
    return _of_running_runs(
        tables, _is_due(tables), tables.stages.c.next_poll_at, pairs, lock=lock, without=without
    )


@for_tables(maxsize=64)
def owed_stages(tables: Tables, pairs: int | None, *, lock: bool, without: int = 0) -> Executable:
    """Stages that want a job and have none, the earliest changed first; none of so many runs."""
    return _of_running_runs(
        tables, _is_owed(tables), tables.stages.c.updated_at, pairs, lock=lock, without=without
    )


@for_tables(maxsize=64)
def still_due(tables: Tables, count: int) -> Select[Any]:
    """Those of so many stages that are due, in no order, read once their runs are locked."""
    stages = tables.stages
    return select(stages).where(stages.c.id.in_(numbered(count)), _is_due(tables))


@for_tables(maxsize=64)
def still_owed(tables: Tables, count: int) -> Select[Any]:
    """Those of so many stages that want a job and have none, in no order, read once their runs are locked."""
    stages = tables.stages
    return select(stages).where(stages.c.id.in_(numbered(count)), _is_owed(tables))


@for_tables(maxsize=64)
def stuck_runs(tables: Tables, pairs: int | None) -> Executable:
    """RUNNING runs in which nothing has changed, and which wait for no time, by id."""
    runs, stages = tables.runs, tables.stages
    waits = and_(stages.c.status == literal_column("'SUSPENDED'"), stages.c.next_poll_at.is_not(None))
    moves = exists().where(stages.c.run_id == runs.c.id, or_(stages.c.updated_at > _BEFORE, waits))
    stuck: Select[Any] = (
        select(runs)
        .where(
            runs.c.status == literal_column("'RUNNING'"),
            runs.c.updated_at <= _BEFORE,
            runs.c.id > bindparam("after", type_=Text()),
            ~moves,
        )
        .order_by(runs.c.id)
        .limit(bindparam("limit", type_=Integer()))
    )
    served = is_served(runs, pairs)
    return stuck if served is None else stuck.where(served)


@for_tables(maxsize=64)
def lock_running_runs(tables: Tables, count: int) -> Executable:
    """The ids of those of so many runs that are RUNNING and that nobody holds; they are locked by this."""
    runs = tables.runs
    named = select(runs.c.id).where(
        runs.c.id.in_(numbered(count)), runs.c.status == literal_column("'RUNNING'")
    )
    return along(named.with_for_update(skip_locked=True), runs, PRIMARY)


def _of_running_runs(
    tables: Tables,
    fits: ColumnElement[bool],
    order: ColumnElement[Any],
    pairs: int | None,
    *,
    lock: bool,
    without: int,
) -> Executable:
    runs, stages = tables.runs, tables.stages
    found: Select[Any] = (
        select(stages)
        .select_from(stages.join(runs, runs.c.id == stages.c.run_id))
        .where(fits, runs.c.status == literal_column("'RUNNING'"))
        .order_by(order, stages.c.id)
        .limit(bindparam("limit", type_=Integer()))
    )
    served = is_served(runs, pairs)
    if served is not None:
        found = found.where(served)
    if without:
        found = found.where(stages.c.run_id.not_in(numbered(without, "without")))
    return found.with_for_update(of=runs, skip_locked=True) if lock else found
