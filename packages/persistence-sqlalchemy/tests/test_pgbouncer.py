"""Everything through a pooler that lends a connection of the database for a transaction at a time."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ColumnElement, Integer, Text, func, literal, literal_column, select, text

from stagewright import Kernel, StageContext, Status, define_workflow, open_kernel
from stagewright.commands import CreateRun, SignalStep
from stagewright.errors import InvalidSettingError, PersistenceUnavailableError
from stagewright.records import RunRecord
from stagewright_host_node import NodeHost
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyPersistence, create_engine, schema
from stagewright_persistence_sqlalchemy.sessions import Session, Sessions
from stagewright_test_support.fixtures import StartPgbouncer
from stagewright_test_support.servers import PostgresDatabases

OpenDatabase = Callable[..., Database]
MakeKernel = Callable[..., Kernel]

WORKER = Path(__file__).with_name("process_worker.py")
BACKEND = select(func.pg_backend_pid(type_=Integer).label("pid"))
POOLED = ["asyncpg through pgbouncer", "psycopg through pgbouncer"]

pooled = pytest.mark.parametrize("way", POOLED, indirect=True)
drivers = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])


async def add_one(ctx: StageContext[Any]) -> Any:
    return ctx.input + 1


async def _work_in_a_process(url: str, runs: int, until: int) -> dict[str, Any]:
    command = (sys.executable, str(WORKER), url, str(runs), str(until))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, logged = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, logged.decode()) == (0, "")
    told: dict[str, Any] = json.loads(out)
    return told


async def _prepared(database: Database) -> int:
    """How many statements lie prepared on the connections that are lent."""
    many = select(func.count().label("count")).select_from(text("pg_prepared_statements WHERE name <> ''"))
    async with database.sessions.reading() as session:
        return sum([(await session.fetch(many, {}))[0]["count"] for _ in range(12)])


@pooled
@pytest.mark.guarantee("sql.pooled-connections-serve")
async def test_two_processes_work_off_many_runs_without_an_error(
    database: Database, url: str, make_kernel: MakeKernel
) -> None:
    async with asyncio.timeout(120):
        told = await asyncio.gather(*(_work_in_a_process(url, 15, 30) for _ in range(2)))
    assert [error for one in told for error in one["errors"]] == []
    bodies = Counter(tuple(body) for one in told for body in one["bodies"])
    assert len(bodies) == 3 * 30
    assert set(bodies.values()) == {1}
    delivered = Counter(event for one in told for event in one["delivered"])
    assert set(delivered.values()) == {1}
    kernel = make_kernel(database)
    for run_id in (run_id for one in told for run_id in one["runs"]):
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert (run.status, run.output) == (Status.COMPLETED, 3)
    assert await _prepared(database) == 0


async def nap_and_ask(ctx: StageContext[Any]) -> Any:
    await ctx.step.sleep("nap", "100ms")
    return await ctx.step.wait_for_signal("approval", timeout="1d", returns=int) + ctx.input


@pytest.mark.slow
@drivers
@pytest.mark.guarantee("sql.pooled-connections-serve")
async def test_a_pooler_that_is_restarted_in_the_middle_costs_no_run(
    driver: str,
    postgres_url: str,
    new_database: Callable[[str], str],
    pgbouncer_server: StartPgbouncer,
    eventually: Callable[..., Awaitable[None]],
) -> None:
    name = new_database("postgresql").rpartition("/")[2]
    pooler = pgbouncer_server(PostgresDatabases.at(postgres_url).port, settings={"default_pool_size": "5"})
    url = pooler.url(name).replace("postgresql", f"postgresql+{driver}")
    flow = define_workflow("flow", input=Any).stage("ask", nap_and_ask, input=Any, output=Any).build()
    async with open_kernel(flow, url, create_schema=True) as kernel:
        runs = [(await kernel.dispatch(CreateRun("flow", number))).run_id for number in range(50)]

        async def have_ended(count: int) -> bool:
            found = [await kernel.ports.persistence.get_run_status(run_id) for run_id in runs]
            assert Status.FAILED not in found
            return found.count(Status.COMPLETED) >= count

        async with NodeHost(kernel, concurrency=10, poll_interval="50ms", orchestration_interval="100ms"):
            for run_id in runs[:25]:
                await kernel.dispatch(SignalStep(run_id, "ask", "approval", payload=1_000))
            await eventually(lambda: have_ended(10), within=60)
            await asyncio.to_thread(pooler.restart)
            for run_id in runs[25:]:
                await kernel.dispatch(SignalStep(run_id, "ask", "approval", payload=1_000))
            await eventually(lambda: have_ended(50), within=120)
        ended = [await kernel.runs.get(run_id) for run_id in runs]
        assert [run and run.output for run in ended] == [1_000 + number for number in range(50)]


class SeenBackends:
    """Sessions that note which of the server's processes each transaction begins and ends on."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.reading = sessions.reading
        self.seen: list[tuple[int, int]] = []

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        async with self._sessions.writing() as session:
            first = (await session.fetch(BACKEND, {}))[0]["pid"]
            yield session
            self.seen.append((first, (await session.fetch(BACKEND, {}))[0]["pid"]))


