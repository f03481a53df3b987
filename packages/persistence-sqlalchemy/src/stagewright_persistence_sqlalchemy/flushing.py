"""Sending what is pending: as one statement where the database composes, else as a few in a row."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from sqlalchemy import ARRAY, CTE, ColumnElement, Executable, Text, bindparam, case, func, null, select

from stagewright.errors import RecordNotFoundError, StaleVersionError, SupersededError
from stagewright.status import Status
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.pending_writes import ENTITIES, LAST_EVENT, PendingWrites, RowUpdate
from stagewright_persistence_sqlalchemy.refusing import GUARDED_ROWS, after, refusing
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.statements.paths import updating_along
from stagewright_persistence_sqlalchemy.statements.reads import lock_event_sequences, versions_of
from stagewright_persistence_sqlalchemy.statements.signals import leave_notice, raise_signal
from stagewright_persistence_sqlalchemy.statements.writes import (
    ACKNOWLEDGEMENT_COLUMNS,
    Source,
    acknowledge_held_jobs,
    acknowledge_jobs,
    array_source,
    column_types_of,
    enqueue_jobs,
    insert_rows,
    is_place_of,
    row_source,
    update_rows,
    waits_as_long_as_it_takes,
)
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES, Tables, for_tables

__all__ = ["flush"]

# Of other tables several rows are rare, and each number would be a text of its own.
_FEW_EVENTS: Final = 3
_SKIP_EXISTING: Final = frozenset({PLAIN_TABLES.logs.name})
# A row comes after those that it refers to.
_ORDER: Final = (
    PLAIN_TABLES.definitions,
    PLAIN_TABLES.runs,
    PLAIN_TABLES.stages,
    PLAIN_TABLES.steps,
    PLAIN_TABLES.annotations,
    PLAIN_TABLES.logs,
    PLAIN_TABLES.outbox,
    PLAIN_TABLES.idempotency_keys,
    PLAIN_TABLES.blobs,
)


@dataclass(frozen=True, slots=True)
class _Insert:
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Update:
    table: str
    columns: tuple[str, ...]
    expects_events: bool = False


@dataclass(frozen=True, slots=True)
class _Enqueue:
    columns: tuple[str, ...]
    delivers: bool = False


@dataclass(frozen=True, slots=True)
class _Acknowledge:
    pass


Write: TypeAlias = _Insert | _Update | _Enqueue | _Acknowledge
Rows: TypeAlias = Sequence[Mapping[str, Any]]


async def flush(
    tables: Tables,
    kind: DatabaseKind,
    session: Session,
    pending: PendingWrites,
    *,
    is_last: bool = False,
    is_borrowed: bool = False,
) -> None:
    """Send all pending writes, and see that those with a guard took effect.

    Args:
        tables: The tables.
        kind: The database.
        session: The transaction's connection.
        pending: The writes; none are left, but for notifications that come last.
        is_last: Whether only the commit follows.
        is_borrowed: Whether somebody else commits, nobody knows when.

    Raises:
        StaleVersionError: If a row doesn't have the version that was expected.
        RecordNotFoundError: If a row that was to be changed isn't there.
        SupersededError: If a job isn't under the fence that it was acknowledged with.
    """
    if pending.expected_runs and not (kind.composes and is_last and await session.can_finish_at_once()):
        await _compare(tables, session, pending.expected_runs)
    writes = list(_writes(pending))
    topics = list(pending.topics)
    pending.clear()
    if kind.counts_at_the_end and not is_last and not is_borrowed:
        pending.topics.update(dict.fromkeys(topics))
        topics = []
    if kind.composes:
        changed = await _send_composed(tables, kind, session, writes, topics, is_last=is_last)
    else:
        told: Sequence[Executable] = ()
        if topics:
            # A row that is shared can't be held until an unknown end.
            leaves = kind.counts_at_the_end and is_borrowed
            told = (leave_notice(tables, kind) if leaves else raise_signal(tables, kind),)
        changed = await _send_one_by_one(tables, kind, session, writes, told)
    for (write, rows), ids in zip(writes, changed, strict=True):
        if isinstance(write, _Update | _Acknowledge):
            refused = [row for row in rows if row["id"] not in ids]
            if refused:
                await _explain(tables, session, write, refused)


def _writes(pending: PendingWrites) -> Iterable[tuple[Write, Rows]]:
    for table in _ORDER:
        rows = pending.inserts.get(table)
        if rows:
            yield _Insert(table.name, tuple(rows[0])), rows
    groups: dict[_Update, list[Mapping[str, Any]]] = {}
    for change in pending.updates.values():
        update = _Update(
            change.table.name, tuple(sorted(change.values)), change.expected_sequence is not None
        )
        guard = {
            "id": change.key,
            "bumps": change.bumps,
            "expected_version": change.expected_version,
            "expected_sequence": change.expected_sequence,
        }
        groups.setdefault(update, []).append(change.values | guard)
    # Whoever changes a run and what belongs to it has the run first.
    yield from sorted(groups.items(), key=lambda group: not _is_of_runs(group[0]))
    if pending.acknowledgements:
        yield _Acknowledge(), list(pending.acknowledgements.values())
    if pending.enqueued:
        jobs = list(pending.enqueued.values())
        # One statement for both kinds: between two in one, nothing says whose jobs come first in the queue.
        yield _Enqueue(tuple(jobs[0]), any(job["status"] == Status.RUNNING for job in jobs)), jobs


async def _send_composed(
    tables: Tables,
    kind: DatabaseKind,
    session: Session,
    writes: Sequence[tuple[Write, Rows]],
    topics: Sequence[str],
    *,
    is_last: bool,
) -> list[set[str]]:
    # A notification says no more than that there is one: all topics of a transaction are one of them.
    shape = tuple((write, _plain_rows(write, rows)) for write, rows in writes)
    guarded = [len(rows) for write, rows in writes if isinstance(write, _Update | _Acknowledge)]
    # What has no guard needs no look at the answer before it is committed.
    refuses = is_last and bool(guarded) and await session.can_finish_at_once()
    finishes = refuses or (is_last and not guarded)
    statement = _composed(tables, kind, shape, notifies=bool(topics), refuses=refuses, is_last=is_last)
    parameters: dict[str, Any] = {"topic": topics[0]} if topics else {}
    if refuses:
        parameters[GUARDED_ROWS] = sum(guarded)
    for number, ((_, rows), (write, plain)) in enumerate(zip(writes, shape, strict=True)):
        for place in range(plain):
            row = rows[place]
            parameters.update(
                [(given, row[name]) for given, name in _parameters(write, _prefix(number, place))]
            )
        if not plain:
            names = _parameters(write, _prefix(number))
            parameters.update([(given, [row[name] for row in rows]) for given, name in names])
    answers = await (session.finish_with if finishes else session.fetch)(statement, parameters)
    return [set(answers[0].get(f"ids{number}") or ()) for number in range(len(writes))]


@for_tables(maxsize=512)
def _composed(
    tables: Tables,
    kind: DatabaseKind,
    shape: tuple[tuple[Write, int], ...],
    *,
    notifies: bool,
    refuses: bool,
    is_last: bool,
) -> Executable:
    """One statement for these writes, each with how many rows are plain parameters; of any number of rows it is 0.

    One row is the usual case, and cheaper as plain parameters than as arrays: for the driver, and for the planner. So
    are the few events of an outcome. With `refuses` it is a transaction by itself, which has locked nothing before.
    """
    parts, changed = [], []
    runs: list[CTE] = []
    for number, (write, plain) in enumerate(shape):
        rows = None
        sources = [row_source(_types(write), _prefix(number, place)) for place in range(plain)]
        if sources:
            source = sources[0]
        else:
            source, rows = array_source(_types(write), _prefix(number))
        guarded: Any = None
        if isinstance(write, _Acknowledge):
            held, part = acknowledge_held_jobs(tables, kind, source, _replaced(tables, shape), after(runs))
            guarded = held
        else:
            part = _statement(tables, kind, write, source, rows, more=sources[1:])
        if isinstance(write, _Update) and not _is_of_runs(write):
            part = part.where(*after(runs))
        written = part.returning(_returned(tables, write)).cte(f"part{number}")
        if isinstance(write, _Update):
            guarded = written
            if refuses and _is_of_runs(write):
                runs.append(written)
        ids: ColumnElement[Any] = null()
        if guarded is not None:
            ids = select(func.array_agg(guarded.c.id, type_=ARRAY(Text()))).scalar_subquery()
        parts.append(written)
        changed.append(ids.label(f"ids{number}"))
    told: list[ColumnElement[Any]] = []
    if notifies:
        told.append(func.pg_notify(tables.names.channel, bindparam("topic", type_=Text())).label("told"))
        if is_last and any(isinstance(write, _Acknowledge) for write, _ in shape):
            told.append(waits_as_long_as_it_takes().label("patience"))
    if not refuses:
        return select(*changed, *told).add_cte(*parts)
    changes = select(*changed).cte("changes")
    guards = [
        f"ids{number}" for number, (write, _) in enumerate(shape) if isinstance(write, _Update | _Acknowledge)
    ]
    return select(*changes.c, refusing(changes, guards), *told).add_cte(*parts)


def _is_of_runs(write: Write) -> bool:
    return isinstance(write, _Update) and write.table == PLAIN_TABLES.runs.name


def _plain_rows(write: Write, rows: Rows) -> int:
    """How many rows are sent as plain parameters; 0 if they are sent as arrays."""
    is_of_events = isinstance(write, _Insert) and write.table == PLAIN_TABLES.outbox.name
    return len(rows) if len(rows) <= (_FEW_EVENTS if is_of_events else 1) else 0


@lru_cache(maxsize=64)
def _prefix(number: int, place: int = 0) -> str:
    """What the parameters of a write begin with, or of one of its rows."""
    return f"w{number}_{place}_" if place else f"w{number}_"


def _replaced(tables: Tables, shape: tuple[tuple[Write, int], ...]) -> ColumnElement[bool] | None:
    """Whether a job gives its place to one that the same statement enqueues; None where it enqueues none."""
    for number, (write, plain) in enumerate(shape):
        if isinstance(write, _Enqueue):
            columns = column_types_of(tables.jobs, ("run_id", "stage_id"))
            return is_place_of(tables, columns, _prefix(number), is_single=plain == 1)
    return None


async def _send_one_by_one(
    tables: Tables,
    kind: DatabaseKind,
    session: Session,
    writes: Sequence[tuple[Write, Rows]],
    told: Sequence[Executable],
) -> list[set[str]]:
    statements: list[tuple[Executable, Sequence[Mapping[str, Any]]]] = []
    for write, rows in writes:
        names = _parameters(write, "p_")
        given = [{parameter: row[name] for parameter, name in names} for row in rows]
        statements.append((_single(tables, kind, write), given))
    statements += [(statement, [{}]) for statement in told]
    counts = await session.execute_all(statements)
    return [
        {row["id"] for row, count in zip(rows, changed, strict=True) if count and "id" in row}
        for (_, rows), changed in zip(writes, counts, strict=False)
    ]


@for_tables(maxsize=512)
def _single(tables: Tables, kind: DatabaseKind, write: Write) -> Executable:
    statement: Executable = _statement(tables, kind, write, row_source(_types(write)), None)
    return statement


def _statement(
    tables: Tables, kind: DatabaseKind, write: Write, source: Any, rows: Any, more: Sequence[Source] = ()
) -> Any:  # Any: of every DML class
    match write:
        case _Insert(name, columns):
            table = tables.by_name[name]
            skips = name in _SKIP_EXISTING
            return insert_rows(kind, table, columns, source, rows, more=more, skip_existing=skips)
        case _Update(name, columns):
            return update_rows(tables.by_name[name], columns, source)
        case _Acknowledge():
            return updating_along(acknowledge_jobs(tables, kind, source), "uq_job_queue_id")
        case _Enqueue(columns, delivers):
            if delivers:
                # A lease that begins is stamped by the clock that it ends by.
                given = source["locked_at"]
                begun = case((source["status"] == Status.RUNNING, kind.now(given)), else_=given)
                source = {**source, "locked_at": begun}
            return enqueue_jobs(tables, kind, columns, source, rows)


def _returned(tables: Tables, write: Write) -> ColumnElement[Any]:
    """The column that tells which rows were changed; of an insert nobody asks."""
    match write:
        case _Insert(name, _):
            return next(iter(tables.by_name[name].primary_key)).label("id")
        case _Update(name):
            return tables.by_name[name].c.id
        case _Acknowledge() | _Enqueue():
            return tables.jobs.c.id


@lru_cache(maxsize=512)
def _types(write: Write) -> Mapping[str, Any]:
    match write:
        case _Insert(name, columns):
            return column_types_of(PLAIN_TABLES.by_name[name], columns)
        case _Update(name, columns, expects_events):
            guards = ("expected_version", "expected_sequence") if expects_events else ("expected_version",)
            return column_types_of(PLAIN_TABLES.by_name[name], ("id", *columns, "bumps", *guards))
        case _Acknowledge():
            return ACKNOWLEDGEMENT_COLUMNS
        case _Enqueue(columns):
            return column_types_of(PLAIN_TABLES.jobs, columns)


@lru_cache(maxsize=2048)
def _parameters(write: Write, prefix: str) -> Sequence[tuple[str, str]]:
    """The parameters of one row, or of the arrays of all, each with its column."""
    return tuple((f"{prefix}{name}", name) for name in _types(write))


async def _explain(tables: Tables, session: Session, write: Write, rows: Rows) -> None:
    """Raise what it means that these rows were not changed. The transaction is rolled back by it."""
    match write:
        case _Acknowledge():
            raise SupersededError(", ".join(str(row["id"]) for row in rows))
        case _Update(name, _, expects_events):
            found = await session.fetch(versions_of(tables.by_name[name], len(rows)), _numbered_ids(rows))
            standing = {row["id"]: row for row in found}
            entity = ENTITIES.get(name, name)
            row = rows[0]
            if expects_events:
                _explain_run(row, standing.get(row["id"]))
            if row["id"] not in standing:
                raise RecordNotFoundError(entity, row["id"])
            raise StaleVersionError(
                entity, row["id"], row["expected_version"], standing[row["id"]]["version"]
            )
        case _Insert() | _Enqueue():
            # Rows that exist already are skipped where that is asked for, and refused by the database elsewhere.
            return


async def _compare(tables: Tables, session: Session, expected: Sequence[RowUpdate]) -> None:
    """Lock runs, and see that they are as they were loaded, before anything is written that relies on it."""
    names = {f"item_{number}": update.key for number, update in enumerate(expected)}
    found = await session.fetch(lock_event_sequences(tables, len(expected)), names)
    standing = {row["id"]: row for row in found}
    for update in expected:
        guard = {
            "id": update.key,
            "expected_version": update.expected_version,
            "expected_sequence": update.expected_sequence,
        }
        _explain_run(guard, standing.get(update.key))
        update.expected_sequence = None


def _explain_run(guard: Mapping[str, Any], standing: Row | None) -> None:
    """Raise what keeps a run from being as it was loaded."""
    version = None if standing is None else standing["version"]
    if standing is None or version != guard["expected_version"]:
        raise StaleVersionError(
            ENTITIES[PLAIN_TABLES.runs.name], guard["id"], guard["expected_version"], version
        )
    if standing["event_seq"] != guard["expected_sequence"]:
        raise StaleVersionError(LAST_EVENT, guard["id"], guard["expected_sequence"], standing["event_seq"])


def _numbered_ids(rows: Rows) -> dict[str, Any]:
    return {f"item_{number}": row["id"] for number, row in enumerate(rows)}
