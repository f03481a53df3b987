"""Databases with fresh tables, kernels over them, and crowds of workers that work runs off."""

import asyncio
import uuid
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from random import Random
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from empty_tables import make_empty_tables
from sqlalchemy import Executable

from stagewright import Kernel, Workflow, WorkflowRegistry
from stagewright.commands import ClaimJobs, ClaimPendingRuns, FlushOutbox
from stagewright.hosting.job_runner import run_job
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright.testing import CollectingEventSink, assert_consistent
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
    create_engine,
)
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session, Sessions
from stagewright_persistence_sqlalchemy.telling import Telling
from stagewright_test_support.servers import MariadbDatabases, PostgresDatabases

_PATIENCE = 90.0
_PLACES = {
    "": "postgres_url",
    "through pgbouncer": "pgbouncer_url",
    "at repeatable read": "repeatable_read_url",
}
_ENDINGS = ("workflow:completed", "workflow:failed", "workflow:cancelled")


class _Crash(BaseException):
    """Ends the caller like the end of its process would: nobody catches it to go on."""


class _Points:
    """The places of transactions where their callers may end; at one of them one does.

    Attributes:
        crash: What is raised there.
        passed: The places that were passed by.
    """

    crash = _Crash

    def __init__(self) -> None:
        self.passed: list[str] = []
        self._fatal = 0
        self._for_good = False

    def around(self, sessions: Sessions) -> Sessions:
        """Sessions that pass by."""
        return _FragileSessions(sessions, self)

    def begin(self, fatal: int, *, for_good: bool = False) -> None:
        """Count anew, up to the fatal place; 0 is none. With `for_good` every later place is fatal too."""
        self.passed, self._fatal, self._for_good = [], fatal, for_good

    @property
    def is_dead(self) -> bool:
        """Whether the fatal place has come."""
        return 0 < self._fatal <= len(self.passed)

    def pass_by(self, place: str) -> None:
        self.passed.append(place)
        if len(self.passed) == self._fatal or (self._for_good and self.is_dead):
            raise _Crash(place)


class _FragileSessions:
    """Sessions whose writing ones pass by points: around each call, and before and after the commit."""

    def __init__(self, sessions: Sessions, points: _Points) -> None:
        self._sessions = sessions
        self._points = points
        self.reading = sessions.reading

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        async with self._sessions.writing() as session:
            self._points.pass_by("begun")
            yield _FragileSession(session, self._points)
            self._points.pass_by("before the commit")
        self._points.pass_by("committed")


class _FragileSession:
    def __init__(self, session: Session, points: _Points) -> None:
        self._session = session
        self._points = points

    @property
    def can_restart(self) -> bool:
        return self._session.can_restart

    async def restart(self) -> None:
        await self._around("restart", self._session.restart())

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        rows: list[Row] = await self._around("fetch", self._session.fetch(statement, parameters))
        return rows

    async def can_finish_at_once(self) -> bool:
        return False

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        # As a transaction of several statements: one that is a single statement has no points to end at.
        return await self.fetch(statement, parameters)

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        count: int = await self._around("execute", self._session.execute(statement, parameters))
        return count

    async def execute_all(
        self, statements: Sequence[tuple[Executable, Sequence[Mapping[str, Any]]]]
    ) -> list[list[int]]:
        counts: list[list[int]] = await self._around("execute_all", self._session.execute_all(statements))
        return counts

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        async with self._session.savepoint():
            self._points.pass_by("savepoint")
            yield
            self._points.pass_by("before the release")
        self._points.pass_by("released")

    async def _around(self, name: str, call: Any) -> Any:  # Any: a coroutine of one of three results
        try:
            self._points.pass_by(f"before {name}")
            answer = await call
        finally:
            call.close()
        self._points.pass_by(f"after {name}")
        return answer


@pytest.fixture
def points() -> _Points:
    """Places where a caller may end, in a database opened with `open_database(url, wrap=points.around)`."""
    return _Points()


@pytest.fixture(params=["sqlite", "asyncpg"])
def way(request: pytest.FixtureRequest) -> str:
    """The database and driver: `sqlite`, `mariadb`, `asyncpg`, `psycopg`.

    The last two may be `… through pgbouncer`, or `… at repeatable read`, where that is the database's default. Any may
    be `… named`: a store with a prefix, and on PostgreSQL with a schema, which is on no search path.
    """
    return str(request.param)


