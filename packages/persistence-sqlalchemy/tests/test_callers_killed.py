"""A caller that is killed before its commit or after it: its own row and its run are both there, or neither is."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from stagewright import StageContext, Status, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright.hosting import drive_run
from stagewright_persistence_sqlalchemy import create_engine, schema

MARIADB = pytest.param("mariadb", marks=pytest.mark.slow)
WORKER = Path(__file__).with_name("callers_worker.py")


async def ship(ctx: StageContext[int]) -> int:
    return ctx.input + 1


shipping = define_workflow("shipping", input=int).pipe(define_stage("ship", ship)).build()


async def prepared(url: str) -> None:
    engine = create_engine(url)
    async with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            await connection.execute(text("DROP SCHEMA public CASCADE"))
            await connection.execute(text("CREATE SCHEMA public"))
        elif engine.dialect.name == "mariadb":
            await connection.execute(text(f"DROP DATABASE {engine.url.database}"))
            await connection.execute(text(f"CREATE DATABASE {engine.url.database}"))
            await connection.execute(text(f"USE {engine.url.database}"))
        await connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
    await schema.upgrade(engine)
    await engine.dispose()


@pytest.mark.guarantee("sql.killed-callers-leave-both-or-neither")
@pytest.mark.parametrize("way", ["sqlite", "asyncpg", MARIADB], indirect=True)
@pytest.mark.parametrize("sort", ["async", "plain"])
@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_killed_caller_leaves_its_row_and_its_run_or_neither(
    url: str, sort: str, point: str, eventually: Callable[..., Awaitable[None]]
) -> None:
    await prepared(url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(WORKER), url, sort, point), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        process.kill()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    kept = point == "after"
    async with open_kernel(shipping, url) as kernel:

        async def gone() -> bool:
            # A server learns of the lost connection after a moment, and undoes the transaction then.
            return len((await kernel.runs.list()).items) == int(kept) and await _rows(url) == int(kept)

        await eventually(gone, within=60)
        created = await kernel.dispatch(CreateRun("shipping", 1, idempotency_key="order 1"))
        runs = [run.id for run in (await kernel.runs.list()).items]
        assert runs == [created.run_id], "the key belongs to the run that is there, and to nothing else"
        assert (await drive_run(kernel, created.run_id)).status is Status.COMPLETED


async def _rows(url: str) -> int:
    engine = create_engine(url)
    async with engine.connect() as connection:
        found: Any = (await connection.execute(text("SELECT count(*) FROM orders"))).scalar_one()
    await engine.dispose()
    return int(found)
