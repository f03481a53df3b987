"""A database with the rows of a busy year: some real runs in every state, and thousands of copies of each."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, Text, func, literal, literal_column, select, text

from stagewright import Kernel, StageContext, Workflow, WorkflowRegistry, define_stage, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    FlushOutbox,
)
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
    create_engine,
)
from stagewright_persistence_sqlalchemy.column_types import Moment
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

TEMPLATES = 40
COPIES = 5_000
"""So many of each run, which makes 200,000."""

FULL_TABLES: Sequence[Table] = (
    PLAIN_TABLES.runs,
    PLAIN_TABLES.stages,
    PLAIN_TABLES.steps,
    PLAIN_TABLES.jobs,
    PLAIN_TABLES.outbox,
    PLAIN_TABLES.logs,
    PLAIN_TABLES.annotations,
    PLAIN_TABLES.idempotency_keys,
)
_OF_A_RUN = {"id", "run_id", "stage_record_id", "key", "owner_job_id"}
_SHARED_KEYS = {(PLAIN_TABLES.annotations.name, "key")}


def flows() -> list[Workflow]:
    """A workflow of two stages that does, fails or waits as its input says, and one like it."""

    async def first(ctx: StageContext[Any]) -> Any:
        await ctx.step.run("look", _look)
        ctx.annotate("seen", ctx.input)
        ctx.annotate("seen.by", "first")
        if ctx.input == "fail":
            raise RuntimeError("no")
        if ctx.input in ("1h", "1ms"):
            await ctx.step.sleep("wait", ctx.input)
        return ctx.input

    async def second(ctx: StageContext[Any]) -> Any:
        ctx.log("info", "done", input=ctx.input)
        return ctx.input

    def flow(id: str) -> Workflow:
        stages = [
            define_stage(name, body, input=Any, output=Any) for name, body in (("a", first), ("b", second))
        ]
        return define_workflow(id, input=Any).pipe(stages[0]).pipe(stages[1]).build()

    return [flow("orders"), flow("refunds")]


async def _look() -> str:
    return "seen"


def kernel_over(database: Database, **options: Any) -> Kernel:
    """A kernel whose ports are all in that database."""
    return Kernel(
        persistence=SqlAlchemyPersistence(database),
        blob_store=SqlAlchemyBlobStore(database),
        job_transport=SqlAlchemyJobTransport(database),
        step_ledger=SqlAlchemyStepLedger(database),
        event_sink=CollectingEventSink(),
        run_reader=SqlAlchemyPersistence(database),
        clock=database.clock,
        registry=WorkflowRegistry(flows()),
        **options,
    )


def fill(url: str) -> None:
    """Make the tables and all those rows."""
    asyncio.run(_fill(url))


async def _fill(url: str) -> None:
    database = Database(create_engine(url))
    try:
        async with database.engine.begin() as connection:
            await connection.run_sync(PLAIN_TABLES.metadata.create_all)
        await _make_templates(kernel_over(database))
        async with database.engine.begin() as connection:
            await connection.run_sync(_multiply)
        if database.engine.dialect.name != "sqlite":
            # A server does it by itself after a while, SQLite only when somebody asks.
            is_mariadb = database.engine.dialect.name == "mariadb"
            names = ", ".join(table.name for table in FULL_TABLES)
            async with database.engine.connect() as connection:
                plain = await connection.execution_options(isolation_level="AUTOCOMMIT")
                await plain.execute(text(f"ANALYZE TABLE {names}" if is_mariadb else "ANALYZE"))
    finally:
        await database.close()


async def _make_templates(kernel: Kernel) -> None:
    made = 0

    async def create(value: str, count: int) -> list[str]:
        nonlocal made
        created = []
        for _ in range(count):
            made += 1
            workflow_id = "orders" if made % 2 else "refunds"
            command = CreateRun(workflow_id, value, idempotency_key=f"order-{made}")
            created.append((await kernel.dispatch(command)).run_id)
        return created

    for run_id in await create("well", 22) + await create("fail", 4):
        await drive_run(kernel, run_id)
    for run_id in await create("well", 2):
        await kernel.dispatch(CancelRun(run_id, reason="not wanted"))
    await create("1h", 2)
    await create("1ms", 2)
    await kernel.dispatch(ClaimPendingRuns("filler", max_claims=4))
    for job in (await kernel.dispatch(ClaimJobs("filler", limit=4))).jobs:
        await run_job(kernel, job)
    while (await kernel.dispatch(FlushOutbox())).published:
        pass
    await create("well", 4)
    await kernel.dispatch(ClaimPendingRuns("filler", max_claims=4))
    await kernel.dispatch(ClaimJobs("filler", limit=2))
    await create("well", TEMPLATES - made)


def _multiply(connection: Connection) -> None:
    numbers = "generate_series(1, :copies)"
    if connection.dialect.name == "sqlite":
        numbers = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :copies) SELECT i FROM n)"
    elif connection.dialect.name == "mariadb":
        numbers = f"(SELECT seq FROM seq_1_to_{COPIES - 1})"
    connection.execute(text("CREATE TEMPORARY TABLE copies (number integer)"))
    counted = text(f"INSERT INTO copies SELECT * FROM {numbers} AS n")
    connection.execute(counted, {"copies": COPIES - 1} if ":copies" in numbers else {})
    number: ColumnElement[Any] = _joined(connection.dialect.name, literal("x", Text()), text("copies.number"))
    for table in FULL_TABLES:
        columns = [column for column in table.c if column.name != "position"]
        values = [_copied(table, column, number, connection.dialect.name) for column in columns]
        source = select(*values).select_from(table, text("copies"))
        connection.execute(table.insert().from_select([column.name for column in columns], source))


def _copied(table: Table, column: Any, number: Any, dialect: str) -> Any:
    if column.name in _OF_A_RUN and (table.name, column.name) not in _SHARED_KEYS:
        return _joined(dialect, column, number)
    if isinstance(column.type, Moment):
        if dialect == "sqlite":
            back = text("'-' || copies.number || ' minutes'")
            moved = func.strftime("%Y-%m-%dT%H:%M:%f", column, back)
            return moved.op("||")(literal("000+00:00", Text()))
        if dialect == "mariadb":
            return func.timestampadd(literal_column("MINUTE"), text("-copies.number"), column)
        return column - text("copies.number * interval '1 minute'")
    return column


def _joined(dialect: str, first: Any, second: Any) -> ColumnElement[Any]:
    # To MariaDB two bars are an "or".
    joined: ColumnElement[Any] = (
        func.concat(first, second) if dialect == "mariadb" else first.op("||")(second)
    )
    return joined
