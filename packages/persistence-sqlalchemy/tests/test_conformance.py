"""The conformance suite on every database, driver and way of sending statements."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from empty_tables import make_empty_tables
from sqlalchemy.ext.asyncio import AsyncSession

from stagewright.plugins import AdapterSet
from stagewright.ports import AICallLogger, BlobStore, JobTransport, Persistence, StepLedger
from stagewright_conformance import (
    AICallSuite,
    AnnotationSuite,
    BlobDateSuite,
    BlobListingSuite,
    BlobStreamSuite,
    BlobSuite,
    BorrowedSessionSuite,
    CallersSession,
    Capabilities,
    DefinitionSuite,
    DeliveredJobEnlistmentSuite,
    DeliveredJobSuite,
    EngineCrashSuite,
    EngineCrowdSuite,
    EngineSuite,
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
    OpenFair,
    OpenSession,
    OutboxDeliverySuite,
    OutboxSuite,
    OutlookSuite,
    PagingSuite,
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
    TransactionSuite,
    TransportEnlistmentSuite,
    WaitingStageSuite,
    WakeUpSuite,
)
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyAICallLogger,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
    create_engine,
)
from stagewright_persistence_sqlalchemy.plugin import stagewright_conformance_targets
from stagewright_persistence_sqlalchemy.sqlalchemy_sessions import SqlAlchemySessions

TARGET = pytest.mark.conformance_target
WAYS = (
    pytest.param("sqlite", marks=TARGET("SQLite")),
    pytest.param("asyncpg", marks=TARGET("PostgreSQL, asyncpg")),
    pytest.param("asyncpg through sqlalchemy", marks=[TARGET("PostgreSQL, SQLAlchemy"), pytest.mark.wide]),
    pytest.param("psycopg", marks=[TARGET("PostgreSQL, psycopg"), pytest.mark.thorough]),
    pytest.param("asyncpg through pgbouncer", marks=[TARGET("PostgreSQL, PgBouncer"), pytest.mark.wide]),
    pytest.param(
        "asyncpg at repeatable read",
        marks=[TARGET("PostgreSQL, repeatable read, asyncpg"), pytest.mark.wide],
    ),
    pytest.param(
        "psycopg at repeatable read",
        marks=[TARGET("PostgreSQL, repeatable read, psycopg"), pytest.mark.wide],
    ),
    pytest.param("mariadb", marks=[TARGET("MariaDB, asyncmy"), pytest.mark.thorough]),
    pytest.param("sqlite named", marks=[TARGET("SQLite, prefix"), pytest.mark.wide]),
    pytest.param("asyncpg named", marks=[TARGET("PostgreSQL, schema and prefix"), pytest.mark.wide]),
    pytest.param("psycopg named", marks=[TARGET("PostgreSQL, psycopg, schema and prefix"), pytest.mark.wide]),
    pytest.param("mariadb named", marks=[TARGET("MariaDB, prefix"), pytest.mark.wide]),
)
PREFIX = "of_some_team_"
# Along that path nothing is found; whatever has a schema is named with it.
NOWHERE = "options=-c%20search_path%3Dnowhere"


class OnDatabase:
    """Adapters over one database; every competitor is another adapter over it."""

    @pytest.fixture(params=WAYS)
    def way(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest_asyncio.fixture
    async def database(self, way: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
        kind, _, manner = way.partition(" ")
        names: dict[str, Any] = {"table_prefix": PREFIX} if manner == "named" else {}
        if kind in ("sqlite", "mariadb"):
            url = request.getfixturevalue(f"{kind}_url")
        else:
            driver = "psycopg" if kind == "psycopg" else "asyncpg"
            pooled = "pgbouncer" in way
            fixtures = {"through pgbouncer": "pgbouncer_url", "at repeatable read": "repeatable_read_url"}
            url = request.getfixturevalue(fixtures.get(manner, "postgres_url"))
            url = url.replace("postgresql://", f"postgresql+{driver}://") + "?pgbouncer=true" * pooled
            if names:
                names["schema"] = "some_schema"
                url += f"?{NOWHERE}"
        engine = create_engine(url, **names)
        sessions = SqlAlchemySessions(engine) if "sqlalchemy" in way else None
        database = Database(engine, sessions=sessions)
        await make_empty_tables(database)
        yield database
        await database.close()

    @pytest.fixture
    def capabilities(self, way: str) -> Capabilities:
        return Capabilities(concurrent_writers=not way.startswith("sqlite"), wake_ups="pgbouncer" not in way)

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(moment=0.15)

    @pytest.fixture
    def persistence(self, database: Database) -> Persistence:
        return SqlAlchemyPersistence(database)

    @pytest.fixture
    def open_session(self, database: Database) -> OpenSession:
        @asynccontextmanager
        async def opened() -> AsyncIterator[CallersSession]:
            async with AsyncSession(database.engine) as session:
                yield CallersSession(session, session.commit)

        return opened

    @pytest.fixture
    def competitor(self, database: Database) -> Persistence:
        return SqlAlchemyPersistence(database)

    @pytest_asyncio.fixture
    async def database_of_another_process(self, database: Database, way: str) -> AsyncIterator[Database]:
        names = database.tables.names
        url = database.engine.url.render_as_string(hide_password=False)
        engine = create_engine(url, schema=names.schema, table_prefix=names.table_prefix)
        other = Database(engine, sessions=SqlAlchemySessions(engine) if "sqlalchemy" in way else None)
        yield other
        await other.close()

    @pytest.fixture
    def adapters(self, database: Database) -> AdapterSet:
        return adapters_of(database)

    @pytest.fixture
    def other_adapters(self, database_of_another_process: Database) -> AdapterSet:
        return adapters_of(database_of_another_process)

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
    def open_fair(self, database: Database) -> OpenFair:
        return lambda fairness: SqlAlchemyJobTransport(database, fairness=fairness)

    @pytest.fixture
    def clock_now(self) -> Callable[[], datetime]:
        return lambda: datetime.now(UTC)

    @pytest.fixture
    def ledger(self, database: Database) -> StepLedger:
        return SqlAlchemyStepLedger(database)

    @pytest.fixture
    def ai_calls(self, database: Database) -> AICallLogger:
        return SqlAlchemyAICallLogger(database)

    @pytest.fixture
    def rival_ai_calls(self, database: Database) -> AICallLogger:
        return SqlAlchemyAICallLogger(database)

    @pytest.fixture
    def blob_store(self, database: Database) -> BlobStore:
        return SqlAlchemyBlobStore(database)

    @pytest.fixture
    def rival_blob_store(self, database: Database) -> BlobStore:
        return SqlAlchemyBlobStore(database)


def adapters_of(database: Database) -> AdapterSet:
    persistence = SqlAlchemyPersistence(database)
    return AdapterSet(
        persistence=persistence,
        run_reader=persistence,
        job_transport=SqlAlchemyJobTransport(database),
        step_ledger=SqlAlchemyStepLedger(database),
        blob_store=SqlAlchemyBlobStore(database),
    )


class TestAICalls(OnDatabase, AICallSuite):
    pass


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


class TestExpectedRuns(OnDatabase, ExpectedRunSuite):
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


class TestSignals(OnDatabase, SignalSuite):
    pass


class TestBorrowedSessions(OnDatabase, BorrowedSessionSuite):
    pass


class TestPurges(OnDatabase, PurgeSuite):
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


class TestHeartbeats(OnDatabase, HeartbeatSuite):
    pass


class TestJobResumptions(OnDatabase, JobResumptionSuite):
    pass


class TestWaitingStages(OnDatabase, WaitingStageSuite):
    pass


class TestStuckRuns(OnDatabase, StuckRunSuite):
    pass


class TestJobAdmin(OnDatabase, JobAdminSuite):
    pass


class TestJobListing(OnDatabase, JobListingSuite):
    pass


class TestFairDelivery(OnDatabase, FairDeliverySuite):
    # In the ordinary run, PostgreSQL's own statements are looked at by the crowd of `test_fair_claims.py`.
    @pytest.fixture(
        params=[
            pytest.param(
                *one.values, marks=[*one.marks, *[pytest.mark.thorough] * (one.values != ("sqlite",))]
            )
            for one in WAYS
        ]
    )
    def way(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def capabilities(self, way: str) -> Capabilities:
        # Whoever waits here is of the same process, which no pooler keeps from being told.
        return Capabilities(concurrent_writers=not way.startswith("sqlite"))


@pytest.mark.thorough
class TestJobGroups(OnDatabase, JobGroupSuite):
    pass


class TestFairClaims(OnDatabase, FairClaimSuite):
    pass


class TestDeliveredJobs(OnDatabase, DeliveredJobSuite, DeliveredJobEnlistmentSuite):
    pass


class TestTransportEnlistment(OnDatabase, TransportEnlistmentSuite):
    pass


class TestWakeUps(OnDatabase, WakeUpSuite):
    @pytest.fixture
    def competitor(self, database_of_another_process: Database) -> Persistence:
        # Told by the database alone.
        return SqlAlchemyPersistence(database_of_another_process)


class TestOutlook(OnDatabase, OutlookSuite, JobOutlookSuite):
    pass


class TestStepLedger(OnDatabase, StepLedgerSuite):
    pass


class TestStepEnlistment(OnDatabase, StepEnlistmentSuite):
    pass


class TestPaging(OnDatabase, PagingSuite):
    pass


class TestStepListing(OnDatabase, StepListingSuite, StepPagingSuite):
    pass


class TestBlobs(OnDatabase, BlobSuite):
    pass


class TestBlobDates(OnDatabase, BlobDateSuite):
    pass


class TestBlobListing(OnDatabase, BlobListingSuite):
    pass


class TestBlobStreams(OnDatabase, BlobStreamSuite):
    pass


class TestEngine(OnDatabase, EngineSuite):
    pass


class TestEngineCrowds(OnDatabase, EngineCrowdSuite):
    pass


class TestEngineCrashes(OnDatabase, EngineCrashSuite):
    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=1)


@pytest.mark.wide
class TestEngineCrashesAtMoreCalls(OnDatabase, EngineCrashSuite):
    @pytest.fixture(params=[one for one in WAYS if one.values[0] in ("sqlite", "asyncpg", "mariadb")])
    def way(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=8)


@pytest.mark.soak
class TestEngineCrashesAnywhere(OnDatabase, EngineCrashSuite):
    @pytest.fixture(params=WAYS[:2])
    def way(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=1_000)


def test_the_suite_runs_on_every_target_that_the_plugin_names() -> None:
    names = {target.name for target in stagewright_conformance_targets()}
    assert names <= {str(mark.args[0]) for way in WAYS for mark in way.marks if mark.name == TARGET.name}
