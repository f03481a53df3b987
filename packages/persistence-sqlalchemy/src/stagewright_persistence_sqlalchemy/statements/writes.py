"""Writes of rows, from a source that is either one row of parameters or arrays of many rows."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    case,
    column,
    func,
    literal_column,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from stagewright_persistence_sqlalchemy.column_types import Moment, wire_type
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.tables import Tables

__all__ = [
    "ACKNOWLEDGEMENT_COLUMNS",
    "Source",
    "acknowledge_held_jobs",
    "acknowledge_jobs",
    "array_source",
    "column_types_of",
    "enqueue_jobs",
    "insert_rows",
    "is_place_of",
    "row_source",
    "update_rows",
    "waits_as_long_as_it_takes",
]

Source: TypeAlias = Mapping[str, ColumnElement[Any]]
"""The columns of what is to be written, by name."""

_PATIENCE: Final[ColumnElement[str]] = literal_column("'300ms'")

Columns: TypeAlias = Mapping[str, TypeEngine[Any]]

ACKNOWLEDGEMENT_COLUMNS: Columns = {
    "id": Text(),
    "fence_started_at": Moment(),
    "fence_deliveries": Integer(),
    "status": Text(),
    "due_at": Moment(),
    "delay_us": BigInteger(),
    "last_error": Text(),
    "failures": Integer(),
    "interruptions": Integer(),
    "given_now": Moment(),
}


def column_types_of(table: Table, names: Sequence[str]) -> Columns:
    """The types of some columns' encoded values; `bumps` and what is expected are integers beside them."""
    extra: dict[str, TypeEngine[Any]] = {
        "bumps": Integer(),
        "expected_version": Integer(),
        "expected_sequence": BigInteger(),
    }
    return {name: extra[name] if name in extra else wire_type(table.c[name].type) for name in names}


def row_source(columns: Columns, prefix: str = "p_") -> Source:
    """One row: each column is a bind parameter named like it, with the prefix before."""
    return {name: bindparam(f"{prefix}{name}", type_=kind) for name, kind in columns.items()}


def array_source(columns: Columns, prefix: str) -> tuple[Source, Any]:  # Any: a table-valued alias
    """Many rows: each column is an array parameter named like it, with the prefix before; and the FROM element."""
    arrays = [bindparam(f"{prefix}{name}", type_=ARRAY(kind, dimensions=1)) for name, kind in columns.items()]
    rows = func.unnest(*arrays).table_valued(*(column(name, kind) for name, kind in columns.items()))
    derived = rows.render_derived(name=f"{prefix}rows")
    return {name: derived.c[name] for name in columns}, derived


def insert_rows(
    kind: DatabaseKind,
    table: Table,
    names: Sequence[str],
    source: Source,
    rows: Any,
    *,
    more: Sequence[Source] = (),
    skip_existing: bool,
) -> Any:  # Any: each dialect has an insert class of its own
    """Insert rows with these columns: those of arrays, or one and the `more` that come after it."""
    statement = kind.insert(table)
    if rows is None:
        given = [{name: one[name] for name in names} for one in (source, *more)]
        statement = statement.values(given if more else given[0])
    else:
        statement = statement.from_select(list(names), select(*(source[name] for name in names)))
    return kind.skipping(statement) if skip_existing else statement


def update_rows(table: Table, names: Sequence[str], source: Source) -> Update:
    """Change rows by id, raise their version, and leave alone those that don't have what is expected of them."""
    values: dict[str, Any] = {name: source[name] for name in names}
    values["version"] = table.c.version + source["bumps"]
    expected = source["expected_version"]
    guards = [table.c.id == source["id"], or_(expected.is_(None), table.c.version == expected)]
    if "expected_sequence" in source:
        guards.append(table.c.event_seq == source["expected_sequence"])
    return update(table).values(values).where(*guards)


def enqueue_jobs(
    tables: Tables, kind: DatabaseKind, names: Sequence[str], source: Source, rows: Any
) -> Any:  # Any: as above
    """Insert jobs, each in the place of the one that its run and stage had."""
    statement = insert_rows(kind, tables.jobs, names, source, rows, skip_existing=False)

    def replaced(given: Mapping[str, Any]) -> dict[str, Any]:
        position: Any
        if kind.name == "sqlite":
            position = select(func.coalesce(func.max(tables.jobs.c.position), 0) + 1).scalar_subquery()
        else:
            position = given["position"]
        return {name: given[name] for name in names} | {"position": position}

    return kind.replacing(statement, ("run_id", "stage_id"), replaced)


