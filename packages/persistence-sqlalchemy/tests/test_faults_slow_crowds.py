"""Crowds: many workers in one process, and several processes on one SQLite file."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, define_stage, define_workflow
from stagewright.commands import CreateRun
from stagewright.records import RunRecord
from stagewright_persistence_sqlalchemy import Database

pytestmark = pytest.mark.slow

WorkOff = Callable[..., Coroutine[Any, Any, None]]
CheckRun = Callable[..., Coroutine[Any, Any, RunRecord]]

WORKER = Path(__file__).with_name("process_worker.py")
SOON = RetryPolicy(3, delay="1ms", jitter=False)


async def add_up(ctx: StageContext[Any]) -> Any:
    return sum(ctx.input.values())


async def test_eight_workers_run_each_body_of_two_hundred_runs_once(
    database: Database,
    make_kernel: Callable[..., Kernel],
    work_off: WorkOff,
    check_run: CheckRun,
    deliver_all: Callable[[Kernel], Awaitable[None]],
) -> None:
    bodies: Counter[tuple[str, str, int]] = Counter()

    async def body(ctx: StageContext[Any]) -> Any:
        bodies[ctx.run_id, ctx.stage_id, ctx.attempt] += 1
        await asyncio.sleep(0)
        if ctx.input % 10 == 3 and ctx.stage_id == "b" and ctx.attempt == 1:
            raise ValueError("once")
        return ctx.input

    parallel = [define_stage(name, body, input=Any, output=Any, retry=SOON) for name in ("b", "c")]
    workflow = define_workflow("flow", input=Any).stage("a", body, input=Any, output=Any)
    kernel = make_kernel(
        database, workflow.parallel(*parallel).stage("d", add_up, input=Any, output=Any).build()
    )
    commands = [CreateRun("flow", number, priority=number % 3) for number in range(200)]
    runs = [(await kernel.dispatch(command)).run_id for command in commands]
    await work_off(kernel, runs, workers=8, batch=2)
    await deliver_all(kernel)
    for number, run_id in enumerate(runs):
        run = await check_run(kernel, run_id)
        assert run.output == 2 * number
    retried = sum(number % 10 == 3 for number in range(200))
    assert set(bodies.values()) == {1}
    assert len(bodies) == 3 * 200 + retried
    assert await kernel.ports.job_transport.depth() == 0


async def _work_in_a_process(url: str, runs: int, until: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(WORKER), url, str(runs), str(until)), stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    told: dict[str, Any] = json.loads(out)
    return told


@pytest.mark.parametrize("way", ["sqlite", "asyncpg"], indirect=True)
@pytest.mark.guarantee("sql.never-locked")
async def test_four_processes_share_a_hundred_runs(
    database: Database, url: str, make_kernel: Callable[..., Kernel]
) -> None:
    async with asyncio.timeout(120):
        told = await asyncio.gather(*(_work_in_a_process(url, 25, 100) for _ in range(4)))
    assert [error for one in told for error in one["errors"]] == []
    bodies = Counter(tuple(body) for one in told for body in one["bodies"])
    assert len(bodies) == 3 * 100
    assert set(bodies.values()) == {1}
    delivered = Counter(event for one in told for event in one["delivered"])
    assert set(delivered.values()) == {1}
    kernel = make_kernel(database)
    for one in told:
        for run_id in one["runs"]:
            run = await kernel.runs.get(run_id)
            assert run is not None
            assert run.output == 3
            events = await kernel.runs.events(run_id)
            assert [event.sequence for event in events] == list(range(1, 10))
            assert all(event.published_at is not None and event.id in delivered for event in events)
