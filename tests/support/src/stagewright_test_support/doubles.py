"""Running the conformance suite on adapters in memory that are broken on purpose.

They are collected by an inner pytest, whose files can't import one another.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.plugins import AdapterSet
from stagewright.ports import JobTransport, Persistence, StepLedger
from stagewright.testing import FakeClock
from stagewright_conformance import PassTime, Scale

__all__ = ["EngineDoubles", "PersistenceDoubles", "TransportDoubles"]


class PersistenceDoubles:
    """Runs a suite of persistences on the double that the test class names."""

    double: ClassVar[type[InMemoryPersistence]]

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=4, rows=40, events_each=4, patience=0.5)

    @pytest.fixture
    def persistence(self) -> Persistence:
        return self.double(InMemoryDatabase())


class TransportDoubles:
    """Runs a suite of transports or step ledgers on the double that the test class names."""

    double: ClassVar[type[InMemoryJobTransport]] = InMemoryJobTransport
    double_ledger: ClassVar[type[InMemoryStepLedger]] = InMemoryStepLedger

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=4, rows=40, patience=0.5)

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock(datetime(2031, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC))

    @pytest.fixture
    def database(self, clock: FakeClock) -> InMemoryDatabase:
        return InMemoryDatabase(clock)

    @pytest.fixture
    def persistence(self, database: InMemoryDatabase) -> Persistence:
        return InMemoryPersistence(database)

    @pytest.fixture
    def stranger(self) -> Persistence:
        return InMemoryPersistence()

    @pytest.fixture
    def transport(self, database: InMemoryDatabase) -> JobTransport:
        return self.double(database)

    @pytest.fixture
    def ledger(self, database: InMemoryDatabase) -> StepLedger:
        return self.double_ledger(database)

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> PassTime:
        async def advance(time: timedelta) -> None:
            clock.advance(time)

        return advance

    @pytest.fixture
    def clock_now(self, clock: FakeClock) -> Callable[[], datetime]:
        return clock.now


class EngineDoubles:
    """Runs a suite of whole kernels on the doubles that the test class names, sound adapters in the place of others.

    Attributes:
        apart: Whether jobs, steps and blobs each have a database of their own.
    """

    persistence: ClassVar[type[InMemoryPersistence]] = InMemoryPersistence
    transport: ClassVar[type[InMemoryJobTransport]] = InMemoryJobTransport
    ledger: ClassVar[type[InMemoryStepLedger]] = InMemoryStepLedger
    blob_store: ClassVar[type[InMemoryBlobStore]] = InMemoryBlobStore
    apart: ClassVar[bool] = False

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=8, patience=1, crashes=20)

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock(datetime(2031, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC))

    @pytest.fixture
    def databases(self, clock: FakeClock) -> list[InMemoryDatabase]:
        if self.apart:
            return [InMemoryDatabase(clock) for _ in range(4)]
        return [InMemoryDatabase(clock)] * 4

    @pytest.fixture
    def adapters(self, databases: list[InMemoryDatabase]) -> AdapterSet:
        return self._over(*databases)

    @pytest.fixture
    def other_adapters(self, databases: list[InMemoryDatabase]) -> AdapterSet:
        return self._over(*databases)

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> PassTime:
        async def advance(time: timedelta) -> None:
            clock.advance(time)

        return advance

    @pytest.fixture
    def clock_now(self, clock: FakeClock) -> Callable[[], datetime]:
        return clock.now

    def _over(
        self, runs: InMemoryDatabase, jobs: InMemoryDatabase, steps: InMemoryDatabase, blobs: InMemoryDatabase
    ) -> AdapterSet:
        return AdapterSet(
            persistence=self.persistence(runs),
            job_transport=self.transport(jobs),
            step_ledger=self.ledger(steps),
            blob_store=self.blob_store(blobs),
        )