@pooled
@pytest.mark.guarantee("sql.pooled-connections-serve")
async def test_a_transaction_keeps_to_one_connection_of_the_server(
    url: str,
    database: Database,
    open_database: OpenDatabase,
    make_kernel: MakeKernel,
    work_off: Callable[..., Coroutine[Any, Any, None]],
    deliver_all: Callable[[Kernel], Awaitable[None]],
    check_run: Callable[..., Coroutine[Any, Any, RunRecord]],
) -> None:
    flow = define_workflow("flow", input=Any).stage("a", add_one, input=Any, output=Any).build()
    kernels = []
    watched = []
    for _ in range(3):
        one = open_database(url)
        watched.append(SeenBackends(one.sessions))
        one.sessions = watched[-1]
        kernels.append(make_kernel(one, flow))
    created = [await kernels[0].dispatch(CreateRun("flow", number)) for number in range(9)]
    runs = [one.run_id for one in created]
    await asyncio.gather(*(work_off(kernel, runs, workers=3) for kernel in kernels))
    await deliver_all(kernels[0])
    assert [(await check_run(kernels[0], run_id)).output for run_id in runs] == list(range(1, 10))
    seen = [pair for one in watched for pair in one.seen]
    assert all(first == last for first, last in seen)
    # The same clients were lent several.
    assert all(len({first for first, _ in one.seen}) > 1 for one in watched)


@pooled
@pytest.mark.guarantee("sql.pooled-connections-serve")
async def test_outside_of_a_transaction_each_question_gets_its_own_answer(
    url: str, open_database: OpenDatabase
) -> None:
    async def ask(database: Database, client: int) -> None:
        for turn in range(40):
            shape = (client * 7 + turn) % 6
            answer = literal(client, Integer) + literal_column(str(shape * 1_000), Integer)
            answers: list[ColumnElement[Any]] = [answer.label("answer")]
            if shape % 2:
                # Another type and another number of columns and parameters.
                answers.insert(0, literal(f"{client}", Text).label("words"))
            rows = await database.read(select(*answers), {})
            assert [row["answer"] for row in rows] == [client + shape * 1_000]

    await asyncio.gather(*(ask(open_database(url), client) for client in range(8)))


@pooled
@pytest.mark.guarantee("sql.pooled-connections-serve")
async def test_several_upgrades_at_once_make_the_schema_once(
    way: str, postgres_url: str, pgbouncer_server: StartPgbouncer
) -> None:
    databases = PostgresDatabases.at(postgres_url)
    name = f"fresh_{way.partition(' ')[0]}"
    databases.create(name)
    pooler = pgbouncer_server(databases.port)
    url = pooler.url(name).replace("postgresql", f"postgresql+{way.partition(' ')[0]}") + "?pgbouncer=true"
    engines = [create_engine(url) for _ in range(6)]
    done = await asyncio.gather(*(schema.upgrade(engine) for engine in engines))
    assert Counter(one.before for one in done) == {None: 1, schema.HEAD: 5}
    await schema.check(engines[0])
    for engine in engines:
        await engine.dispose()
    databases.drop(name)


@pooled
@pytest.mark.guarantee("sql.deaf-listener-delays-nobody")
async def test_a_host_says_that_it_hears_nothing_and_finds_work_by_looking(
    url: str,
    database: Database,
    open_database: OpenDatabase,
    make_kernel: MakeKernel,
    eventually: Callable[..., Awaitable[None]],
) -> None:
    flow = define_workflow("flow", input=Any).stage("a", add_one, input=Any, output=Any).build()
    elsewhere, kernel = make_kernel(database, flow), make_kernel(open_database(url), flow)
    async with NodeHost(kernel, poll_interval="50ms") as host:
        created = await elsewhere.dispatch(CreateRun("flow", 1))

        async def has_ended() -> bool:
            return (await elsewhere.ports.persistence.get_run_status(created.run_id)) is Status.COMPLETED

        await eventually(has_ended, within=60)
        assert host.health().ready
        assert not host.stats().notifications


@pooled
async def test_who_waits_is_told_why_nothing_is_heard_and_of_its_own_work_all_the_same(
    database: Database, caplog: pytest.LogCaptureFixture, eventually: Callable[..., Awaitable[None]]
) -> None:
    persistence = SqlAlchemyPersistence(database)
    assert not await persistence.wait_for_work(timedelta(milliseconds=20))
    await eventually(lambda: len(caplog.messages) == 1)
    assert "notifications are lost" in caplog.messages[0]
    assert "a pooler such as PgBouncer passes no notifications on" in caplog.messages[0]
    assert not persistence.is_listening()
    waiting = asyncio.create_task(persistence.wait_for_work(timedelta(seconds=60)))
    await asyncio.sleep(0)
    await persistence.notify("runs")
    assert await waiting
    assert len(caplog.messages) == 1


