"""The conformance suite on every database, driver and way of sending statements."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import text

from stagewright.ports import BlobStore, JobTransport, Persistence, StepLedger
from stagewright_conformance import (
    AnnotationSuite,
    BlobListingSuite,
    BlobStreamSuite,
    BlobSuite,
    Capabilities,
    DefinitionSuite,
    IdempotencySuite,
    IsolationSuite,
    JobAcknowledgementSuite,
    JobAdminSuite,
    JobFenceSuite,
    JobLeaseSuite,
    JobQueueSuite,
    LoadedRunSuite,
    LogSuite,
    OutboxDeliverySuite,
    OutboxSuite,
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
    TransactionSuite,
    TransportEnlistmentSuite,
    WakeUpSuite,
)
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
    create_engine,
)
from stagewright_persistence_sqlalchemy.sqlalchemy_sessions import SqlAlchemySessions
from stagewright_persistence_sqlalchemy.tables import metadata

TARGET = pytest.mark.conformance_target
WAYS = (
    pytest.param("sqlite", marks=TARGET("SQLite")),
    pytest.param("asyncpg", marks=TARGET("PostgreSQL, asyncpg")),
    pytest.param(
        "asyncpg through sqlalchemy", marks=[TARGET("PostgreSQL, SQLAlchemy"), pytest.mark.thorough]
    ),
    pytest.param("psycopg", marks=[TARGET("PostgreSQL, psycopg"), pytest.mark.thorough]),
)
READY: set[str] = set()


class OnDatabase:
    """Adapters over one database; every competitor is another adapter over it."""

    @pytest.fixture(params=WAYS)
    def way(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest_asyncio.fixture
    async def database(self, way: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
        if way == "sqlite":
            url = request.getfixturevalue("sqlite_url")
        else:
            driver = "psycopg" if way == "psycopg" else "asyncpg"
            url = request.getfixturevalue("postgres_url").replace("postgresql://", f"postgresql+{driver}://")
        engine = create_engine(url)
        sessions = SqlAlchemySessions(engine) if "through" in way else None
        database = Database(engine, sessions=sessions)
        async with engine.begin() as connection:
            if url in READY:
                names = ", ".join(metadata.tables)
                await connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
            else:
                await connection.run_sync(metadata.create_all)
        if way != "sqlite":
            READY.add(url)
        yield database
        await database.close()

    @pytest.fixture
    def capabilities(self, way: str) -> Capabilities:
        return Capabilities(concurrent_writers=way != "sqlite")

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(moment=0.15)

    @pytest.fixture
    def persistence(self, database: Database) -> Persistence:
        return SqlAlchemyPersistence(database)

    @pytest.fixture
    def competitor(self, database: Database) -> Persistence:
        return SqlAlchemyPersistence(database)

    @pytest_asyncio.fixture
    async def other_database(self, tmp_path: Path) -> AsyncIterator[Database]:
        # Nothing is written to it, so it needs no tables.
        other = Database(create_engine(f"sqlite:///{tmp_path / 'stranger.db'}"))
        yield other
        await other.close()

    @pytest.fixture
    def stranger(self, other_database: Database) -> Persistence:
        return SqlAlchemyPersistence(other_database)

    @pytest.fixture
    def transport(self, database: Database) -> JobTransport:
        return SqlAlchemyJobTransport(database)

    @pytest.fixture
    def rival_transport(self, database: Database) -> JobTransport:
        return SqlAlchemyJobTransport(database)

    @pytest.fixture
    def clock_now(self) -> Callable[[], datetime]:
        return lambda: datetime.now(UTC)

    @pytest.fixture
    def ledger(self, database: Database) -> StepLedger:
        return SqlAlchemyStepLedger(database)

    @pytest.fixture
    def blob_store(self, database: Database) -> BlobStore:
        return SqlAlchemyBlobStore(database)

    @pytest.fixture
    def rival_blob_store(self, database: Database) -> BlobStore:
        return SqlAlchemyBlobStore(database)


class TestTransactions(OnDatabase, TransactionSuite):
    pass


class TestSavepoints(OnDatabase, SavepointSuite):
    pass


class TestIsolation(OnDatabase, IsolationSuite):
    pass


class TestRowLocks(OnDatabase, RowLockSuite):
    pass


class TestRuns(OnDatabase, RunSuite):
    pass


class TestLoadedRuns(OnDatabase, LoadedRunSuite):
    pass


class TestRunClaims(OnDatabase, RunClaimSuite):
    pass


class TestStages(OnDatabase, StageSuite):
    pass


class TestDefinitions(OnDatabase, DefinitionSuite):
    pass


class TestAnnotations(OnDatabase, AnnotationSuite):
    pass


class TestLogs(OnDatabase, LogSuite):
    pass


class TestOutbox(OnDatabase, OutboxSuite):
    pass


class TestOutboxDelivery(OnDatabase, OutboxDeliverySuite):
    pass


class TestIdempotency(OnDatabase, IdempotencySuite):
    pass


class TestRunReader(OnDatabase, RunReaderSuite):
    pass


class TestJobQueue(OnDatabase, JobQueueSuite):
    pass


class TestJobAcknowledgements(OnDatabase, JobAcknowledgementSuite):
    pass


class TestJobFences(OnDatabase, JobFenceSuite):
    pass


class TestJobLeases(OnDatabase, JobLeaseSuite):
    pass


class TestJobAdmin(OnDatabase, JobAdminSuite):
    pass


class TestTransportEnlistment(OnDatabase, TransportEnlistmentSuite):
    pass


class TestWakeUps(OnDatabase, WakeUpSuite):
    pass


class TestStepLedger(OnDatabase, StepLedgerSuite):
    pass


class TestStepEnlistment(OnDatabase, StepEnlistmentSuite):
    pass


class TestStepListing(OnDatabase, StepListingSuite):
    pass


class TestBlobs(OnDatabase, BlobSuite):
    pass


class TestBlobListing(OnDatabase, BlobListingSuite):
    pass


class TestBlobStreams(OnDatabase, BlobStreamSuite):
    pass
