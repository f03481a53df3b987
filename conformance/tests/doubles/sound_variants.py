"""Adapters that keep every promise in their own way, and have to pass; collected by an inner run alone."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.memory.connection import Connection
from stagewright.plugins import AdapterSet
from stagewright.ports import BlobStore, JobTransport, Persistence, StepLedger
from stagewright.testing import FakeClock
from stagewright_conformance import (
    AnnotationSuite,
    BlobListingSuite,
    BlobStreamSuite,
    BlobSuite,
    Capabilities,
    DefinitionSuite,
    EngineCrashSuite,
    EngineCrowdSuite,
    EngineSuite,
    IdempotencySuite,
    IsolationSuite,
    JobAdminSuite,
    JobFenceSuite,
    JobQueueSuite,
    JobResumptionSuite,
    LoadedRunSuite,
    OutboxDeliverySuite,
    OutboxSuite,
    PassTime,
    RowLockSuite,
    RunClaimSuite,
    RunReaderSuite,
    RunSuite,
    SavepointSuite,
    Scale,
    StageSuite,
    StepEnlistmentSuite,
    StepLedgerSuite,
    StepListingSuite,
    StepPagingSuite,
    TransactionSuite,
    TransportEnlistmentSuite,
    WaitingStageSuite,
    WakeUpSuite,
)


class Clocked:
    """The transport's clock is the test's."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock(datetime(2031, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC))

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> PassTime:
        async def advance(time: timedelta) -> None:
            clock.advance(time)

        return advance

    @pytest.fixture
    def clock_now(self, clock: FakeClock) -> Callable[[], datetime]:
        return clock.now


class RestlessDatabase(InMemoryDatabase):
    """Other tasks get any number of turns wherever a call could let them in."""

    def __init__(self, clock: FakeClock, seed: int) -> None:
        super().__init__(clock)
        self._random = random.Random(seed)

    async def pause(self, moment: str) -> None:
        for _ in range(self._random.randrange(5)):
            await asyncio.sleep(0)


class Restless(Clocked):
    """Adapters over a restless database, in several moods."""

    @pytest.fixture(params=[1, 2, 3])
    def database(self, request: pytest.FixtureRequest, clock: FakeClock) -> InMemoryDatabase:
        return RestlessDatabase(clock, request.param)

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=5, rows=40, events_each=6, many_blobs=30, large_blob=70_001, crashes=3)

    @pytest.fixture
    def persistence(self, database: InMemoryDatabase) -> Persistence:
        return InMemoryPersistence(database)

    @pytest.fixture
    def transport(self, database: InMemoryDatabase) -> JobTransport:
        return InMemoryJobTransport(database)

    @pytest.fixture
    def ledger(self, database: InMemoryDatabase) -> StepLedger:
        return InMemoryStepLedger(database)

    @pytest.fixture
    def blob_store(self, database: InMemoryDatabase) -> BlobStore:
        return InMemoryBlobStore(database)

    @pytest.fixture
    def stranger(self) -> Persistence:
        return InMemoryPersistence()


class TestRestlessPersistence(
    Restless,
    TransactionSuite,
    SavepointSuite,
    IsolationSuite,
    RowLockSuite,
    RunClaimSuite,
    WaitingStageSuite,
    OutboxSuite,
    OutboxDeliverySuite,
    IdempotencySuite,
):
    pass


class TestRestlessTransport(
    Restless, JobQueueSuite, JobResumptionSuite, JobAdminSuite, TransportEnlistmentSuite
):
    pass


class TestRestlessFences(Restless, JobFenceSuite):
    pass


class TestRestlessLedger(Restless, StepLedgerSuite, StepEnlistmentSuite):
    pass


class TestRestlessLoads(Restless, LoadedRunSuite):
    pass


class TestRestlessSteps(Restless, StepListingSuite, StepPagingSuite):
    pass


class TestRestlessBlobs(Restless, BlobSuite, BlobListingSuite, BlobStreamSuite):
    pass


