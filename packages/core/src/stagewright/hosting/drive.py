"""Driving one run to its end in this process: what a deployment spreads over its hosts, in one small loop."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from stagewright.commands import ClaimJobs, ClaimPendingRuns, FlushOutbox
from stagewright.errors import RunNotFoundError, RunStalledError
from stagewright.events import Event, event_of_record
from stagewright.hosting.job_runner import run_job
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob, RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["drive_run"]

_WORKER_ID: Final = "drive"
_LOOK_AGAIN: Final = 0.05
_EVENTS_AT_ONCE: Final = 500


async def drive_run(
    kernel: Kernel,
    run_id: str,
    *,
    concurrency: int = 4,
    on_event: Callable[[Event], None] | None = None,
    timeout: timedelta | None = None,
) -> RunRecord:
    """Claim runs, execute jobs and deliver events until a run has ended.

    Other runs of the same store that this kernel serves are moved along with it.

    Args:
        kernel: The kernel.
        run_id: The run to end.
        concurrency: How many bodies run at a time.
        on_event: Called for each event of the run, in order, as soon as it has committed.
        timeout: How long to go on; bodies that still run then are cancelled.

    Returns:
        The run, COMPLETED, FAILED or CANCELLED.

    Raises:
        RunNotFoundError: If there is no such run.
        RunStalledError: If nothing in this process can move the run any more.
        TimeoutError: If the run didn't end in time.
    """
    driver = _Driver(kernel, run_id, concurrency, on_event)
    seconds = None if timeout is None else timeout.total_seconds()
    async with asyncio.timeout(seconds):
        return await driver.drive()


class _Driver:
    def __init__(
        self, kernel: Kernel, run_id: str, concurrency: int, on_event: Callable[[Event], None] | None
    ) -> None:
        self._kernel = kernel
        self._run_id = run_id
        self._concurrency = concurrency
        self._on_event = on_event
        self._seen = 0
        self._executing: set[asyncio.Task[None]] = set()

    async def drive(self) -> RunRecord:
        try:
            while True:
                run = await self._kernel.runs.get(self._run_id)
                if run is None:
                    raise RunNotFoundError(self._run_id)
                await self._report()
                if run.status in TERMINAL_RUN_STATUSES:
                    return await self._finish(run)
                if not await self._take_work() and not self._executing:
                    await self._wait_or_stall(run)
                elif self._executing:
                    await self._settle_finished()
        finally:
            for task in self._executing:
                task.cancel()
            await asyncio.gather(*self._executing, return_exceptions=True)

    async def _take_work(self) -> bool:
        claimed = await self._kernel.dispatch(ClaimPendingRuns(_WORKER_ID))
        free = self._concurrency - len(self._executing)
        jobs: tuple[DequeuedJob, ...] = ()
        if free > 0:
            jobs = (await self._kernel.dispatch(ClaimJobs(_WORKER_ID, limit=free))).jobs
        self._executing |= {asyncio.create_task(run_job(self._kernel, job)) for job in jobs}
        return bool(claimed.claimed or jobs)

    async def _settle_finished(self) -> None:
        done, self._executing = await asyncio.wait(
            self._executing, timeout=_LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()

    async def _wait_or_stall(self, run: RunRecord) -> None:
        """Nothing is claimable and nothing runs: wait for a retry that isn't due, or say what is in the way."""
        jobs = await self._kernel.ports.job_transport.get_jobs_by_run(run.id)
        if any(job.status is Status.PENDING or job.status is Status.RUNNING for job in jobs) and self._serves(
            run
        ):
            await asyncio.sleep(_LOOK_AGAIN)
            return
        raise RunStalledError(run.id, run.status, await self._obstacle(run))

    def _serves(self, run: RunRecord) -> bool:
        served = self._kernel.served_definitions()
        pair = (run.workflow_id, run.definition_version)
        return served is None or any(pair == (one.workflow_id, one.version) for one in served)

    async def _obstacle(self, run: RunRecord) -> str:
        if not self._serves(run):
            return f"this process doesn't serve version {run.definition_version!r} of workflow {run.workflow_id!r}"
        stages = await self._kernel.runs.stages(run.id)
        waiting = [stage.stage_id for stage in stages if stage.status is Status.SUSPENDED]
        if waiting:
            return f"stage {waiting[0]!r} is suspended and waits for work elsewhere; a worker has to look after it"
        return "no job of it is left to execute"

    async def _finish(self, run: RunRecord) -> RunRecord:
        """Let bodies of other runs end, then deliver what there is to deliver."""
        if self._executing:
            await asyncio.wait(self._executing)
            await self._settle_finished()
        while True:
            flushed = await self._kernel.dispatch(FlushOutbox())
            if not flushed.published:
                return run

    async def _report(self) -> None:
        if self._on_event is None:
            return
        for record in await self._kernel.runs.events(self._run_id, after=self._seen, limit=_EVENTS_AT_ONCE):
            self._seen = record.sequence
            self._on_event(event_of_record(record))
