"""One whole life of runs: nearly everything that a kernel writes and reads, in a few hundred statements."""

from datetime import timedelta
from typing import Any

from stagewright import Kernel, RetryPolicy, StageContext, Status, Workflow, define_stage, define_workflow
from stagewright.commands import (
    AnnotationInput,
    CancelRun,
    CreateRun,
    FlushOutbox,
    ListVersions,
    PurgeRuns,
    RedriveRun,
    SignalStep,
)
from stagewright.hosting import drive_run

SPILLS = 500
"""The threshold above which the kernel is told to spill."""


def life() -> Workflow:
    """Two stages at once, one of which fails once, then one with a step, a sleep, and a wait for a signal."""

    async def count(ctx: StageContext[Any]) -> Any:
        ctx.log("info", "counted", of=ctx.input)
        ctx.annotate("seen", ctx.input, emit_event=True)
        await ctx.storage.save("kept", {"n": ctx.input})
        if ctx.stage_id == "flaky" and ctx.attempt == 1:
            raise ValueError("once")
        return "x" * 2 * SPILLS

    async def wait(ctx: StageContext[Any]) -> Any:
        length = await ctx.step.run("length", lambda: len(ctx.input["flaky"]), returns=int)
        await ctx.step.sleep("nap", "1ms")
        said: object = await ctx.step.wait_for_signal("approval", timeout="1h", returns=Any)
        if ctx.attempt == 1 and said == "fail":
            raise RuntimeError("as was said")
        return {"length": length, "said": said}

    once_more = RetryPolicy(2, delay=0)
    first = [define_stage(id, count, input=Any, output=Any, retry=once_more) for id in ("well", "flaky")]
    last = define_stage("waits", wait, input=Any, output=Any, retry=RetryPolicy(1))
    return define_workflow("life", input=Any).parallel(*first).pipe(last).version("v1").build()


async def live(kernel: Kernel) -> None:
    """Go through it all, and see that everything came out as it does on a database of the kernel's own version."""
    marked = [AnnotationInput(attributes={"origin": "test"})]
    command = CreateRun("life", [1.5, "ü"], idempotency_key="one", annotations=marked)
    run_id = (await kernel.dispatch(command)).run_id
    assert (await kernel.dispatch(command)).run_id == run_id
    await kernel.dispatch(SignalStep(run_id, "waits", "approval", payload="yes"))
    done = await drive_run(kernel, run_id)
    assert (done.status, done.output) == (Status.COMPLETED, {"length": 2 * SPILLS, "said": "yes"}), done
    assert await kernel.runs.output_of(run_id, "well") == "x" * 2 * SPILLS
    told = await kernel.runs.events(run_id, limit=1_000)
    assert [event.sequence for event in told] == list(range(1, len(told) + 1))
    assert told[-1].type == "workflow:completed"
    assert [step.step_id for step in await kernel.runs.steps(run_id)] == ["length", "nap", "approval"]
    assert len((await kernel.runs.logs(run_id, level="INFO")).items) >= 3

    failing = (await kernel.dispatch(CreateRun("life", 2))).run_id
    await kernel.dispatch(SignalStep(failing, "waits", "approval", payload="fail"))
    assert (await drive_run(kernel, failing)).status is Status.FAILED
    await kernel.dispatch(RedriveRun(failing))
    redriven = await drive_run(kernel, failing)
    assert (redriven.status, redriven.redrive_count) == (Status.COMPLETED, 1)

    unwanted = (await kernel.dispatch(CreateRun("life", 3))).run_id
    await kernel.dispatch(CancelRun(unwanted, reason="not wanted"))
    listed = (await kernel.runs.list()).items
    assert {run.id for run in listed} >= {run_id, failing, unwanted}
    assert (await kernel.dispatch(ListVersions())).versions
    while (await kernel.dispatch(FlushOutbox())).published:
        pass
    purged = await kernel.dispatch(PurgeRuns(kernel.ports.clock.now() + timedelta(hours=1)))
    assert purged.purged >= 3
    assert await kernel.runs.get(run_id) is None
