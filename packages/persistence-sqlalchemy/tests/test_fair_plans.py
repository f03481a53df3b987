"""With 131,072 jobs of a tenant at its cap ahead, a fair claim reads what it gives and little more."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from psycopg import sql
from sqlalchemy import Executable, text

from stagewright.records import Fairness, NewJob, ServedDefinition
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport
from stagewright_persistence_sqlalchemy.dialect import SQLITE, DatabaseKind
from stagewright_persistence_sqlalchemy.prepared_statements import PreparedStatements
from stagewright_persistence_sqlalchemy.statements import claims, fair_claims
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

pytestmark = pytest.mark.plans

DOUBLINGS = 17
QUIET = 50
CAP = 3
LIMIT = 4
MOST_ROWS = 1_000
MOST_STEPS = 100_000
"""Of SQLite's virtual machine; to pass over one row takes about ten."""

COLUMNS = (
    "stage_id, workflow_id, payload, priority, status, deliveries, failures, worker_losses, interruptions,"
    " max_attempts, max_worker_losses, created_at, updated_at, group_key"
)
PARAMETERS: Mapping[str, Any] = {
    "cap": CAP,
    "limit": LIMIT,
    "front": LIMIT + 64,
    "by_worker": "w",
    "now": None,
    "groups": [f"tenant {number}" for number in range(LIMIT)],
    "group_key": "tenant 0",
    "room": CAP,
}


def job_of(group: str, number: int) -> NewJob:
    name = f"{group}-{number}"
    return NewJob(id=name, run_id=name, workflow_id="flow", stage_id="s", group_key=group)


@pytest_asyncio.fixture
async def long_queue(database: Database) -> SqlAlchemyJobTransport:
    """A tenant at its cap with most of the jobs, and others that come after all of them."""
    transport = SqlAlchemyJobTransport(database, fairness=Fairness(max_concurrent_per_group=CAP))
    await transport.enqueue_parallel([job_of("noisy", number) for number in range(CAP + 1)])
    assert len(await transport.dequeue(worker_id="w", limit=9)) == CAP
    async with database.engine.begin() as connection:
        for number in range(DOUBLINGS):
            more = f"SELECT '{number}.' || id, '{number}.' || run_id, {COLUMNS} FROM job_queue WHERE status = 'PENDING'"
            await connection.execute(text(f"INSERT INTO job_queue (id, run_id, {COLUMNS}) {more}"))
    await transport.enqueue_parallel(
        [job_of(f"tenant {number}", n) for n in range(2) for number in range(QUIET)]
    )
    if database.kind is not SQLITE:
        async with database.engine.connect() as connection:
            plain = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await plain.execute(text("ANALYZE job_queue"))
    return transport


def statements_of(kind: DatabaseKind, pairs: int | None) -> list[Executable]:
    found = fair_claims.claimable_groups(PLAIN_TABLES, kind, pairs)
    if kind is SQLITE:
        return [found, fair_claims.next_of_group(PLAIN_TABLES, kind, pairs)]
    return [found, fair_claims.deliver_from_groups(PLAIN_TABLES, kind, pairs)]


async def rows_read(
    database: Database, statement: Executable, parameters: Mapping[str, Any], plans: str
) -> int:
    """How many jobs PostgreSQL has read for a statement, planned for these parameters or for any."""
    prepared = PreparedStatements(database.engine.dialect).of(statement)
    given = ", ".join(sql.Literal(value).as_string() for value in prepared.arguments(parameters))
    async with database.engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await driver.execute(f"SET plan_cache_mode = force_{plans}_plan")
        await driver.execute(f"PREPARE asked AS {prepared.sql}")
        # What it changes and locks is undone.
        await driver.execute("BEGIN")
        try:
            explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE asked({given})"
            ((answer,),) = await driver.fetch(explain)
        finally:
            await driver.execute("ROLLBACK")
            await driver.execute("DEALLOCATE asked")
            await driver.execute("RESET plan_cache_mode")
    nodes = list(_nodes((answer if isinstance(answer, list) else json.loads(answer))[0]["Plan"]))
    assert not any(node["Node Type"] == "Seq Scan" for node in nodes)
    return int(sum(_read_by(node) for node in nodes if node.get("Relation Name") == "job_queue"))


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _read_by(node: Mapping[str, Any]) -> float:
    removed = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck"))
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


async def steps_taken(database: Database, statement: Executable, parameters: Mapping[str, Any]) -> int:
    """How many steps SQLite has taken for a statement, in hundreds."""
    prepared = PreparedStatements(database.engine.dialect).of(statement)
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 100
        return 0

    async with database.engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await driver.set_progress_handler(count, 100)
        try:
            await driver.execute_fetchall(prepared.sql, prepared.arguments(parameters))
        finally:
            await driver.set_progress_handler(None, 0)
    return taken


@pytest.mark.guarantee("sql.fair-claims-read-no-deep-queue")
@pytest.mark.parametrize("pairs", [None, 2])
async def test_a_fair_claim_reads_no_deep_queue(
    database: Database, long_queue: SqlAlchemyJobTransport, pairs: int | None
) -> None:
    parameters = dict(PARAMETERS) | {"now": database.clock.now()}
    served = [("flow", "v1"), ("other", "v1")]
    parameters |= {} if pairs is None else claims.serves_parameters(served)
    for statement in statements_of(database.kind, pairs):
        if database.kind is SQLITE:
            assert await steps_taken(database, statement, parameters) < MOST_STEPS
        else:
            for plans in ("custom", "generic"):
                assert await rows_read(database, statement, parameters, plans) < MOST_ROWS
    serves = None if pairs is None else [ServedDefinition(*pair) for pair in served]
    taken = await long_queue.dequeue(worker_id="w", serves=serves, limit=LIMIT)
    assert [job.job_id for job in taken] == [f"tenant {number}-0" for number in range(LIMIT)]
