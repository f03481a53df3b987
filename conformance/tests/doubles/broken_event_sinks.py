"""Event sinks with one clause of the port broken; collected by an inner run alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from stagewright.errors import PartialDeliveryError
from stagewright.events import Event
from stagewright.ports import EventSink
from stagewright_conformance import EventDestination, EventSinkSuite


class Sound:
    """Gives each event to two consumers; what is broken is in the classes below.

    It is its own destination.
    """

    consumers = ("first", "second")

    def __init__(self) -> None:
        self.received: list[tuple[str, str]] = []
        self.absent: set[str] = set()

    async def emit(self, event: Event) -> None:
        await asyncio.sleep(0)
        missing = self.give(event)
        if missing:
            has_it = frozenset(self.consumers) - missing
            raise PartialDeliveryError(has_it, f"{', '.join(missing)} is away")

    def give(self, event: Event) -> set[str]:
        assert event.event_id is not None
        for name in self.consumers:
            if name not in self.absent and name not in event.delivered_to:
                self.received.append((name, event.event_id))
        return self.absent - event.delivered_to

    async def arrived(self, consumer: str | None = None) -> list[str]:
        return [id for name, id in self.received if consumer in (None, name)]

    @asynccontextmanager
    async def away(self, consumer: str | None = None) -> AsyncIterator[None]:
        self.absent = set(self.consumers) if consumer is None else {consumer}
        yield
        self.absent = set()


class SinkDoubles:
    """Runs the suite on the sink that the test class names."""

    double: ClassVar[type[Sound]]

    @pytest.fixture
    def destination(self) -> EventDestination:
        return self.double()

    @pytest.fixture
    def event_sink(self, destination: Sound) -> EventSink:
        return destination


class KeepsSilent(Sound):
    """It returns whether anybody has the event or not."""

    async def emit(self, event: Event) -> None:
        self.give(event)


class TestKeepsSilent(SinkDoubles, EventSinkSuite):
    double = KeepsSilent


class RefusesByCancellation(Sound):
    """It refuses with what ends the delivery itself."""

    async def emit(self, event: Event) -> None:
        try:
            await super().emit(event)
        except PartialDeliveryError as error:
            if not error.delivered:
                raise asyncio.CancelledError from error
            raise


class TestRefusesByCancellation(SinkDoubles, EventSinkSuite):
    double = RefusesByCancellation


class RefusesRepetitions(Sound):
    """An event that it has had is an error."""

    async def emit(self, event: Event) -> None:
        if event.event_id in await self.arrived() and not event.delivered_to:
            raise ValueError("it has come before")
        await super().emit(event)


class TestRefusesRepetitions(SinkDoubles, EventSinkSuite):
    double = RefusesRepetitions


class WaitsForTheNext(Sound):
    """It says that it has delivered what it delivers with the next event."""

    def __init__(self) -> None:
        super().__init__()
        self.held: Event | None = None

    async def emit(self, event: Event) -> None:
        held, self.held = self.held, None
        await super().emit(event if held is None or event.type.endswith("failed") else held)
        if event.type == "workflow:started":
            self.held = event


class TestWaitsForTheNext(SinkDoubles, EventSinkSuite):
    double = WaitsForTheNext


class IgnoresOneType(Sound):
    """What it has no use for it drops."""

    async def emit(self, event: Event) -> None:
        if event.type != "annotation:created":
            await super().emit(event)


class TestIgnoresOneType(SinkDoubles, EventSinkSuite):
    double = IgnoresOneType


class TellsEverybodyAgain(Sound):
    """Who has an event is given it once more."""

    def give(self, event: Event) -> set[str]:
        assert event.event_id is not None
        self.received += [(name, event.event_id) for name in self.consumers if name not in self.absent]
        return self.absent


class TestTellsEverybodyAgain(SinkDoubles, EventSinkSuite):
    double = TellsEverybodyAgain


class NamesNobody(Sound):
    """It doesn't say who has the event."""

    async def emit(self, event: Event) -> None:
        if self.give(event):
            raise ConnectionError("somebody is away")


class TestNamesNobody(SinkDoubles, EventSinkSuite):
    double = NamesNobody


class HasNoBudget(Sound):
    """It may refuse an event less than never."""

    max_retries = -1

    async def emit(self, event: Event) -> None:
        await super().emit(event)


class TestHasNoBudget(SinkDoubles, EventSinkSuite):
    double = HasNoBudget


class SwallowsItsCancellation(Sound):
    """A delivery that is cut off is taken for one that was made."""

    async def emit(self, event: Event) -> None:
        try:
            await super().emit(event)
        except asyncio.CancelledError:
            return


class TestSwallowsItsCancellation(SinkDoubles, EventSinkSuite):
    double = SwallowsItsCancellation


class LosesCrowds(Sound):
    """Of deliveries at the same time one counts."""

    def __init__(self) -> None:
        super().__init__()
        self.current: Event | None = None

    async def emit(self, event: Event) -> None:
        self.current = event
        await asyncio.sleep(0)
        await super().emit(self.current)


class TestLosesCrowds(SinkDoubles, EventSinkSuite):
    double = LosesCrowds
