"""A worker is killed at each point of its work; another one ends the run, at its defaults within a minute."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stagewright import Kernel, Status
from stagewright.commands import CreateRun
from stagewright.records import RunRecord

pytestmark = pytest.mark.slow

_MINUTE = 60.0


@dataclass(frozen=True)
class Point:
    """Where a worker is killed.

    Attributes:
        at: The name of the point.
        occurrence: At which time that the worker gets there.
        after: Points that the worker has to have passed before, one after the other.
        sleeps: Whether the first stage sleeps after its step.
        charges: How often the body of the step runs in all: once more where it ended unrecorded.
    """

    at: str
    occurrence: int = 1
    after: tuple[str, ...] = ()
    sleeps: bool = False
    charges: int = 1


SLEEPS = "step claim of sleep: after"
DUE = "stage.pollSuspended: after commit"
POINTS = (
    Point("run.claimPending: before commit"),
    Point("run.claimPending: after commit"),
    Point("job.claim: before commit"),
    Point("job.claim: after commit"),
    Point("body of pay: begun"),
    Point("step claim of run: before"),
    Point("step claim of run: after"),
    Point("step body", charges=2),
    Point("step completed: before", charges=2),
    Point("step completed: after"),
    Point("body of pay: after"),
    Point("job.execute: before commit"),
    Point("job.execute: after commit"),
    Point("body of thank: after"),
    Point("job.execute: before commit", occurrence=2),
    Point("step claim of sleep: before", sleeps=True),
    Point("step claim of sleep: after", sleeps=True),
    Point("body of pay: after", sleeps=True),
    Point("job.execute: before commit", sleeps=True),
    Point("job.execute: after commit", sleeps=True),
    Point("stage.pollSuspended: before commit", after=(SLEEPS,), sleeps=True),
    Point("stage.pollSuspended: after commit", after=(SLEEPS,), sleeps=True),
    Point("job.claim: before commit", after=(SLEEPS, DUE), sleeps=True),
    Point("job.claim: after commit", after=(SLEEPS, DUE), sleeps=True),
    Point("body of pay: begun", occurrence=2, sleeps=True),
    Point("body of pay: awake", sleeps=True),
    Point("job.execute: before commit", occurrence=2, sleeps=True),
    Point("job.execute: after commit", occurrence=2, sleeps=True),
)
_AT_ONCE = 5
_SHORT_LEASES = {"stale_lease_threshold": "5s", "job_heartbeat_interval": "1s"}


@pytest.mark.guarantee("hosts.killed-anywhere")
@pytest.mark.parametrize(
    ("url", "at_defaults"),
    [("sqlite", False), ("postgres", True), pytest.param("mariadb", False, marks=pytest.mark.wide)],
    indirect=["url"],
)
async def test_another_worker_ends_what_a_killed_one_began(
    workers: Any, open_observer: Callable[[list[str]], Awaitable[Kernel]], *, at_defaults: bool
) -> None:
    points = {f"flow-{number}": point for number, point in enumerate(POINTS)}
    sleeps = [workflow_id for workflow_id, point in points.items() if point.sleeps]
    kernel = await open_observer(list(points))
    runs: dict[str, str] = {}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def kill_at(workflow_id: str, point: Point) -> None:
        async with slots:
            created = await kernel.dispatch(CreateRun(workflow_id, 1))
            runs[workflow_id] = created.run_id
            name = f"victim-of-{workflow_id}"
            victim = workers.start(
                name,
                [workflow_id],
                sleeps=sleeps,
                point=point.at,
                occurrence=point.occurrence,
                after=point.after,
            )
            await workers.until(lambda: workers.told(at=point.at, worker=name), f"{name} gets to {point}")
            victim.kill()

    async with asyncio.TaskGroup() as killing:
        for workflow_id, point in points.items():
            killing.create_task(kill_at(workflow_id, point))

    began = time.monotonic()
    workers.start("rescuer", list(points), sleeps=sleeps, host={} if at_defaults else _SHORT_LEASES)

    async def all_ended() -> bool:
        return all([(await _run(kernel, run_id)).status is Status.COMPLETED for run_id in runs.values()])

    await workers.until(all_ended, "every run completes", within=_MINUTE)
    assert time.monotonic() - began < _MINUTE
    for workflow_id, point in points.items():
        await _told_whole(kernel, runs[workflow_id])
        charges = workers.told(charge=..., workflow=workflow_id)
        assert len(charges) == point.charges, (point, charges)
        # However often it was tried: to the other system it is one and the same.
        assert len({charge["charge"] for charge in charges}) == 1
        stages = await kernel.runs.stages(runs[workflow_id])
        assert [(stage.stage_id, stage.status) for stage in stages] == [
            ("pay", Status.COMPLETED),
            ("thank", Status.COMPLETED),
        ]


async def _run(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


async def _told_whole(kernel: Kernel, run_id: str) -> None:
    """The run has the right output, and its events tell one story without a gap."""
    assert (await _run(kernel, run_id)).output == 3
    events = await kernel.runs.events(run_id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    types = [event.type for event in events]
    assert types.count("workflow:completed") == 1
    assert types[-1] == "workflow:completed"
    assert types.count("stage:completed") == 2
