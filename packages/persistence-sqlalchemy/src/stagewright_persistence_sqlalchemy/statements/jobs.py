"""Jobs by id and by run, and their leases."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Executable,
    Integer,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.statements.claims import any_of
from stagewright_persistence_sqlalchemy.statements.paths import PRIMARY, along, updating_along
from stagewright_persistence_sqlalchemy.statements.reads import numbered
from stagewright_persistence_sqlalchemy.statements.writes import (
    ACKNOWLEDGEMENT_COLUMNS,
    Source,
    acknowledge_jobs,
    array_source,
    row_source,
)
from stagewright_persistence_sqlalchemy.statements.writes_at_once import insert_absent
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables
from stagewright_persistence_sqlalchemy.taking import Taking, taking_chosen

__all__ = [
    "acknowledge_at_once",
    "cancel_by_run",
    "delete_job_at",
    "delete_jobs",
    "depth",
    "enqueue_at_once",
    "expire_runaway",
    "jobs_of_run",
    "jobs_of_stages",
    "leased_jobs",
    "lock_jobs_at_rest",
    "owned_leases",
    "place_of_job",
    "positions_of_stages",
    "release_stale",
    "renew_jobs",
    "renew_leases",
    "touch",
    "wake_jobs",
]


_BY_ID: Final = "uq_job_queue_id"
_BY_STAGE: Final = "uq_job_queue_run_id_stage_id"
_BY_LEASE: Final = "ix_job_queue_leases"


def _now(kind: DatabaseKind) -> ColumnElement[Any]:
    return kind.now(bindparam("now", type_=Moment()))


@for_tables(maxsize=8)
def acknowledge_at_once(tables: Tables, kind: DatabaseKind) -> Executable:
    """Settle one job."""
    settled = acknowledge_jobs(tables, kind, row_source(ACKNOWLEDGEMENT_COLUMNS))
    return _at_place(tables, settled) if kind.locks_entries else settled


@for_tables(maxsize=8)
def touch(tables: Tables, kind: DatabaseKind) -> Executable:
    """Renew a lease under its fence."""
    jobs = tables.jobs.c
    held = update(tables.jobs).where(
        jobs.id == bindparam("of_id", type_=Text()),
        jobs.status == "RUNNING",
        jobs.started_at == bindparam("fence_started_at", type_=Moment()),
        jobs.deliveries == bindparam("fence_deliveries", type_=Integer()),
    )
    renewed = held.values(locked_at=_now(kind))
    return _at_place(tables, renewed) if kind.locks_entries else renewed


@for_tables(maxsize=1)
def place_of_job(tables: Tables) -> Select[Any]:
    """The position of a job; not locked, and so no more than where to look."""
    jobs = tables.jobs.c
    return select(jobs.position).where(jobs.id == bindparam("of_id", type_=Text()))


def _at_place(tables: Tables, changed: Update) -> Update:
    """A change of a job that is reached by its position: whoever replaces it has its row before it changes its id."""
    at = bindparam("at_position", type_=BigInteger())
    return updating_along(changed.where(tables.jobs.c.position == at), PRIMARY)


_LEASES: Final[dict[str, TypeEngine[Any]]] = {
    "number": Integer(),
    "id": Text(),
    "fence_started_at": Moment(),
    "fence_deliveries": Integer(),
}


def _under_lease(tables: Tables) -> tuple[Source, Any, ColumnElement[bool]]:
    """Many leases, as arrays, and the condition that a job is owned under one of them."""
    jobs = tables.jobs.c
    lease, rows = array_source(_LEASES, "held_")
    owned = and_(
        jobs.id == lease["id"],
        jobs.status == literal_column("'RUNNING'"),
        jobs.started_at == lease["fence_started_at"],
        jobs.deliveries == lease["fence_deliveries"],
    )
    return lease, rows, owned


@for_tables(maxsize=8)
def renew_leases(tables: Tables, kind: DatabaseKind) -> Executable:
    """Renew many leases under their fences, but for those of jobs that somebody holds."""
    jobs = tables.jobs.c
    _, rows, owned = _under_lease(tables)
    held = (
        select(jobs.position)
        .select_from(rows)
        .where(owned)
        .with_for_update(of=tables.jobs, skip_locked=True, key_share=True)
        .cte("held")
    )
    renewed = update(tables.jobs).where(jobs.position.in_(select(held.c.position)))
    return renewed.values(locked_at=_now(kind))


@for_tables(maxsize=64)
def leased_jobs(tables: Tables, count: int, *, lock: bool) -> Executable:
    """The jobs that are owned under so many leases; with `lock` those that nobody holds, which are locked by this."""
    jobs = tables.jobs.c
    owned = [
        and_(
            jobs.id == bindparam(f"id_{number}", type_=Text()),
            jobs.status == literal_column("'RUNNING'"),
            jobs.started_at == bindparam(f"fence_started_at_{number}", type_=Moment()),
            jobs.deliveries == bindparam(f"fence_deliveries_{number}", type_=Integer()),
        )
        for number in range(count)
    ]
    found = select(jobs.id, jobs.position, jobs.started_at, jobs.deliveries).where(any_of(owned))
    return along(found.with_for_update(skip_locked=True), tables.jobs, _BY_ID) if lock else found


@for_tables(maxsize=64)
def renew_jobs(tables: Tables, kind: DatabaseKind, count: int) -> Executable:
    """Renew the leases of so many jobs, which are locked."""
    positions = [bindparam(f"position_{number}", type_=BigInteger()) for number in range(count)]
    renewed = update(tables.jobs).where(tables.jobs.c.position.in_(positions))
    return renewed.values(locked_at=_now(kind))


@for_tables(maxsize=1)
def owned_leases(tables: Tables) -> Select[Any]:
    """The numbers of those leases whose delivery owns its job."""
    lease, rows, owned = _under_lease(tables)
    return select(lease["number"]).select_from(rows, tables.jobs).where(owned)


@for_tables(maxsize=8)
def release_stale(tables: Tables, kind: DatabaseKind) -> Taking:
    """End leases that were not renewed in time: PENDING again, or FAILED when the budget is spent."""
    jobs = tables.jobs.c
    lost = (
        select(jobs.position)
        .where(jobs.status == literal_column("'RUNNING'"), jobs.locked_at < kind.before())
        .with_for_update(skip_locked=True)
    )
    spent = jobs.worker_losses + 1 >= jobs.max_worker_losses
    now = _now(kind)
    lost_by = bindparam("prefix", type_=Text()).concat(func.coalesce(jobs.worker_id, "(unknown)"))
    changes = (
        (jobs.status, case((spent, "FAILED"), else_="PENDING")),
        (jobs.last_error, lost_by),
        (jobs.completed_at, case((spent, now), else_=None)),
        (jobs.worker_id, case((spent, jobs.worker_id), else_=None)),
        (jobs.worker_losses, jobs.worker_losses + 1),
        (jobs.locked_at, None),
        (jobs.updated_at, now),
    )
    return taking_chosen(along(lost, tables.jobs, _BY_LEASE), jobs.position, changes, tables.told_of_jobs)


@for_tables(maxsize=8)
def expire_runaway(tables: Tables, kind: DatabaseKind) -> Taking:
    """Fail jobs that were delivered too long ago."""
    jobs = tables.jobs.c
    late = (
        select(jobs.position)
        .where(jobs.status == literal_column("'RUNNING'"), jobs.started_at < kind.before())
        .with_for_update(skip_locked=True)
    )
    now = _now(kind)
    changes = (
        (jobs.status, "FAILED"),
        (jobs.last_error, bindparam("error", type_=Text())),
        (jobs.completed_at, now),
        (jobs.locked_at, None),
        (jobs.updated_at, now),
    )
    return taking_chosen(along(late, tables.jobs, _BY_LEASE), jobs.position, changes, tables.told_of_jobs)


@for_tables(maxsize=8)
def cancel_by_run(tables: Tables, kind: DatabaseKind) -> Taking:
    """Cancel a run's waiting jobs, but for those that a claimer is taking."""
    jobs = tables.jobs.c
    waiting = select(jobs.position).where(
        jobs.run_id == bindparam("of_run", type_=Text()),
        jobs.status.in_([literal("PENDING"), literal("SUSPENDED")]),
    )
    waiting = along(waiting, tables.jobs, _BY_STAGE)
    now = _now(kind)
    changes = ((jobs.status, "CANCELLED"), (jobs.completed_at, now), (jobs.updated_at, now))
    locked = waiting.with_for_update(skip_locked=True)
    return taking_chosen(locked, jobs.position, changes, [jobs.position], candidates=waiting)


