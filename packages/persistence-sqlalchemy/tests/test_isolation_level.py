"""A database whose default isolation is stricter than the stores need."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from stagewright import Kernel, StageContext, Status, define_workflow, open_kernel, stage
from stagewright.commands import CreateRun
from stagewright.hosting import drive_run
from stagewright_persistence_sqlalchemy import create_engine


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


@stage("negate")
async def negate(ctx: StageContext[int]) -> int:
    return -ctx.input


FLOW = define_workflow("flow", input=int).parallel(double, negate).build()


@pytest_asyncio.fixture(params=["asyncpg", "psycopg"])
async def strict_kernel(request: pytest.FixtureRequest, postgres_url: str) -> AsyncIterator[Kernel]:
    url = postgres_url.replace("postgresql://", f"postgresql+{request.param}://")
    engine = create_engine(url)
    async with engine.begin() as connection:
        name: Any = (await connection.execute(text("SELECT current_database()"))).scalar()
        await connection.execute(
            text(f'ALTER DATABASE "{name}" SET default_transaction_isolation = serializable')
        )
    await engine.dispose()
    async with open_kernel(FLOW, url, create_schema=True) as kernel:
        yield kernel


async def test_runs_that_compete_end_all_the_same(strict_kernel: Kernel) -> None:
    created = [await strict_kernel.dispatch(CreateRun("flow", number)) for number in range(20)]
    runs = await asyncio.gather(*(drive_run(strict_kernel, one.run_id) for one in created))
    assert [run.status for run in runs] == [Status.COMPLETED] * 20
    assert [run.output for run in runs] == [{"double": n * 2, "negate": -n} for n in range(20)]
