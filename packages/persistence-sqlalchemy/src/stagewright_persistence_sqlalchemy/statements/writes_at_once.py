"""Writes that must answer, and so can't wait for the end of the transaction."""

from typing import Any

from sqlalchemy import ColumnElement, Executable, Table, Text, and_, bindparam, case, delete, func, update

from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = [
    "complete_key",
    "delete_signal",
    "insert_absent",
    "insert_annotations",
    "insert_definition",
    "insert_key",
    "insert_signal",
    "insert_step",
    "nudge_stage",
    "release_key",
    "take_over_key",
]


def insert_absent(kind: DatabaseKind, table: Table, names: list[str]) -> Any:
    """Insert one row unless one with its unique key exists; never an error that would spoil the transaction."""
    values = {name: bindparam(name, type_=table.c[name].type) for name in names}
    return kind.skipping(kind.insert(table).values(values))


@for_tables(maxsize=8)
def insert_definition(tables: Tables, kind: DatabaseKind) -> Executable:
    """Insert a definition unless it is there."""
    statement: Executable = insert_absent(kind, tables.definitions, list(tables.definitions.c.keys()))
    return statement


@for_tables(maxsize=8)
def insert_key(tables: Tables, kind: DatabaseKind) -> Executable:
    """Take an idempotency key unless it is taken; waits while another transaction is about to take it."""
    statement: Executable = insert_absent(
        kind, tables.idempotency_keys, list(tables.idempotency_keys.c.keys())
    )
    return statement


def _is_key(tables: Tables, *, unfinished: bool) -> Any:
    keys = tables.idempotency_keys.c
    named = and_(
        keys.key == bindparam("of_key", type_=Text()), keys.command_type == bindparam("of_type", type_=Text())
    )
    return and_(named, keys.completed.is_(False)) if unfinished else named


def _was_taken_at(tables: Tables, name: str) -> ColumnElement[bool]:
    return tables.idempotency_keys.c.acquired_at == bindparam(name, type_=Moment())


@for_tables(maxsize=1)
def take_over_key(tables: Tables) -> Executable:
    """Take over a key in progress, if it is still the one that was read."""
    return (
        update(tables.idempotency_keys)
        .where(_is_key(tables, unfinished=True), _was_taken_at(tables, "seen"))
        .values(
            acquired_at=bindparam("acquired_at", type_=Moment()),
            fingerprint=bindparam("fingerprint", type_=Text()),
        )
    )


@for_tables(maxsize=1)
def complete_key(tables: Tables) -> Executable:
    """Store what the holder's command answered, and the run that it is about unless that is None."""
    keys = tables.idempotency_keys
    result = bindparam("result", type_=keys.c.result.type)
    run_id = func.coalesce(bindparam("of_run", type_=Text()), keys.c.run_id)
    held = _is_key(tables, unfinished=False), _was_taken_at(tables, "taken_at")
    return update(keys).where(*held).values(completed=True, result=result, run_id=run_id)


@for_tables(maxsize=1)
def release_key(tables: Tables) -> Executable:
    """Forget a holder's key without a result."""
    return delete(tables.idempotency_keys).where(
        _is_key(tables, unfinished=True), _was_taken_at(tables, "taken_at")
    )


@for_tables(maxsize=8)
def insert_annotations(tables: Tables, kind: DatabaseKind) -> Executable:
    """Insert an annotation unless its run has one of that key and idempotency key."""
    names = [column.name for column in tables.annotations.c if column.name != "position"]
    statement: Executable = insert_absent(kind, tables.annotations, names)
    return statement


@for_tables(maxsize=8)
def insert_step(tables: Tables, kind: DatabaseKind) -> Executable:
    """Insert a step unless its stage record has one of that id; answers with its id where a change can answer."""
    inserting = insert_absent(kind, tables.steps, list(tables.steps.c.keys()))
    statement: Executable = inserting.returning(tables.steps.c.id) if kind.returns_changes else inserting
    return statement


@for_tables(maxsize=8)
def insert_signal(tables: Tables, kind: DatabaseKind) -> Executable:
    """Keep a signal unless its step has one; waits while another transaction is about to keep one."""
    statement: Executable = insert_absent(kind, tables.step_signals, list(tables.step_signals.c.keys()))
    return statement


@for_tables(maxsize=1)
def delete_signal(tables: Tables) -> Executable:
    """Forget a signal."""
    return delete(tables.step_signals).where(tables.step_signals.c.id == bindparam("of_id", type_=Text()))


@for_tables(maxsize=1)
def nudge_stage(tables: Tables) -> Executable:
    """Let a stage wait no longer than until a moment, without a new version."""
    stages, at = tables.stages.c, bindparam("at", type_=Moment())
    earlier = case((stages.next_poll_at > at, at), else_=stages.next_poll_at)
    return (
        update(tables.stages)
        .where(stages.id == bindparam("of_id", type_=Text()))
        .values(nudged_at=at, next_poll_at=earlier)
    )