@pytest.fixture(scope="module")
def repeatable_read_url(postgres_url: str) -> Iterator[str]:
    """A database whose transactions see one snapshot unless they say otherwise."""
    databases = PostgresDatabases.at(postgres_url)
    name = f"repeatable_read_{uuid.uuid4().hex[:8]}"
    url = databases.create(name)
    with psycopg.connect(url) as connection:
        connection.execute(
            f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'".encode()
        )
    with psycopg.connect(url) as connection:
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
    yield url
    databases.drop(name)


@pytest.fixture
def url(way: str, request: pytest.FixtureRequest) -> str:
    """Where the test's database is."""
    kind, _, manner = way.partition(" ")
    if kind in ("sqlite", "mariadb"):
        names = "?table_prefix=of_some_team_" * (manner == "named")
        return f"{request.getfixturevalue(f'{kind}_url')}{names}"
    place: str = request.getfixturevalue(_PLACES.get(manner, "postgres_url"))
    plain = place.replace("postgresql://", f"postgresql+{kind}://")
    if manner == "named":
        return f"{plain}?schema=some_schema&table_prefix=of_some_team_&options=-csearch_path%3Dnowhere"
    return plain + "?pgbouncer=true" * ("pgb" in manner)


@pytest.fixture
def new_database(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """`new_database(way)`: the URL of an empty database of the test's own; of SQLite there is one."""
    with ExitStack() as made:

        def make(way: str) -> str:
            if way == "sqlite":
                return str(request.getfixturevalue("sqlite_url"))
            name = f"empty_{uuid.uuid4().hex[:12]}"
            databases: MariadbDatabases | PostgresDatabases
            if way == "mariadb":
                databases = MariadbDatabases.at(request.getfixturevalue("mariadb_url"))
            else:
                databases = PostgresDatabases.at(request.getfixturevalue("postgres_url"))
            made.callback(databases.drop, name)
            scheme = way if way == "postgresql" else f"postgresql+{way}"
            return databases.create(name).replace("postgresql://", f"{scheme}://")

        yield make


@pytest.fixture
def each_commit_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sends a notification a little later, which would be one of the statements that are counted."""
    monkeypatch.setattr(Telling, "goes_along", lambda _: True)


@pytest_asyncio.fixture
async def open_database(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Database]]:
    """`open_database(url, wrap=None, **options)`: a database object of its own; `wrap` gets and gives `Sessions`."""
    async with AsyncExitStack() as opened:

        def open_one(
            url: str, *, wrap: Callable[[Sessions], Sessions] | None = None, **options: Any
        ) -> Database:
            database = Database(create_engine(url, **options))
            if wrap is not None:
                database.sessions = wrap(database.sessions)
                # A statement that is sent a little later, by nobody's call, would be one of those that are counted.
                monkeypatch.setattr(Telling, "goes_along", lambda _: True)
            opened.push_async_callback(database.close)
            return database

        yield open_one


@pytest.fixture
def make_tables() -> Callable[[Database], Awaitable[None]]:
    """`await make_tables(database)`: every table, empty."""
    return make_empty_tables


@pytest_asyncio.fixture
async def database(
    url: str,
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
) -> Database:
    """The test's database, with empty tables."""
    database = open_database(url)
    await make_tables(database)
    return database


@pytest.fixture
def sink() -> CollectingEventSink:
    return CollectingEventSink()


@pytest_asyncio.fixture
async def kernels(
    request: pytest.FixtureRequest, open_database: Callable[..., Database]
) -> AsyncIterator[list[Kernel]]:
    """The kernels of a test; what they leave behind fits together, unless the test is marked `tampers`."""
    made: list[Kernel] = []
    yield made
    if request.node.get_closest_marker("tampers") is None:
        for kernel in {str(_url_of(kernel)): kernel for kernel in made}.values():
            await assert_consistent(kernel)


def _url_of(kernel: Kernel) -> object:
    persistence = kernel.ports.persistence
    return persistence.database.engine.url if isinstance(persistence, SqlAlchemyPersistence) else persistence


@pytest.fixture
def make_kernel(sink: CollectingEventSink, kernels: list[Kernel]) -> Callable[..., Kernel]:
    """`make_kernel(database, *workflows, **arguments)`: a kernel whose ports are all in that database."""

    def make(database: Database, *workflows: Workflow, **arguments: Any) -> Kernel:
        given: dict[str, Any] = {
            "persistence": SqlAlchemyPersistence(database),
            "blob_store": SqlAlchemyBlobStore(database),
            "job_transport": SqlAlchemyJobTransport(database),
            "step_ledger": SqlAlchemyStepLedger(database),
            "event_sink": sink,
            "clock": database.clock,
            "registry": WorkflowRegistry(workflows),
        }
        kernel = Kernel(**(given | arguments))
        kernels.append(kernel)
        return kernel

    return make


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """`await eventually(condition, within=10)`: until a function, or an async one, answers with truth."""

    async def wait(condition: Callable[[], Any], *, within: float = 10.0) -> None:
        async with asyncio.timeout(within):
            while True:
                answer = condition()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.005)

    return wait


