"""The delivering side of the outbox; whoever holds a run's first pending event has the run."""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Executable,
    Integer,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    false,
    func,
    literal_column,
    or_,
    select,
    update,
)

from stagewright_persistence_sqlalchemy.column_types import ExactJson, Moment
from stagewright_persistence_sqlalchemy.statements.paths import PRIMARY, along, updating_along
from stagewright_persistence_sqlalchemy.statements.reads import numbered
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables
from stagewright_persistence_sqlalchemy.taking import Taking, taking_matching

__all__ = [
    "claim_events",
    "count_retry",
    "dead_letters",
    "first_pending_events",
    "heads_of_runs",
    "lock_events",
    "mark_published",
    "pending_events",
    "pending_events_of_runs",
    "record_refusal",
    "release_events",
    "renew_claim",
    "replay_dead_letters",
]

_NOW = bindparam("now", type_=Moment())
_TOKEN = bindparam("token", type_=Text())


def _is_free(tables: Tables) -> ColumnElement[bool]:
    outbox = tables.outbox.c
    return or_(outbox.claim_token.is_(None), outbox.claim_token == _TOKEN, outbox.claimed_until <= _NOW)


def _is_first(tables: Tables) -> ColumnElement[bool]:
    """Whether no event of the same run waits before this one."""
    outbox, earlier = tables.outbox.c, tables.outbox.alias("earlier").c
    # In words by which nobody finds the index of what waits: a planner that was told at a quiet moment that nothing
    # does would go through all of it for each event. The run's own events are few, and the one before is met first.
    waits = func.coalesce(earlier.pending, false())
    before = (
        select(earlier.sequence)
        .where(earlier.run_id == outbox.run_id, earlier.sequence < outbox.sequence, waits)
        .order_by(earlier.sequence.desc())
        .limit(literal_column("1"))
    )
    return before.scalar_subquery().is_(None)


@for_tables(maxsize=1)
def pending_events(tables: Tables) -> Select[Any]:
    """Pending events, those of the run first whose first one is the oldest, and by sequence."""
    outbox, waiting = tables.outbox, tables.outbox.alias("waiting")
    limit = bindparam("limit", type_=Integer())
    # More runs than events aren't wanted.
    heads = (
        select(outbox.c.run_id, outbox.c.occurred_at)
        .where(tables.is_pending(), _is_first(tables))
        .order_by(outbox.c.occurred_at, outbox.c.run_id)
        .limit(limit)
        .cte("heads")
    )
    return (
        select(waiting)
        .select_from(heads.join(waiting, waiting.c.run_id == heads.c.run_id))
        .where(waiting.c.pending)
        .order_by(heads.c.occurred_at, heads.c.run_id, waiting.c.sequence)
        .limit(limit)
    )


@for_tables(maxsize=1)
def first_pending_events(tables: Tables) -> Executable:
    """The first pending event of each run that may be taken now, the oldest first; they are locked by this."""
    outbox = tables.outbox
    due = or_(outbox.c.retry_at.is_(None), outbox.c.retry_at <= _NOW)
    first = (
        select(outbox.c.run_id, outbox.c.id)
        .where(tables.is_pending(), _is_first(tables), _is_free(tables), due)
        .order_by(outbox.c.occurred_at, outbox.c.run_id)
        .limit(bindparam("limit", type_=Integer()))
        .with_for_update(skip_locked=True)
    )
    return along(first, outbox, "ix_outbox_events_pending")


@for_tables(maxsize=32)
def pending_events_of_runs(tables: Tables, count: int) -> Executable:
    """The first pending events of so many runs, up to a limit for each, and all claimed ones, by run and sequence."""
    outbox = tables.outbox
    place = func.row_number().over(partition_by=outbox.c.run_id, order_by=outbox.c.sequence).label("place")
    ranked = (
        select(*outbox.c, place)
        .where(outbox.c.pending, outbox.c.run_id.in_(numbered(count)))
        .subquery("ranked")
    )
    return (
        select(*(ranked.c[column.name] for column in outbox.c))
        .where(or_(ranked.c.place <= bindparam("limit", type_=Integer()), ranked.c.claim_token.is_not(None)))
        .order_by(ranked.c.run_id, ranked.c.sequence)
    )


@for_tables(maxsize=32)
def claim_events(tables: Tables, count: int) -> Taking:
    """Claim those of so many events that nobody else has claimed meanwhile; answers with their ids."""
    outbox = tables.outbox.c
    free = (outbox.id.in_(numbered(count)), outbox.pending, _is_free(tables))
    claimed = ((outbox.claim_token, _TOKEN), (outbox.claimed_until, bindparam("until", type_=Moment())))
    return taking_matching(free, outbox.id, claimed, [outbox.id])


