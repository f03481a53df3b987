"""Claiming jobs from groups of which no more than so many may be RUNNING.

The first jobs of the queue are looked at, and where too few of their groups have room, the first job of each group: by
an index, group by group, so that it doesn't matter how many wait in each. Then the groups are locked, and their RUNNING
jobs are counted once more by a statement that begins after that: it sees what was committed by whoever had the lock.
"""

from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    Executable,
    Integer,
    Select,
    Text,
    any_,
    bindparam,
    column,
    func,
    literal_column,
    not_,
    or_,
    select,
    union_all,
    update,
)

from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.statements.claims import delivery, is_served
from stagewright_persistence_sqlalchemy.statements.paths import PRIMARY, along
from stagewright_persistence_sqlalchemy.statements.reads import numbered
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables
from stagewright_persistence_sqlalchemy.taking import Taking, taking_chosen

__all__ = [
    "claimable_groups",
    "deliver_from_groups",
    "deliver_jobs",
    "known_buckets",
    "lock_buckets",
    "make_bucket",
    "next_of_group",
    "running_of_groups",
]

_INDEX: Final = "ix_job_queue_groups"
_ONE: Final[ColumnElement[int]] = literal_column("1")
"""Spelled out: a planner takes a limit that it isn't told for a tenth of all rows."""


@for_tables(maxsize=64)
def claimable_groups(tables: Tables, kind: DatabaseKind, pairs: int | None) -> Executable:
    """The groups that have a due job and room, in the order of their first such jobs, each with that job.

    On PostgreSQL only those that nobody else claims from; they are locked by this until the transaction ends.
    """
    limit, front_size = bindparam("limit", type_=BigInteger()), bindparam("front", type_=BigInteger())
    running = _running(tables).cte("running")
    front, fit = _front(tables, kind, pairs, running)
    # Enough, or all that there is: then nobody else's first job can come before these.
    is_enough = or_(
        select(func.count()).select_from(fit).scalar_subquery() >= limit,
        select(func.count()).select_from(front).scalar_subquery() < front_size,
    )
    of_front = select(fit.c.group_key, fit.c.room, fit.c.priority, fit.c.position).where(
        fit.c.rank == 1, is_enough
    )
    of_all = _first_of_all(tables, kind, pairs, running, not_(is_enough))
    found = union_all(of_front, of_all).cte("found")
    ordered = select(found).order_by(found.c.priority.desc(), found.c.position)
    if not kind.composes:
        return ordered.limit(limit)
    # Asked row by row in this order, until the limit is reached: no more groups are locked than are wanted.
    candidates = _once(ordered.cte("candidates"))
    is_locked = func.pg_try_advisory_xact_lock(_lock_name(tables, candidates.c.group_key))
    return select(candidates.c.group_key).where(is_locked).limit(limit)


@for_tables(maxsize=64)
def deliver_from_groups(tables: Tables, kind: DatabaseKind, pairs: int | None) -> Executable:
    """Deliver the first jobs of some groups, which are locked: as many of each as it has room for, and of all together.

    For databases that look up one part of a statement for each row of another.
    """
    wanted = func.unnest(bindparam("groups", type_=ARRAY(Text(), dimensions=1)))
    names = wanted.table_valued(column("group_key", Text())).render_derived(name="names")
    running = _running(tables).cte("running")
    limit = bindparam("limit", type_=BigInteger())
    room = _cap() - func.coalesce(running.c.taken, 0)
    rooms = _once(
        select(names.c.group_key, func.least(func.greatest(room, 0), limit).label("room"))
        .select_from(names.outerjoin(running, running.c.group_key == names.c.group_key))
        .cte("rooms")
    )
    jobs = tables.jobs
    first = (
        _waiting(tables, kind, pairs, rooms.c.group_key)
        .limit(rooms.c.room)
        .correlate(rooms)
        .lateral("first_of_each")
    )
    merged = _once(
        select(rooms.c.group_key)
        .select_from(rooms.join(first, literal_column("true")))
        .order_by(first.c.priority.desc(), first.c.position)
        .limit(limit)
        .cte("merged")
    )
    shares = _once(
        select(merged.c.group_key, func.count().label("share")).group_by(merged.c.group_key).cte("shares")
    )
    # No more are locked than are taken; in the place of a job that somebody holds comes the next of its group.
    held = (
        _waiting(tables, kind, pairs, shares.c.group_key)
        .with_only_columns(jobs.c.position)
        .limit(shares.c.share)
        .with_for_update(skip_locked=True)
        .correlate(shares)
        .lateral("held")
    )
    taken = _once(select(held.c.position).select_from(shares.join(held, literal_column("true"))).cte("taken"))
    # As an array, of which a planner expects less than of a part whose limits it doesn't know: it would read all jobs.
    positions = func.array(select(taken.c.position).scalar_subquery())
    changed = update(jobs).ordered_values(*delivery(tables, kind)).where(jobs.c.position == any_(positions))
    return changed.returning(*tables.told_of_jobs)


