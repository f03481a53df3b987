"""Sending what is pending: as one statement where the database composes, else as a few in a row."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from sqlalchemy import ARRAY, ColumnElement, Executable, Table, Text, bindparam, func, null, select

from stagewright.errors import RecordNotFoundError, StaleVersionError, SupersededError
from stagewright_persistence_sqlalchemy import tables
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.pending_writes import PendingWrites
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.statements.reads import versions_of
from stagewright_persistence_sqlalchemy.statements.signals import raise_signal
from stagewright_persistence_sqlalchemy.statements.writes import (
    ACKNOWLEDGEMENT_COLUMNS,
    JOB_COLUMNS,
    acknowledge_jobs,
    array_source,
    column_types_of,
    enqueue_jobs,
    insert_rows,
    row_source,
    update_rows,
)

__all__ = ["CHANNEL", "flush"]

CHANNEL: Final = "stagewright_work"
_SKIP_EXISTING: Final = frozenset({tables.logs.name})
_ENTITIES: Final = {tables.runs.name: "run", tables.stages.name: "stage"}
# A row comes after those that it refers to.
_ORDER: Final = (
    tables.definitions,
    tables.runs,
    tables.stages,
    tables.steps,
    tables.annotations,
    tables.logs,
    tables.outbox,
    tables.idempotency_keys,
    tables.blobs,
)


@dataclass(frozen=True, slots=True)
class _Insert:
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Update:
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Enqueue:
    pass


@dataclass(frozen=True, slots=True)
class _Acknowledge:
    pass


Write: TypeAlias = _Insert | _Update | _Enqueue | _Acknowledge
Rows: TypeAlias = Sequence[Mapping[str, Any]]


async def flush(kind: DatabaseKind, session: Session, pending: PendingWrites) -> None:
    """Send all pending writes, and see that those with a guard took effect.

    Raises:
        StaleVersionError: If a row doesn't have the version that was expected.
        RecordNotFoundError: If a row that was to be changed isn't there.
        SupersededError: If a job isn't under the fence that it was acknowledged with.
    """
    writes = list(_writes(pending))
    topics = list(pending.topics)
    pending.clear()
    if kind.composes:
        changed = await _send_composed(kind, session, writes, topics)
    else:
        changed = await _send_one_by_one(kind, session, writes)
        if topics:
            await session.execute(raise_signal(kind), {})
    for (write, rows), ids in zip(writes, changed, strict=True):
        if isinstance(write, _Update | _Acknowledge):
            refused = [row for row in rows if row["id"] not in ids]
            if refused:
                await _explain(session, write, refused)


def _writes(pending: PendingWrites) -> Iterable[tuple[Write, Rows]]:
    for table in _ORDER:
        rows = pending.inserts.get(table)
        if rows:
            yield _Insert(table.name, tuple(rows[0])), rows
    groups: dict[_Update, list[Mapping[str, Any]]] = {}
    for change in pending.updates.values():
        names = tuple(sorted(change.values))
        guard = {"id": change.key, "bumps": change.bumps, "expected_version": change.expected_version}
        groups.setdefault(_Update(change.table.name, names), []).append(change.values | guard)
    yield from groups.items()
    if pending.acknowledgements:
        yield _Acknowledge(), list(pending.acknowledgements.values())
    if pending.enqueued:
        yield _Enqueue(), list(pending.enqueued)


async def _send_composed(
    kind: DatabaseKind, session: Session, writes: Sequence[tuple[Write, Rows]], topics: Sequence[str]
) -> list[set[str]]:
    statement = _composed(kind, tuple(write for write, _ in writes), len(topics))
    parameters: dict[str, Any] = {f"topic_{number}": topic for number, topic in enumerate(topics)}
    for number, (write, rows) in enumerate(writes):
        for name in _columns(write):
            parameters[f"w{number}_{name}"] = [row[name] for row in rows]
    answers = await session.fetch(statement, parameters)
    return [set(answers[0][f"ids{number}"] or ()) for number in range(len(writes))]


@lru_cache(maxsize=512)
def _composed(kind: DatabaseKind, writes: tuple[Write, ...], topics: int) -> Executable:
    """One statement for these writes; its text depends on their shape, not on how many rows they have."""
    parts, changed = [], []
    for number, write in enumerate(writes):
        source, rows = array_source(_types(write), f"w{number}_")
        part = _statement(kind, write, source, rows)
        written = part.returning(_returned(write)).cte(f"part{number}")
        ids: ColumnElement[Any] = null()
        if isinstance(write, _Update | _Acknowledge):
            ids = select(func.array_agg(written.c.id, type_=ARRAY(Text()))).scalar_subquery()
        parts.append(written)
        changed.append(ids.label(f"ids{number}"))
    told = [
        func.pg_notify(CHANNEL, bindparam(f"topic_{number}", type_=Text())).label(f"t{number}")
        for number in range(topics)
    ]
    return select(*changed, *told).add_cte(*parts)


async def _send_one_by_one(
    kind: DatabaseKind, session: Session, writes: Sequence[tuple[Write, Rows]]
) -> list[set[str]]:
    changed: list[set[str]] = []
    for write, rows in writes:
        statement = _single(kind, write)
        parameters = [{f"p_{name}": row[name] for name in _columns(write)} for row in rows]
        if isinstance(write, _Insert | _Enqueue):
            await session.execute_many(statement, parameters)
            changed.append(set())
        else:
            changed.append({one["p_id"] for one in parameters if await session.execute(statement, one)})
    return changed


@lru_cache(maxsize=512)
def _single(kind: DatabaseKind, write: Write) -> Executable:
    statement: Executable = _statement(kind, write, row_source(_types(write)), None)
    return statement


def _statement(kind: DatabaseKind, write: Write, source: Any, rows: Any) -> Any:  # Any: of every DML class
    match write:
        case _Insert(name, columns):
            table = _table(name)
            return insert_rows(kind, table, columns, source, rows, skip_existing=name in _SKIP_EXISTING)
        case _Update(name, columns):
            return update_rows(_table(name), columns, source)
        case _Acknowledge():
            return acknowledge_jobs(kind, source, waits=not kind.composes)
        case _Enqueue():
            return enqueue_jobs(kind, source, rows)


def _returned(write: Write) -> ColumnElement[Any]:
    """The column that tells which rows were changed; of an insert nobody asks."""
    match write:
        case _Insert(name, _):
            return next(iter(_table(name).primary_key)).label("id")
        case _Update(name, _):
            return _table(name).c.id
        case _Acknowledge() | _Enqueue():
            return tables.jobs.c.id


def _types(write: Write) -> Mapping[str, Any]:
    match write:
        case _Insert(name, columns):
            return column_types_of(_table(name), columns)
        case _Update(name, columns):
            return column_types_of(_table(name), ("id", *columns, "bumps", "expected_version"))
        case _Acknowledge():
            return ACKNOWLEDGEMENT_COLUMNS
        case _Enqueue():
            return column_types_of(tables.jobs, JOB_COLUMNS)


def _columns(write: Write) -> Sequence[str]:
    return tuple(_types(write))


def _table(name: str) -> Table:
    return tables.metadata.tables[name]


async def _explain(session: Session, write: Write, rows: Rows) -> None:
    """Raise what it means that these rows were not changed. The transaction is rolled back by it."""
    match write:
        case _Acknowledge():
            raise SupersededError(", ".join(str(row["id"]) for row in rows))
        case _Update(name, _):
            table = _table(name)
            found = await session.fetch(versions_of(table, len(rows)), _numbered_ids(rows))
            versions = {row["id"]: row["version"] for row in found}
            entity = _ENTITIES.get(name, name)
            row = rows[0]
            if row["id"] not in versions:
                raise RecordNotFoundError(entity, row["id"])
            raise StaleVersionError(entity, row["id"], row["expected_version"], versions[row["id"]])
        case _Insert() | _Enqueue():
            # Rows that exist already are skipped where that is asked for, and refused by the database elsewhere.
            return


def _numbered_ids(rows: Rows) -> dict[str, Any]:
    return {f"item_{number}": row["id"] for number, row in enumerate(rows)}
