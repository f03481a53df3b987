"""The log of model calls."""

from typing import Any

from sqlalchemy import ColumnElement, Delete, Executable, Select, Text, bindparam, delete, func, or_, select

from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.prefixes import starts_with
from stagewright_persistence_sqlalchemy.statements.writes_at_once import insert_absent
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = ["calls_of_topic", "delete_calls", "insert_call", "one_of_batch", "totals_of_topic"]


@for_tables(maxsize=8)
def insert_call(tables: Tables, kind: DatabaseKind) -> Executable:
    """Insert a call unless it is there, or another that answers its request of its batch."""
    names = [column.name for column in tables.ai_calls.c if column.name != "position"]
    statement: Executable = insert_absent(kind, tables.ai_calls, names)
    return statement


@for_tables(maxsize=1)
def one_of_batch(tables: Tables) -> Select[Any]:
    """A call of a batch."""
    calls = tables.ai_calls.c
    return select(calls.position).where(calls.batch_id == bindparam("batch_id", type_=Text())).limit(1)


def calls_of_topic(tables: Tables, topic: str, after: int, limit: int) -> Select[Any]:
    """The calls of a topic and below it, in their order."""
    calls = tables.ai_calls
    found = select(calls).where(_is_of(tables, topic), calls.c.position > after)
    return found.order_by(calls.c.position).limit(limit)


def totals_of_topic(tables: Tables, topic: str) -> Executable:
    """How many calls of a topic and below it have a model and a cost, and their tokens."""
    calls = tables.ai_calls.c
    return (
        select(
            calls.model_key,
            calls.cost,
            func.count().label("calls"),
            func.sum(func.coalesce(calls.input_tokens, 0)).label("input_tokens"),
            func.sum(func.coalesce(calls.output_tokens, 0)).label("output_tokens"),
        )
        .where(_is_of(tables, topic))
        .group_by(calls.model_key, calls.cost)
        .order_by(calls.model_key)
    )


def delete_calls(tables: Tables, topic: str) -> Delete:
    """Delete the calls of a topic and below it."""
    return delete(tables.ai_calls).where(_is_of(tables, topic))


def _is_of(tables: Tables, topic: str) -> ColumnElement[bool]:
    of = tables.ai_calls.c.topic
    return or_(of == topic, starts_with(of, f"{topic}."))
