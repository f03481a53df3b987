"""Writes of rows, from a source that is either one row of parameters or arrays of many rows."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Integer,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    case,
    cast,
    column,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from stagewright_persistence_sqlalchemy import tables
from stagewright_persistence_sqlalchemy.column_types import Moment, wire_type
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind

__all__ = [
    "ACKNOWLEDGEMENT_COLUMNS",
    "JOB_COLUMNS",
    "Source",
    "acknowledge_jobs",
    "array_source",
    "column_types_of",
    "enqueue_jobs",
    "insert_rows",
    "row_source",
    "update_rows",
]

Source: TypeAlias = Mapping[str, ColumnElement[Any]]
"""The columns of what is to be written, by name."""

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

JOB_COLUMNS: Sequence[str] = tuple(column.name for column in tables.jobs.c if column.name != "position")


def column_types_of(table: Table, names: Sequence[str]) -> Columns:
    """The types of some columns' encoded values; `bumps` and `expected_version` are integers beside them."""
    extra: dict[str, TypeEngine[Any]] = {"bumps": Integer(), "expected_version": Integer()}
    return {name: extra[name] if name in extra else wire_type(table.c[name].type) for name in names}


def row_source(columns: Columns) -> Source:
    """One row: each column is a bind parameter named like it, with `p_` before."""
    return {name: bindparam(f"p_{name}", type_=kind) for name, kind in columns.items()}


def array_source(columns: Columns, prefix: str) -> tuple[Source, Any]:  # Any: a table-valued alias
    """Many rows: each column is an array parameter named like it, with the prefix before; and the FROM element."""
    arrays = [bindparam(f"{prefix}{name}", type_=ARRAY(kind, dimensions=1)) for name, kind in columns.items()]
    rows = func.unnest(*arrays).table_valued(*(column(name, kind) for name, kind in columns.items()))
    derived = rows.render_derived(name=f"{prefix}rows")
    return {name: derived.c[name] for name in columns}, derived


def insert_rows(
    kind: DatabaseKind, table: Table, names: Sequence[str], source: Source, rows: Any, *, skip_existing: bool
) -> Any:  # Any: each dialect has an insert class of its own
    """Insert rows with these columns."""
    statement = kind.insert(table)
    if rows is None:
        statement = statement.values({name: source[name] for name in names})
    else:
        statement = statement.from_select(list(names), select(*(source[name] for name in names)))
    return statement.on_conflict_do_nothing() if skip_existing else statement


def update_rows(table: Table, names: Sequence[str], source: Source) -> Update:
    """Change rows by id, raise their version, and leave alone those that don't have the expected one."""
    values: dict[str, Any] = {name: source[name] for name in names}
    values["version"] = table.c.version + source["bumps"]
    expected = source["expected_version"]
    return (
        update(table)
        .values(values)
        .where(table.c.id == source["id"], or_(expected.is_(None), table.c.version == expected))
    )


def enqueue_jobs(kind: DatabaseKind, source: Source, rows: Any) -> Any:
    """Insert jobs, each in the place of the one that its run and stage had."""
    statement = insert_rows(kind, tables.jobs, JOB_COLUMNS, source, rows, skip_existing=False)
    replaced = {name: statement.excluded[name] for name in JOB_COLUMNS}
    if kind.has_clock:
        replaced["position"] = statement.excluded["position"]
    else:
        replaced["position"] = select(
            func.coalesce(func.max(tables.jobs.c.position), 0) + 1
        ).scalar_subquery()
    return statement.on_conflict_do_update(index_elements=["run_id", "stage_id"], set_=replaced)


def acknowledge_jobs(kind: DatabaseKind, source: Source, *, waits: bool = True) -> Update:
    """Settle jobs under their fences; one whose fence isn't the current one is left alone.

    Args:
        kind: The database.
        source: The acknowledgements.
        waits: Whether to wait for a job that another transaction holds, or to fail as transient.
    """
    jobs = tables.jobs.c
    fenced = and_(
        jobs.status == literal_column("'RUNNING'"),
        jobs.started_at == source["fence_started_at"],
        jobs.deliveries == source["fence_deliveries"],
    )
    is_own = and_(jobs.id == source["id"], or_(source["fence_deliveries"].is_(None), fenced))
    if not waits:
        # A claim holds its jobs and waits for their runs; whoever holds the run must not wait for the job.
        held = (
            select(jobs.position, *(value.label(name) for name, value in source.items()))
            .where(is_own)
            .with_for_update(of=tables.jobs, nowait=True, key_share=True)
            .cte("held_jobs")
        )
        source, is_own = {name: held.c[name] for name in source}, jobs.position == held.c.position
    now = kind.now(source["given_now"])
    done = source["status"].in_([literal_column("'COMPLETED'"), literal_column("'FAILED'")])
    delay = source["delay_us"]
    due_at = source["due_at"]
    if kind.has_clock:
        due_at = case((delay.is_(None), due_at), else_=now + cast(delay, BigInteger) * _microsecond())
    return (
        update(tables.jobs)
        .values(
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
        .where(is_own)
    )


def _microsecond() -> ColumnElement[Any]:
    return literal_column("interval '1 microsecond'")
