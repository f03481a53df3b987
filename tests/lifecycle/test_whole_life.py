"""The whole life of many runs at once, to the last thing that is kept of them.

Eight workers, upkeep, lost workers, signals, cancels, redrives, purges, and a sink that refuses now and then.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from stagewright import (
    Kernel,
    NotReady,
    Ready,
    RetryPolicy,
    StageContext,
    Status,
    Suspend,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    CreateRun,
    FromStage,
    LastFailure,
    PurgeRuns,
    RedriveRun,
    ReplayDeadLetters,
    SignalStep,
    Start,
)
from stagewright.errors import RunNotFoundError, RunStateError, StepKindMismatchError
from stagewright.events import Event
from stagewright.hosting import HostSettings, run_job, run_maintenance_tick
from stagewright.records import DequeuedJob, RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright.testing import CollectingEventSink

OpenStore = Callable[..., Awaitable[Kernel]]
Ended = Callable[[Kernel, str], Awaitable[RunRecord]]

WORKERS = 8
RETRY = RetryPolicy(3, 10_000, delay="1ms", jitter=False)
SETTINGS = HostSettings(
    stale_lease_threshold=timedelta(milliseconds=400),
    job_heartbeat_interval=timedelta(milliseconds=100),
    max_suspended_checks_per_tick=50,
    max_claims_per_tick=20,
)


checks: Counter[str] = Counter()


async def flaky(ctx: StageContext[Any]) -> Any:
    ctx.annotate("seen", ctx.attempt, emit_event=True)
    doubled = await ctx.step.run("double", lambda: 2 * ctx.workflow_input)
    if ctx.workflow_input % 5 == 0 and ctx.attempt == 1:
        raise ValueError("once")
    if ctx.workflow_input % 23 == 7 and ctx.stage_id == "c":
        raise ValueError("always")
    return doubled


async def naps(ctx: StageContext[Any]) -> Any:
    if ctx.workflow_input % 4 == 1:
        await ctx.step.wait_for_signal("go", timeout="1h", keepalive="100ms")
    if ctx.workflow_input % 3 == 0:
        await ctx.step.sleep("nap", "20ms")
    return "x" * 300


async def submit(ctx: StageContext[Any]) -> Any:
    return Suspend(ctx.workflow_input, poll_interval="10ms")


async def look(state: Any, ctx: StageContext[Any]) -> Any:
    done = await ctx.step.run("look", lambda: state)
    checks[ctx.run_id] += 1
    return Ready(done) if done % 2 or checks[ctx.run_id] > 10 else NotReady("5ms")


async def add_up(ctx: StageContext[Any]) -> Any:
    return sum(ctx.input[name] for name in ("b", "c"))


def stage(id: str, body: Any, **options: Any) -> Any:
    return define_stage(id, body, input=Any, output=Any, retry=RETRY, **options)


def whole_life() -> Workflow:
    batch = stage("batch", submit, mode="async-batch", check_completion=look)
    return (
        define_workflow("life", input=int)
        .pipe(stage("a", naps))
        .parallel(stage("b", flaky), stage("c", flaky))
        .pipe(stage("d", add_up))
        .pipe(batch)
        .build()
    )


@dataclass
class Traffic:
    """What goes on at once, until everything has ended and nobody opens anything again."""

    kernel: Kernel
    random: Random
    runs: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    cancelled: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)
    redrives_left: int = 0
    is_winding_down: bool = False
    is_over: bool = False

    def operators(self) -> list[Coroutine[Any, Any, None]]:
        return [
            *(self.work(f"worker-{number}") for number in range(WORKERS)),
            *(self.look_after() for _ in range(2)),
            *(self.cancel() for _ in range(2)),
            self.signal(),
            self.redrive(),
            self.purge(),
            self.watch(),
        ]

    async def work(self, name: str) -> None:
        """Execute jobs; now and then a worker is lost with what it holds, and some outcomes come twice."""
        while not self.is_over:
            for job in (await self.kernel.dispatch(ClaimJobs(name, limit=2))).jobs:
                await self._execute(job)
            await self._pause(0.01)

    async def _execute(self, job: DequeuedJob) -> None:
        luck = self.random.random()
        if luck < 0.02:
            self.counts["lost"] += 1
        elif luck < 0.04:
            await asyncio.gather(run_job(self.kernel, job), run_job(self.kernel, job))
        else:
            await run_job(self.kernel, job)

    async def look_after(self) -> None:
        while not self.is_over:
            report = await run_maintenance_tick(self.kernel, SETTINGS)
            assert report.failed_steps == ()
            await self.kernel.dispatch(ReplayDeadLetters())
            await asyncio.sleep(0.01)

    async def cancel(self) -> None:
        while not self.is_winding_down:
            await self._pause(0.1)
            run_id = self.random.choice(self.runs)
            if (await self.kernel.dispatch(CancelRun(run_id))).cancelled:
                self.cancelled.add(run_id)
                self.counts["cancelled"] += 1

    async def signal(self) -> None:
        while not self.is_over:
            for run_id in self.runs:
                try:
                    sent = await self.kernel.dispatch(SignalStep(run_id, "a", "go", payload=1))
                    self.counts["signalled"] += sent.delivered
                except (RunNotFoundError, RunStateError, StepKindMismatchError):
                    pass
                await asyncio.sleep(0.002)

    async def redrive(self) -> None:
        """Set ended runs going again, each kind of run, from everywhere."""
        while self.redrives_left > 0 and not self.is_winding_down:
            await self._pause(0.05)
            origin = self.random.choice((LastFailure(), Start(), FromStage("b")))
            try:
                await self.kernel.dispatch(RedriveRun(self.random.choice(self.runs), from_=origin))
            except (RunNotFoundError, RunStateError):
                continue
            self.redrives_left -= 1
            self.counts["redriven"] += 1

    async def purge(self) -> None:
        while not self.is_winding_down:
            await self._pause(0.5)
            now = self.kernel.ports.clock.now()
            self.purged |= set((await self.kernel.dispatch(PurgeRuns(now, limit=1))).run_ids)

    async def watch(self) -> None:
        """Wait for every run to have ended; from then on nothing is opened again."""
        await self._all_have_ended()
        self.is_winding_down = True
        await self._all_have_ended()
        self.is_over = True

    async def _all_have_ended(self) -> None:
        left = list(self.runs)
        while left:
            status = await self.kernel.ports.persistence.get_run_status(left[0])
            if status is None or status in TERMINAL_RUN_STATUSES:
                left.pop(0)
            else:
                await asyncio.sleep(0.05)

    async def _pause(self, longest: float) -> None:
        await asyncio.sleep(self.random.uniform(0, longest))


class Moody(CollectingEventSink):
    """Refuses one event in twenty, for no reason."""

    def __init__(self, random: Random) -> None:
        super().__init__(max_retries=2)
        self._random = random

    async def emit(self, event: Event) -> None:
        if self._random.random() < 0.05:
            raise ConnectionError("not now")
        await super().emit(event)


@pytest.mark.guarantee("kernel.many-lives-at-once-end-consistent")
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.soak)], ids=["quick", "thorough"])
async def test_many_runs_at_once_end_once_and_leave_everything_consistent(
    open_store: OpenStore, count: int
) -> None:
    random = Random(count)
    sink = Moody(random)
    kernel = await open_store(whole_life(), event_sink=sink, spill_threshold_bytes=250)
    traffic = Traffic(kernel, random, redrives_left=count // 3)
    for number in range(count):
        created = await kernel.dispatch(CreateRun("life", number, priority=number % 4))
        traffic.runs.append(created.run_id)
    async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
        for operator in traffic.operators():
            tasks.create_task(operator)
    for number, run_id in enumerate(traffic.runs):
        run = await kernel.runs.get(run_id)
        if run is None:
            assert run_id in traffic.purged
        elif run.status is Status.CANCELLED:
            assert run_id in traffic.cancelled
        elif number % 23 == 7:
            assert run.status is Status.FAILED
            assert run.error is not None
            assert run.error.message == "always"
        else:
            assert (run.status, run.output) == (Status.COMPLETED, number), run.error
    assert traffic.purged
    assert {"cancelled", "redriven", "signalled"} <= set(traffic.counts)
