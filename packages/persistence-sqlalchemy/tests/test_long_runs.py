"""A run with 20,000 durable steps: opening it reads a page, whatever comes after."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Executable

from stagewright import Kernel, StageContext, define_workflow
from stagewright.commands import ClaimPendingRuns, CreateRun
from stagewright_persistence_sqlalchemy import Database
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session, Sessions
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

STEPS = 20_000
PAGE = 200
AT = datetime(2031, 5, 17, 9, 30, 12, 345_678, tzinfo=UTC)


class Counted:
    """Sessions of which the reading ones are counted.

    Attributes:
        statements: How many were read with.
        rows: How many rows came.
    """

    def __init__(self) -> None:
        self.statements = self.rows = 0

    def around(self, sessions: Sessions) -> Sessions:
        """Those sessions, counted."""
        self._sessions = sessions
        self.writing = sessions.writing
        return self

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        async with self._sessions.reading() as session:
            fetch = session.fetch

            async def counted(statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
                rows = await fetch(statement, parameters)
                self.statements += 1
                self.rows += len(rows)
                return rows

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(session, "fetch", counted)
                yield session


async def body(ctx: StageContext[Any]) -> Any:
    return ctx.input


async def make_long_run(database: Database, kernel: Kernel) -> str:
    """A run whose only stage has so many steps."""
    run_id = (await kernel.dispatch(CreateRun("long", 1))).run_id
    await kernel.dispatch(ClaimPendingRuns("worker"))
    (stage,) = await kernel.runs.stages(run_id)
    async with database.engine.begin() as connection:
        made = [
            {
                "id": f"step-{(number * 7_919) % STEPS:05}",
                "stage_record_id": stage.id,
                "step_id": f"s{number}",
                "seq": number,
                "kind": "run",
                "status": "completed",
                "attempt": 1,
                "result": {"number": number, "text": "x" * 100},
                "error": None,
                "created_at": AT,
                "updated_at": AT,
            }
            for number in range(STEPS)
        ]
        await connection.execute(PLAIN_TABLES.steps.insert(), made)
    return run_id


@pytest.mark.parametrize(
    "way",
    ["sqlite", *(pytest.param(way, marks=pytest.mark.thorough) for way in ("asyncpg", "psycopg", "mariadb"))],
    indirect=True,
)
@pytest.mark.tampers
@pytest.mark.guarantee("sql.long-runs-open-with-a-page")
async def test_a_run_of_many_steps_opens_with_a_page(
    url: str,
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
    make_kernel: Callable[..., Kernel],
) -> None:
    counted = Counted()
    database = open_database(url, wrap=counted.around)
    await make_tables(database)
    flow = define_workflow("long", input=Any).stage("s", body, input=Any, output=Any).build()
    kernel = make_kernel(database, flow)
    run_id = await make_long_run(database, kernel)
    counted.statements = counted.rows = 0
    first = await kernel.runs.step_page(run_id)
    assert [step.seq for step in first.items] == list(range(PAGE))
    # One more, which tells that there are more.
    assert (counted.statements, counted.rows) == (1, PAGE + 1)
    seen = [step.seq for step in first.items]
    cursor = first.next_cursor
    while cursor is not None:
        page = await kernel.runs.step_page(run_id, limit=1_000, cursor=cursor)
        seen += [step.seq for step in page.items]
        cursor = page.next_cursor
    assert seen == list(range(STEPS))
    assert counted.statements == 1 + (STEPS - PAGE) // 1_000 + 1
    assert counted.rows <= STEPS + counted.statements
