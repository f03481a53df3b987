"""Reads of single rows and of what a run consists of."""

from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Executable,
    Select,
    Table,
    Text,
    bindparam,
    func,
    literal,
    literal_column,
    select,
)

from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.rows import RUN_PREFIX, STAGE_PREFIX
from stagewright_persistence_sqlalchemy.statements.paths import PRIMARY, along, of_met_rows
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = [
    "blob_by_key",
    "definition_by_key",
    "idempotency_key",
    "load_runs",
    "lock_event_sequences",
    "lock_runs",
    "locks_runs",
    "numbered",
    "run_by_id",
    "run_status",
    "runs_by_version",
    "signal_of_step",
    "signals_of_run",
    "snapshots_of_runs",
    "stage_by_name",
    "stages_of_run",
    "stages_of_runs",
    "standing_definition",
    "versions_of",
]

_LOCKS_RUNS: Final = "stagewright_locks_runs"
_ACTIVE: Final = sorted(set(Status) - TERMINAL_RUN_STATUSES)


def numbered(count: int, name: str = "item") -> list[ColumnElement[Any]]:
    """So many bind parameters, `item_0`, `item_1` and so on."""
    return [bindparam(f"{name}_{number}", type_=Text()) for number in range(count)]


@for_tables(maxsize=1)
def run_by_id(tables: Tables) -> Select[Any]:
    """A run."""
    return select(tables.runs).where(tables.runs.c.id == bindparam("id", type_=Text()))


@for_tables(maxsize=1)
def run_status(tables: Tables) -> Select[Any]:
    """A run's status."""
    return select(tables.runs.c.status).where(tables.runs.c.id == bindparam("id", type_=Text()))


@for_tables(maxsize=128)
def lock_runs(tables: Tables, count: int) -> Executable:
    """Runs, locked in the order of their ids."""
    runs = tables.runs
    named = select(runs).where(runs.c.id.in_(numbered(count))).order_by(runs.c.id)
    return along(named.with_for_update(), runs, PRIMARY).execution_options(**{_LOCKS_RUNS: True})


def locks_runs(statement: Executable) -> bool:
    """Whether a statement is that one: what is read after it has to be as new as the locks are."""
    return bool(statement.get_execution_options().get(_LOCKS_RUNS))


@for_tables(maxsize=128)
def snapshots_of_runs(tables: Tables, count: int) -> Executable:
    """What tells of runs whether anything has happened in them, as a transaction sees them that has a snapshot."""
    runs = tables.runs.c
    return select(runs.id, runs.version, runs.event_seq).where(runs.id.in_(numbered(count)))


@for_tables(maxsize=128)
def load_runs(tables: Tables, kind: DatabaseKind, count: int, *, lock: bool) -> Executable:
    """Runs with their stages, a row for each stage and one for a run without any; runs in the order of their ids.

    A locking read that had to wait gets the run as it is now, and the stages as they were when the statement began.
    `is_current` is false then: the stages have to be read anew.
    """
    runs, stages = tables.runs, tables.stages
    columns = [column.label(RUN_PREFIX + column.name) for column in runs.c]
    columns += [column.label(STAGE_PREFIX + column.name) for column in stages.c]
    if lock and kind.name == "postgresql":
        before = runs.alias("before")
        seen: Select[Any] = (
            select(literal_column("before.xmin")).select_from(before).where(before.c.id == runs.c.id)
        )
        columns.append(
            (
                seen.scalar_subquery() == literal_column(f"{tables.names.qualified('workflow_runs')}.xmin")
            ).label("is_current")
        )
    statement = (
        select(*columns)
        .select_from(runs.outerjoin(stages, stages.c.run_id == runs.c.id))
        .where(runs.c.id.in_(numbered(count)))
        .order_by(runs.c.id, stages.c.execution_group, stages.c.stage_number)
    )
    return statement.with_for_update(of=runs) if lock else statement


@for_tables(maxsize=128)
def stages_of_runs(tables: Tables, count: int) -> Select[Any]:
    """The stages of several runs, by execution group, then by stage number."""
    stages = tables.stages
    return (
        select(stages)
        .where(stages.c.run_id.in_(numbered(count)))
        .order_by(stages.c.run_id, stages.c.execution_group, stages.c.stage_number)
    )


