"""Event sinks: what is accepted has arrived, and what is refused says so."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, Protocol

import pytest

from stagewright.commands import CreateRun, FlushOutbox, ReplayDeadLetters
from stagewright.duration import parse_duration
from stagewright.errors import PartialDeliveryError
from stagewright.events import EVENT_TYPES, Event
from stagewright.plugins import AdapterSet
from stagewright.ports import DeliveryLimit, EventSink, RetryBudget
from stagewright.status import Status
from stagewright_conformance.deployments import Deployment, DeploymentSuite
from stagewright_conformance.engine import flow_of, passes_on
from stagewright_conformance.samples import LATER, MOMENT, ODD_JSON, new_id
from stagewright_conformance.suite import Background, Scale

__all__ = ["EventDestination", "EventSinkSuite"]

_FIELDS: Final[dict[str, Any]] = {  # Any: each field has its own type
    "workflow_id": "orders",
    "stage_id": "price",
    "stage_name": "Price",
    "stage_number": 1,
    "step_id": "approval",
    "next_poll_at": LATER,
    "duration": timedelta(seconds=61, microseconds=1),
    "output": ODD_JSON,
    "total_cost": Decimal("0.10"),
    "total_tokens": 7,
    "error": "ConnectionError: away",
    "reason": "no longer wanted",
    "progress": 12.5,
    "message": "👩🏽‍🚀",
    "details": {"odd": ODD_JSON},
    "attempt": 1,
    "max_attempts": 3,
    "payload": ODD_JSON,
    "key": "decision.outcome",
    "value": ODD_JSON,
    "scope": "run",
}
"""What events have beyond what all have, by name."""


class EventDestination(Protocol):
    """Where a sink's events arrive, as its test sees it."""

    @property
    def consumers(self) -> Sequence[str]:
        """Who receives events there, by the names that `PartialDeliveryError` gives; none for a sink without any."""
        ...

    async def arrived(self, consumer: str | None = None) -> list[str]:
        """The ids of the events that arrived, in order, as often as they did: anywhere, or at one of the consumers."""
        ...

    def away(self, consumer: str | None = None) -> AbstractAsyncContextManager[None]:
        """While the block runs nothing is accepted: by anybody, or by one of the consumers."""
        ...