@pooled
async def test_a_database_may_listen_past_the_pooler(
    way: str, url: str, postgres_url: str, database: Database, eventually: Callable[..., Awaitable[None]]
) -> None:
    direct = create_engine(postgres_url.replace("postgresql", f"postgresql+{way.partition(' ')[0]}"))
    listening = Database(create_engine(url), listen_on=direct)
    persistence = SqlAlchemyPersistence(listening)
    listening.listen()
    await eventually(persistence.is_listening)
    while await persistence.wait_for_work(timedelta(milliseconds=50)):
        pass
    await SqlAlchemyPersistence(database).notify("runs")
    assert await persistence.wait_for_work(timedelta(seconds=60))
    await listening.close()


@drivers
@pytest.mark.guarantee("sql.poolers-are-noticed")
async def test_a_pooler_that_the_url_does_not_speak_of_is_noticed(
    pgbouncer_server: StartPgbouncer,
    postgres_url: str,
    driver: str,
    caplog: pytest.LogCaptureFixture,
    eventually: Callable[..., Awaitable[None]],
) -> None:
    databases = PostgresDatabases.at(postgres_url)
    name = f"noticed_{driver}"
    databases.create(name)
    url = pgbouncer_server(databases.port).url(name).replace("postgresql://", f"postgresql+{driver}://")
    flow = define_workflow("flow", input=Any).stage("a", add_one, input=Any, output=Any).build()
    async with (
        open_kernel([flow], url, create_schema=True) as first,
        open_kernel([flow], url) as second,
        NodeHost(first, poll_interval="50ms", handle_signals=False) as host,
    ):
        created = [await second.dispatch(CreateRun("flow", number)) for number in range(20)]

        async def all_ended() -> bool:
            runs = [await second.runs.get(one.run_id) for one in created]
            return all(run is not None and run.status is Status.COMPLETED for run in runs)

        await eventually(all_ended, within=60)
        assert not host.stats().notifications
        database = Database(create_engine(url))
        assert await _prepared(database) == 0
        await database.close()
    databases.drop(name)
    (said,) = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert "a pooler such as PgBouncer passes no notifications on" in said


@drivers
@pytest.mark.guarantee("sql.poolers-are-noticed")
async def test_one_that_lends_for_a_whole_session_passes_notifications_on(
    driver: str,
    postgres_url: str,
    pgbouncer_server: StartPgbouncer,
    open_database: OpenDatabase,
    eventually: Callable[..., Awaitable[None]],
) -> None:
    settings = {"pool_mode": "session", "default_pool_size": "20"}
    pooler = pgbouncer_server(PostgresDatabases.at(postgres_url).port, settings=settings)
    plain = pooler.url(postgres_url.rpartition("/")[2]).replace("postgresql", f"postgresql+{driver}")
    here, there = (open_database(f"{plain}?pgbouncer=false") for _ in range(2))
    persistence = SqlAlchemyPersistence(here)
    here.listen()
    await eventually(lambda: here.listener.is_healthy)
    while await persistence.wait_for_work(timedelta(milliseconds=50)):
        pass
    await SqlAlchemyPersistence(there).notify("runs")
    assert await persistence.wait_for_work(timedelta(seconds=60))


@drivers
@pytest.mark.guarantee("sql.failures-are-told-apart")
async def test_a_pooler_that_is_full_is_one_that_is_away(
    driver: str, unused_tcp_port: int, pgbouncer_server: StartPgbouncer, open_database: OpenDatabase
) -> None:
    pooler = pgbouncer_server(unused_tcp_port, settings={"max_client_conn": "0"})
    database = open_database(pooler.url().replace("postgresql", f"postgresql+{driver}") + "?pgbouncer=true")
    with pytest.raises(PersistenceUnavailableError, match="no more connections allowed"):
        await database.read(BACKEND, {})


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///app.db?pgbouncer=true", r"'pgbouncer', which can't be used: SQLite takes mode=ro"),
        (
            "postgresql+asyncpg://me@host/name?pgbouncer=on",
            "'pgbouncer', which can't be used: it has to be true or",
        ),
        (
            "postgresql+psycopg://me@host/name?pgbouncer=1",
            "'pgbouncer', which can't be used: it has to be true or",
        ),
        (
            "postgresql+psycopg://me@host/name?pgbouncer=true&pgbouncer=false",
            "'pgbouncer', which can't be used: it has to be true or",
        ),
    ],
)
def test_what_the_word_can_not_mean_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidSettingError, match=words):
        create_engine(url)
