"""SQL creates runs by itself: what `stagewright_enqueue` writes is what the kernel writes."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import psycopg
import pytest
import pytest_asyncio
from psycopg.rows import DictRow, dict_row
from pydantic import BaseModel
from sqlalchemy import make_url

from stagewright import Kernel, StageContext, Status, Workflow, define_stage, define_workflow, open_kernel
from stagewright.commands import CancelRun, CreateRun, FlushOutbox, RedriveRun, Start
from stagewright.errors import IdempotencyKeyReusedError
from stagewright.hosting import drive_run
from stagewright.records import RunRecord
from stagewright.testing import CollectingEventSink, assert_consistent
from stagewright_host_node import NodeHost
from stagewright_persistence_sqlalchemy import create_engine, schema

Sql: TypeAlias = psycopg.Connection[DictRow]

pytestmark = pytest.mark.parametrize("way", ["asyncpg"], indirect=True)

EACH_ITS_OWN = {
    "id",
    "run_id",
    "created_at",
    "updated_at",
    "acquired_at",
    "occurred_at",
    "causation_id",
    "key",
}
EACH_ITS_OWN |= {"fingerprint"}


class Greeting(BaseModel):
    words: str = "hello"


async def greet(ctx: StageContext[dict[str, Any], Greeting]) -> Any:
    return f"{ctx.config.words}, {ctx.input['name']}"


def orders() -> Workflow:
    stage = define_stage("greet", greet, input=dict[str, Any], output=Any, config=Greeting)
    return define_workflow("orders", name="Orders", input=dict[str, Any]).pipe(stage).build()


@pytest_asyncio.fixture
async def kernel(url: str, sink: CollectingEventSink) -> AsyncIterator[Kernel]:
    engine = create_engine(url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        await connection.exec_driver_sql("CREATE SCHEMA public")
    await engine.dispose()
    async with open_kernel([orders()], url, event_sink=sink, create_schema=True) as kernel:
        yield kernel
        await assert_consistent(kernel)


@pytest.fixture
def sql(kernel: Kernel, postgres_url: str) -> Iterator[Sql]:
    with psycopg.Connection[DictRow].connect(
        postgres_url, autocommit=True, row_factory=dict_row
    ) as connection:
        yield connection


def enqueue(sql: Sql, key: str | None = "order-1", **given: Any) -> Any:
    """Call the function with arguments by name."""
    named = {"idempotency_key": key, "workflow_id": "orders", "workflow_name": "Orders"}
    named |= {"input": json.dumps({"name": "Ada"})} | given
    arguments = ", ".join(f"{name} => %({name})s" for name in named)
    row = sql.execute(f"SELECT stagewright_enqueue({arguments}) AS id".encode(), named).fetchone()
    assert row is not None
    return row["id"]


async def ended(kernel: Kernel, run_id: str) -> RunRecord:
    await drive_run(kernel, run_id)
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


def rows_of(sql: Sql, run_id: str) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for table, column in (
        ("workflow_runs", "id"),
        ("outbox_events", "run_id"),
        ("idempotency_keys", "run_id"),
    ):
        rows = sql.execute(f"SELECT * FROM {table} WHERE {column} = %s".encode(), [run_id]).fetchall()
        found[table] = [
            {name: _read(value) for name, value in row.items() if name not in EACH_ITS_OWN} for row in rows
        ]
    return found


def _read(value: Any) -> Any:
    """JSON is text, whose spaces say nothing; ids are another each time."""
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
    return {**read, "run_id": ""} if isinstance(read, dict) and "run_id" in read else read


@pytest.mark.guarantee("sql.runs-are-enqueued-from-sql")
async def test_its_rows_are_those_of_the_kernel(kernel: Kernel, sql: Sql, sink: CollectingEventSink) -> None:
    input = {"name": "Ada", "price": 1.5, "many": [1, 2, None, True], "odd": "ö☃"}
    command = CreateRun("orders", input, priority=7, idempotency_key="by the kernel")
    created = await kernel.dispatch(command)
    version = created.definition_version
    run_id = enqueue(
        sql,
        "by sql",
        input=json.dumps(input),
        config=json.dumps({"greet": {"words": "hello"}}),
        priority=7,
        definition_version=version,
    )
    assert rows_of(sql, run_id) == rows_of(sql, created.run_id)
    assert sorted([created.run_id, run_id]) == [created.run_id, run_id], "ids rise with the time"
    first, second = await ended(kernel, created.run_id), await ended(kernel, run_id)
    assert first.output == second.output == "hello, Ada"
    while (await kernel.dispatch(FlushOutbox())).published:
        pass
    told = [[event.type for event in sink.events if event.run_id == id] for id in (created.run_id, run_id)]
    assert told[0] == told[1]
    assert told[0][0] == "workflow:created"


async def test_without_a_version_it_is_done_by_whoever_serves_the_workflow(kernel: Kernel, sql: Sql) -> None:
    run_id = enqueue(sql, config=json.dumps({"greet": {"words": "good day"}}))
    run = await ended(kernel, run_id)
    assert (run.status, run.output, run.definition_version) == (Status.COMPLETED, "good day, Ada", None)
    assert run.workflow_name == "Orders"
    await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert (await ended(kernel, run_id)).status is Status.COMPLETED


async def test_input_that_does_not_fit_fails_at_the_first_stage(kernel: Kernel, sql: Sql) -> None:
    run = await ended(kernel, enqueue(sql, input="[]"))
    assert run.status is Status.FAILED
    assert run.error is not None
    assert "input" in run.error.message


@pytest.mark.guarantee("sql.runs-are-enqueued-from-sql")
async def test_a_trigger_creates_a_run_with_its_row_or_neither(kernel: Kernel, sql: Sql) -> None:
    sql.execute("CREATE SCHEMA shop")
    sql.execute("CREATE TABLE shop.sold (id int PRIMARY KEY, name text NOT NULL)")
    sql.execute(
        """
        CREATE FUNCTION shop.on_sold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM public.stagewright_enqueue(
                'sold-' || NEW.id, 'orders', 'Orders', jsonb_build_object('name', NEW.name)
            );
            RETURN NEW;
        END $$
        """
    )
    sql.execute(
        "CREATE TRIGGER on_sold AFTER INSERT ON shop.sold FOR EACH ROW EXECUTE FUNCTION shop.on_sold()"
    )
    # Neither the caller's search path nor its time zone has a part in it.
    sql.execute("SET search_path = shop")
    sql.execute("SET TIME ZONE 'Asia/Kathmandu'")
    with sql.transaction(force_rollback=True):
        sql.execute("INSERT INTO sold VALUES (1, 'nobody')")
        assert (await kernel.runs.list()).items == ()
    assert (await kernel.runs.list()).items == ()
    with sql.transaction():
        sql.execute("INSERT INTO sold VALUES (1, 'Grace'), (2, 'Barbara')")
    runs = (await kernel.runs.list()).items
    outputs = [(await ended(kernel, run.id)).output for run in runs]
    assert sorted(map(str, outputs)) == ["hello, Barbara", "hello, Grace"]
    assert all(run.created_at == run.updated_at for run in runs)
    assert max(abs((kernel.ports.clock.now() - run.created_at).total_seconds()) for run in runs) < 3600


@pytest.mark.guarantee("sql.runs-are-enqueued-from-sql")
async def test_a_key_has_one_run_whoever_comes_first(kernel: Kernel, sql: Sql) -> None:
    by_sql = enqueue(sql, "order-1")
    assert enqueue(sql, "order-1") == by_sql
    answer = await kernel.dispatch(CreateRun("orders", {"name": "Ada"}, idempotency_key="order-1"))
    assert (answer.run_id, answer.status, answer.definition_version) == (by_sql, Status.PENDING, None)
    created = await kernel.dispatch(CreateRun("orders", {"name": "Ada"}, idempotency_key="order-2"))
    assert enqueue(sql, "order-2") == created.run_id
    assert len((await kernel.runs.list()).items) == 2


async def test_a_key_of_another_workflow_is_refused_both_ways(kernel: Kernel, sql: Sql) -> None:
    enqueue(sql, "order-1", workflow_id="refunds")
    with pytest.raises(IdempotencyKeyReusedError):
        await kernel.dispatch(CreateRun("orders", {"name": "Ada"}, idempotency_key="order-1"))
    await kernel.dispatch(CreateRun("orders", {"name": "Ada"}, idempotency_key="order-2"))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="'order-2' was used for .* 'orders'"):
        enqueue(sql, "order-2", workflow_id="refunds")


async def test_callers_at_once_agree_on_one_run(kernel: Kernel, sql: Sql, postgres_url: str) -> None:
    def call(_: int) -> str:
        with psycopg.Connection[DictRow].connect(postgres_url, row_factory=dict_row) as connection:
            return str(enqueue(connection, "same"))

    with ThreadPoolExecutor(8) as pool:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(pool, call, number) for number in range(16)]
        by_kernel = asyncio.create_task(
            kernel.dispatch(CreateRun("orders", {"name": "Ada"}, idempotency_key="same"))
        )
        ids = [*await asyncio.gather(*calls), (await by_kernel).run_id]
    assert len(set(ids)) == 1
    assert len((await kernel.runs.list()).items) == 1


async def test_a_key_that_a_command_has_taken_and_not_completed_is_refused(kernel: Kernel, sql: Sql) -> None:
    sql.execute(
        "INSERT INTO idempotency_keys (key, command_type, fingerprint, acquired_at, completed, result)"
        " VALUES ('held', 'run.create', '', now(), false, 'null')"
    )
    with pytest.raises(psycopg.errors.ObjectInUse, match="'held' is in use"):
        enqueue(sql, "held")


BAD: dict[str, dict[str, Any]] = {
    "idempotency_key must have": {"key": None},
    "idempotency_key must have 1": {"key": ""},
    "idempotency_key must have 1 to": {"key": "k" * 256},
    "workflow_id must have": {"workflow_id": None},
    "workflow_id must have 1": {"workflow_id": ""},
    "input must not be NULL": {"input": None},
    "config must be an object": {"config": "[]"},
    "config must be an object of": {"config": None},
    "priority must be from": {"priority": 32_768},
    "priority must be": {"priority": None},
    "has no version '9'": {"definition_version": "9"},
}


@pytest.mark.parametrize("message", sorted(BAD))
async def test_what_is_wrong_is_refused_and_nothing_is_left(kernel: Kernel, sql: Sql, message: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message) as raised:
        enqueue(sql, **BAD[message])
    assert "\n" not in str(raised.value.diag.message_primary)
    assert (await kernel.runs.list()).items == ()
    assert sql.execute("SELECT * FROM idempotency_keys").fetchall() == []
    assert enqueue(sql)


async def test_the_smallest_call_and_a_cancelled_run(kernel: Kernel, sql: Sql) -> None:
    row = sql.execute(
        """SELECT stagewright_enqueue('k', 'orders', NULL, '{"name": "Ada"}') AS id"""
    ).fetchone()
    assert row is not None
    run = await kernel.runs.get(row["id"])
    assert run is not None
    assert (run.workflow_name, run.priority, run.config) == ("orders", 5, {})
    assert (await kernel.dispatch(CancelRun(row["id"]))).cancelled


@pytest.mark.guarantee("sql.runs-are-enqueued-from-sql")
async def test_a_role_with_a_store_of_its_own_enqueues_where_the_function_is(
    way: str, new_database: Callable[[str], str]
) -> None:
    """Each role's tables are in the schema that has its name, which is where the usual search path begins."""
    place = make_url(new_database(way)).set(drivername="postgresql")
    roles = [f"role_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    owner, other = (place.set(username=role).render_as_string(hide_password=False) for role in roles)
    with psycopg.connect(place.render_as_string(hide_password=False), autocommit=True) as connection:
        for role in roles:
            connection.execute(f"CREATE ROLE {role} LOGIN".encode())
            connection.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}".encode())
        try:
            for of_role in (owner, other):
                engine = create_engine(of_role)
                await schema.upgrade(engine)
                await engine.dispose()
            connection.execute(f"GRANT USAGE ON SCHEMA {roles[0]} TO {roles[1]}".encode())
            connection.execute(
                f"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {roles[0]} TO {roles[1]}".encode()
            )
            with psycopg.connect(other) as caller:
                call = f"SELECT {roles[0]}.stagewright_enqueue('k', 'orders', NULL, '1'::jsonb)"
                told = caller.execute(call.encode()).fetchone()
            assert told is not None
            for role, expected in zip(roles, ([told], []), strict=True):
                found = connection.execute(f"SELECT id FROM {role}.workflow_runs".encode()).fetchall()
                assert found == expected
        finally:
            for role in reversed(roles):
                connection.execute(f"DROP OWNED BY {role} CASCADE".encode())
                connection.execute(f"DROP ROLE {role}".encode())


@pytest.mark.guarantee("sql.runs-are-enqueued-from-sql")
async def test_an_idle_worker_is_woken(kernel: Kernel, sql: Sql) -> None:
    slow: dict[str, Any] = {"orchestration_interval": "10m", "poll_interval": "10m", "handle_signals": False}
    async with NodeHost(kernel, **slow), asyncio.timeout(60):
        for key in ("while it starts", "once it is idle"):
            run_id = enqueue(sql, key)
            while (await kernel.ports.persistence.get_run_status(run_id)) is not Status.COMPLETED:
                await asyncio.sleep(0.01)