class TestRestlessEngine(Restless, EngineSuite, EngineCrashSuite, EngineCrowdSuite):
    @pytest.fixture
    def adapters(
        self, persistence: Persistence, transport: JobTransport, ledger: StepLedger, blob_store: BlobStore
    ) -> AdapterSet:
        return AdapterSet(
            persistence=persistence, job_transport=transport, step_ledger=ledger, blob_store=blob_store
        )


class OneWriterDatabase(InMemoryDatabase):
    """A database that one transaction at a time writes to."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.writer = asyncio.Lock()


class OneWriter(Connection):
    """A connection to such a database: reads go on, everything else waits for its turn."""

    READS = (
        "get_", "list_", "load_runs", "depth", "notify", "step_ledger.get", "step_ledger.list"
    )  # fmt: skip

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        if self._transaction is not None:
            async with super().transaction() as tx:
                yield tx
            return
        assert isinstance(self.database, OneWriterDatabase)
        async with self.database.writer, super().transaction() as tx:
            yield tx

    def _statement(self, name: str) -> Any:  # Any: the statement's type is the connection's own
        statement = super()._statement(name)
        if self._transaction is not None or name.startswith(self.READS):
            return statement
        return self._in_turn(statement)

    @asynccontextmanager
    async def _in_turn(self, statement: Any) -> AsyncIterator[Any]:
        assert isinstance(self.database, OneWriterDatabase)
        async with self.database.writer, statement as transaction:
            yield transaction


class OneWriterPersistence(OneWriter, InMemoryPersistence):
    pass


class OneWriterTransport(OneWriter, InMemoryJobTransport):
    pass


class OneWriterLedger(OneWriter, InMemoryStepLedger):
    pass


class SingleFile(Clocked):
    """Adapters over a database with one writer, which say so."""

    @pytest.fixture
    def capabilities(self) -> Capabilities:
        return Capabilities(concurrent_writers=False)

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=4, rows=40, events_each=4, patience=0.5)

    @pytest.fixture
    def database(self, clock: FakeClock) -> OneWriterDatabase:
        return OneWriterDatabase(clock)

    @pytest.fixture
    def persistence(self, database: OneWriterDatabase) -> Persistence:
        return OneWriterPersistence(database)

    @pytest.fixture
    def transport(self, database: OneWriterDatabase) -> JobTransport:
        return OneWriterTransport(database)

    @pytest.fixture
    def ledger(self, database: OneWriterDatabase) -> StepLedger:
        return OneWriterLedger(database)

    @pytest.fixture
    def stranger(self) -> Persistence:
        return InMemoryPersistence()


class TestOneWriterPersistence(
    SingleFile,
    TransactionSuite,
    SavepointSuite,
    IsolationSuite,
    RowLockSuite,
    RunClaimSuite,
    OutboxSuite,
    OutboxDeliverySuite,
    IdempotencySuite,
    RunReaderSuite,
    WakeUpSuite,
):
    pass


class TestOneWriterEngine(SingleFile, EngineSuite, EngineCrowdSuite):
    @pytest.fixture
    def adapters(self, persistence: Persistence, transport: JobTransport, ledger: StepLedger) -> AdapterSet:
        return AdapterSet(persistence=persistence, job_transport=transport, step_ledger=ledger)


class TestOneWriterRuns(SingleFile, RunSuite):
    pass


class TestOneWriterStages(SingleFile, StageSuite):
    pass


class TestOneWriterDefinitions(SingleFile, DefinitionSuite):
    pass


class TestOneWriterAnnotations(SingleFile, AnnotationSuite):
    pass


class TestOneWriterWaitingStages(SingleFile, WaitingStageSuite):
    pass


class TestOneWriterTransport(
    SingleFile, JobQueueSuite, JobResumptionSuite, JobAdminSuite, TransportEnlistmentSuite
):
    pass


class TestOneWriterLedger(SingleFile, StepLedgerSuite, StepEnlistmentSuite):
    pass


class TestOneWriterLoads(SingleFile, LoadedRunSuite):
    pass


class TestOneWriterSteps(SingleFile, StepListingSuite, StepPagingSuite):
    pass