@pytest.fixture
def work_off() -> Callable[..., Coroutine[Any, Any, None]]:
    """`await work_off(kernel, run_ids, workers=8, batch=1, bears=())`: claim and execute until all runs have ended.

    Errors of the types in `bears` are taken as a host takes them: by going on. Everything else ends the test.
    """

    async def run(
        kernel: Kernel,
        run_ids: Iterable[str],
        *,
        workers: int = 8,
        batch: int = 1,
        bears: tuple[type[Exception], ...] = (),
        within: float = _PATIENCE,
    ) -> None:
        left = set(run_ids)

        async def work(name: str) -> None:
            pause = Random(name)
            while left:
                try:
                    claimed = await kernel.dispatch(ClaimPendingRuns(name, max_claims=3))
                    jobs = (await kernel.dispatch(ClaimJobs(name, limit=batch))).jobs
                    for job in jobs:
                        await run_job(kernel, job)
                    await kernel.dispatch(FlushOutbox())
                except bears:
                    await asyncio.sleep(0.05)
                    continue
                if not claimed.claimed and not jobs:
                    await asyncio.sleep(pause.uniform(0.002, 0.02))

        async def watch() -> None:
            while left:
                for run_id in sorted(left):
                    try:
                        status = await kernel.ports.persistence.get_run_status(run_id)
                    except bears:
                        break
                    if status not in TERMINAL_RUN_STATUSES:
                        # Runs end about in the order in which they were created.
                        break
                    left.discard(run_id)
                await asyncio.sleep(0.02)

        async with asyncio.timeout(within), asyncio.TaskGroup() as tasks:
            for number in range(workers):
                tasks.create_task(work(f"worker-{number}"))
            tasks.create_task(watch())

    return run


@pytest.fixture
def deliver_all() -> Callable[[Kernel], Awaitable[None]]:
    """`await deliver_all(kernel)`: hand every event that is left to the sink."""

    async def deliver(kernel: Kernel) -> None:
        while (await kernel.dispatch(FlushOutbox())).published:
            pass

    return deliver


@pytest.fixture
def check_run(sink: CollectingEventSink) -> Callable[..., Coroutine[Any, Any, RunRecord]]:
    """`await check_run(kernel, run_id, statuses=(COMPLETED,))`: it has ended, and its story is told whole and in order.

    With `repeated` the sink may have been given an event again; by its id it is known then.
    """

    async def check(
        kernel: Kernel,
        run_id: str,
        statuses: Collection[Status] = (Status.COMPLETED,),
        *,
        repeated: bool = False,
    ) -> RunRecord:
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert run.status in statuses
        told = await kernel.runs.events(run_id, limit=1_000)
        assert [event.sequence for event in told] == list(range(1, len(told) + 1))
        endings = [event.type for event in told if event.type in _ENDINGS]
        assert endings == [f"workflow:{run.status.value.lower()}"]
        assert told[-1].type == endings[0]
        delivered = [event for event in sink.events if event.run_id == run_id]
        ids = [event.event_id for event in delivered]
        if repeated:
            ids = list(dict.fromkeys(ids))
        assert ids == [event.id for event in told]
        return run

    return check
