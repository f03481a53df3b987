"""The delivering side of the outbox; whoever holds a run's first pending event has the run."""

from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Executable,
    Integer,
    Text,
    Update,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    update,
)

from stagewright_persistence_sqlalchemy import tables
from stagewright_persistence_sqlalchemy.column_types import ExactJson, Moment
from stagewright_persistence_sqlalchemy.statements.reads import numbered

__all__ = [
    "claim_events",
    "first_pending_events",
    "mark_published",
    "pending_events_of_runs",
    "record_refusal",
    "release_events",
    "renew_claim",
]

_NOW = bindparam("now", type_=Moment())
_TOKEN = bindparam("token", type_=Text())


@lru_cache(maxsize=1)
def first_pending_events() -> Executable:
    """The first pending event of each run that may be taken now, the oldest first; they are locked by this."""
    outbox = tables.outbox
    earlier = outbox.alias("earlier")
    is_first = ~exists().where(
        earlier.c.run_id == outbox.c.run_id, earlier.c.pending, earlier.c.sequence < outbox.c.sequence
    )
    free = or_(outbox.c.claim_token.is_(None), outbox.c.claim_token == _TOKEN, outbox.c.claimed_until <= _NOW)
    due = or_(outbox.c.retry_at.is_(None), outbox.c.retry_at <= _NOW)
    return (
        select(outbox.c.run_id)
        .where(outbox.c.pending, is_first, free, due)
        .order_by(outbox.c.occurred_at, outbox.c.run_id)
        .limit(bindparam("limit", type_=Integer()))
        .with_for_update(skip_locked=True)
    )


@lru_cache(maxsize=128)
def pending_events_of_runs(count: int) -> Executable:
    """The first pending events of so many runs, up to a limit for each, by run and sequence."""
    outbox = tables.outbox
    place = func.row_number().over(partition_by=outbox.c.run_id, order_by=outbox.c.sequence).label("place")
    ranked = (
        select(*outbox.c, place)
        .where(outbox.c.pending, outbox.c.run_id.in_(numbered(count)))
        .subquery("ranked")
    )
    return (
        select(*(ranked.c[column.name] for column in outbox.c))
        .where(ranked.c.place <= bindparam("limit", type_=Integer()))
        .order_by(ranked.c.run_id, ranked.c.sequence)
    )


@lru_cache(maxsize=256)
def claim_events(count: int) -> Update:
    """Claim so many events, whose runs are held."""
    return (
        update(tables.outbox)
        .where(tables.outbox.c.id.in_(numbered(count)))
        .values(claim_token=_TOKEN, claimed_until=bindparam("until", type_=Moment()))
    )


@lru_cache(maxsize=1)
def renew_claim() -> Update:
    """Prolong a claim that hasn't expired."""
    outbox = tables.outbox.c
    return (
        update(tables.outbox)
        .where(
            outbox.run_id == bindparam("of_run", type_=Text()),
            outbox.pending,
            outbox.claim_token == _TOKEN,
            outbox.claimed_until > _NOW,
        )
        .values(claimed_until=bindparam("until", type_=Moment()))
    )


def _held(count: int) -> ColumnElement[bool]:
    outbox = tables.outbox.c
    return and_(outbox.id.in_(numbered(count)), outbox.pending, outbox.claim_token == _TOKEN)


@lru_cache(maxsize=256)
def release_events(count: int) -> Update:
    """Give up the claim on so many events."""
    return update(tables.outbox).where(_held(count)).values(claim_token=None, claimed_until=None)


@lru_cache(maxsize=256)
def mark_published(count: int) -> Update:
    """Mark so many claimed events as published."""
    return (
        update(tables.outbox)
        .where(_held(count))
        .values(pending=False, published_at=_NOW, claim_token=None, claimed_until=None, retry_at=None)
    )


@lru_cache(maxsize=2)
def record_refusal(*, for_good: bool) -> Update:
    """Keep what the sink said of a claimed event, and offer it again later, or never."""
    outbox = tables.outbox.c
    values: dict[str, Any] = {
        "retry_count": outbox.retry_count + 1,
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
    return update(tables.outbox).where(_held(1)).values(values)