@for_tables(maxsize=1)
def renew_claim(tables: Tables) -> Update:
    """Prolong a claim that hasn't expired."""
    outbox = tables.outbox.c
    held = update(tables.outbox).where(
        outbox.run_id == bindparam("of_run", type_=Text()),
        outbox.pending,
        outbox.claim_token == _TOKEN,
        outbox.claimed_until > _NOW,
    )
    renewed = held.values(claimed_until=bindparam("until", type_=Moment()))
    return updating_along(renewed, "uq_outbox_events_run_id_sequence")


def _held(tables: Tables, count: int) -> ColumnElement[bool]:
    outbox = tables.outbox.c
    return and_(outbox.id.in_(numbered(count)), outbox.pending, outbox.claim_token == _TOKEN)


@for_tables(maxsize=32)
def release_events(tables: Tables, count: int) -> Update:
    """Give up the claim on so many events."""
    released = update(tables.outbox).where(_held(tables, count)).values(claim_token=None, claimed_until=None)
    return updating_along(released, PRIMARY)


@for_tables(maxsize=32)
def mark_published(tables: Tables, count: int) -> Update:
    """Mark so many claimed events as published."""
    published = update(tables.outbox).where(_held(tables, count))
    told = published.values(
        pending=False, published_at=_NOW, claim_token=None, claimed_until=None, retry_at=None
    )
    return updating_along(told, PRIMARY)


def _one_more_retry(tables: Tables) -> ColumnElement[int]:
    return tables.outbox.c.retry_count + 1


@for_tables(maxsize=1)
def count_retry(tables: Tables) -> Taking:
    """Raise an event's retry count; answers the count."""
    outbox = tables.outbox.c
    named = (outbox.id == bindparam("of_id", type_=Text()),)
    counted = ((outbox.retry_count, _one_more_retry(tables)),)
    return taking_matching(named, outbox.id, counted, [outbox.retry_count])


@for_tables(maxsize=2)
def record_refusal(tables: Tables, *, for_good: bool) -> Update:
    """Keep what the sink said of a claimed event, and offer it again later, or never."""
    values: dict[str, Any] = {
        "retry_count": _one_more_retry(tables),
        "last_error": bindparam("error", type_=Text()),
        "last_error_at": _NOW,
        "delivered_to": bindparam("delivered", type_=ExactJson()),
        "claim_token": None,
        "claimed_until": None,
    }
    if for_good:
        values |= {"pending": False, "dead_lettered_at": _NOW, "retry_at": None}
    else:
        values["retry_at"] = bindparam("again_at", type_=Moment())
    return updating_along(update(tables.outbox).where(_held(tables, 1)).values(values), PRIMARY)


@for_tables(maxsize=1)
def dead_letters(tables: Tables) -> Executable:
    """Dead letters, those that were given up first."""
    outbox = tables.outbox.c
    return (
        select(outbox.id, outbox.run_id)
        .where(outbox.dead_lettered_at.is_not(None))
        .order_by(outbox.dead_lettered_at, outbox.run_id, outbox.sequence)
        .limit(bindparam("limit", type_=Integer()))
    )


@for_tables(maxsize=32)
def heads_of_runs(tables: Tables, count: int) -> Select[Any]:
    """The first pending event of each of so many runs."""
    outbox = tables.outbox.c
    return select(outbox.id).where(outbox.run_id.in_(numbered(count)), outbox.pending, _is_first(tables))


@for_tables(maxsize=32)
def lock_events(tables: Tables, count: int) -> Executable:
    """So many events, locked run by run as far as they are there; who claims them is waited for."""
    outbox = tables.outbox.c
    named = select(outbox.id).where(outbox.id.in_(numbered(count)))
    ordered = named.order_by(outbox.run_id, outbox.sequence).with_for_update()
    return along(ordered, tables.outbox, PRIMARY)


@for_tables(maxsize=32)
def replay_dead_letters(tables: Tables, count: int) -> Update:
    """Offer those of so many events again that are dead letters."""
    outbox = tables.outbox.c
    dead = update(tables.outbox).where(outbox.id.in_(numbered(count)), outbox.dead_lettered_at.is_not(None))
    return updating_along(dead.values(pending=True, dead_lettered_at=None, retry_count=0), PRIMARY)
