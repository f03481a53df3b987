"""What tests of workflows need: a clock that they move, a sink that keeps events, and the adapters in memory."""

from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.testing.collecting_sink import CollectingEventSink
from stagewright.testing.fake_clock import FakeClock

__all__ = [
    "CollectingEventSink",
    "FakeClock",
    "InMemoryBlobStore",
    "InMemoryDatabase",
    "InMemoryJobTransport",
    "InMemoryPersistence",
    "InMemoryStepLedger",
]
