"""Connections that are lost, exhausted or silent: what is repeated, what is told, and what ends in time."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from sqlalchemy import text

from stagewright import Kernel, StageContext, Workflow, define_workflow
from stagewright.commands import CreateRun
from stagewright.errors import TransientError
from stagewright.records import HeldLease, NewJob, RunPatch
from stagewright.status import Status
from stagewright_conformance.samples import a_run
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    asyncpg_sessions,
    heartbeats,
    sqlalchemy_sessions,
)

OpenDatabase: TypeAlias = Callable[..., Database]
on_servers = pytest.mark.parametrize("way", ["asyncpg", "psycopg", "mariadb"], indirect=True)
on_postgres = pytest.mark.parametrize("way", ["asyncpg", "psycopg"], indirect=True)
MARIADB_OTHERS = text(
    "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
)
MARIADB_WAITING = text(
    "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table%'"
)
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def workflow() -> Workflow:
    async def body(ctx: StageContext[Any]) -> Any:
        return ctx.input

    return define_workflow("flow", input=Any).stage("only", body, input=Any, output=Any).build()


async def fill_the_pool(database: Database, size: int) -> None:
    """Leave so many idle connections."""
    together = asyncio.Barrier(size)

    async def hold() -> None:
        async with database.sessions.reading():
            await together.wait()

    await asyncio.gather(*(hold() for _ in range(size)))


async def end_all(other: Database) -> None:
    async with other.engine.connect() as connection:
        if other.kind.name == "mariadb":
            for id in (await connection.execute(MARIADB_OTHERS)).scalars().all():
                await connection.execute(text(f"KILL {id}"))
            return
        ended = await connection.execute(text(f"SELECT pg_terminate_backend(pid, 5000) {OTHERS}"))
        assert all(row[0] for row in ended)


@on_servers
@pytest.mark.guarantee("sql.lost-connections-replaced")
async def test_a_pool_of_lost_connections_troubles_nobody(
    url: str, database: Database, open_database: OpenDatabase, make_kernel: Callable[..., Kernel]
) -> None:
    kernel = make_kernel(database, workflow())
    run_id = (await kernel.dispatch(CreateRun("flow", 0))).run_id
    for _ in range(2):
        await fill_the_pool(database, 12)
        await end_all(open_database(url))
        # Long enough for a driver to see what its sockets say, which it does between two calls.
        await asyncio.sleep(0.05)
        for number in range(14):
            assert await kernel.ports.persistence.get_run_status(run_id) is Status.PENDING
            await kernel.dispatch(CreateRun("flow", number))


@pytest.mark.parametrize("way", ["mariadb"], indirect=True)
@pytest.mark.guarantee("sql.lost-connections-replaced")
async def test_a_read_that_mariadb_cuts_off_is_repeated(
    url: str, database: Database, open_database: OpenDatabase, eventually: Callable[..., Awaitable[None]]
) -> None:
    persistence, other = SqlAlchemyPersistence(database), open_database(url)
    async with other.engine.connect() as blocking:
        await blocking.execute(text("LOCK TABLES workflow_runs WRITE"))
        reading = asyncio.create_task(persistence.get_run("none"))
        async with open_database(url).engine.connect() as watching:

            async def waits() -> bool:
                return bool((await watching.execute(MARIADB_WAITING)).scalar_one())

            await eventually(waits)
            for id in (await blocking.execute(MARIADB_OTHERS)).scalars().all():
                await blocking.execute(text(f"KILL {id}"))
            await watching.invalidate()
        await blocking.execute(text("UNLOCK TABLES"))
    assert await reading is None


@on_postgres
@pytest.mark.guarantee("sql.lost-connections-replaced")
async def test_a_read_that_is_cut_off_is_repeated(
    url: str, database: Database, open_database: OpenDatabase, eventually: Callable[..., Awaitable[None]]
) -> None:
    persistence, other = SqlAlchemyPersistence(database), open_database(url)
    async with other.engine.begin() as blocking:
        await blocking.execute(text("LOCK TABLE workflow_runs IN ACCESS EXCLUSIVE MODE"))
        reading = asyncio.create_task(persistence.get_run("none"))

        async def waits() -> bool:
            # A transaction sees what others do as they did it when it first looked, unless it says so.
            await blocking.execute(text("SELECT pg_stat_clear_snapshot()"))
            found = await blocking.execute(text(f"SELECT count(*) {OTHERS} AND wait_event_type = 'Lock'"))
            return bool(found.scalar_one())

        await eventually(waits)
        await blocking.execute(text(f"SELECT pg_terminate_backend(pid) {OTHERS}"))
    assert await reading is None


@pytest.mark.parametrize("way", ["asyncpg", "mariadb"], indirect=True)
async def test_what_was_never_sent_is_not_unknown(
    url: str, database: Database, open_database: OpenDatabase
) -> None:
    persistence, other = SqlAlchemyPersistence(database), open_database(url)

    async def lose_it_before_the_commit() -> None:
        async with persistence.transaction() as tx:
            await tx.get_run("none")
            await end_all(other)
            await asyncio.sleep(0.05)

    with pytest.raises(TransientError):
        await lose_it_before_the_commit()


@on_servers
async def test_a_lost_connection_does_not_hide_the_error_of_the_block(
    url: str, database: Database, open_database: OpenDatabase
) -> None:
    persistence, other = SqlAlchemyPersistence(database), open_database(url)

    async def fail() -> None:
        async with persistence.transaction() as tx:
            await tx.get_run("none")
            await end_all(other)
            raise LookupError("the block's own")

    with pytest.raises(LookupError, match="the block's own"):
        await fail()
    assert await persistence.get_run("none") is None


@on_servers
async def test_an_exhausted_pool_is_told_after_its_time(
    url: str, database: Database, open_database: OpenDatabase
) -> None:
    small = open_database(url, pool_size=1, pool_timeout=0.4)
    persistence = SqlAlchemyPersistence(small)
    async with small.sessions.reading():
        started = time.monotonic()
        with pytest.raises(TransientError):
            await persistence.get_run("none")
        # Once, not once for each of the tries that an unreachable server gets.
        assert time.monotonic() - started < 1.2
    assert await persistence.get_run("none") is None


@on_servers
async def test_the_listener_takes_no_connection_from_work(
    url: str, database: Database, open_database: OpenDatabase
) -> None:
    small = open_database(url, pool_size=1, pool_timeout=0.4)
    persistence = SqlAlchemyPersistence(small)
    assert await persistence.wait_for_work(timedelta(seconds=10))
    assert await persistence.get_run("none") is None
    async with small.sessions.reading():
        await SqlAlchemyPersistence(open_database(url)).notify("runs")
        assert await persistence.wait_for_work(timedelta(seconds=10))


async def test_who_repeats_at_once_is_held_back_a_little_longer_each_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)

    async def fail() -> None:
        async with database.transaction():
            raise TransientError("a conflict")

    for _ in range(12):
        with pytest.raises(TransientError):
            await fail()
    longest = [min(0.01 * 2**number, 0.5) for number in range(12)]
    assert len(pauses) == 12
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))
    # They are spread, not all the same.
    assert len({round(pause, 6) for pause in pauses[6:]}) > 1
    async with database.transaction():
        pass
    with pytest.raises(TransientError):
        await fail()
    assert pauses[-1] <= 0.01


class Relay:
    """A way to a server that can be stopped: what is sent is taken, and nothing comes any more."""

    def __init__(self, port: int) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self.port = 0
        self._to = port
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, there]
        for source, target in ((reader, there), (there_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, target))
            self._tasks.add(task)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self.flows.wait()
                target.write(data)
                await target.drain()
        except ConnectionError:
            return
        finally:
            target.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


@pytest_asyncio.fixture
async def relay(url: str) -> AsyncIterator[Relay]:
    relay = Relay(int(url.rpartition(":")[2].partition("/")[0]))
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    yield relay
    server.close()
    await relay.close()


@pytest.fixture
def far_url(url: str, relay: Relay) -> str:
    before, _, after = url.rpartition(":")
    return f"{before}:{relay.port}/{after.partition('/')[2]}"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncpg_sessions, "UNDOING_PATIENCE", 0.5)
    monkeypatch.setattr(sqlalchemy_sessions, "UNDOING_PATIENCE", 0.5)
    monkeypatch.setattr(heartbeats, "_ANSWER_WITHIN", 0.5)


@pytest.mark.parametrize("way", ["asyncpg", "mariadb"], indirect=True)
@pytest.mark.guarantee("sql.silent-server-keeps-nobody")
async def test_who_gives_up_on_a_silent_server_is_let_go(
    *, database: Database, far_url: str, relay: Relay, open_database: OpenDatabase
) -> None:
    persistence = SqlAlchemyPersistence(open_database(far_url))
    begun = asyncio.Event()

    async def write() -> None:
        async with persistence.transaction() as tx:
            await tx.get_run("none")
            relay.flows.clear()
            begun.set()
            await tx.get_run("none")

    writing = asyncio.create_task(write())
    await begun.wait()
    await asyncio.sleep(0.05)
    writing.cancel()
    done, _ = await asyncio.wait({writing}, timeout=5)
    assert done == {writing}
    assert writing.cancelled()
    relay.flows.set()
    assert await persistence.get_run("none") is None


@pytest.mark.parametrize("way", ["asyncpg", "mariadb"], indirect=True)
@pytest.mark.guarantee("sql.silent-server-keeps-nobody")
async def test_a_beat_to_a_silent_server_ends(
    *, database: Database, far_url: str, relay: Relay, open_database: OpenDatabase
) -> None:
    transport = SqlAlchemyJobTransport(open_database(far_url))
    await transport.enqueue_parallel([NewJob(id="one", run_id="one", workflow_id="w", stage_id="s")])
    [taken] = await transport.dequeue(worker_id="worker")
    lease = HeldLease(taken.job_id, taken.fence)
    channel = transport.open_heartbeats()
    assert channel is not None
    assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
    relay.flows.clear()
    async with asyncio.timeout(10):
        with pytest.raises(TransientError, match=r"answer|reached"):
            await asyncio.to_thread(channel.renew_many, [lease])
    relay.flows.set()
    assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
    await asyncio.to_thread(channel.close)


@on_servers
async def test_the_system_is_asked_to_notice_a_server_that_vanishes(way: str, database: Database) -> None:
    async with database.engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        if way in ("asyncpg", "mariadb"):
            found = driver._transport.get_extra_info("socket")
            idle = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        else:
            with socket.socket(fileno=socket.dup(driver.fileno())) as found:
                idle = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    assert idle == 10


@on_postgres
async def test_limits_of_the_server_are_transient(
    url: str, database: Database, open_database: OpenDatabase
) -> None:
    limited = open_database(f"{url}?options=-c%20lock_timeout%3D0%20-c%20statement_timeout%3D150")
    persistence, hurried = SqlAlchemyPersistence(database), SqlAlchemyPersistence(limited)
    kernel_run = await _a_run(persistence)
    async with persistence.transaction() as tx:
        await tx.lock_runs([kernel_run])
        with pytest.raises(TransientError):
            await hurried.update_run(kernel_run, RunPatch(updated_at=database.clock.now()))


@pytest.mark.parametrize("way", ["sqlite"], indirect=True)
async def test_a_full_disk_is_transient_and_leaves_the_store_usable(database: Database) -> None:
    persistence = SqlAlchemyPersistence(database)
    await _limit_pages(database, 3)
    with pytest.raises(TransientError, match="full"):
        await _a_run(persistence, "x" * 500_000)
    await _limit_pages(database, 1_000_000)
    assert await persistence.get_run(await _a_run(persistence)) is not None


async def _limit_pages(database: Database, more: int) -> None:
    async with database.engine.connect() as connection:
        pages = (await connection.execute(text("PRAGMA page_count"))).scalar_one()
        await connection.execute(text(f"PRAGMA max_page_count = {pages + more}"))


async def _a_run(persistence: SqlAlchemyPersistence, value: Any = None) -> str:
    run = a_run(input=value)
    await persistence.create_run(run)
    return run.id
