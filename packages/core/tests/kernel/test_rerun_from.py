"""The older name of a redrive from a stage."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import CancelRun, RedriveRun, RerunFrom, RerunFromResult
from stagewright.errors import (
    DefinitionVersionMismatchError,
    RunNotFoundError,
    RunStateError,
    UnknownStageError,
)
from stagewright.records import RunRecord

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]

WARNING = "use RedriveRun"


async def attempt(ctx: StageContext[Any]) -> int:
    return ctx.attempt


@pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
@pytest.mark.guarantee("redrives.rerun-from-is-a-redrive")
async def test_it_warns_and_redrives_from_the_stage_once_a_key(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    kernel = make_kernel(flow_of(attempt, attempt, attempt))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    with pytest.warns(DeprecationWarning, match=WARNING) as caught:
        command = RerunFrom(run_id, "s2", idempotency_key="k")
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=WARNING):
        result = await kernel.dispatch(command)
    assert result == RerunFromResult(run_id, "s2", ("s2", "s3"))
    with pytest.warns(DeprecationWarning, match=WARNING):
        assert await kernel.dispatch(command) == result
    run = await finish(kernel, run_id)
    assert (run.status, run.output, run.redrive_count) == (Status.COMPLETED, 2, 1)
    assert [stage.attempt for stage in await kernel.runs.stages(run_id)] == [1, 2, 2]


async def test_a_dict_warns_too(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    kernel = make_kernel(flow_of(attempt))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    with pytest.warns(DeprecationWarning, match=WARNING):
        result = await kernel.dispatch({"type": "run.rerunFrom", "run_id": run_id, "from_stage_id": "s1"})
    assert result == RerunFromResult(run_id, "s1", ("s1",))


async def test_what_it_can_not_do_is_refused_and_changes_nothing(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    contents: Callable[[], object],
) -> None:
    kernel = make_kernel(flow_of(attempt))
    cancelled, ended = await start_run(kernel), await start_run(kernel)
    await kernel.dispatch(CancelRun(cancelled))
    await finish(kernel, ended)
    before = contents()
    newer = make_kernel(flow_of(attempt, attempt))
    for dispatching, run_id, stage_id, error in (
        (kernel, cancelled, "s1", RunStateError),
        (kernel, "nobody", "s1", RunNotFoundError),
        (kernel, ended, "s2", UnknownStageError),
        (newer, ended, "s1", DefinitionVersionMismatchError),
    ):
        with pytest.warns(DeprecationWarning, match=WARNING), pytest.raises(error):
            await dispatching.dispatch(RerunFrom(run_id, stage_id))
    assert contents() == before
    assert (await kernel.dispatch(RedriveRun(cancelled))).redrive_count == 1, "a redrive takes cancelled runs"
