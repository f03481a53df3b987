"""`outbox.flush`: hand committed events to the sink, each run's in order, each at least once."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import ClassVar, Final, Literal

from stagewright.duration import add_within_calendar
from stagewright.errors import DeliveryTimeoutError, PartialDeliveryError
from stagewright.events import event_of_record
from stagewright.kernel.command import Command, PositiveCount
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.rules.delivery import retry_delay
from stagewright.records import EventRecord
from stagewright.runtime.event_delivery import refusal_of
from stagewright.runtime.failure import describe_exception

__all__ = ["FlushOutbox", "FlushOutboxResult", "handle"]

_CLAIM: Final = timedelta(seconds=60)
_MARGIN: Final = timedelta(seconds=15)
_PATIENCE: Final = 1.0
"""Seconds; for so long a flush that is cancelled waits for the answer to its claim."""
_MOST_SILENCE: Final = 3
"""After so many deliveries in a row that got no answer in time, the rest of a flush is left to the next one."""
_LONGEST_UNMARKED: Final = timedelta(milliseconds=200)
"""For so long events that the sink has accepted wait for others, so that one statement marks them together."""
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

    max_events: PositiveCount = 100


@dataclass(slots=True)
class _Tally:
    published: int = 0
    failed: int = 0
    dead_lettered: int = 0
    errors: list[str] = field(default_factory=list)


async def handle(command: FlushOutbox, ports: KernelPorts) -> FlushOutboxResult:
    """Claim events, deliver them run by run, and give back what was not delivered whatever happens."""
    flush = _Flush(ports, command.max_events)
    await flush.deliver_all()
    tally = flush.tally
    return FlushOutboxResult(
        published=tally.published,
        failed=tally.failed,
        dead_lettered=tally.dead_lettered,
        event_sink_status="degraded" if tally.errors else "healthy",
        event_sink_error=tally.errors[0] if tally.errors else None,
    )


class _Flush:
    """One flush: what it has claimed under its token, and what became of that so far."""

    def __init__(self, ports: KernelPorts, max_events: int) -> None:
        self.tally = _Tally()
        self._ports = ports
        self._max_events = max_events
        self._token = ports.ids.new_id()
        self._limit = ports.settings.delivery_timeout
        self._claim = max(_CLAIM, self._limit + _MARGIN * 2)
        self._runs: list[list[EventRecord]] = []
        self._held_until = ports.clock.now()
        self._silence = 0
        self._accepted: list[str] = []
        self._unmarked_since = self._held_until
        # Whose mark was sent and not answered.
        self._unanswered: list[str] = []

    async def deliver_all(self) -> None:
        now = self._ports.clock.now()
        self._held_until = add_within_calendar(now, self._claim)
        claiming = asyncio.ensure_future(
            self._ports.persistence.claim_unpublished_outbox_events(
                self._max_events, token=self._token, now=now, claimed_until=self._held_until
            )
        )
        try:
            try:
                await asyncio.shield(claiming)
            finally:
                # A claim that a cancellation left alone would keep others from these events.
                self._runs = await _claimed(claiming)
            while self._runs and self._silence < _MOST_SILENCE:
                await self._deliver_run(self._runs[0].copy())
                del self._runs[:1]
        finally:
            await self._end()

    async def _end(self) -> None:
        try:
            await self._mark()
        finally:
            rest = [event.id for of_run in self._runs for event in of_run]
            left = [*self._unanswered, *rest]
            if left:
                await self._ports.persistence.release_outbox_events(left, token=self._token)

    async def _deliver_run(self, rest: list[EventRecord]) -> None:
        """Deliver one run's events in order, up to the first that the sink refuses; the rest waits behind it."""
        while rest:
            if not await self._holds_claim(rest[0].run_id):
                # Somebody else delivers this run by now, and will say what became of its events.
                return
            began = self._ports.clock.now()
            refusal = await refusal_of(partial(self._emit, rest[0]), self._limit)
            if refusal is not None:
                await self._mark()
                await self._refused(rest, refusal, began)
                return
            self._silence = 0
            if not self._accepted:
                self._unmarked_since = began
            self._accepted.append(rest.pop(0).id)
            if self._ports.clock.now() - self._unmarked_since >= _LONGEST_UNMARKED:
                await self._mark()

    async def _holds_claim(self, run_id: str) -> bool:
        """Renew all claims in time, so that nothing is handed out under one that ends before the sink has to answer."""
        now = self._ports.clock.now()
        if self._held_until - now >= self._limit + _MARGIN:
            return True
        # Only what is still to be delivered is renewed.
        await self._mark()
        until = add_within_calendar(now, self._claim)
        lost = {
            one
            for one in [of_run[0].run_id for of_run in self._runs]
            if not await self._ports.persistence.renew_outbox_claim(
                one, token=self._token, now=now, claimed_until=until
            )
        }
        self._held_until = until
        self._runs[1:] = [of_run for of_run in self._runs[1:] if of_run[0].run_id not in lost]
        return run_id not in lost

    async def _emit(self, event: EventRecord) -> None:
        await self._ports.event_sink.emit(event_of_record(event))

    async def _mark(self) -> None:
        if self._accepted:
            self._unanswered, self._accepted = self._accepted, []
            self.tally.published += await self._ports.persistence.mark_outbox_events_published(
                self._unanswered, token=self._token, now=self._ports.clock.now()
            )
            self._unanswered = []

    async def _refused(self, rest: Sequence[EventRecord], error: BaseException, began: datetime) -> None:
        ports, head, behind = self._ports, rest[0], rest[1:]
        described = str(describe_exception(error))
        self.tally.errors.append(described)
        delivered_to = head.delivered_to
        if isinstance(error, PartialDeliveryError):
            delivered_to = delivered_to.union(error.delivered)
        now = ports.clock.now()
        refusals = head.retry_count + 1
        wait = retry_delay(refusals)
        if _is_silence(error):
            self._silence += 1
            # Where several events get no answer, those that can be delivered come before their next attempt.
            wait = max(wait, min(now - began, self._limit) * _MOST_SILENCE)
            _log.warning("event %s (%s) of run %s: %s", head.id, head.type, head.run_id, described)
        else:
            self._silence = 0
        if refusals >= ports.settings.max_retries:
            moved = await ports.persistence.move_outbox_event_to_dlq(
                head.id, token=self._token, error=described, delivered_to=delivered_to, now=now
            )
            self.tally.dead_lettered += int(moved)
            _log.error(
                "event %s of run %s is given up after %d %s: %s",
                head.id,
                head.run_id,
                refusals,
                "refusal" if refusals == 1 else "refusals",
                described,
            )
        else:
            recorded = await ports.persistence.record_outbox_failure(
                head.id,
                token=self._token,
                error=described,
                delivered_to=delivered_to,
                now=now,
                retry_at=add_within_calendar(now, wait),
            )
            self.tally.failed += int(recorded)
        await ports.persistence.release_outbox_events([event.id for event in behind], token=self._token)
        self.tally.failed += len(behind)


def _is_silence(error: BaseException) -> bool:
    return isinstance(error, DeliveryTimeoutError) or (
        isinstance(error, PartialDeliveryError) and error.timed_out
    )


async def _claimed(claiming: "asyncio.Task[list[EventRecord]]") -> list[list[EventRecord]]:
    """What was claimed, run by run; nothing if the answer is an error, or too late."""
    if not claiming.done():
        try:
            await asyncio.wait({claiming}, timeout=_PATIENCE)
        finally:
            claiming.cancel()
    if not claiming.done() or claiming.cancelled() or claiming.exception() is not None:
        return []
    return [list(of_run) for _, of_run in groupby(claiming.result(), key=lambda event: event.run_id)]
