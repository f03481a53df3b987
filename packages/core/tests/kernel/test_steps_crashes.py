"""The process ends at any moment, in steps of every kind and at every position: the run reaches its right end."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, StepRun, Workflow
from stagewright.commands import ClaimJobs, ExecuteJobResult, SignalStepResult, TransitionRun
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs
from stagewright.memory import InMemoryStepLedger
from stagewright.records import DequeuedJob

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
Signal = Callable[..., Coroutine[Any, Any, SignalStepResult]]
FailAt = Callable[..., None]
Finish = Callable[..., Coroutine[Any, Any, set[str] | None]]

Ctx = StageContext[Any]

MIXED = "signal-run-wait-sleep-run"
ALIKE = ("run-run-run-sleep-run", "wait-wait-wait", "signal-signal-signal", "sleep-sleep-sleep")


def every_call(kinds: str) -> Any:  # Any: what pytest.param makes has no public name
    return pytest.param(kinds, 1, marks=pytest.mark.wide)


class Crash(BaseException):
    """From here on nothing of the process is left."""


class _Executions:
    """A body of steps, and how often the functions of those were executed.

    Its steps are of one kind at every position, or of every kind, one after the other and side by side.
    """

    def __init__(self, kinds: list[str]) -> None:
        self.names = [f"{kind}-{number}" for number, kind in enumerate(kinds)]
        self.seen: list[tuple[str, int, bool, str]] = []
        self.polls: Counter[str] = Counter()

    @property
    def signals(self) -> list[str]:
        return [name for name in self.names if name.startswith("signal")]

    async def __call__(self, ctx: Ctx) -> Any:
        first = await self._do(ctx, self.names[0])
        middle = await asyncio.gather(*(self._do(ctx, name) for name in self.names[1:-1]))
        return [first, *middle, await self._do(ctx, self.names[-1])]

    async def _do(self, ctx: Ctx, name: str) -> Any:
        match name.partition("-")[0]:
            case "run":
                return await ctx.step.run(name, self._step)
            case "wait":
                return await ctx.step.wait_for(
                    name, poll=lambda: self._poll(name), ready=bool, every="1m", timeout="9d", returns=str
                )
            case "signal":
                return await ctx.step.wait_for_signal(name, timeout="9d", keepalive="1h")
            case _:
                await ctx.step.sleep(name, "1m")
                return name

    async def _step(self, run: StepRun) -> str:
        self.seen.append((run.step_id, run.attempt, run.is_reclaim, run.external_key))
        await asyncio.sleep(0)
        return run.step_id

    async def _poll(self, name: str) -> str:
        self.polls[name] += 1
        return name if self.polls[name] > 1 else ""

    def check(self, recorded_before: set[str]) -> None:
        """What was recorded before the crash ran once, what was in the middle once more, as a reclaim."""
        counts = Counter(step_id for step_id, *_ in self.seen)
        assert all(counts[name] == 1 for name in recorded_before & counts.keys()), (counts, recorded_before)
        assert max(counts.values(), default=0) <= 2, counts
        assert len({key for *_, key in self.seen}) == len(counts)
        assert all(is_reclaim for _, attempt, is_reclaim, _ in self.seen if attempt > 1), self.seen


@pytest.fixture
def finish_after_crash(
    execute: Execute,
    resume: Resume,
    signal: Signal,
    lose_worker: Callable[[], Awaitable[None]],
    forget_cues: Callable[[], None],
) -> Finish:
    """`await finish_after_crash(kernel, run_id, signals)`: work the run off; the steps recorded before the crash."""

    async def finish(kernel: Kernel, run_id: str, signals: list[str]) -> set[str] | None:
        recorded: set[str] | None = None
        unsent = list(signals)
        for _ in range(40):
            try:
                run = await kernel.runs.get(run_id)
                if run is not None and run.status is Status.COMPLETED:
                    break
                jobs: tuple[DequeuedJob, ...] = (await kernel.dispatch(ClaimJobs("worker"))).jobs
                for job in jobs:
                    await execute(kernel, job)
                if unsent:
                    await signal(kernel, run_id, unsent[0], step_id=unsent[0])
                    del unsent[0]
                await resume(kernel, run_id)
            except Crash:
                forget_cues()
                steps = await kernel.runs.steps(run_id)
                recorded = {step.step_id for step in steps if step.status == "completed"}
                await lose_worker()
                await resume(kernel, run_id)
                await kernel.dispatch(EnqueueOwedJobs())
                await kernel.dispatch(TransitionRun(run_id))
        forget_cues()
        return recorded

    return finish


@pytest.fixture
def crash_everywhere(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    fail_at: FailAt,
    finish_after_crash: Finish,
) -> Callable[..., AsyncIterator[tuple[int, _Executions, list[str]]]]:
    """`async for fatal, body, events in crash_everywhere(kinds, **ports)`: for each crash in turn, what survived.

    With `stride` at every so manieth call only.
    """

    async def crash(
        kinds: list[str], *, stride: int = 1, **ports: Any
    ) -> AsyncIterator[tuple[int, _Executions, list[str]]]:
        for fatal in range(1, 400, stride):
            body = _Executions(kinds)
            kernel = make_kernel(flow_of(body.__call__, retry=RetryPolicy(1)), **ports)
            run_id = await start_run(kernel)
            fail_at("*", nth=fatal, times=10_000, error=Crash())
            recorded_before = await finish_after_crash(kernel, run_id, body.signals)
            run = await kernel.runs.get(run_id)
            assert run is not None
            assert (run.status, run.output) == (Status.COMPLETED, body.names), fatal
            body.check(recorded_before or set())
            assert await kernel.runs.signals(run_id) == []
            yield fatal, body, [event.type for event in await kernel.runs.events(run_id)]
            if recorded_before is None:
                return
        raise AssertionError("the run has no end")

    return crash


@pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
@pytest.mark.parametrize(
    ("kinds", "stride"),
    [(MIXED, 1), *((kinds, 5) for kinds in ALIKE), *(every_call(kinds) for kinds in ALIKE)],
)
@pytest.mark.guarantee("steps.a-crash-repeats-one-execution-at-most")
async def test_a_process_may_end_at_any_moment(
    crash_everywhere: Callable[..., AsyncIterator[tuple[int, _Executions, list[str]]]],
    kinds: str,
    stride: int,
) -> None:
    """With a crash at calls of a store in turn: finished steps don't run again, the begun one runs once more."""
    last = 0
    async for fatal, body, events in crash_everywhere(kinds.split("-"), stride=stride):
        last = fatal
        assert events.count("step:signalled") == len(body.signals)
    assert last > 20


@pytest.mark.guarantee("steps.a-crash-repeats-one-execution-at-most")
async def test_with_a_ledger_elsewhere_a_crash_costs_an_event_at_most(
    crash_everywhere: Callable[..., AsyncIterator[tuple[int, _Executions, list[str]]]],
    ledger_elsewhere: InMemoryStepLedger,
) -> None:
    """The sender ends when the ledger has the payload: the step finds it, and nothing told of it."""
    lost = 0
    async for _, body, events in crash_everywhere(["run", "signal", "sleep"], step_ledger=ledger_elsewhere):
        missing = len(body.signals) - events.count("step:signalled")
        assert missing in (0, 1)
        lost += missing
    assert lost > 0
