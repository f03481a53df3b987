"""Who holds a run that waits to be claimed wakes the hosts that passed it by meanwhile."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.commands import CancelRun, CreateRun, SignalStep
from stagewright.memory import InMemoryPersistence

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]


async def waits(ctx: StageContext[Any]) -> Any:
    return await ctx.step.wait_for_signal("go", timeout="1h")


async def signal(kernel: Kernel, run_id: str) -> object:
    return await kernel.dispatch(SignalStep(run_id, "s1", "go"))


async def annotate(kernel: Kernel, run_id: str) -> None:
    await kernel.annotations.attach(run_id, {"why": "because"})


@pytest.mark.guarantee("hosts.held-work-is-not-forgotten")
@pytest.mark.parametrize("hold", [signal, annotate])
async def test_hosts_look_again_when_a_run_is_let_go(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    persistence: InMemoryPersistence,
    hold: Callable[[Kernel, str], Awaitable[object]],
) -> None:
    kernel = make_kernel(flow_of(waits))

    async def is_woken() -> bool:
        return await persistence.wait_for_work(timedelta(0))

    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    while await is_woken():
        pass
    await hold(kernel, run_id)
    assert await is_woken()
    await kernel.dispatch(CancelRun(run_id))
    while await is_woken():
        pass
    await annotate(kernel, run_id)
    assert not await is_woken(), "nothing of a run that has ended can be claimed"
