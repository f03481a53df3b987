"""Outcomes that can't be recorded: their bodies are repeated with pauses."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from stagewright import Kernel, StageContext, define_stage, define_workflow
from stagewright.commands import CreateRun
from stagewright.errors import TransientError
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost

Opened = Callable[..., Awaitable[Kernel]]


@pytest.mark.guarantee("hosts.unrecorded-outcomes-pause")
async def test_a_body_whose_outcome_can_not_be_recorded_is_repeated_with_pauses(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[float] = []

    async def body(ctx: StageContext[Any]) -> int:
        began.append(asyncio.get_running_loop().time())
        return 1

    stage = define_stage("s", body, input=Any, output=int)
    kernel = await opened("memory://", define_workflow("w", input=Any).pipe(stage).build())
    transport: Any = type(kernel.ports.job_transport)
    enlist = transport.enlist
    refusals = 4

    def refusing(self: Any, tx: Any) -> Any:
        bound = enlist(self, tx)
        complete = bound.complete

        async def refuse(*given: Any, **named: Mapping[str, Any]) -> Any:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise TransientError("not now")
            return await complete(*given, **named)

        bound.complete = refuse
        return bound

    monkeypatch.setattr(transport, "enlist", refusing)
    async with NodeHost(kernel):
        run_id = (await kernel.dispatch(CreateRun("w"))).run_id
        run = await wait_for_run(kernel, run_id, timeout=20)
    assert run.output == 1
    # A transaction is tried three times, so that four refusals are one outcome that could not be recorded.
    assert len(began) == 2
    assert began[1] - began[0] > 0.05
