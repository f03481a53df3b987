"""The suite on the in-memory adapters, which lack nothing."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from stagewright.memory import (
    InMemoryAICallLogger,
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.plugins import AdapterSet
from stagewright.ports import AICallLogger, BlobStore, EventSink, JobTransport, Persistence, StepLedger
from stagewright.testing import CollectingEventSink, FakeClock
from stagewright_conformance import (
    AI_CALL_SUITES,
    BLOB_DATE_SUITES,
    BLOB_STORE_SUITES,
    ENGINE_SUITES,
    EVENT_SINK_SUITES,
    JOB_TRANSPORT_SUITES,
    PERSISTENCE_SUITES,
    PRESIGNER_SUITES,
    RUN_READER_SUITES,
    STEP_LEDGER_SUITES,
    AICallSuite,
    AnnotationSuite,
    BlobDateSuite,
    BlobListingSuite,
    BlobStreamSuite,
    BlobSuite,
    BorrowedSessionSuite,
    Capabilities,
    DefinitionSuite,
    DeliveredJobEnlistmentSuite,
    DeliveredJobSuite,
    EngineCrashSuite,
    EngineCrowdSuite,
    EngineSuite,
    EventDestination,
    EventSinkSuite,
    ExpectedRunSuite,
    FairClaimSuite,
    FairDeliverySuite,
    HeartbeatSuite,
    IdempotencySuite,
    IsolationSuite,
    JobAcknowledgementSuite,
    JobAdminSuite,
    JobFenceSuite,
    JobGroupSuite,
    JobLeaseSuite,
    JobListingSuite,
    JobOutlookSuite,
    JobQueueSuite,
    JobResumptionSuite,
    LoadedRunSuite,
    LogSuite,
    OutboxDeliverySuite,
    OutboxSuite,
    OutlookSuite,
    PagingSuite,
    PassTime,
    PresignerSuite,
    PurgeSuite,
    RowLockSuite,
    RunClaimSuite,
    RunReaderSuite,
    RunSuite,
    SavepointSuite,
    Scale,
    SignalSuite,
    StageSuite,
    StepEnlistmentSuite,
    StepLedgerSuite,
    StepListingSuite,
    StepPagingSuite,
    StuckRunSuite,
    Suite,
    TransactionSuite,
    TransportEnlistmentSuite,
    WaitingStageSuite,
    WakeUpSuite,
    suites_left_out,
)

pytestmark = pytest.mark.conformance_target("memory")


class InMemory:
    """Adapters over one database; every competitor is another adapter over it."""

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
    def competitor(self, database: InMemoryDatabase) -> Persistence:
        return InMemoryPersistence(database)

    @pytest.fixture
    def stranger(self) -> Persistence:
        return InMemoryPersistence()

    @pytest.fixture
    def transport(self, database: InMemoryDatabase) -> JobTransport:
        return InMemoryJobTransport(database)

    @pytest.fixture
    def rival_transport(self, database: InMemoryDatabase) -> JobTransport:
        return InMemoryJobTransport(database)

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> PassTime:
        async def advance(time: timedelta) -> None:
            clock.advance(time)

        return advance

    @pytest.fixture
    def clock_now(self, clock: FakeClock) -> Callable[[], datetime]:
        return clock.now

    @pytest.fixture
    def ledger(self, database: InMemoryDatabase) -> StepLedger:
        return InMemoryStepLedger(database)

    @pytest.fixture
    def ai_calls(self, database: InMemoryDatabase) -> AICallLogger:
        return InMemoryAICallLogger(database)

    @pytest.fixture
    def rival_ai_calls(self, database: InMemoryDatabase) -> AICallLogger:
        return InMemoryAICallLogger(database)

    @pytest.fixture
    def blob_store(self, database: InMemoryDatabase) -> BlobStore:
        return InMemoryBlobStore(database)

    @pytest.fixture
    def rival_blob_store(self, database: InMemoryDatabase) -> BlobStore:
        return InMemoryBlobStore(database)


class TestAICalls(InMemory, AICallSuite):
    pass


class TestTransactions(InMemory, TransactionSuite):
    pass


class TestSavepoints(InMemory, SavepointSuite):
    pass


class TestIsolation(InMemory, IsolationSuite):
    pass


class TestRowLocks(InMemory, RowLockSuite):
    pass


class TestRuns(InMemory, RunSuite):
    pass


class TestExpectedRuns(InMemory, ExpectedRunSuite):
    pass


class TestLoadedRuns(InMemory, LoadedRunSuite):
    pass


class TestRunClaims(InMemory, RunClaimSuite):
    pass


class TestStages(InMemory, StageSuite):
    pass


class TestDefinitions(InMemory, DefinitionSuite):
    pass


class TestAnnotations(InMemory, AnnotationSuite):
    pass


class TestLogs(InMemory, LogSuite):
    pass


class TestOutbox(InMemory, OutboxSuite):
    pass


class TestOutboxDelivery(InMemory, OutboxDeliverySuite):
    pass


class TestIdempotency(InMemory, IdempotencySuite):
    pass


class TestSignals(InMemory, SignalSuite):
    pass


class TestPurges(InMemory, PurgeSuite):
    pass


class TestBorrowedSessions(InMemory, BorrowedSessionSuite):
    @pytest.fixture
    def capabilities(self) -> Capabilities:
        return Capabilities(callers_sessions=False)


class TestRunReader(InMemory, RunReaderSuite):
    pass


class TestJobQueue(InMemory, JobQueueSuite):
    pass


class TestJobAcknowledgements(InMemory, JobAcknowledgementSuite):
    pass


class TestJobFences(InMemory, JobFenceSuite):
    pass


class TestJobLeases(InMemory, JobLeaseSuite):
    pass


class TestHeartbeats(InMemory, HeartbeatSuite):
    pass


class TestJobResumptions(InMemory, JobResumptionSuite):
    pass


class TestWaitingStages(InMemory, WaitingStageSuite):
    pass


class TestStuckRuns(InMemory, StuckRunSuite):
    pass


class TestJobAdmin(InMemory, JobAdminSuite):
    pass


class TestJobListing(InMemory, JobListingSuite):
    pass


class TestFairDelivery(InMemory, FairDeliverySuite):
    pass


class TestJobGroups(InMemory, JobGroupSuite):
    pass


class TestFairClaims(InMemory, FairClaimSuite):
    pass


class TestDeliveredJobs(InMemory, DeliveredJobSuite):
    pass


class TestDeliveredJobEnlistment(InMemory, DeliveredJobEnlistmentSuite):
    pass


class TestTransportEnlistment(InMemory, TransportEnlistmentSuite):
    pass


class TestWakeUps(InMemory, WakeUpSuite):
    pass


class TestOutlook(InMemory, OutlookSuite):
    pass


class TestJobOutlook(InMemory, JobOutlookSuite):
    pass


class TestStepLedger(InMemory, StepLedgerSuite):
    pass


class TestStepEnlistment(InMemory, StepEnlistmentSuite):
    pass


class TestPaging(InMemory, PagingSuite):
    pass


class TestStepPaging(InMemory, StepPagingSuite):
    pass


class TestStepListing(InMemory, StepListingSuite):
    pass


class TestBlobs(InMemory, BlobSuite):
    pass


class TestBlobDates(InMemory, BlobDateSuite):
    pass


class TestBlobListing(InMemory, BlobListingSuite):
    pass


class TestBlobStreams(InMemory, BlobStreamSuite):
    pass


def adapters_over(databases: Mapping[str, InMemoryDatabase]) -> AdapterSet:
    persistence = InMemoryPersistence(databases["runs"])
    return AdapterSet(
        persistence=persistence,
        run_reader=persistence,
        job_transport=InMemoryJobTransport(databases["jobs"]),
        step_ledger=InMemoryStepLedger(databases["steps"]),
        blob_store=InMemoryBlobStore(databases["blobs"]),
    )


class InMemoryEngine(InMemory):
    """Kernels over adapters of one database."""

    @pytest.fixture
    def databases(self, database: InMemoryDatabase) -> Mapping[str, InMemoryDatabase]:
        return dict.fromkeys(("runs", "jobs", "steps", "blobs"), database)

    @pytest.fixture
    def adapters(self, databases: Mapping[str, InMemoryDatabase]) -> AdapterSet:
        return adapters_over(databases)

    @pytest.fixture
    def other_adapters(self, databases: Mapping[str, InMemoryDatabase]) -> AdapterSet:
        return adapters_over(databases)


class TestPresigning(InMemory, PresignerSuite):
    @pytest.fixture
    def capabilities(self) -> Capabilities:
        return Capabilities(presigned_urls=False)


class Collected:
    """What a `CollectingEventSink` has, as the destination of its events."""

    consumers = ()

    def __init__(self, sink: CollectingEventSink) -> None:
        self._sink = sink

    async def arrived(self, consumer: str | None = None) -> list[str]:
        return [event.event_id for event in self._sink.events if event.event_id is not None]

    @asynccontextmanager
    async def away(self, consumer: str | None = None) -> AsyncIterator[None]:
        self._sink.fail_with(ConnectionError("the sink is away"))
        yield
        self._sink.accept()


class TestEventSink(InMemory, EventSinkSuite):
    @pytest.fixture
    def capabilities(self) -> Capabilities:
        return Capabilities(several_consumers=False)

    @pytest.fixture
    def event_sink(self) -> EventSink:
        return CollectingEventSink()

    @pytest.fixture
    def destination(self, event_sink: CollectingEventSink) -> EventDestination:
        return Collected(event_sink)


class TestEngine(InMemoryEngine, EngineSuite):
    pass


class TestEngineCrashes(InMemoryEngine, EngineCrashSuite):
    pass


class TestEngineCrowds(InMemoryEngine, EngineCrowdSuite):
    pass


class Apart(InMemoryEngine):
    """Some of the ports, or all, in databases of their own, which take part in no transaction of the persistence."""

    @pytest.fixture(
        params=[
            pytest.param("jobs", marks=pytest.mark.thorough),
            pytest.param("steps", marks=pytest.mark.thorough),
            pytest.param("blobs", marks=pytest.mark.thorough),
            "jobs steps blobs",
        ]
    )
    def databases(
        self, request: pytest.FixtureRequest, database: InMemoryDatabase, clock: FakeClock
    ) -> Mapping[str, InMemoryDatabase]:
        apart = {name: InMemoryDatabase(clock) for name in request.param.split()}
        return {"runs": database, "jobs": database, "steps": database, "blobs": database, **apart}


class TestEngineApart(Apart, EngineSuite):
    pass


class TestEngineCrowdsApart(Apart, EngineCrowdSuite):
    pass


class TestEngineCrashesApart(Apart, EngineCrashSuite):
    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=2)


@pytest.mark.wide
class TestEngineCrashesAnywhere(InMemoryEngine, EngineCrashSuite):
    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=1_000)


@pytest.mark.wide
class TestEngineCrashesAtMoreCallsApart(Apart, EngineCrashSuite):
    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=40)


@pytest.mark.soak
class TestEngineCrashesAnywhereApart(Apart, EngineCrashSuite):
    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=1_000)


@pytest.mark.parametrize(
    "suites",
    [
        PERSISTENCE_SUITES,
        JOB_TRANSPORT_SUITES,
        BLOB_STORE_SUITES,
        STEP_LEDGER_SUITES,
        RUN_READER_SUITES,
        AI_CALL_SUITES,
        ENGINE_SUITES,
        EVENT_SINK_SUITES,
        BLOB_DATE_SUITES,
        PRESIGNER_SUITES,
    ],
)
def test_every_suite_of_a_port_runs(suites: tuple[type[Suite], ...]) -> None:
    assert suites_left_out(globals(), suites) == []