@for_tables(maxsize=64)
def next_of_group(tables: Tables, kind: DatabaseKind, pairs: int | None) -> Executable:
    """The first due jobs of one group, which are locked; those that somebody holds are passed over."""
    waiting = _waiting(tables, kind, pairs, bindparam("group_key", type_=Text()))
    locked = waiting.limit(bindparam("room", type_=Integer())).with_for_update(skip_locked=True)
    return along(locked, tables.jobs, _INDEX)


@for_tables(maxsize=64)
def deliver_jobs(tables: Tables, kind: DatabaseKind, count: int) -> Taking:
    """Deliver so many jobs, which are locked."""
    jobs = tables.jobs
    positions = [bindparam(f"position_{number}", type_=BigInteger()) for number in range(count)]
    chosen = select(jobs.c.position).where(jobs.c.position.in_(positions)).with_for_update()
    return taking_chosen(
        along(chosen, jobs, PRIMARY), jobs.c.position, delivery(tables, kind), tables.told_of_jobs
    )


@for_tables(maxsize=64)
def running_of_groups(tables: Tables, count: int) -> Executable:
    """How many jobs of so many groups are RUNNING; a group without any isn't told of."""
    return _running(tables).where(tables.jobs.c.group_key.in_(numbered(count)))


@for_tables(maxsize=64)
def lock_buckets(tables: Tables, count: int) -> Executable:
    """Those of so many buckets that nobody else claims from; they are locked by this."""
    return along(_buckets(tables, count).with_for_update(skip_locked=True), tables.group_locks, PRIMARY)


@for_tables(maxsize=64)
def known_buckets(tables: Tables, count: int) -> Executable:
    """Those of so many buckets that have a row, locked or not."""
    return _buckets(tables, count)


@for_tables(maxsize=8)
def make_bucket(tables: Tables, kind: DatabaseKind) -> Executable:
    """Make the row of a bucket unless it is there."""
    made: Executable = kind.skipping(
        kind.insert(tables.group_locks).values(bucket=bindparam("bucket", type_=Integer()))
    )
    return made


def _running(tables: Tables) -> Select[Any, int]:
    jobs = tables.jobs.c
    is_running = jobs.status == literal_column("'RUNNING'")
    return select(jobs.group_key, func.count().label("taken")).where(is_running).group_by(jobs.group_key)


def _front(tables: Tables, kind: DatabaseKind, pairs: int | None, running: CTE) -> tuple[CTE, CTE]:
    """The first due jobs whatever their groups, and those of them that their groups have room for, with their ranks."""
    jobs = tables.jobs
    first = _waiting(tables, kind, pairs).add_columns(jobs.c.group_key)
    first = first.limit(bindparam("front", type_=BigInteger()))
    front = _once(along(first, jobs, "ix_job_queue_pending").cte("front"))
    order = (front.c.priority.desc(), front.c.position)
    rank = func.row_number().over(partition_by=front.c.group_key, order_by=order).label("rank")
    ranked = select(front, rank).cte("ranked")
    room = (_cap() - func.coalesce(running.c.taken, 0)).label("room")
    joined = ranked.outerjoin(running, running.c.group_key == ranked.c.group_key)
    fit = _once(select(ranked, room).select_from(joined).where(ranked.c.rank <= room).cte("fit"))
    return front, fit