@for_tables(maxsize=1)
def stages_of_run(tables: Tables) -> Select[Any]:
    """The stages of one run, by execution group, then by stage number."""
    stages = tables.stages
    return (
        select(stages)
        .where(stages.c.run_id == bindparam("run_id", type_=Text()))
        .order_by(stages.c.execution_group, stages.c.stage_number)
    )


@for_tables(maxsize=1)
def stage_by_name(tables: Tables) -> Select[Any]:
    """One stage of a run."""
    stages = tables.stages.c
    return select(tables.stages).where(
        stages.run_id == bindparam("run_id", type_=Text()),
        stages.stage_id == bindparam("stage_id", type_=Text()),
    )


@for_tables(maxsize=1)
def signal_of_step(tables: Tables) -> Select[Any]:
    """The signal that is kept for a step."""
    signals = tables.step_signals.c
    return select(tables.step_signals).where(
        signals.run_id == bindparam("run_id", type_=Text()),
        signals.stage_id == bindparam("stage_id", type_=Text()),
        signals.step_id == bindparam("step_id", type_=Text()),
    )


@for_tables(maxsize=1)
def signals_of_run(tables: Tables) -> Select[Any]:
    """The signals of a run that no step has taken."""
    signals = tables.step_signals.c
    return (
        select(tables.step_signals)
        .where(signals.run_id == bindparam("run_id", type_=Text()))
        .order_by(signals.created_at, signals.id)
    )


@for_tables(maxsize=64)
def lock_event_sequences(tables: Tables, count: int) -> Executable:
    """The last event of runs, whose rows are locked by this in the order of their ids."""
    runs = tables.runs.c
    named = (
        select(runs.id, runs.version, runs.event_seq).where(runs.id.in_(numbered(count))).order_by(runs.id)
    )
    return along(named.with_for_update(), tables.runs, PRIMARY)


@lru_cache(maxsize=64)
def versions_of(table: Table, count: int) -> Executable:
    """The versions of rows, and the sequences of runs' last events; None where the table has none."""
    told = [
        table.c[name] if name in table.c else literal_column("NULL").label(name)
        for name in ("version", "event_seq")
    ]
    named: Any = select(table.c.id, *told)  # Any: typed by its columns
    return of_met_rows(named.where(table.c.id.in_(numbered(count))))


@for_tables(maxsize=1)
def definition_by_key(tables: Tables) -> Select[Any]:
    """A definition."""
    definitions = tables.definitions.c
    return select(tables.definitions).where(
        definitions.workflow_id == bindparam("workflow_id", type_=Text()),
        definitions.version == bindparam("version", type_=Text()),
    )


@for_tables(maxsize=1)
def standing_definition(tables: Tables) -> Select[Any]:
    """The definition that stood in the way of one."""
    return of_met_rows(definition_by_key(tables))


@for_tables(maxsize=8)
def runs_by_version(tables: Tables, *filters: str, only_active: bool) -> Executable:
    """How many runs there are of each workflow, version and status, and since when; `filters` are columns."""
    runs = tables.runs.c
    bucket = (runs.workflow_id, runs.definition_version, runs.status)
    wanted = [runs[name] == bindparam(name, type_=Text()) for name in filters]
    if only_active:
        wanted.append(runs.status.in_([literal(status.value) for status in _ACTIVE]))
    return (
        select(*bucket, func.count().label("total"), func.min(runs.created_at).label("oldest"))
        .where(*wanted)
        .group_by(*bucket)
    )


@for_tables(maxsize=1)
def idempotency_key(tables: Tables) -> Select[Any]:
    """An idempotency key that stood in the way of one."""
    keys = tables.idempotency_keys.c
    held = select(tables.idempotency_keys).where(
        keys.key == bindparam("key", type_=Text()),
        keys.command_type == bindparam("command_type", type_=Text()),
    )
    return of_met_rows(held)


@for_tables(maxsize=1)
def blob_by_key(tables: Tables) -> Select[Any]:
    """A blob."""
    return select(tables.blobs).where(tables.blobs.c.key == bindparam("key", type_=Text()))
