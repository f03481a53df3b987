"""A process that dies at any moment: whoever comes next brings the run to its end, each outcome recorded once."""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, define_stage, define_workflow
from stagewright.commands import CreateRun, TransitionRun
from stagewright.memory import InMemoryJobTransport, InMemoryPersistence
from stagewright.records import RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


class CrashError(BaseException):
    """Nobody may catch this: the process is gone."""


async def echo(ctx: StageContext[Any]) -> Any:
    ctx.annotate("seen", ctx.stage_id, emit_event=True)
    return ctx.input


SIBLINGS = [define_stage(name, echo, input=Any, output=Any) for name in ("b", "c")]
WORKFLOW = (
    define_workflow("flow", input=Any)
    .stage("a", echo, input=Any, output=Any)
    .parallel(*SIBLINGS)
    .stage("d", echo, input=Any, output=Any)
    .build()
)


@pytest.mark.guarantee("kernel.a-crash-loses-nothing")
@pytest.mark.parametrize("nth", range(1, 150, 2))
async def test_a_run_survives_a_crash_at_any_moment(
    make_kernel: MakeKernel,
    finish: Finish,
    told: Told,
    transport: InMemoryJobTransport,
    persistence: InMemoryPersistence,
    clock: FakeClock,
    fail_at: Callable[..., None],
    forget_cues: Callable[[], None],
    nth: int,
) -> None:
    kernel = make_kernel(WORKFLOW, spill_threshold_bytes=10)
    run_id = (await kernel.dispatch(CreateRun("flow", "x" * 50))).run_id
    fail_at("*", nth=nth, error=CrashError())
    try:
        await finish(kernel, run_id)
    except CrashError:
        pass
    finally:
        forget_cues()
    clock.advance("1m")
    await transport.release_stale(timedelta(seconds=45))
    run = await kernel.runs.get(run_id)
    assert run is not None
    if run.status is Status.RUNNING:
        await kernel.dispatch(TransitionRun(run_id))
    stages = await persistence.get_stages_by_run(run_id)
    jobs = {job.stage_id for job in await transport.get_jobs_by_run(run_id)}
    lost = [stage for stage in stages if stage.status is Status.PENDING and stage.stage_id not in jobs]
    if lost:
        assert not kernel.ports.transport_enlists, "a job in the same database can't be lost"
        assert all(stage.job_enqueued_at is None for stage in lost), "a lost job is owed"
        return
    ended = await finish(kernel, run_id)
    assert (ended.status, ended.output) == (Status.COMPLETED, {"b": "x" * 50, "c": "x" * 50})
    story = Counter(await told(kernel, run_id))
    assert (story["workflow:started"], story["workflow:completed"]) == (1, 1)
    assert (story["stage:completed"], story["annotation:created"]) == (4, 4)
    assert story["stage:retrying"] == story["stage:failed"] == 0
