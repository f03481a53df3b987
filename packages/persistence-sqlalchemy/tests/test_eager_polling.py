"""Hosts that hear no notifications and look for work a thousand times a second."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from stagewright import StageContext, Status, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright_host_node import NodeHost

RUNS = 1_000


@pytest.mark.slow
@pytest.mark.guarantee("hosts.eager-polling-loses-nothing")
async def test_of_a_thousand_runs_none_is_lost_hangs_or_happens_twice(
    new_database: Callable[[str], str], eventually: Callable[..., Awaitable[None]]
) -> None:
    bodies: Counter[tuple[str, str]] = Counter()

    async def body(ctx: StageContext[Any]) -> Any:
        bodies[ctx.run_id, ctx.stage_id] += 1
        return ctx.input + 1

    def flow() -> Any:
        builder = define_workflow("flow", input=Any).stage("a", body, input=Any, output=Any)
        return builder.stage("b", body, input=Any, output=Any).build()

    # A pooler passes no notifications on, so each kernel relies on looking.
    deaf = f"{new_database('asyncpg')}?pgbouncer=true"
    async with AsyncExitStack() as opened:
        kernels = [
            await opened.enter_async_context(open_kernel(flow(), deaf, create_schema=True)) for _ in range(3)
        ]
        for kernel in kernels[1:]:
            host = NodeHost(kernel, poll_interval="1ms", orchestration_interval="1ms", handle_signals=False)
            await opened.enter_async_context(host)
        creator = kernels[0]
        created: list[str] = []

        async def create() -> None:
            while len(created) < RUNS:
                created.append("")
                place = len(created) - 1
                created[place] = (await creator.dispatch(CreateRun("flow", place))).run_id

        await asyncio.gather(*(create() for _ in range(8)))

        async def all_ended() -> bool:
            for run_id in reversed(created):
                if await creator.ports.persistence.get_run_status(run_id) not in TERMINAL_RUN_STATUSES:
                    return False
            return True

        await eventually(all_ended, within=180)
        outputs = [await creator.runs.get(run_id) for run_id in created]
        assert [run and (run.status, run.output) for run in outputs] == [
            (Status.COMPLETED, number + 2) for number in range(RUNS)
        ]
    assert set(bodies.values()) == {1}
    assert len(bodies) == 2 * RUNS
