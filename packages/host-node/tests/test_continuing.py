"""A slot goes on with the stage that follows, without a claim, unless something else has waited long enough."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, Stage, StageContext, Status, Workflow, define_stage, define_workflow, stage
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, ExecuteJob
from stagewright.hosting import wait_for_run
from stagewright.kernel.command import Command
from stagewright_host_node import NodeHost
from stagewright_host_node.continuing import Continuing

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]
CallNext = Callable[[Command[Any]], Awaitable[Any]]


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


@stage("add-one")
async def add_one(ctx: StageContext[int]) -> int:
    return ctx.input + 1


def chain(name: str, *stages: Stage[Any, Any, Any]) -> Workflow:
    builder = define_workflow(name, input=int)
    for one in stages:
        builder = builder.pipe(one)
    return builder.build()


class Gate:
    """A stage that goes on until it is let go."""

    def __init__(self, name: str) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

        async def body(ctx: StageContext[int]) -> int:
            self.begun.set()
            await self.go.wait()
            return ctx.input

        self.stage = define_stage(name, body, input=int, output=int)


class Heard:
    """A middleware that keeps what was asked for and what came of it."""

    def __init__(self) -> None:
        self.answers: list[tuple[Command[Any], Any]] = []

    async def __call__(self, command: Command[Any], call_next: CallNext) -> Any:
        result = await call_next(command)
        self.answers.append((command, result))
        return result

    def jobs_given_by(self, kind: type[Command[Any]]) -> list[str]:
        """The stages of jobs that commands of this type gave."""
        found = []
        for command, result in self.answers:
            if isinstance(command, kind):
                given = [result.next_job] if isinstance(command, ExecuteJob) else result.jobs
                found += [job.stage_id for job in given if job is not None]
        return found


async def create(kernel: Kernel, workflow: str, *, priority: int = 0) -> str:
    return (await kernel.dispatch(CreateRun(workflow, 1, priority=priority))).run_id


@pytest.mark.guarantee("hosts.goes-on-with-what-follows")
async def test_a_host_with_nothing_else_to_do_claims_a_run_once(
    opened: Opened, url: str, eventually: Eventually
) -> None:
    heard = Heard()
    kernel = await opened(url, chain("w", double, add_one), middleware=[heard])
    async with NodeHost(kernel, poll_interval="20ms") as host:
        await eventually(lambda: any(isinstance(command, ClaimJobs) for command, _ in heard.answers))
        run = await wait_for_run(kernel, await create(kernel, "w"), timeout=20)
        await eventually(lambda: host.stats().completed == 2)
    assert (run.status, run.output) == (Status.COMPLETED, 3)
    assert heard.jobs_given_by(ClaimPendingRuns) == ["double"]
    assert heard.jobs_given_by(ExecuteJob) == ["add-one"]
    assert heard.jobs_given_by(ClaimJobs) == []


async def test_stages_beside_each_other_are_taken_by_as_many_slots(
    opened: Opened, url: str, eventually: Eventually
) -> None:
    heard, first, second = Heard(), Gate("first"), Gate("second")
    fork = define_workflow("w", input=int).pipe(double).parallel(first.stage, second.stage).build()
    kernel = await opened(url, fork, middleware=[heard])
    async with NodeHost(kernel, poll_interval="20ms"):
        run_id = await create(kernel, "w")
        await asyncio.wait_for(asyncio.gather(first.begun.wait(), second.begun.wait()), 20)
        first.go.set()
        second.go.set()
        run = await wait_for_run(kernel, run_id, timeout=20)
    assert run.output == {"first": 2, "second": 2}
    assert heard.jobs_given_by(ExecuteJob) == ["first"]
    assert "second" in heard.jobs_given_by(ClaimJobs)


@pytest.mark.guarantee("hosts.goes-on-with-what-follows")
async def test_a_stage_that_took_long_leaves_its_slot_to_what_waits(
    opened: Opened, url: str, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagewright_host_node.continuing._AHEAD_OF_OTHERS", 0.0)
    order: list[str] = []

    def noted(name: str) -> Stage[Any, Any, Any]:
        async def body(ctx: StageContext[int]) -> int:
            order.append(name)
            return ctx.input

        return define_stage(name, body, input=int, output=int)

    gate = Gate("gate")
    long, urgent = chain("long", gate.stage, noted("after")), chain("urgent", noted("urgent"))
    kernel = await opened(url, long, urgent)
    async with NodeHost(kernel, concurrency=1, poll_interval="20ms"):
        first = await create(kernel, "long")
        await asyncio.wait_for(gate.begun.wait(), 20)
        second = await create(kernel, "urgent", priority=10)
        gate.go.set()
        for run_id in (first, second):
            assert (await wait_for_run(kernel, run_id, timeout=20)).status is Status.COMPLETED
    assert order == ["urgent", "after"]


async def test_a_host_that_stops_leaves_what_follows_to_others(
    opened: Opened, url: str, eventually: Eventually
) -> None:
    heard, gate = Heard(), Gate("gate")
    kernel = await opened(url, chain("w", gate.stage, double), middleware=[heard])
    host = NodeHost(kernel, poll_interval="20ms")
    await host.start()
    run_id = await create(kernel, "w")
    await asyncio.wait_for(gate.begun.wait(), 20)
    stopping = asyncio.create_task(host.stop())
    await eventually(lambda: host.stats().is_draining)
    gate.go.set()
    await stopping
    assert heard.jobs_given_by(ExecuteJob) == []
    async with NodeHost(kernel, poll_interval="20ms"):
        assert (await wait_for_run(kernel, run_id, timeout=20)).output == 2


@pytest.mark.guarantee("hosts.handed-back-at-once")
async def test_a_job_that_was_handed_over_to_a_host_that_stops_meanwhile_is_handed_back(
    opened: Opened, url: str, eventually: Eventually
) -> None:
    given, answer = asyncio.Event(), asyncio.Event()

    async def slow(command: Command[Any], call_next: CallNext) -> Any:
        result = await call_next(command)
        if isinstance(command, ExecuteJob) and result.next_job is not None:
            given.set()
            await answer.wait()
        return result

    kernel = await opened(url, chain("w", double, add_one), middleware=[slow])
    host = NodeHost(kernel, poll_interval="20ms")
    await host.start()
    run_id = await create(kernel, "w")
    await asyncio.wait_for(given.wait(), 20)
    stopping = asyncio.create_task(host.stop())
    await eventually(lambda: host.stats().is_draining)
    answer.set()
    await stopping
    jobs = {job.stage_id: job for job in await kernel.ports.job_transport.get_jobs_by_run(run_id)}
    left = jobs["add-one"]
    assert (left.status, left.interruptions, left.worker_losses) == (Status.PENDING, 1, 0)
    async with NodeHost(kernel, poll_interval="20ms"):
        assert (await wait_for_run(kernel, run_id, timeout=20)).output == 3


class _Slots:
    are_reserved = False


class _Loop:
    knows_of_nothing = False


class _Cap:
    full: str | None = None

    def obstacle(self) -> str | None:
        return self.full


class _Execution:
    claimed_at = 100.0


@pytest.mark.parametrize(
    ("reserved", "idle", "full", "age", "goes_on"),
    [
        (False, False, None, 0.9, True),
        (False, False, None, 1.0, False),
        (False, True, None, 3600.0, True),
        (True, True, None, 0.0, False),
        (False, True, "too many threads", 0.0, False),
    ],
)
def test_when_a_slot_goes_on(
    *, reserved: bool, idle: bool, full: str | None, age: float, goes_on: bool
) -> None:
    slots, loop, cap = _Slots(), _Loop(), _Cap()
    slots.are_reserved, loop.knows_of_nothing, cap.full = reserved, idle, full
    # Any: stand-ins that have what is asked for
    given: list[Any] = [slots, loop, cap, _Execution()]
    continuing = Continuing("w", given[0], given[1], given[2], clock=lambda: 100.0 + age)
    assert continuing.successor(given[3]) == ("w" if goes_on else None)