def _first_of_all(
    tables: Tables, kind: DatabaseKind, pairs: int | None, running: CTE, is_wanted: ColumnElement[bool]
) -> Select[Any, Any, Any, Any]:
    """The first due job of each group with room, if that is wanted."""
    jobs = tables.jobs
    names = _names(tables, kind, is_wanted)
    head = _waiting(tables, kind, pairs, names.c.group_key).with_only_columns(jobs.c.position).limit(_ONE)
    room = _cap() - func.coalesce(running.c.taken, 0)
    heads = _once(
        select(
            names.c.group_key, room.label("room"), head.correlate(names).scalar_subquery().label("position")
        )
        .select_from(names.outerjoin(running, running.c.group_key == names.c.group_key))
        .where(names.c.group_key.is_not(None), room > 0)
        .cte("heads")
    )
    joined = heads.join(jobs, jobs.c.position == heads.c.position)
    return select(heads.c.group_key, heads.c.room, jobs.c.priority, heads.c.position).select_from(joined)


def _names(tables: Tables, kind: DatabaseKind, is_wanted: ColumnElement[bool]) -> CTE:
    """The keys of the groups in which jobs wait, each found from the one before it; the last row may be NULL."""
    pending: ColumnElement[str] = literal_column("'PENDING'")
    if not kind.ranges_follow_rows:
        each = select(tables.jobs.c.group_key).where(tables.jobs.c.status == pending, is_wanted)
        return along(each, tables.jobs, _INDEX).group_by(tables.jobs.c.group_key).cte("names")
    jobs = tables.jobs.alias("waiting_job")
    is_waiting = jobs.c.status == pending
    first = select(func.min(jobs.c.group_key).label("group_key")).where(is_waiting)
    names = select(first.scalar_subquery().label("group_key")).where(is_wanted).cte("names", recursive=True)
    following = first.where(jobs.c.group_key > names.c.group_key).correlate(names).scalar_subquery()
    return names.union_all(select(following).where(names.c.group_key.is_not(None)))


def _waiting(
    tables: Tables, kind: DatabaseKind, pairs: int | None, group_key: ColumnElement[str] | None = None
) -> Select[Any, Any]:
    """The due jobs, of a group or of all, in the order in which they are delivered."""
    jobs = tables.jobs
    now = kind.now(bindparam("now", type_=Moment()))
    # Spelled out, not bound: only so a planner sees that the partial indexes fit.
    is_pending = jobs.c.status == literal_column("'PENDING'")
    waiting = select(jobs.c.position, jobs.c.priority).where(
        is_pending, or_(jobs.c.due_at.is_(None), jobs.c.due_at <= now)
    )
    if group_key is not None:
        waiting = waiting.where(jobs.c.group_key == group_key)
    served = is_served(jobs, pairs)
    if served is not None:
        waiting = waiting.where(served)
    return waiting.order_by(jobs.c.priority.desc(), jobs.c.position)


def _lock_name(tables: Tables, group_key: ColumnElement[str]) -> ColumnElement[int]:
    """A number for a group of this very table: in another schema of the database it is another."""
    table: ColumnElement[Any] = literal_column(
        f"'{tables.names.qualified('job_queue')}'::regclass::oid::bigint"
    )
    return func.hashtextextended(group_key, table)


def _buckets(tables: Tables, count: int) -> Select[Any]:
    bucket = tables.group_locks.c.bucket
    wanted = [bindparam(f"bucket_{number}", type_=Integer()) for number in range(count)]
    return select(bucket).where(bucket.in_(wanted)).order_by(bucket)


def _cap() -> ColumnElement[int]:
    return bindparam("cap", type_=BigInteger())


def _once(part: CTE) -> CTE:
    """That part of a statement, evaluated as a whole and once, where a planner would else mix it with others."""
    for name in ("postgresql", "sqlite"):
        part = part.prefix_with("MATERIALIZED", dialect=name)
    return part
