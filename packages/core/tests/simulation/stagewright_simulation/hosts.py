"""What the processes of a deployment do: workers, upkeep, flushers."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from stagewright.commands import ClaimJobs, ClaimPendingRuns, FlushOutbox
from stagewright.hosting import HOST_DEFAULTS, HostSettings, run_maintenance_tick
from stagewright.hosting.job_execution import JobExecution
from stagewright.hosting.job_heartbeat import run_with_heartbeat
from stagewright.hosting.maintenance import ALL_STEPS, TickReport, UpkeepStep
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob
from stagewright_simulation.role import Role

__all__ = ["deliver", "host_settings", "look_after", "work"]

_PAUSE: Final = {True: 6.0, False: 25.0}
"""Between two looks, while things go wrong and after."""

_LISTENING_PAUSE: Final = {True: 15.0, False: 40.0}
"""The same for who is told of work."""


def host_settings(role: Role) -> HostSettings:
    """How the hosts of a simulation are set: leases are short."""
    return replace(
        HOST_DEFAULTS,
        worker_id=role.worker_id,
        job_heartbeat_interval=timedelta(seconds=5),
        stale_lease_threshold=timedelta(seconds=15),
        job_absolute_timeout=timedelta(seconds=role.world.scenario.absolute_timeout),
        max_claims_per_tick=4,
        abort_grace=timedelta(seconds=3),
    )


async def work(role: Role) -> None:
    """Claim jobs and execute them, a few at a time."""
    kernel, running = role.kernel(), dict[asyncio.Task[Any], None]()
    try:
        while True:
            for job in _delivered_besides(role):
                _begin(role, kernel, job, running)
            free = role.world.scenario.topology.concurrency - len(running)
            for job in await _set_going(role, kernel, free):
                _begin(role, kernel, job, running)
                free -= 1
            for job in await _claimed(role, kernel, free):
                _begin(role, kernel, job, running)
                free -= 1
            if free <= 0 and running:
                await asyncio.wait(list(running), timeout=1, return_when=asyncio.FIRST_COMPLETED)
            else:
                await _wait_for_work(role, kernel, busy=bool(running))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def look_after(role: Role) -> None:
    """Look after runs, tick by tick."""
    kernel, settings = role.kernel(), host_settings(role)
    steps = ALL_STEPS if role.world.scenario.topology.flushers == 0 else ALL_STEPS - {UpkeepStep.FLUSH_OUTBOX}
    while True:
        is_calm = role.world.is_calm
        report = await run_maintenance_tick(kernel, settings, steps=steps)
        if is_calm and report.failed_steps:
            role.world.history.violate("upkeep-works", f"{role.worker_id} could not {report.failed_steps}")
        _note_rescue(role, report)
        if not report.made_work:
            await asyncio.sleep(_PAUSE[not role.world.is_calm] * (0.5 + role.rng.random()))


def _note_rescue(role: Role, report: TickReport) -> None:
    """A run that stands still for minutes was lost on the way, and nothing may be lost where all commits together."""
    rescued = report.stuck_failed + report.stuck_healed + report.stuck_requeued
    world = role.world
    if rescued and not world.scenario.topology.jobs_apart and world.blobs_are_there:
        world.history.violate("nobody-is-rescued", f"{role.worker_id} found {rescued} runs that stood still")


async def deliver(role: Role) -> None:
    """Deliver events, a few at a time."""
    kernel = role.kernel()
    while True:
        published = 0
        try:
            published = (await kernel.dispatch(FlushOutbox(1 + int(role.rng.random() * 20)))).published
        except Exception as error:
            role.note(error, "delivering events")
        if not published:
            await asyncio.sleep(_PAUSE[not role.world.is_calm] * (0.5 + role.rng.random()))


def _begin(role: Role, kernel: Kernel, job: DequeuedJob, running: dict[asyncio.Task[Any], None]) -> None:
    task = asyncio.create_task(_execute(role, kernel, job))
    running[task] = None
    task.add_done_callback(lambda done: running.pop(done, None))


async def _execute(role: Role, kernel: Kernel, job: DequeuedJob) -> None:
    """Execute a job, and whatever is handed over with its outcome."""
    following: DequeuedJob | None = job
    while following is not None:
        following = await _executed(role, kernel, following)
        if following is not None:
            _note_taken(role, following)


async def _executed(role: Role, kernel: Kernel, job: DequeuedJob) -> DequeuedJob | None:
    settings = host_settings(role)

    def successor(execution: JobExecution) -> str | None:
        return role.worker_id if role.goes_on() else None

    execution = JobExecution(kernel, job, abort_grace=settings.abort_grace, successor=successor)
    try:
        result = await run_with_heartbeat(kernel, execution, settings.job_heartbeat_interval.total_seconds())
    except Exception as error:
        role.note(error, f"executing {job.stage_id} of {job.run_id}")
        return None
    ghost = f", a ghost ({result.ghost_reason}): {result.error}" if result.ghost else ""
    role.world.history.tell(role.worker_id, f"{job.stage_id} of {job.run_id} ended: {result.outcome}{ghost}")
    return result.next_job


async def _set_going(role: Role, kernel: Kernel, limit: int) -> tuple[DequeuedJob, ...]:
    """Set runs going sometimes, as the upkeep does always, and take as many of their jobs as there are places."""
    if limit <= 0 or not role.goes_on():
        return ()
    try:
        jobs = (await kernel.dispatch(ClaimPendingRuns(role.worker_id, max_claims=2, max_jobs=limit))).jobs
    except Exception as error:
        role.note(error, "setting runs going")
        return ()
    for job in jobs:
        _note_taken(role, job)
    return jobs


async def _claimed(role: Role, kernel: Kernel, limit: int) -> tuple[DequeuedJob, ...]:
    if limit <= 0:
        return ()
    try:
        jobs = (await kernel.dispatch(ClaimJobs(role.worker_id, limit=limit))).jobs
    except Exception as error:
        role.note(error, "claiming jobs")
        return ()
    for job in jobs:
        _note_taken(role, job)
    return jobs


def _note_taken(role: Role, job: DequeuedJob) -> None:
    role.claimed += 1
    again = role.deliveries.pop(role.claimed, None)
    role.world.history.tell(
        role.worker_id, f"has {job.stage_id} of {job.run_id}, delivery {job.fence.deliveries}"
    )
    if again is not None:
        due = role.world.loop.time() + again.delay
        role.world.roles[again.to].inbox.append((due, job))


def _delivered_besides(role: Role) -> list[DequeuedJob]:
    now = role.world.loop.time()
    due = [job for at, job in role.inbox if at <= now]
    role.inbox[:] = [(at, job) for at, job in role.inbox if at > now]
    for job in due:
        role.world.history.tell(role.worker_id, f"is given {job.stage_id} of {job.run_id} once more")
    return due


async def _wait_for_work(role: Role, kernel: Kernel, *, busy: bool) -> None:
    is_deaf = role.world.scenario.topology.is_deaf
    pause = 1.0 if busy else (_PAUSE if is_deaf else _LISTENING_PAUSE)[not role.world.is_calm]
    if is_deaf:
        await asyncio.sleep(pause)
        return
    try:
        await role.world.persistence.wait_for_work(timedelta(seconds=pause))
    except Exception as error:
        role.note(error, "waiting for work")
        await asyncio.sleep(1)
