"""Jobs that a host makes and takes itself wake nobody; those that it leaves wake others soon."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, Stage, StageContext, Workflow, define_stage, define_workflow, stage
from stagewright.commands import ClaimPendingRuns, CreateRun
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost
from stagewright_host_node.left_jobs import LeftJobs

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


def flow(name: str, *stages: Stage[Any, Any, Any]) -> Workflow:
    builder = define_workflow(name, input=int)
    for one in stages:
        builder = builder.pipe(one)
    return builder.build()


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


@stage("double-again")
async def double_again(ctx: StageContext[int]) -> int:
    return ctx.input * 2


class Hold:
    """A stage that goes on until it is let go."""

    def __init__(self, name: str) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

        async def body(ctx: StageContext[int]) -> int:
            self.begun.set()
            await self.go.wait()
            return ctx.input

        self.stage = define_stage(name, body, input=int, output=int)


async def create(kernel: Kernel, workflow: str, *, priority: int = 0) -> str:
    return (await kernel.dispatch(CreateRun(workflow, 1, priority=priority))).run_id


@pytest.mark.guarantee("hosts.wakes-others-for-what-it-leaves")
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_what_a_host_makes_and_takes_itself_is_told_to_nobody(
    url: str, opened: Opened, eventually: Eventually, sent: list[str]
) -> None:
    kernel = await opened(url, flow("w", double, double_again))

    def told() -> list[str]:
        return [text for text in sent if "pg_notify" in text]

    async with NodeHost(kernel) as host:
        await eventually(lambda: host.stats().notifications)
        for _ in range(2):
            sent.clear()
            await wait_for_run(kernel, await create(kernel, "w"), timeout=20)
            # The driver tells of a statement a moment after its answer.
            await eventually(lambda: len(told()) >= 2)
        # A host that stops tells of whatever its last executions may have made.
        assert len(told()) == 2, "one for the new run, one for its end"


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_new_runs_are_looked_for_when_somebody_tells_of_them(
    url: str, opened: Opened, eventually: Eventually, sent: list[str]
) -> None:
    kernel = await opened(
        url, flow("w", *(define_stage(f"s{n}", double.execute, input=int, output=int) for n in range(8)))
    )
    async with NodeHost(kernel) as host:
        await eventually(lambda: host.stats().notifications)
        await wait_for_run(kernel, await create(kernel, "w"), timeout=20)
        await eventually(lambda: host.stats().completed == 8)
        sent.clear()
        await wait_for_run(kernel, await create(kernel, "w"), timeout=20)
        looks = [text for text in sent if "workflow_runs.status = 'PENDING'" in text]
        assert 1 <= len(looks) < 8, "not after each stage"


@pytest.mark.guarantee("hosts.wakes-others-for-what-it-leaves")
@pytest.mark.parametrize("url", ["postgres", "sqlite"], indirect=True)
async def test_what_a_busy_host_makes_and_leaves_is_taken_by_another(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    first, long = Hold("first"), Hold("long")
    mixed = define_workflow("mixed", input=int).pipe(first.stage).parallel(double, double_again).build()
    other = flow("other", long.stage)
    busy, idle = await opened(url, mixed, other), await opened(url, mixed)
    async with NodeHost(busy, concurrency=1, orchestration_interval="1h"):
        left = await create(busy, "mixed")
        await first.begun.wait()
        # It takes the one slot once the first of what follows is done, before the second.
        await create(busy, "other", priority=10)
        async with NodeHost(idle, orchestration_interval="1h") as second:
            await eventually(lambda: second.stats().notifications)
            first.go.set()
            await long.begun.wait()
            run = await wait_for_run(idle, left, timeout=20)
            assert run.output == {"double": 2, "double-again": 2}
            await eventually(lambda: second.stats().completed == 1)
            long.go.set()


@pytest.mark.guarantee("hosts.wakes-others-for-what-it-leaves")
@pytest.mark.parametrize("url", ["postgres", "sqlite"], indirect=True)
async def test_what_a_host_makes_while_it_stops_is_taken_by_another(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    first, long = Hold("first"), Hold("long")
    mixed, other = flow("mixed", first.stage, double), flow("other", long.stage)
    stops, stays = await opened(url, mixed, other), await opened(url, mixed)
    host = NodeHost(stops, orchestration_interval="1h")
    await host.start()
    left = await create(stops, "mixed")
    await create(stops, "other")
    await first.begun.wait()
    await long.begun.wait()
    async with NodeHost(stays, orchestration_interval="1h") as second:
        await eventually(lambda: second.stats().notifications)
        stopping = asyncio.create_task(host.stop())
        await eventually(lambda: host.stats().is_draining)
        first.go.set()
        run = await wait_for_run(stays, left, timeout=20)
        assert run.output == 2
        assert not stopping.done(), "the long stage keeps it"
        long.go.set()
        await stopping


@pytest.mark.parametrize("wakes", [True, False])
async def test_a_claim_wakes_nobody_when_it_is_asked_to(opened: Opened, url: str, wakes: bool) -> None:
    kernel = await opened(url, flow("w", double))
    await create(kernel, "w")
    told: list[str] = []
    persistence: Any = type(kernel.ports.persistence)
    notify = persistence.notify

    async def listen(self: Any, topic: str) -> None:
        told.append(topic)
        await notify(self, topic)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(persistence, "notify", listen)
        await kernel.dispatch(ClaimPendingRuns("me", wakes_hosts=wakes))
    assert told == (["jobs"] if wakes else [])


class Teller:
    """Counts what is told, by a clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0
        self.told = 0

    async def __call__(self) -> None:
        self.told += 1


async def test_others_are_told_ten_times_a_second_at_the_most() -> None:
    teller = Teller()
    left = LeftJobs(teller, lambda: teller.now)
    await left.tell_when_due()
    assert (left.wait, teller.told) == (None, 0)
    left.note()
    await left.tell_when_due()
    assert (left.wait, teller.told) == (None, 1)
    left.note()
    await left.tell_when_due()
    assert left.wait == pytest.approx(0.1)
    assert teller.told == 1
    teller.now += 0.2
    await left.tell_when_due()
    assert left.wait is None
    assert teller.told == 2


async def test_a_claim_settles_what_was_made_before_it_and_nothing_later() -> None:
    teller = Teller()
    left = LeftJobs(teller, lambda: teller.now)
    left.note()
    made = left.made
    left.note()
    left.settle(made)
    assert left.wait == 0
    left.settle(left.made)
    await left.tell_now()
    assert teller.told == 0
