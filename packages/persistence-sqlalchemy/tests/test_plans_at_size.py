"""With 200,000 runs, what is asked all the time reads no table from end to end, and sorts nothing that is long.

Where that isn't so yet is declared.
"""

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from full_database import FULL_TABLES, fill, kernel_over
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from stagewright import Kernel, Status
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    FlushOutbox,
    ListVersions,
    PollSuspendedStages,
    PurgeRuns,
    ReapStaleLeases,
)
from stagewright_persistence_sqlalchemy import Database, create_engine
from stagewright_persistence_sqlalchemy.mariadb_sessions import sqlalchemy_sessions

pytestmark = pytest.mark.plans

FULL = {table.name for table in FULL_TABLES}
PAGE = 20
MOST_SORTED = 500
MOST_PASSED_OVER = 2_000

Ask = Callable[[Kernel], Awaitable[object]]


async def a_page_of_runs(kernel: Kernel, **filters: Any) -> None:
    """The first page, and one in the middle."""
    page = await kernel.runs.list(limit=PAGE, **filters)
    assert len(page.items) == PAGE
    half = (
        await kernel.runs.list(limit=PAGE, created_to=page.items[0].created_at - timedelta(days=1))
    ).next_cursor
    assert len((await kernel.runs.list(limit=PAGE, cursor=half, **filters)).items) == PAGE


async def two_pages_of_stuck_runs(kernel: Kernel) -> None:
    """What a sweep asks for, page by page, while half of the runs that are RUNNING wait for their time."""
    before = datetime.now(UTC) - timedelta(minutes=10)
    page = await kernel.ports.persistence.get_stuck_runs(before, limit=PAGE)
    assert len(page) == PAGE
    await kernel.ports.persistence.get_stuck_runs(before, limit=PAGE, after=page[-1].id)


async def one_run(kernel: Kernel) -> None:
    (run,) = (await kernel.runs.list(limit=1, statuses=[Status.COMPLETED])).items
    assert await kernel.runs.stages(run.id)
    assert await kernel.runs.steps(run.id)
    assert (await kernel.runs.logs(run.id)).items
    assert await kernel.runs.events(run.id)
    assert await kernel.annotations.list(run.id, key_prefix="seen.")


ASKED: Mapping[str, Ask] = {
    "claim of runs": lambda kernel: kernel.dispatch(ClaimPendingRuns("w", max_claims=PAGE)),
    "dequeue": lambda kernel: kernel.dispatch(ClaimJobs("w", limit=PAGE)),
    "poll": lambda kernel: kernel.dispatch(PollSuspendedStages(max_checks=PAGE)),
    "flush": lambda kernel: kernel.dispatch(FlushOutbox(PAGE)),
    "lost leases": lambda kernel: kernel.dispatch(ReapStaleLeases("1h")),
    "create": lambda kernel: kernel.dispatch(CreateRun("orders", "well", idempotency_key="one more")),
    "runs, newest first": a_page_of_runs,
    "runs by status": lambda kernel: a_page_of_runs(kernel, statuses=[Status.FAILED]),
    "runs by several statuses": lambda kernel: a_page_of_runs(
        kernel, statuses=[Status.COMPLETED, Status.FAILED]
    ),
    "runs by several rare statuses": lambda kernel: a_page_of_runs(
        kernel, statuses=[Status.CANCELLED, Status.PENDING]
    ),
    "runs by workflow": lambda kernel: a_page_of_runs(kernel, workflow_id="orders"),
    "runs by workflow and status": lambda kernel: a_page_of_runs(
        kernel, workflow_id="orders", statuses=[Status.COMPLETED]
    ),
    "one run": one_run,
    "stuck runs": two_pages_of_stuck_runs,
    "purge": lambda kernel: kernel.dispatch(PurgeRuns(older_than=datetime.now(UTC), limit=PAGE)),
    "versions in use": lambda kernel: kernel.dispatch(ListVersions(only_active=True)),
}


_NO_END = (
    "runs that have ended at no known time are looked for among all that have no such time, the open ones"
)
_FROM_THE_TOP = "a page in the middle is counted to from the first one"
GAPS: Mapping[tuple[str, str], str] = {
    ("sqlite", "purge"): _NO_END,
    ("postgresql", "purge"): _NO_END,
    ("mariadb", "purge"): _NO_END,
    ("sqlite", "stuck runs"): "no index has the RUNNING runs by their ids, so each page sorts all of them",
    ("mariadb", "runs by several statuses"): _FROM_THE_TOP,
    ("mariadb", "runs by workflow"): _FROM_THE_TOP,
    ("mariadb", "runs by workflow and status"): _FROM_THE_TOP,
    ("mariadb", "versions in use"): "no index holds all that is added up",
}
"""What reads more than it gives, by database and question; one that doesn't any more has to go."""


@pytest.fixture(scope="module", params=["sqlite", "psycopg", "mariadb"])
def full_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("full")
        url = f"sqlite:///{folder / 'full.db'}"
    elif request.param == "mariadb":
        folder = Path()
        url = request.getfixturevalue("mariadb_url")
    else:
        folder = Path()
        plain: str = request.getfixturevalue("postgres_url")
        url = plain.replace("postgresql://", "postgresql+psycopg://")
    fill(url)
    yield url
    if request.param == "sqlite":
        shutil.rmtree(folder)


