"""Stagewright, through what anybody can call: a kernel over a URL, commands, and the runner of one job."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.contender import STAGES, WORKFLOW
from benchmarks.run_tables import RunTables, open_tables
from benchmarks.three_stage_flow import first_input, three_stages

from stagewright import Kernel, open_kernel
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.hosting.job_runner import run_job

__all__ = ["StagewrightRuns", "open_stagewright"]

_WORKER = "bench"


class StagewrightRuns:
    """Three-stage runs by Stagewright.

    Args:
        kernel: A kernel that serves the workflow.
        tables: The tables of its database.
    """

    def __init__(self, kernel: Kernel, tables: RunTables) -> None:
        self.kernel = kernel
        self.tables = tables

    async def create(self) -> None:
        await self.kernel.dispatch(CreateRun(WORKFLOW, first_input()))

    async def claim_runs(self, limit: int) -> int:
        return len((await self.kernel.dispatch(ClaimPendingRuns(_WORKER, max_claims=limit))).claimed)

    async def claim_jobs(self, limit: int) -> Sequence[Any]:
        return (await self.kernel.dispatch(ClaimJobs(_WORKER, limit=limit))).jobs

    async def execute(self, job: Any) -> bool:
        await run_job(self.kernel, job)
        return bool(job.stage_id == STAGES[-1])


@asynccontextmanager
async def open_stagewright(url: str) -> AsyncIterator[StagewrightRuns]:
    """A kernel over a database, whose tables are made if they are missing."""
    async with open_kernel(three_stages(), url, create_schema=True) as kernel, open_tables(url) as tables:
        yield StagewrightRuns(kernel, tables)