class EventSinkSuite(DeploymentSuite):
    """`EventSink`, and what it may say of its limits; the runs whose events it gets are in memory.

    Fixtures: `event_sink` (required: the sink), `destination` (required: an empty `EventDestination` that it delivers
    to).
    """

    @pytest.fixture
    def adapters(self) -> AdapterSet:
        """All ports come from memory."""
        return AdapterSet()

    @pytest.fixture
    def event_sink(self) -> EventSink:
        """The sink under test."""
        raise NotImplementedError("override the fixture `event_sink` with the sink to be tested")

    @pytest.fixture
    def destination(self) -> EventDestination:
        """Where its events arrive."""
        raise NotImplementedError("override the fixture `destination` with what its events arrive at, empty")

    @pytest.mark.parametrize("kind", EVENT_TYPES.values(), ids=EVENT_TYPES)
    async def test_what_was_accepted_has_arrived(
        self, event_sink: EventSink, destination: EventDestination, kind: type[Event]
    ) -> None:
        """`emit`: returning means that the event is delivered, of whatever type it is."""
        event = an_event_of(kind)
        await event_sink.emit(event)
        assert set(await destination.arrived()) == {event.event_id}

    async def test_events_of_a_run_arrive_in_the_order_given(
        self, event_sink: EventSink, destination: EventDestination
    ) -> None:
        """`EventSink`: those of one run in order on first delivery."""
        events = [an_event_of(kind) for kind in EVENT_TYPES.values()]
        for event in events:
            await event_sink.emit(event)
        assert list(dict.fromkeys(await destination.arrived())) == [event.event_id for event in events]

    async def test_an_event_may_come_again(
        self, event_sink: EventSink, destination: EventDestination
    ) -> None:
        """`EventSink`: at least once, so a sink bears an event that it has accepted before."""
        first, second = (an_event_of(kind) for kind in list(EVENT_TYPES.values())[:2])
        for event in (first, second, first, first):
            await event_sink.emit(event)
        assert set(await destination.arrived()) == {first.event_id, second.event_id}

    @pytest.mark.guarantee("stores.sinks-refuse-aloud")
    async def test_what_is_refused_raises_and_is_accepted_later(
        self, event_sink: EventSink, destination: EventDestination
    ) -> None:
        """`emit`: anything that is raised is a refusal, but Ctrl-C and a cancellation; the event is offered again."""
        event = an_event_of(EVENT_TYPES["stage:failed"])
        async with destination.away():
            refusal = await refusal_of(event_sink, event)
            assert refusal is not None, "it said that it has delivered what nobody has accepted"
            assert not isinstance(refusal, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit)
        assert await destination.arrived() == []
        again = event
        if isinstance(refusal, PartialDeliveryError):
            again = replace(event, delivered_to=refusal.delivered)
        await event_sink.emit(again)
        assert set(await destination.arrived()) == {event.event_id}

    async def test_many_deliveries_at_once_arrive(
        self, event_sink: EventSink, destination: EventDestination, scale: Scale
    ) -> None:
        """`emit`: several flushers deliver events of different runs at a time."""
        events = [
            an_event_of(kind, run_id=f"run {number}")
            for number in range(scale.contenders)
            for kind in (EVENT_TYPES["workflow:created"], EVENT_TYPES["workflow:started"])
        ]
        await scale.soon(asyncio.gather(*(event_sink.emit(event) for event in events)))
        assert set(await destination.arrived()) == {event.event_id for event in events}

    async def test_a_delivery_that_is_cancelled_ends(
        self, event_sink: EventSink, destination: EventDestination, background: Background, scale: Scale
    ) -> None:
        """`emit`: a sink that doesn't return in time is cancelled; it has refused the event, or delivered it."""
        event = an_event_of(EVENT_TYPES["stage:started"])
        delivery = background.start(event_sink.emit(event))
        await asyncio.sleep(0)
        delivery.cancel()
        await scale.soon(asyncio.wait([delivery]))
        if not delivery.cancelled() and delivery.exception() is None:
            assert set(await destination.arrived()) == {event.event_id}
        await scale.soon(event_sink.emit(event))
        assert set(await destination.arrived()) == {event.event_id}

    async def test_its_limits_are_some(self, event_sink: EventSink) -> None:
        """`RetryBudget.max_retries`, `DeliveryLimit.delivery_timeout`: a whole number, and longer than nothing."""
        if isinstance(event_sink, RetryBudget):
            assert type(event_sink.max_retries) is int
            assert event_sink.max_retries >= 0
        if isinstance(event_sink, DeliveryLimit):
            assert parse_duration(event_sink.delivery_timeout, field="delivery_timeout")

    @pytest.mark.needs("several_consumers")
    @pytest.mark.guarantee("stores.sinks-refuse-aloud")
    async def test_who_has_an_event_is_named_and_is_not_given_it_again(
        self, event_sink: EventSink, destination: EventDestination
    ) -> None:
        """`emit`: `PartialDeliveryError` names who has the event; the next attempt reaches only the others."""
        missing, *others = destination.consumers
        assert others
        event = an_event_of(EVENT_TYPES["stage:failed"])
        async with destination.away(missing):
            with pytest.raises(PartialDeliveryError) as refusal:
                await event_sink.emit(event)
            assert refusal.value.delivered == set(others)
            assert await destination.arrived(missing) == []
        await event_sink.emit(replace(event, delivered_to=refusal.value.delivered))
        for consumer in destination.consumers:
            assert await destination.arrived(consumer) == [event.event_id], consumer

    @pytest.mark.guarantee("stores.sinks-refuse-aloud")
    async def test_all_events_of_a_run_arrive_though_the_destination_was_away(
        self, event_sink: EventSink, destination: EventDestination, deployment: Deployment
    ) -> None:
        """`EventSink`: receives every committed event, those of a run in order, once it can be reached again."""
        flow = flow_of(passes_on)
        kernel = deployment.kernel(flow, event_sink=event_sink)
        run_id = (await kernel.dispatch(CreateRun(flow.id))).run_id
        async with destination.away():
            report = await kernel.dispatch(FlushOutbox())
            assert (report.published, report.event_sink_status) == (0, "degraded")
        await kernel.dispatch(ReplayDeadLetters())  # of a sink that may refuse once
        run = await deployment.work_off(kernel, run_id)
        assert run.status is Status.COMPLETED
        events = await kernel.runs.events(run_id)
        assert list(dict.fromkeys(await destination.arrived())) == [event.id for event in events]
        assert all(event.published_at for event in events)


def an_event_of(kind: type[Event], *, run_id: str | None = None) -> Event:
    """An event as the outbox delivers it."""
    own = {field.name: _FIELDS[field.name] for field in fields(kind) if field.name in _FIELDS}
    return kind(timestamp=MOMENT, run_id=run_id or new_id("run"), event_id=new_id("event"), sequence=1, **own)


async def refusal_of(event_sink: EventSink, event: Event) -> BaseException | None:
    """What a sink refuses an event with; None if it accepts it."""
    try:
        await event_sink.emit(event)
    except BaseException as refusal:
        return refusal
    return None
