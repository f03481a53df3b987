"""The row-level security of `docs/row-level-security.md`, word for word: tenants don't meet."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from stagewright import Kernel, StageContext, Status, define_stage, define_workflow, open_kernel
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    FlushOutbox,
    PurgeRuns,
    SignalStep,
)
from stagewright.errors import IdempotencyInProgressError, RunNotFoundError
from stagewright.hosting import drive_run
from stagewright_persistence_sqlalchemy import create_engine, schema
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES
from stagewright_test_support.backend_choice import stores

PAGE = Path(__file__).parents[1] / "docs" / "row-level-security.md"
PAGE_SQL = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)

(PAGE_PYTHON,) = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)

drivers = pytest.mark.parametrize("way", stores("asyncpg", "psycopg"), indirect=True)


async def ship(ctx: StageContext[int]) -> int:
    await ctx.step.run("note", lambda: "x" * 100)
    ctx.annotate("shipped", True)
    await ctx.storage.save("label", "a label")
    return ctx.input + 1


shipping = define_workflow("shipping", input=int).pipe(define_stage("ship", ship)).build()


@pytest_asyncio.fixture(params=["a role", "the owner"])
async def role_url(url: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The database as the role of the page sees it, with the page's policies; they hold for a tables' owner too."""
    owner = create_engine(url.replace("+psycopg", "+asyncpg"))
    async with owner.begin() as connection:
        await connection.execute(text("DROP SCHEMA public CASCADE"))
        await connection.execute(text("CREATE SCHEMA public"))
        await connection.execute(text("GRANT USAGE ON SCHEMA public TO PUBLIC"))
    await schema.upgrade(owner)
    async with owner.begin() as connection:
        for statement in PAGE_SQL:
            for one in [statement] if "DO $$" in statement else statement.split(";"):
                if one.strip():
                    await connection.exec_driver_sql(one)
        if request.param == "the owner":
            for name in PLAIN_TABLES.metadata.tables:
                await connection.exec_driver_sql(f"ALTER TABLE {name} OWNER TO shop")
    yield make_url(url).set(username="shop").render_as_string(hide_password=False)
    async with owner.begin() as connection:
        await connection.execute(text("DROP OWNED BY shop"))
        await connection.execute(text("DROP ROLE shop"))
    await owner.dispose()


@pytest_asyncio.fixture
async def engine(role_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(role_url)
    yield engine
    await engine.dispose()


@asynccontextmanager
async def worker_of(role_url: str, tenant: str) -> AsyncIterator[Kernel]:
    async with open_kernel(shipping, f"{role_url}?options=-c%20app.tenant%3D{tenant}") as kernel:
        yield kernel


def test_every_table_with_rows_of_runs_has_a_policy() -> None:
    shared = {"workflow_definitions", "work_signals", "job_group_locks"}
    named = set(re.findall(r"'(\w+)'", PAGE_SQL[0].split("]")[0]))
    assert named == PLAIN_TABLES.metadata.tables.keys() - shared


@drivers
@pytest.mark.guarantee("sql.tenants-never-meet")
async def test_tenants_neither_see_nor_claim_nor_purge_each_others_runs(
    role_url: str, engine: AsyncEngine
) -> None:
    page: dict[str, Any] = {}
    exec(PAGE_PYTHON, page)
    place_order = page["place_order"]
    async with open_kernel(shipping, role_url) as web:
        reds = [await place_order(web, engine, "red", number) for number in (1, 2)]
        blue = await place_order(web, engine, "blue", 1)
        assert (await web.runs.list()).items == ()
        with pytest.raises(Exception, match="row-level security policy"):
            await web.dispatch(CreateRun("shipping", 1))
    async with worker_of(role_url, "red") as red, worker_of(role_url, "blue") as other:
        assert {run.id for run in (await red.runs.list()).items} == set(reds)
        assert [run.id for run in (await other.runs.list()).items] == [blue]
        # Nothing of another tenant's is found, changed or claimed.
        for run_id in reds:
            assert await other.runs.get(run_id) is None
            assert not (await other.dispatch(CancelRun(run_id))).cancelled
            with pytest.raises(RunNotFoundError):
                await other.dispatch(SignalStep(run_id, "ship", "note"))
        claimed = (await other.dispatch(ClaimPendingRuns("blue", max_claims=10))).claimed
        assert [run.run_id for run in claimed] == [blue]
        await red.dispatch(ClaimPendingRuns("red", max_claims=10))
        assert {job.run_id for job in (await red.dispatch(ClaimJobs("red", limit=1))).jobs} < set(reds)
        await drive_run(other, blue)
        assert (await other.dispatch(ClaimJobs("blue", limit=10))).jobs == ()
        while (await other.dispatch(FlushOutbox())).published:
            pass
        assert await red.runs.events(reds[0])
        assert not any(event.published_at for event in await red.runs.events(reds[0]))
        # Nor purged.
        await red.dispatch(CancelRun(reds[0]))
        await red.dispatch(CancelRun(reds[1]))
        while (await red.dispatch(FlushOutbox())).published:
            pass
        later = datetime.now(UTC) + timedelta(days=1)
        assert (await other.dispatch(PurgeRuns(older_than=later))).run_ids == (blue,)
        assert {run.status for run in (await red.runs.list()).items} == {Status.CANCELLED}
        assert set((await red.dispatch(PurgeRuns(older_than=later))).run_ids) == set(reds)


@drivers
@pytest.mark.guarantee("sql.tenants-never-meet")
async def test_a_session_writes_and_reads_for_the_tenant_that_it_has_set(
    role_url: str, engine: AsyncEngine
) -> None:
    async with open_kernel(shipping, role_url) as web:
        async with AsyncSession(engine) as session, session.begin():
            bound = web.using(session)
            await session.execute(text("SELECT set_config('app.tenant', 'red', true)"))
            red = (await bound.dispatch(CreateRun("shipping", 1, idempotency_key="k"))).run_id
            await session.execute(text("SELECT set_config('app.tenant', 'blue', true)"))
            assert await bound.runs.get(red) is None
            with pytest.raises(IdempotencyInProgressError):
                await bound.dispatch(CreateRun("shipping", 1, idempotency_key="k"))
            blue = (await bound.dispatch(CreateRun("shipping", 1))).run_id
        # The setting has ended with its transaction.
        async with AsyncSession(engine) as session:
            assert (await web.using(session).runs.list()).items == ()
    async with worker_of(role_url, "blue") as worker:
        assert [run.id for run in (await worker.runs.list()).items] == [blue]
        assert (await drive_run(worker, blue)).output == 2
