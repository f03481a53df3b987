"""Deleting rows, and with them what the database deletes or empties because it refers to them."""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    Executable,
    Select,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    func,
    select,
    union_all,
)

from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.statements.reads import numbered
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = [
    "all_tombstones",
    "delete_keys_of_run",
    "delete_run",
    "delete_stage",
    "delete_tombstone",
    "pending_event_of_run",
    "put_tombstone",
    "runs_for_purge",
]


@for_tables(maxsize=1)
def delete_stage(tables: Tables) -> Delete:
    """Delete a stage; annotations that were made in it refer to nothing then."""
    return delete(tables.stages).where(tables.stages.c.id == bindparam("of_id", type_=Text()))


@for_tables(maxsize=1)
def delete_run(tables: Tables) -> Delete:
    """Delete a run with its stages, signals, log lines, annotations and events."""
    return delete(tables.runs).where(tables.runs.c.id == bindparam("of_id", type_=Text()))


@for_tables(maxsize=1)
def delete_keys_of_run(tables: Tables) -> Delete:
    """Delete the idempotency keys that name a run."""
    keys = tables.idempotency_keys
    return delete(keys).where(keys.c.run_id == bindparam("of_id", type_=Text()))


@for_tables(maxsize=8)
def runs_for_purge(tables: Tables, count: int) -> Select[Any]:
    """Runs of so many statuses that ended before and have told everything, the first to end first."""
    runs = tables.runs.c
    before = bindparam("before", type_=Moment())
    # Either part is found in its order by the index of ends, which no condition on both columns is.
    by_change = and_(runs.completed_at.is_(None), runs.updated_at <= before)
    parts = (
        _told_runs(tables, count, runs.completed_at <= before, runs.completed_at).subquery("with_an_end"),
        _told_runs(tables, count, by_change, runs.updated_at).subquery("without_an_end"),
    )
    ended = union_all(*(select(part) for part in parts)).subquery("ended")
    return (
        select(ended)
        .order_by(func.coalesce(ended.c.completed_at, ended.c.updated_at), ended.c.id)
        .limit(bindparam("limit"))
    )


def _told_runs(
    tables: Tables, count: int, ended: ColumnElement[bool], ended_at: ColumnElement[Any]
) -> Select[Any]:
    runs, outbox = tables.runs, tables.outbox
    untold = exists().where(outbox.c.run_id == runs.c.id, outbox.c.pending)
    return (
        select(runs)
        .where(runs.c.status.in_(numbered(count)), ended, ~untold)
        .order_by(ended_at, runs.c.id)
        .limit(bindparam("limit"))
        # By itself it takes all runs that have ended out of the index by status, and sorts them.
        .with_hint(runs, f"INDEXED BY {tables.names.of('ix_workflow_runs_completed')}", "sqlite")
    )


@for_tables(maxsize=1)
def pending_event_of_run(tables: Tables) -> Select[Any]:
    """An event of a run that waits for the sink."""
    outbox = tables.outbox.c
    waits = select(outbox.id).where(outbox.run_id == bindparam("run_id", type_=Text()), outbox.pending)
    return waits.limit(1)


@for_tables(maxsize=8)
def put_tombstone(tables: Tables, kind: DatabaseKind) -> Executable:
    """Keep a tombstone, in the place of the one that its run had."""
    columns = tables.tombstones.c
    values = {column.name: bindparam(column.name, type_=column.type) for column in columns}
    statement: Any = kind.insert(tables.tombstones).values(values)
    changed = [column.name for column in columns if not column.primary_key]
    kept: Executable = kind.replacing(
        statement, ["run_id"], lambda given: {name: given[name] for name in changed}
    )
    return kept


@for_tables(maxsize=1)
def all_tombstones(tables: Tables) -> Select[Any]:
    """Tombstones, the oldest first."""
    tombstones = tables.tombstones
    ordered = select(tombstones).order_by(tombstones.c.created_at, tombstones.c.run_id)
    return ordered.limit(bindparam("limit"))


@for_tables(maxsize=1)
def delete_tombstone(tables: Tables) -> Delete:
    """Forget a tombstone."""
    return delete(tables.tombstones).where(tables.tombstones.c.run_id == bindparam("of_id", type_=Text()))