@asynccontextmanager
async def recorded(url: str) -> AsyncIterator[tuple[Database, list[tuple[str, Any]]]]:
    """A database, and each statement that is sent to it."""
    engine = create_engine(url)
    database = Database(engine, sessions=sqlalchemy_sessions(engine))
    sent: list[tuple[str, Any]] = []

    @event.listens_for(engine.sync_engine, "before_cursor_execute")
    def record(
        _connection: object, _cursor: object, statement: str, parameters: Any, _context: object, is_many: bool
    ) -> None:
        if statement.lstrip().split(" ")[0] in ("SELECT", "WITH", "UPDATE", "DELETE", "INSERT"):
            sent.append((statement, parameters[0] if is_many else parameters))

    try:
        yield database, sent
    finally:
        await database.close()


@pytest.mark.parametrize("name", sorted(ASKED))
async def test_a_hot_question_reads_what_it_gives_and_little_more(full_url: str, name: str) -> None:
    async with recorded(full_url) as (database, sent):
        await ASKED[name](kernel_over(database))
        questions = dict(sent)
        assert questions
        faults = []
        for statement, parameters in questions.items():
            async with database.engine.connect() as connection:
                await connection.begin()
                faults += [
                    f"{fault}\n  in {statement}"
                    for fault in await plan_faults(connection, statement, parameters)
                ]
                await connection.rollback()
    gap = GAPS.get((database.kind.name, name))
    if gap is not None:
        assert faults, f"it is no gap any more, that {gap}"
        return
    assert not faults, "\n".join(faults)


async def plan_faults(connection: AsyncConnection, statement: str, parameters: Any) -> list[str]:
    if connection.dialect.name == "sqlite":
        rows = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        steps = [(row.parent, str(row.detail)) for row in rows]
        return list(_faults_of_sqlite(steps))
    if connection.dialect.name == "mariadb":
        way = "EXPLAIN" if statement.startswith("INSERT") else "ANALYZE"
        told: Any = (
            await connection.exec_driver_sql(f"{way} FORMAT=JSON {statement}", parameters)
        ).scalar_one()
        return list(_faults_of_mariadb(json.loads(told)))
    # What inserts rows can't be done once more.
    way = "FORMAT JSON" if "INSERT INTO" in statement else "ANALYZE, TIMING OFF, FORMAT JSON"
    explain = f"EXPLAIN ({way}) {statement}"
    answer: Any = (await connection.exec_driver_sql(explain, parameters)).scalar_one()
    plan = answer if isinstance(answer, list) else json.loads(answer)
    return [fault for node in _nodes(plan[0]["Plan"]) for fault in _faults_of_node(node)]


def _faults_of_sqlite(steps: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Each step comes with the number of the one that it is a part of."""
    for whole, step in steps:
        if step.startswith("SCAN ") and " USING " not in step and step.split()[1] in FULL:
            yield step
        if "USE TEMP B-TREE FOR ORDER BY" in step:
            sorted_steps = [other for of, other in steps if of == whole and other.split()[1] in FULL]
            # A run has few stages, and what a part with a limit has given is short.
            if not any("(run_id=?" in other for other in sorted_steps):
                yield from (f"sorts what comes of: {other}" for other in sorted_steps)


def _faults_of_mariadb(plan: Any) -> Iterator[str]:  # Any: JSON, which nests what is done first
    if isinstance(plan, list):
        for part in plan:
            yield from _faults_of_mariadb(part)
    if not isinstance(plan, dict):
        return
    if plan.get("r_rows") is not None and plan.get("table_name") in FULL:
        looked_at = plan["r_rows"] * plan.get("r_loops", 1)
        passed_over = looked_at * (1 - plan.get("r_filtered", 100) / 100)
        if plan["access_type"] == "ALL" or passed_over > MOST_PASSED_OVER:
            how = f"{plan['access_type']} {plan.get('key')}"
            yield f"passes over {passed_over:.0f} of {looked_at:.0f} rows of {plan['table_name']} by {how}"
    if "sort_key" in plan:
        long = max(
            (table["r_rows"] * table.get("r_loops", 1) for table in _tables_of_mariadb(plan)), default=0
        )
        if long > MOST_SORTED:
            yield f"sorts {long:.0f} rows by {plan['sort_key']}"
    for part in plan.values():
        yield from _faults_of_mariadb(part)


def _tables_of_mariadb(plan: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(plan, list):
        for part in plan:
            yield from _tables_of_mariadb(part)
    elif isinstance(plan, dict):
        if plan.get("r_rows") is not None and plan.get("table_name") in FULL:
            yield plan
        for part in plan.values():
            yield from _tables_of_mariadb(part)


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _faults_of_node(node: Mapping[str, Any]) -> Iterator[str]:
    kind = node["Node Type"]
    if kind == "Seq Scan" and node["Relation Name"] in FULL:
        yield f"reads all of {node['Relation Name']}"
    if "Sort" in kind:
        long = max(_rows(below) for below in node["Plans"])
        if long > MOST_SORTED:
            yield f"sorts {long} rows by {node['Sort Key']}"
    removed = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck", "Join Filter"))
    if removed * node.get("Actual Loops", 1) > MOST_PASSED_OVER:
        yield f"passes over {removed} rows of {node.get('Relation Name', kind)}: {node.get('Filter')}"


def _rows(node: Mapping[str, Any]) -> int:
    if "Actual Rows" in node:
        return int(node["Actual Rows"] * node["Actual Loops"])
    return int(node["Plan Rows"])