def is_place_of(tables: Tables, columns: Columns, prefix: str, *, is_single: bool) -> ColumnElement[bool]:
    """Whether a job is of one of the runs and stages in a source of these columns."""
    jobs = tables.jobs.c
    if is_single:
        one = row_source(columns, prefix)
        return and_(jobs.run_id == one["run_id"], jobs.stage_id == one["stage_id"])
    many, rows = array_source(columns, prefix)
    here = and_(jobs.run_id == many["run_id"], jobs.stage_id == many["stage_id"])
    return select(literal_column("1")).select_from(rows).where(here).exists()


def acknowledge_jobs(tables: Tables, kind: DatabaseKind, source: Source) -> Update:
    """Settle jobs under their fences, after waiting for who holds them; one under another fence is left alone."""
    return _settled(tables, kind, source).where(_is_own(tables, source))


def acknowledge_held_jobs(
    tables: Tables,
    kind: DatabaseKind,
    source: Source,
    replaced: ColumnElement[bool] | None,
    conditions: Sequence[ColumnElement[bool]] = (),
) -> tuple[CTE, Update]:
    """The same for one statement of several writes, which waits a moment for a held job, and then fails as transient.

    Args:
        tables: The tables.
        kind: The database.
        source: The acknowledgements.
        conditions: What has to be known before a job is looked at.
        replaced: Which jobs the same statement puts others in the place of: no row can be changed twice by one
            statement, and nothing of those would be left.

    Returns:
        The jobs that are under their fences, and the change of them.
    """
    jobs = tables.jobs.c
    # A claim holds its jobs and waits for their runs, so whoever holds the run must not wait for the job for ever.
    # A heartbeat holds the job for a moment only, and is no reason to begin anew.
    held = (
        select(jobs.position, *(value.label(name) for name, value in source.items()))
        .where(*conditions, _waits_for_a_moment(), _is_own(tables, source))
        .with_for_update(of=tables.jobs, key_share=True)
        .cte("held_jobs")
    )
    settled = _settled(tables, kind, {name: held.c[name] for name in source}).where(
        jobs.position == held.c.position
    )
    return held, settled if replaced is None else settled.where(not_(replaced))


def _is_own(tables: Tables, source: Source) -> ColumnElement[bool]:
    jobs = tables.jobs.c
    fenced = and_(
        jobs.status == literal_column("'RUNNING'"),
        jobs.started_at == source["fence_started_at"],
        jobs.deliveries == source["fence_deliveries"],
    )
    return and_(jobs.id == source["id"], or_(source["fence_deliveries"].is_(None), fenced))


def _settled(tables: Tables, kind: DatabaseKind, source: Source) -> Update:
    jobs = tables.jobs.c
    now = kind.now(source["given_now"])
    done = source["status"].in_([literal_column("'COMPLETED'"), literal_column("'FAILED'")])
    delay = source["delay_us"]
    due_at = source["due_at"]
    if kind.has_clock:
        due_at = case((delay.is_(None), due_at), else_=kind.later(now, delay))
    return update(tables.jobs).values(
        status=source["status"],
        worker_id=case((done, jobs.worker_id), else_=None),
        locked_at=None,
        due_at=due_at,
        completed_at=case((done, now), else_=None),
        updated_at=now,
        last_error=func.coalesce(source["last_error"], jobs.last_error),
        failures=jobs.failures + source["failures"],
        interruptions=jobs.interruptions + source["interruptions"],
    )


def _waits_for_a_moment() -> ColumnElement[bool]:
    """True; and from here on the transaction waits for a lock for less time than a deadlock takes to be found."""
    return select(_waiting(_PATIENCE)).scalar_subquery().is_not(None)


def waits_as_long_as_it_takes() -> ColumnElement[str]:
    """From here on the transaction waits for locks, which is the end of that moment where only the commit follows.

    Transactions that notify commit one by one in the whole server, so on a busy one each of them waits for some others.
    """
    return _waiting(literal_column("'0'"))


def _waiting(patience: ColumnElement[str]) -> ColumnElement[str]:
    name = literal_column("'lock_timeout'", Text())
    return func.set_config(name, patience, literal_column("true"), type_=Text())
