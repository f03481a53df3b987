"""Writes that must answer, and so can't wait for the end of the transaction."""

from functools import lru_cache
from typing import Any

from sqlalchemy import Executable, Table, Text, and_, bindparam, delete, update

from stagewright_persistence_sqlalchemy import tables
from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind

__all__ = [
    "complete_key",
    "insert_absent",
    "insert_annotations",
    "insert_definition",
    "insert_key",
    "insert_step",
    "release_key",
    "take_over_key",
]


def insert_absent(kind: DatabaseKind, table: Table, names: list[str]) -> Any:
    """Insert one row unless one with its unique key exists; never an error that would spoil the transaction."""
    values = {name: bindparam(name, type_=table.c[name].type) for name in names}
    return kind.insert(table).values(values).on_conflict_do_nothing()


@lru_cache(maxsize=8)
def insert_definition(kind: DatabaseKind) -> Executable:
    """Insert a definition unless it is there."""
    statement: Executable = insert_absent(kind, tables.definitions, list(tables.definitions.c.keys()))
    return statement


@lru_cache(maxsize=8)
def insert_key(kind: DatabaseKind) -> Executable:
    """Take an idempotency key unless it is taken; waits while another transaction is about to take it."""
    statement: Executable = insert_absent(
        kind, tables.idempotency_keys, list(tables.idempotency_keys.c.keys())
    )
    return statement


def _is_key(*, unfinished: bool) -> Any:
    keys = tables.idempotency_keys.c
    named = and_(
        keys.key == bindparam("of_key", type_=Text()), keys.command_type == bindparam("of_type", type_=Text())
    )
    return and_(named, keys.completed.is_(False)) if unfinished else named


@lru_cache(maxsize=1)
def take_over_key() -> Executable:
    """Take over a key in progress, if it is still the one that was read."""
    keys = tables.idempotency_keys.c
    return (
        update(tables.idempotency_keys)
        .where(_is_key(unfinished=True), keys.acquired_at == bindparam("seen", type_=Moment()))
        .values(
            acquired_at=bindparam("acquired_at", type_=Moment()),
            fingerprint=bindparam("fingerprint", type_=Text()),
        )
    )


@lru_cache(maxsize=1)
def complete_key() -> Executable:
    """Store what a command answered."""
    result = bindparam("result", type_=tables.idempotency_keys.c.result.type)
    return (
        update(tables.idempotency_keys).where(_is_key(unfinished=False)).values(completed=True, result=result)
    )


@lru_cache(maxsize=1)
def release_key() -> Executable:
    """Forget a key without a result."""
    return delete(tables.idempotency_keys).where(_is_key(unfinished=True))


@lru_cache(maxsize=8)
def insert_annotations(kind: DatabaseKind) -> Executable:
    """Insert an annotation unless its run has one of that key and idempotency key; answers the id if it was."""
    names = [column.name for column in tables.annotations.c if column.name != "position"]
    statement: Executable = insert_absent(kind, tables.annotations, names).returning(tables.annotations.c.id)
    return statement


@lru_cache(maxsize=8)
def insert_step(kind: DatabaseKind) -> Executable:
    """Insert a step unless its stage record has one of that id."""
    statement: Executable = insert_absent(kind, tables.steps, list(tables.steps.c.keys()))
    return statement
