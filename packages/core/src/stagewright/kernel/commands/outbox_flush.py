"""`outbox.flush`: hand committed events to the sink, each run's in order, each at least once."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from stagewright.errors import PartialDeliveryError
from stagewright.events import event_of_record
from stagewright.kernel.command import Command
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.rules.delivery import retry_delay
from stagewright.records import EventRecord
from stagewright.runtime.failure import describe_exception

__all__ = ["FlushOutbox", "FlushOutboxResult", "handle"]

_CLAIM: Final = timedelta(seconds=60)
_log: Final = logging.getLogger("stagewright.kernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushOutboxResult:
    """What became of the events that were claimed.

    Attributes:
        published: How many the sink accepted.
        failed: How many are offered again: those it refused, and those that wait behind one of them.
        dead_lettered: How many were given up.
        event_sink_status: `degraded` if the sink refused anything this time.
        event_sink_error: What it said first.
    """

    published: int = 0
    failed: int = 0
    dead_lettered: int = 0
    event_sink_status: Literal["healthy", "degraded"] = "healthy"
    event_sink_error: str | None = None


@dataclass(frozen=True, slots=True)
class FlushOutbox(Command[FlushOutboxResult]):
    """Deliver up to `max_events` committed events; a sink that refuses is no error of this command."""

    type: ClassVar[str] = "outbox.flush"

    max_events: Annotated[int, Field(strict=True, gt=0)] = 100


@dataclass(slots=True)
class _Tally:
    published: int = 0
    failed: int = 0
    dead_lettered: int = 0
    errors: list[str] = field(default_factory=list)


async def handle(command: FlushOutbox, ports: KernelPorts) -> FlushOutboxResult:
    """Claim events, deliver them run by run, and give back what was not delivered whatever happens."""
    token = ports.ids.new_id()
    now = ports.clock.now()
    claimed = await ports.persistence.claim_unpublished_outbox_events(
        command.max_events, token=token, now=now, claimed_until=now + _CLAIM
    )
    tally = _Tally()
    open_ids = [event.id for event in claimed]
    try:
        for _, of_run in groupby(claimed, key=lambda event: event.run_id):
            delivered = list(of_run)
            await _deliver_run(ports, token, delivered, tally, held_until=now + _CLAIM)
            del open_ids[: len(delivered)]
    finally:
        if open_ids:
            await ports.persistence.release_outbox_events(open_ids, token=token)
    return FlushOutboxResult(
        published=tally.published,
        failed=tally.failed,
        dead_lettered=tally.dead_lettered,
        event_sink_status="degraded" if tally.errors else "healthy",
        event_sink_error=tally.errors[0] if tally.errors else None,
    )


async def _deliver_run(
    ports: KernelPorts, token: str, events: Sequence[EventRecord], tally: _Tally, *, held_until: datetime
) -> None:
    """Deliver one run's events in order, up to the first that the sink refuses; the rest waits behind it.

    The claim is renewed before an emit once half of it is over, so that nothing is handed out under an expired one.
    """
    accepted: list[str] = []
    rest = list(events)
    try:
        while rest:
            now = ports.clock.now()
            if held_until - now < _CLAIM / 2:
                held_until = now + _CLAIM
                if not await ports.persistence.renew_outbox_claim(
                    rest[0].run_id, token=token, now=now, claimed_until=held_until
                ):
                    # Somebody else delivers this run by now, and will say what became of its events.
                    return
            try:
                await _emit(ports, rest[0])
            except Exception as error:
                await _mark(ports, token, accepted, tally)
                await _refused(ports, token, rest, error, tally)
                return
            accepted.append(rest.pop(0).id)
    finally:
        await _mark(ports, token, accepted, tally)


async def _emit(ports: KernelPorts, event: EventRecord) -> None:
    try:
        await ports.event_sink.emit(event_of_record(event))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The sink cancelled something of its own; that is a refusal like any other.
        raise RuntimeError("the sink was cancelled") from error


async def _mark(ports: KernelPorts, token: str, accepted: list[str], tally: _Tally) -> None:
    if accepted:
        ids = accepted.copy()
        accepted.clear()
        tally.published += await ports.persistence.mark_outbox_events_published(
            ids, token=token, now=ports.clock.now()
        )


async def _refused(
    ports: KernelPorts, token: str, rest: Sequence[EventRecord], error: Exception, tally: _Tally
) -> None:
    head, behind = rest[0], rest[1:]
    described = str(describe_exception(error))
    tally.errors.append(described)
    delivered_to = head.delivered_to | (
        error.delivered if isinstance(error, PartialDeliveryError) else frozenset()
    )
    now = ports.clock.now()
    refusals = head.retry_count + 1
    if refusals >= ports.settings.max_retries:
        moved = await ports.persistence.move_outbox_event_to_dlq(
            head.id, token=token, error=described, delivered_to=delivered_to, now=now
        )
        tally.dead_lettered += int(moved)
        _log.error(
            "event %s of run %s is given up after %d refusals: %s", head.id, head.run_id, refusals, described
        )
    else:
        retry_at = now + retry_delay(refusals)
        recorded = await ports.persistence.record_outbox_failure(
            head.id, token=token, error=described, delivered_to=delivered_to, now=now, retry_at=retry_at
        )
        tally.failed += int(recorded)
    await ports.persistence.release_outbox_events([event.id for event in behind], token=token)
    tally.failed += len(behind)
