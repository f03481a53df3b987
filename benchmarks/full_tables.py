"""Tables full of runs: one real run as far as it is wanted, and as many copies of its rows as it takes."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.scaled_flow import PAUSE, scaled_flow

from stagewright import Kernel, open_kernel
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, FlushOutbox
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job

__all__ = ["Filling", "fill_tables"]

Filling = Literal["finished", "pending", "suspended"]

_TABLES = {
    "workflow_runs": "id = $1",
    "workflow_stages": "run_id = $1",
    "workflow_steps": "stage_record_id IN (SELECT id FROM workflow_stages WHERE run_id = $1)",
    "job_queue": "run_id = $1",
    "outbox_events": "run_id = $1",
}
"""By the table: which rows are the run's."""

_OF_A_RUN = {"id", "run_id", "stage_record_id", "owner_job_id"}
_FILLER = "filler"


async def fill_tables(url: str, filling: Filling, runs: int) -> None:
    """Make the schema in an empty PostgreSQL, and so many runs of one stage.

    Args:
        url: The database.
        filling: What became of them: they are COMPLETED, their jobs wait, or their stages are suspended and due.
        runs: How many; none at all makes empty tables.
    """
    async with open_kernel(scaled_flow(), url, create_schema=True) as kernel:
        if not runs:
            return
        run_id = await _one_run(kernel, filling)
        while (await kernel.dispatch(FlushOutbox())).published:
            pass
    connection = await asyncpg.connect(url)
    try:
        # The copies refer to copies; that each of them exists needn't be looked up a million times.
        await connection.execute("SET session_replication_role = replica")
        for table in _TABLES:
            await _multiply(connection, table, run_id, runs - 1)
        # What a server does by itself after a while.
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _one_run(kernel: Kernel, filling: Filling) -> str:
    pause = PAUSE if filling == "suspended" else None
    run_id = (await kernel.dispatch(CreateRun("scaled", pause))).run_id
    if filling == "finished":
        await drive_run(kernel, run_id)
        return run_id
    await kernel.dispatch(ClaimPendingRuns(_FILLER))
    if filling == "suspended":
        (job,) = (await kernel.dispatch(ClaimJobs(_FILLER))).jobs
        await run_job(kernel, job)
        await asyncio.sleep(2 * PAUSE)
    return run_id


async def _multiply(connection: Any, table: str, run_id: str, copies: int) -> None:
    columns = await _columns(connection, table)
    values = [f"{name} || '-' || n" if name in _OF_A_RUN else name for name in columns]
    await connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) "
        f"SELECT {', '.join(values)} FROM {table}, generate_series(1, {copies}) AS n WHERE {_TABLES[table]}",
        run_id,
    )


async def _columns(connection: Any, table: str) -> Sequence[str]:
    rows = await connection.fetch(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_name = $1 AND is_identity = 'NO' ORDER BY ordinal_position",
        table,
    )
    return [row["column_name"] for row in rows]