@for_tables(maxsize=64)
def positions_of_stages(tables: Tables, count: int) -> Select[Any]:
    """Where the jobs of so many stages of a run are; not locked."""
    jobs = tables.jobs.c
    return select(jobs.position).where(
        jobs.run_id == bindparam("run_id", type_=Text()), jobs.stage_id.in_(numbered(count))
    )


@for_tables(maxsize=1)
def delete_job_at(tables: Tables) -> Executable:
    """Delete a job by its position; several at once would be looked for among all of them."""
    return delete(tables.jobs).where(tables.jobs.c.position == bindparam("at_position", type_=BigInteger()))


@for_tables(maxsize=64)
def delete_jobs(tables: Tables, count: int) -> Executable:
    """Delete the jobs of so many stages of a run."""
    jobs = tables.jobs.c
    return delete(tables.jobs).where(
        jobs.run_id == bindparam("run_id", type_=Text()), jobs.stage_id.in_(numbered(count))
    )


@for_tables(maxsize=1)
def jobs_of_run(tables: Tables) -> Select[Any]:
    """The jobs of a run, by the time they were enqueued."""
    jobs = tables.jobs.c
    return (
        select(*tables.told_of_jobs)
        .where(jobs.run_id == bindparam("run_id", type_=Text()))
        .order_by(jobs.position)
    )


