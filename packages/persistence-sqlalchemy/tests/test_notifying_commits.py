"""Transactions that notify commit one by one in a whole PostgreSQL server; who waits for its turn loses nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from stagewright import StageContext, define_stage, define_workflow, open_kernel
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.hosting.job_runner import run_job
from stagewright_test_support.servers import PostgresServer

_PATIENCE = 30.0
_HELD = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_WAITING = """SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'object'
AND clock_timestamp() - query_start > interval '600 milliseconds'"""


async def body(ctx: StageContext[int]) -> int:
    return ctx.input


FLOW = define_workflow("w", input=int).pipe(define_stage("body", body, input=int, output=int)).build()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One whose commits wait for a standby that isn't there, where a session asks for that."""
    settings = {"synchronous_standby_names": "nobody", "synchronous_commit": "local", "fsync": "on"}
    with PostgresServer.start(settings=settings) as started:
        yield started


async def eventually(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(_PATIENCE):
        while True:
            found = await condition()
            if found:
                return found
            await asyncio.sleep(0.02)


@pytest.mark.guarantee("sql.notifying-commits-wait")
async def test_an_outcome_that_waits_long_for_its_turn_to_notify_is_recorded(server: PostgresServer) -> None:
    url = server.databases.create("busy")
    async with open_kernel(FLOW, url, create_schema=True) as kernel:
        await kernel.dispatch(CreateRun("w", 5))
        await kernel.dispatch(ClaimPendingRuns("me"))
        (job,) = (await kernel.dispatch(ClaimJobs("me"))).jobs
        watcher, holder = await asyncpg.connect(url), await asyncpg.connect(url)
        try:
            await holder.execute("SET synchronous_commit = on")
            holding = asyncio.create_task(
                holder.execute("BEGIN; CREATE TABLE t (x int); NOTIFY others; COMMIT")
            )
            pid = await eventually(lambda: watcher.fetchval(_HELD))
            executing = asyncio.create_task(run_job(kernel, job))
            await eventually(lambda: watcher.fetchval(_WAITING))
            await watcher.execute("SELECT pg_cancel_backend($1)", pid)
            await holding
            assert (await executing).outcome == "completed"
        finally:
            await holder.close()
            await watcher.close()
