import asyncio
import time

import pytest

from stagewright import StageContext, Status, define_workflow, open_kernel, stage
from stagewright.commands import CancelRun, CreateRun
from stagewright.errors import InvalidDurationError, RunNotFoundError
from stagewright.hosting import drive_run, wait_for_run


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


WORKFLOW = define_workflow("w", input=int).pipe(double).build()


async def test_it_waits_for_what_others_do() -> None:
    async with open_kernel(WORKFLOW, "memory://") as kernel:
        run_id = (await kernel.dispatch(CreateRun("w", 2))).run_id
        waiting = asyncio.create_task(wait_for_run(kernel, run_id))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await drive_run(kernel, run_id)
        run = await asyncio.wait_for(waiting, 5)
    assert (run.status, run.output) == (Status.COMPLETED, 4)


async def test_a_run_that_has_ended_is_answered_at_once() -> None:
    async with open_kernel(WORKFLOW, "memory://") as kernel:
        run_id = (await kernel.dispatch(CreateRun("w", 2))).run_id
        await kernel.dispatch(CancelRun(run_id))
        began = time.monotonic()
        assert (await wait_for_run(kernel, run_id, timeout=0.5)).status is Status.CANCELLED
        assert time.monotonic() - began < 0.4


async def test_what_can_be_answered_at_once_is_not_listened_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_kernel(WORKFLOW, "memory://") as kernel:
        run_id = (await kernel.dispatch(CreateRun("w", 2))).run_id
        await kernel.dispatch(CancelRun(run_id))

        listened: list[object] = []

        async def listen(self: object, timeout: object) -> bool:
            # In a forked child this would use the parent's connections.
            listened.append(timeout)
            return False

        monkeypatch.setattr(type(kernel.ports.persistence), "wait_for_work", listen)
        assert (await wait_for_run(kernel, run_id)).status is Status.CANCELLED
        with pytest.raises(RunNotFoundError):
            await wait_for_run(kernel, "nothing")
        assert listened == []


async def test_time_that_is_over_unknown_runs_and_wrong_durations_are_told() -> None:
    async with open_kernel(WORKFLOW, "memory://") as kernel:
        run_id = (await kernel.dispatch(CreateRun("w", 2))).run_id
        with pytest.raises(TimeoutError, match=r"did not end within 0\.05 s"):
            await wait_for_run(kernel, run_id, timeout="50ms")
        with pytest.raises(RunNotFoundError, match="'nothing'"):
            await wait_for_run(kernel, "nothing")
        with pytest.raises(InvalidDurationError, match="timeout="):
            await wait_for_run(kernel, run_id, timeout="soon")