def _of_stages(tables: Tables, count: int) -> ColumnElement[bool]:
    jobs = tables.jobs.c
    named = zip(numbered(count, "run"), numbered(count, "stage"), strict=True)
    return any_of([and_(jobs.run_id == run_id, jobs.stage_id == stage_id) for run_id, stage_id in named])


@for_tables(maxsize=64)
def jobs_of_stages(tables: Tables, count: int) -> Select[Any]:
    """The jobs of so many stages of runs."""
    return select(*tables.told_of_jobs).where(_of_stages(tables, count))


@for_tables(maxsize=64)
def lock_jobs_at_rest(tables: Tables, count: int) -> Executable:
    """Those of so many stages' jobs that nobody can claim or has claimed; one that somebody holds is passed over."""
    resting = tables.jobs.c.status.not_in([literal("PENDING"), literal("RUNNING")])
    found = select(tables.jobs.c.position, tables.jobs.c.run_id, tables.jobs.c.stage_id, tables.jobs.c.status)
    named = found.where(_of_stages(tables, count), resting).with_for_update(skip_locked=True)
    return along(named, tables.jobs, _BY_STAGE)


@for_tables(maxsize=64)
def wake_jobs(tables: Tables, kind: DatabaseKind, count: int) -> Executable:
    """Make so many SUSPENDED jobs, which are locked, PENDING and due at once."""
    positions = [bindparam(f"position_{number}", type_=BigInteger()) for number in range(count)]
    woken = update(tables.jobs).where(tables.jobs.c.position.in_(positions))
    return woken.values(status="PENDING", due_at=None, updated_at=_now(kind))


@for_tables(maxsize=8)
def enqueue_at_once(tables: Tables, kind: DatabaseKind, names: tuple[str, ...]) -> Executable:
    """Enqueue a job, of which these columns are given, unless its stage has one by now."""
    statement: Executable = insert_absent(kind, tables.jobs, list(names))
    return statement


@for_tables(maxsize=8)
def depth(tables: Tables, kind: DatabaseKind) -> Select[Any]:
    """How many jobs are PENDING and due."""
    jobs = tables.jobs.c
    due = or_(jobs.due_at.is_(None), jobs.due_at <= _now(kind))
    return select(func.count().label("depth")).where(and_(jobs.status == literal_column("'PENDING'"), due))
