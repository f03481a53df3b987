"""The suite on the event sink of plugins."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stagewright.events import EVENT_TYPES, Event
from stagewright.plugins import Plugin, PluginRunner
from stagewright.ports import EventSink
from stagewright_conformance import EVENT_SINK_SUITES, EventDestination, EventSinkSuite, suites_left_out

pytestmark = pytest.mark.conformance_target("plugins")


class Subscribers:
    """Plugins that keep what they are given, and refuse it while they are away."""

    consumers = ("mail", "metrics", "search")

    def __init__(self) -> None:
        self.received: list[tuple[str, str]] = []
        self.absent: set[str] = set()

    def plugin(self, id: str) -> Plugin:
        async def handle(event: Event) -> None:
            if id in self.absent:
                raise ConnectionError(f"{id} is away")
            assert event.event_id is not None
            self.received.append((id, event.event_id))

        return Plugin(id, None, EVENT_TYPES, handle)

    async def arrived(self, consumer: str | None = None) -> list[str]:
        return [event_id for id, event_id in self.received if consumer in (None, id)]

    @asynccontextmanager
    async def away(self, consumer: str | None = None) -> AsyncIterator[None]:
        self.absent = set(self.consumers) if consumer is None else {consumer}
        yield
        self.absent = set()


class TestPlugins(EventSinkSuite):
    @pytest.fixture
    def destination(self) -> EventDestination:
        return Subscribers()

    @pytest.fixture
    def event_sink(self, destination: Subscribers) -> EventSink:
        return PluginRunner([destination.plugin(id) for id in destination.consumers])


def test_every_suite_of_the_port_runs() -> None:
    assert suites_left_out(globals(), EVENT_SINK_SUITES) == []
