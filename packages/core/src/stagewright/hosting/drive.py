"""Driving one run to its end in this process: what a deployment spreads over its hosts, in one small loop."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    ExecuteJobResult,
    FlushOutbox,
    PollSuspendedStages,
    TransitionRun,
)
from stagewright.duration import Duration, parse_duration
from stagewright.errors import InvalidSettingError, RunNotFoundError, RunStalledError
from stagewright.events import Event, event_of_record
from stagewright.hosting.job_execution import JobExecution
from stagewright.hosting.job_heartbeat import run_with_heartbeat
from stagewright.hosting.settings import HOST_DEFAULTS
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob, RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["drive_run"]

_WORKER_ID: Final = "drive"
_LOOK_AGAIN: Final = 0.05
_LOOKS_UNTIL_STALLED: Final = 20
_HEARTBEAT: Final = HOST_DEFAULTS.job_heartbeat_interval.total_seconds()
_DELIVERY_PATIENCE: Final = 10.0
_EVENTS_AT_ONCE: Final = 500
_log: Final = logging.getLogger("stagewright.host")


async def drive_run(
    kernel: Kernel,
    run_id: str,
    *,
    concurrency: int = 4,
    on_event: Callable[[Event], None] | None = None,
    timeout: Duration | None = None,
) -> RunRecord:
    """Claim runs, execute jobs and deliver events until a run has ended.

    Other runs of the same store that this kernel serves are moved along with it, and bodies of theirs that were begun
    here end before this returns. Several drivers may work on one store at once. A body whose run is cancelled is told
    by `ctx.abort`; after five seconds more it is cancelled, or left to its thread if it is a plain `def`.

    Args:
        kernel: The kernel.
        run_id: The run to end.
        concurrency: How many bodies run at a time.
        on_event: Called for each event of the run, in order, soon after it has committed.
        timeout: How long to go on. Bodies that still run then are told to stop and cancelled, and their jobs are
            handed back, to be taken up by whoever comes next.

    Returns:
        The run, COMPLETED, FAILED or CANCELLED.

    Raises:
        RunNotFoundError: If there is no such run.
        RunStalledError: If nothing in this process can move the run any more.
        TimeoutError: If the run didn't end in time.
        InvalidDurationError: If `timeout` is no duration.
        InvalidSettingError: If `concurrency` is no whole number of at least 1.
    """
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidSettingError("concurrency", concurrency, "must be a whole number of at least 1")
    limit = None if timeout is None else parse_duration(timeout, field="timeout")
    driver = _Driver(kernel, run_id, concurrency, on_event)
    clock = asyncio.timeout(None if limit is None else limit.total_seconds())
    try:
        async with clock:
            return await driver.drive()
    except TimeoutError as error:
        if limit is None or not clock.expired():
            raise
        raise TimeoutError(f"run {run_id!r} did not end within {limit.total_seconds():g} s") from error


class _Driver:
    def __init__(
        self, kernel: Kernel, run_id: str, concurrency: int, on_event: Callable[[Event], None] | None
    ) -> None:
        self._kernel = kernel
        self._run_id = run_id
        self._concurrency = concurrency
        self._on_event = on_event
        self._seen = 0
        self._idle_looks = 0
        self._executing: dict[asyncio.Task[ExecuteJobResult], JobExecution] = {}

    async def drive(self) -> RunRecord:
        try:
            while True:
                run = await self._kernel.runs.get(self._run_id)
                if run is None:
                    raise RunNotFoundError(self._run_id)
                await self._report()
                if run.status in TERMINAL_RUN_STATUSES:
                    return await self._finish(run)
                if await self._take_work() or self._executing:
                    self._idle_looks = 0
                    await self._look_after_bodies()
                else:
                    await self._wait_or_stall(run)
        finally:
            await self._hand_back_all()

    async def _take_work(self) -> bool:
        claimed = await self._kernel.dispatch(ClaimPendingRuns(_WORKER_ID))
        resumed = await self._resume_due()
        free = self._concurrency - len(self._executing)
        jobs: tuple[DequeuedJob, ...] = ()
        if free > 0:
            jobs = (await self._kernel.dispatch(ClaimJobs(_WORKER_ID, limit=free))).jobs
        for job in jobs:
            execution = JobExecution(self._kernel, job, abort_grace=HOST_DEFAULTS.abort_grace)
            running = run_with_heartbeat(self._kernel, execution, _HEARTBEAT)
            self._executing[asyncio.create_task(running)] = execution
        return bool(claimed.claimed or jobs or resumed)

    async def _resume_due(self) -> bool:
        """Wake stages whose time has come."""
        polled = await self._kernel.dispatch(PollSuspendedStages())
        for run_id in polled.resumed_run_ids:
            await self._kernel.dispatch(TransitionRun(run_id))
        return bool(polled.checked)

    async def _look_after_bodies(self) -> None:
        """Wait for one to end, at most for a moment, and tell those whose run was cancelled."""
        if not self._executing:
            return
        done, _ = await asyncio.wait(
            self._executing, timeout=_LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            del self._executing[task]
            if not task.cancelled():
                task.result()
        await self._tell_cancelled()

    async def _tell_cancelled(self) -> None:
        for run_id in {execution.job.run_id for execution in self._executing.values()}:
            status = await self._kernel.ports.persistence.get_run_status(run_id)
            if status not in TERMINAL_RUN_STATUSES:
                continue
            for execution in self._executing.values():
                if execution.job.run_id == run_id:
                    execution.tell("cancelled")

    async def _wait_or_stall(self, run: RunRecord) -> None:
        """Nothing is claimable and nothing runs here: wait for what others do, or say what is in the way."""
        if not self._serves(run):
            version = run.definition_version
            reason = f"this process doesn't serve version {version!r} of workflow {run.workflow_id!r}"
            raise RunStalledError(run.id, run.status, reason)
        self._idle_looks = 0 if await self._can_still_move(run) else self._idle_looks + 1
        # Between two looks another driver may hold what will move the run; only a lasting standstill is one.
        if self._idle_looks >= _LOOKS_UNTIL_STALLED:
            raise RunStalledError(run.id, run.status, await self._obstacle(run))
        await asyncio.sleep(_LOOK_AGAIN)

    async def _can_still_move(self, run: RunRecord) -> bool:
        if run.status is Status.PENDING:
            return True
        stages = await self._kernel.runs.stages(run.id)
        if any(stage.status is Status.SUSPENDED and stage.next_poll_at is not None for stage in stages):
            return True
        jobs = await self._kernel.ports.job_transport.get_jobs_by_run(run.id)
        return any(job.status is Status.PENDING or job.status is Status.RUNNING for job in jobs)

    def _serves(self, run: RunRecord) -> bool:
        served = self._kernel.served_definitions()
        pair = (run.workflow_id, run.definition_version)
        return served is None or any(pair == (one.workflow_id, one.version) for one in served)

    async def _obstacle(self, run: RunRecord) -> str:
        stages = await self._kernel.runs.stages(run.id)
        waiting = [stage.stage_id for stage in stages if stage.status is Status.SUSPENDED]
        if waiting:
            return f"stage {waiting[0]!r} is suspended and waits for work elsewhere; a worker has to look after it"
        return "no job of it is left to execute"

    async def _finish(self, run: RunRecord) -> RunRecord:
        """Let begun bodies end, then deliver what there is to deliver, for a while."""
        while self._executing:
            await self._look_after_bodies()
        try:
            async with asyncio.timeout(_DELIVERY_PATIENCE):
                while (await self._kernel.dispatch(FlushOutbox())).published:
                    pass
        except TimeoutError:
            _log.warning("the event sink is slow; the events of run %s stay in the outbox", run.id)
        return run

    async def _hand_back_all(self) -> None:
        left, self._executing = self._executing, {}
        for execution in left.values():
            execution.tell("shutdown")
        await asyncio.gather(*left, return_exceptions=True)

    async def _report(self) -> None:
        if self._on_event is None:
            return
        for record in await self._kernel.runs.events(self._run_id, after=self._seen, limit=_EVENTS_AT_ONCE):
            self._seen = record.sequence
            self._on_event(event_of_record(record))
