"""The same histories of commands on every kind of store at once, which all come to the same."""

import asyncio
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime, timedelta

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPICursor

from stagewright import Kernel, WorkflowRegistry, open_kernel
from stagewright.testing import FakeClock
from stagewright_histories import History, World, histories, play
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
    create_engine,
    schema,
)
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES
from stagewright_test_support.fixtures import shared_address
from stagewright_test_support.servers import MariadbDatabases, PostgresDatabases

START = datetime(2025, 1, 1, tzinfo=UTC)
# PostgreSQL keeps leases by its own clock, so that one is made to show the history's time: unqualified names are
# looked up in `public` first.
MOVED_CLOCK = """
CREATE SCHEMA history;
CREATE TABLE history.clock (now timestamptz NOT NULL);
INSERT INTO history.clock VALUES ('2025-01-01Z');
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT now FROM history.clock';
CREATE FUNCTION public.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now FROM history.clock';
"""
# An adapter remembers which definitions are stored, since their rows never change.
KEPT = ("stagewright_schema_version", "workflow_definitions")


class Stores:
    """A store of each kind, empty at the start of each history, all on one clock."""

    def __init__(self, postgres_url: str, sqlite_url: str, mariadb_url: str | None) -> None:
        self._mariadb = None if mariadb_url is None else Database(create_engine(mariadb_url))
        self._postgres_url = postgres_url
        self._sqlite_url = sqlite_url
        self._opened = AsyncExitStack()
        self._kernels: dict[str, Kernel] = {}
        self._clock = FakeClock(START)

    async def open(self) -> None:
        """Make the schemas, and open what outlasts a history."""
        self._postgres = await asyncpg.connect(self._postgres_url)
        await self._postgres.execute(MOVED_CLOCK)
        database = self._postgres_url.rpartition("/")[2]
        await self._postgres.execute(f'ALTER DATABASE "{database}" SET search_path = public, pg_catalog')
        for name, url in (("SQLite", self._sqlite_url), ("PostgreSQL", self._postgres_url)):
            opening = open_kernel([], url, clock=self._clock, create_schema=True)
            self._kernels[name] = await self._opened.enter_async_context(opening)
        if self._mariadb is not None:
            self._kernels["MariaDB"] = await self._open_mariadb(self._mariadb)

    async def _open_mariadb(self, database: Database) -> Kernel:
        """It keeps leases by its own clock, too, which each connection can be told."""
        await schema.upgrade(database.engine)

        @event.listens_for(database.engine.sync_engine, "before_cursor_execute")
        def set_clock(_connection: object, cursor: DBAPICursor, *_: object) -> None:
            cursor.execute(f"SET timestamp = {self._clock.now().timestamp():.6f}")

        database.clock = self._clock
        return Kernel(
            persistence=SqlAlchemyPersistence(database),
            blob_store=SqlAlchemyBlobStore(database),
            job_transport=SqlAlchemyJobTransport(database),
            step_ledger=SqlAlchemyStepLedger(database),
            run_reader=SqlAlchemyPersistence(database),
            event_sink=self._kernels["SQLite"].ports.event_sink,
            clock=self._clock,
            registry=WorkflowRegistry([]),
        )

    async def close(self) -> None:
        if self._mariadb is not None:
            await self._mariadb.close()
        await self._postgres.close()
        await self._opened.aclose()

    async def play(self, history: History) -> None:
        await self._empty()
        await self._move_to(START)
        async with open_kernel([], "memory://", clock=self._clock) as in_memory:
            kernels = {"memory": in_memory, **self._kernels}
            worlds = [World(name, kernel, history.flows) for name, kernel in kernels.items()]
            await play(history, worlds, self._let_pass)

    async def _let_pass(self, seconds: int) -> None:
        await self._move_to(self._clock.now() + timedelta(seconds=seconds))

    async def _move_to(self, moment: datetime) -> None:
        self._clock.set(moment)
        await self._postgres.execute("UPDATE history.clock SET now = $1", moment)

    async def _empty(self) -> None:
        listed = await self._postgres.fetch(
            "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'"
        )
        tables = ", ".join(row["name"] for row in listed if row["name"] not in KEPT)
        await self._postgres.execute(f"TRUNCATE {tables}")
        if self._mariadb is not None:
            async with self._mariadb.engine.begin() as mariadb:
                for table in reversed(PLAIN_TABLES.metadata.sorted_tables):
                    if table.name not in KEPT:
                        await mariadb.execute(table.delete())
        path = self._sqlite_url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path)) as connection, connection:
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                if name not in KEPT and not name.startswith("sqlite_"):
                    connection.execute(f'DELETE FROM "{name}"')


Play = Callable[[History], None]


@pytest.fixture(params=["without MariaDB", pytest.param("with MariaDB", marks=pytest.mark.wide)])
def play_everywhere(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[Play]:
    databases = PostgresDatabases.at(shared_address(request.config, "postgres"))
    others = None
    if request.param == "with MariaDB":
        others = MariadbDatabases.at(shared_address(request.config, "mariadb"))
    name = f"t_histories_{uuid.uuid4().hex[:12]}"
    stores = Stores(databases.create(name), sqlite_url, None if others is None else others.create(name))
    with asyncio.Runner() as runner:
        runner.run(stores.open())
        yield lambda history: runner.run(stores.play(history))
        runner.run(stores.close())
    databases.drop(name)
    if others is not None:
        others.drop(name)


# The soak shrinks what it finds, which takes minutes.
QUICK = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=5,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.guarantee("stores.same-histories-same-outcomes")
@QUICK
@given(history=histories(least=11, most=11))
def test_every_store_comes_to_the_same(play_everywhere: Play, history: History) -> None:
    play_everywhere(history)


@pytest.mark.soak
@settings(QUICK, max_examples=1_000, derandomize=False, phases=[Phase.generate, Phase.shrink])
@given(history=histories(least=1, most=24))
def test_every_store_comes_to_the_same_in_long_histories(play_everywhere: Play, history: History) -> None:
    play_everywhere(history)
