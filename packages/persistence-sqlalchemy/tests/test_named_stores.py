"""Stores of different names in one database: each works, and none sees anything of another."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

from stagewright import Kernel, RetryPolicy, StageContext, Status, define_stage, define_workflow, open_kernel
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, FlushOutbox, PurgeRuns, SignalStep
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job
from stagewright.testing import CollectingEventSink, assert_consistent
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyPersistence, create_engine, schema
from stagewright_persistence_sqlalchemy.errors import DatabaseUnusableError, SchemaMissingError
from stagewright_persistence_sqlalchemy.names import LONGEST_PREFIX, Names
from stagewright_persistence_sqlalchemy.schema import HEAD

LONG, SHORT = timedelta(seconds=30), timedelta(milliseconds=20)
LONGEST = "p" * LONGEST_PREFIX
# The last is a word that SQL has its own use for.
STORES: dict[str, list[dict[str, Any]]] = {
    "sqlite": [{}, {"table_prefix": "x_"}, {"table_prefix": LONGEST}],
    "mariadb": [{"table_prefix": "x_"}, {"table_prefix": LONGEST}],
    "asyncpg": [{}, {"table_prefix": "x_"}, {"schema": "app", "table_prefix": LONGEST}, {"schema": "order"}],
    "psycopg": [{"schema": "app"}, {"schema": "app", "table_prefix": "x_"}],
}
PSYCOPG = pytest.param("psycopg", marks=pytest.mark.wide)
MARIADB = pytest.param("mariadb", marks=pytest.mark.wide)
every_driver = pytest.mark.parametrize("way", ["sqlite", "asyncpg", PSYCOPG, MARIADB], indirect=True)
on_postgresql = pytest.mark.parametrize("way", ["asyncpg", PSYCOPG], indirect=True)

NewDatabase = Callable[[str], str]


@pytest.fixture
def url(way: str, new_database: NewDatabase) -> str:
    """An empty database, in which nothing of another test could be taken for what is looked for."""
    return new_database(way)


async def work(ctx: StageContext[Any]) -> Any:
    if ctx.attempt == 1:
        raise ValueError("once more")
    ctx.log("info", "worked")
    ctx.annotate("kind", ctx.input)
    kept = await ctx.step.run("double", lambda: f"{ctx.input}{ctx.input}")
    return await ctx.step.wait_for_signal("approval", timeout="1d", returns=str) + kept


FLOW = (
    define_workflow("flow", input=str)
    .pipe(define_stage("work", work, input=Any, output=Any, retry=RetryPolicy(3, delay="1ms", jitter=False)))
    .build()
)


@dataclass
class Store:
    names: Names
    kernel: Kernel
    sink: CollectingEventSink


@asynccontextmanager
async def opened_stores(url: str, stores: list[dict[str, Any]]) -> AsyncIterator[list[Store]]:
    async with AsyncExitStack() as opened:
        found = []
        for names in stores:
            sink = CollectingEventSink()
            opening = open_kernel(
                FLOW, url, event_sink=sink, create_schema=True, spill_threshold_bytes=5, **names
            )
            found.append(Store(Names(**names), await opened.enter_async_context(opening), sink))
        yield found


async def carried_through(store: Store, given: str) -> str:
    """The id of a run of that input, which has ended; its idempotency key is the same in each store."""
    kernel = store.kernel
    created = await kernel.dispatch(CreateRun("flow", given, idempotency_key="the same"))
    await kernel.dispatch(SignalStep(created.run_id, "work", "approval", payload="ok: "))
    run = await drive_run(kernel, created.run_id, timeout="60s")
    assert (run.status, run.output) == (Status.COMPLETED, f"ok: {given}{given}")
    while (await kernel.dispatch(FlushOutbox())).published:
        pass
    return created.run_id


@pytest.mark.guarantee("sql.stores-side-by-side")
@every_driver
async def test_stores_live_side_by_side_in_one_database(way: str, url: str) -> None:
    async with opened_stores(url, STORES[way]) as stores:
        run_ids = {}
        for number, store in enumerate(stores):
            await store.kernel.dispatch(CreateRun("flow", "waits", priority=number))
        for number, store in enumerate(stores):
            # What the others have waiting is neither claimed nor delivered here.
            [waiting] = (await store.kernel.runs.list()).items
            assert waiting.priority == number
            [claimed] = (await store.kernel.dispatch(ClaimPendingRuns("worker", max_claims=9))).claimed
            [job] = (await store.kernel.dispatch(ClaimJobs("worker", limit=9))).jobs
            assert waiting.id == claimed.run_id == job.run_id
            await run_job(store.kernel, job)
            run_ids[number] = await carried_through(store, f"in {number}, and not inline")
        for number, store in enumerate(stores):
            listed = (await store.kernel.runs.list()).items
            assert len(listed) == 2
            assert run_ids[number] in {run.id for run in listed}
            assert {event.run_id for event in store.sink.events} == {run.id for run in listed}
            assert not {run_ids[other] for other in run_ids if other != number} & {run.id for run in listed}
            await assert_consistent(store.kernel)
        soon = datetime.now(UTC) + timedelta(hours=1)
        for purged in range(len(stores)):
            assert (await stores[purged].kernel.dispatch(PurgeRuns(older_than=soon))).purged == 1
            for number, store in enumerate(stores):
                assert len((await store.kernel.runs.list()).items) == (1 if number <= purged else 2)


@every_driver
async def test_each_store_is_upgraded_and_checked_by_itself(way: str, url: str) -> None:
    engines = [create_engine(url, **names) for names in STORES[way]]
    for number, engine in enumerate(engines):
        assert [await schema.current(one) for one in engines] == [HEAD] * number + [None] * (
            len(engines) - number
        )
        with pytest.raises(SchemaMissingError) as refused:
            await schema.check(engine)
        for name, value in STORES[way][number].items():
            assert f"{name}={value}" in str(refused.value)
        assert (await schema.upgrade(engine)).before is None
        await schema.check(engine)
        assert (await schema.upgrade(engine)).before == HEAD
    for engine in engines:
        await engine.dispose()


@every_driver
async def test_waiting_hosts_are_woken_by_their_own_store_alone(
    way: str, url: str, open_database: Callable[..., Database], eventually: Callable[..., Any]
) -> None:
    here, other = STORES[way][:2]
    for names in (here, other):
        await schema.upgrade(open_database(url, **names).engine)
    waiting = open_database(url, **here)
    await SqlAlchemyPersistence(waiting).wait_for_work(LONG)
    await eventually(lambda: waiting.listener.is_healthy)
    listening = open_database(url, **other)
    beside = SqlAlchemyPersistence(listening)
    await beside.wait_for_work(LONG)
    before = waiting.work.told
    heard = asyncio.create_task(beside.wait_for_work(LONG))
    await SqlAlchemyPersistence(open_database(url, **other)).notify("runs")
    assert await heard
    # What came first is heard first, so nothing of the other's is still to come with this.
    await SqlAlchemyPersistence(open_database(url, **here)).notify("runs")
    await eventually(lambda: waiting.work.told > before)
    assert waiting.work.told == before + 1
    assert not await beside.wait_for_work(SHORT)


@asynccontextmanager
async def a_login(url: str) -> AsyncIterator[tuple[str, str, AsyncConnection]]:
    """A role that is nobody else's, the database's URL for it, and a connection of one that may do all."""
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        # Roles are those of the whole server.
        role = f"role_{uuid.uuid4().hex[:12]}"
        await connection.execute(text(f"CREATE ROLE {role} LOGIN"))
        scheme, _, rest = url.partition("://")
        yield role, f"{scheme}://{role}@{rest.rpartition('@')[2]}", connection
        await connection.execute(text(f"DROP OWNED BY {role}"))
        await connection.execute(text(f"DROP ROLE {role}"))
    await engine.dispose()


@pytest.mark.guarantee("sql.schema-needs-no-search-path")
@on_postgresql
@pytest.mark.parametrize(
    "path",
    [
        "nowhere",
        pytest.param("", marks=pytest.mark.wide),
        pytest.param("pg_catalog", marks=pytest.mark.wide),
    ],
)
async def test_a_search_path_changes_nothing_and_is_not_changed(url: str, path: str) -> None:
    async with a_login(url) as (role, of_role, connection):
        await connection.execute(text(f"CREATE SCHEMA app AUTHORIZATION {role}"))
        if path:
            await connection.execute(text(f"ALTER ROLE {role} SET search_path = {path}"))
        async with opened_stores(of_role, [{"schema": "app", "table_prefix": "x_"}]) as [store]:
            await carried_through(store, "far from any path")
            database = store.kernel.ports.persistence
            assert isinstance(database, SqlAlchemyPersistence)
            async with database.database.engine.connect() as pooled:
                shown = (await pooled.execute(text("SHOW search_path"))).scalar_one()
            assert shown == (path or '"$user", public')


@pytest.mark.parametrize("way", ["asyncpg through pgbouncer"], indirect=True)
async def test_a_schema_is_used_through_a_pooler(
    request: pytest.FixtureRequest, way: str, new_database: NewDatabase
) -> None:
    url = str(request.getfixturevalue("pgbouncer_url")).replace("postgresql", "postgresql+asyncpg")
    async with opened_stores(url, [{"schema": "app", "table_prefix": "x_"}, {"schema": "order"}]) as stores:
        for store in stores:
            await carried_through(store, "through a pooler")
            await assert_consistent(store.kernel)


@on_postgresql
async def test_a_schema_that_may_not_be_made_is_told_and_one_that_is_there_is_used(url: str) -> None:
    names: dict[str, Any] = {"schema": "app", "table_prefix": "x_"}
    async with a_login(url) as (role, of_role, connection):
        engine = create_engine(of_role, **names)
        with pytest.raises(DatabaseUnusableError, match="no schema 'app', and this login may not make one"):
            await schema.upgrade(engine)
        await connection.execute(text("CREATE SCHEMA app"))
        with pytest.raises(DatabaseUnusableError, match="permission denied for schema app"):
            await schema.check(engine)
        await connection.execute(text(f"GRANT ALL ON SCHEMA app TO {role}"))
        assert (await schema.upgrade(engine)).after == HEAD
        await engine.dispose()


@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)
async def test_stores_that_begin_at_once_make_their_schema_once(url: str) -> None:
    engines = [create_engine(url, schema="app", table_prefix=f"x{number}_") for number in range(4)]
    done = await asyncio.gather(*(schema.upgrade(engine) for engine in engines))
    assert [(one.before, one.after) for one in done] == [(None, HEAD)] * 4
    for engine in engines:
        await schema.check(engine)
        await engine.dispose()


@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)
async def test_an_upgrade_does_not_wait_for_that_of_another_store(url: str) -> None:
    plain = create_engine(url)
    async with plain.begin() as connection:
        await connection.execute(
            text("SELECT pg_advisory_xact_lock(:key)"), {"key": Names("app").schema_lock}
        )
        async with asyncio.timeout(20):
            others: list[dict[str, Any]] = [{}, {"table_prefix": "x_"}, {"schema": "other"}]
            for names in others:
                engine = create_engine(url, **names)
                await schema.upgrade(engine)
                await engine.dispose()
    await plain.dispose()


@pytest.mark.parametrize(
    ("way", "driver", "names"),
    [
        ("asyncpg", "psycopg", {"schema": "app", "table_prefix": "x_"}),
        ("asyncpg", "asyncpg", {"schema": "app", "table_prefix": "x_"}),
        pytest.param("psycopg", "asyncpg", {"schema": "app", "table_prefix": "x_"}, marks=pytest.mark.wide),
        ("sqlite", "aiosqlite", {"table_prefix": "x_"}),
    ],
    indirect=["way"],
    ids=str,
)
async def test_callers_sessions_know_nothing_of_the_names(
    url: str, driver: str, names: dict[str, Any]
) -> None:
    # An engine that was given no names, as the caller's own is.
    engine = create_engine(f"{url.partition(':')[0].partition('+')[0]}+{driver}:{url.partition(':')[2]}")
    async with opened_stores(url, [names]) as [store]:
        async with AsyncSession(engine) as session, session.begin():
            bound = store.kernel.using(session)
            kept = await bound.dispatch(CreateRun("flow", "kept", idempotency_key="one"))
            again = await bound.dispatch(CreateRun("flow", "kept", idempotency_key="one"))
            assert again.run_id == kept.run_id
            assert (await bound.runs.get(kept.run_id)) is not None
            # A savepoint, a caller's own statement, and what of the engine's comes after it.
            async with session.begin_nested():
                await session.execute(text("SELECT 1"))
            await bound.dispatch(SignalStep(kept.run_id, "work", "approval", payload="early: "))
        async with AsyncSession(engine) as session:
            await store.kernel.using(session).dispatch(CreateRun("flow", "left", idempotency_key="two"))
            await session.rollback()
        [listed] = (await store.kernel.runs.list()).items
        assert listed.id == kept.run_id
        done = await drive_run(store.kernel, kept.run_id, timeout="60s")
        assert done.output == "early: keptkept"
    await engine.dispose()


@on_postgresql
async def test_sql_enqueues_runs_into_the_store_whose_function_it_calls(
    way: str, url: str, open_database: Callable[..., Database], eventually: Callable[..., Any]
) -> None:
    names, others = {"schema": "app", "table_prefix": "x_"}, {"schema": "app"}
    plain = url.replace(f"+{way}", "")
    async with opened_stores(url, [names, others]) as [store, other]:
        waiting = open_database(url, **names)
        await SqlAlchemyPersistence(waiting).wait_for_work(LONG)
        before = waiting.work.told
        call = "SELECT app.x_stagewright_enqueue('key', 'flow', NULL, %s::jsonb)"
        async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
            ids = [
                await (await connection.execute(call, [json.dumps("from sql")])).fetchone() for _ in range(2)
            ]
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="must have 1 to 255"):
                await connection.execute(call.replace("'key'", "''").encode(), ["1"])
        assert ids[0] is not None
        assert ids[0] == ids[1]
        await eventually(lambda: waiting.work.told > before)
        assert waiting.work.told == before + 1
        assert (await other.kernel.runs.list()).items == ()
        await store.kernel.dispatch(SignalStep(ids[0][0], "work", "approval", payload="yes: "))
        run = await drive_run(store.kernel, ids[0][0], timeout="60s")
        assert run.output == "yes: from sqlfrom sql"
        await assert_consistent(store.kernel)
