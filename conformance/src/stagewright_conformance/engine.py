"""Kernels over the adapters: what becomes of a run, from its start to its purge."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    CreateRun,
    PurgeRuns,
    RedriveRun,
    SignalStep,
)
from stagewright.hosting import run_job, run_maintenance_tick
from stagewright.status import Status
from stagewright.system import TimeSortableIds
from stagewright_conformance.deployments import Deployment, DeploymentSuite, MovingClock
from stagewright_conformance.samples import ODD_JSON, exactly, new_id
from stagewright_conformance.suite import Background, Scale

__all__ = ["EngineSuite"]

_ANY: Final[dict[str, Any]] = {"input": Any, "output": Any}
_SOON: Final = RetryPolicy(3, delay=0)
_LARGE: Final = {"odd": ODD_JSON, "filling": "large " * 100}


async def passes_on(ctx: StageContext[Any]) -> Any:
    """Give what it is given."""
    return ctx.input


def flow_of(*bodies: Any, **options: Any) -> Workflow:
    """A workflow of one stage after the other, `s1`, `s2`, and so on."""
    builder = define_workflow(new_id("flow"), input=Any)
    given: dict[str, Any] = {"retry": _SOON, **_ANY, **options}
    for number, body in enumerate(bodies, start=1):
        builder = builder.stage(f"s{number}", body, **given)
    return builder.build()


async def start(kernel: Kernel, flow: Workflow, input: Any = None, **fields: Any) -> str:
    """Start a run."""
    return (await kernel.dispatch(CreateRun(flow.id, input, **fields))).run_id


class EngineSuite(DeploymentSuite):
    """Runs of every kind, worked off by kernels over the adapters.

    Fixtures: those of `DeploymentSuite`.
    """

    async def test_stages_are_given_what_came_before(self, deployment: Deployment) -> None:
        """`Persistence`, `JobTransport`: groups run one after the other, each on the outputs of the one before."""

        async def count(ctx: StageContext[Any]) -> Any:
            return {"from": ctx.stage_id, "input": ctx.input}

        sides = [define_stage(name, count, **_ANY) for name in ("left", "right")]
        flow = define_workflow(new_id("flow"), input=Any).stage("first", count, **_ANY)
        flow = flow.parallel(*sides).stage("last", count, **_ANY)
        workflow = flow.build()
        kernel = deployment.kernel(workflow)
        run = await deployment.work_off(kernel, await start(kernel, workflow, ODD_JSON))
        first = {"from": "first", "input": ODD_JSON}
        sides_gave = {name: {"from": name, "input": first} for name in ("left", "right")}
        assert exactly(run.output) == exactly({"from": "last", "input": sides_gave})
        [told] = await deployment.ended_well(deployment.kernel(workflow, handle=1), run.id)
        assert told[:4] == ["workflow:created", "workflow:started", "stage:started", "stage:completed"]
        assert Counter(told[4:8]) == {"stage:started": 2, "stage:completed": 2}
        assert told[8:] == ["stage:started", "stage:completed", "workflow:completed"]

    async def test_a_body_that_fails_is_tried_again_within_its_budget(self, deployment: Deployment) -> None:
        """`JobQueue.fail`: one more failure, and the job is delivered again; the budget is the caller's."""
        attempts: list[int] = []

        async def fails_twice(ctx: StageContext[Any]) -> Any:
            attempts.append(ctx.attempt)
            if len(attempts) < 3:
                raise ConnectionError("once more")
            return "done"

        flow = flow_of(fails_twice)
        kernel = deployment.kernel(flow)
        run = await deployment.work_off(kernel, await start(kernel, flow))
        assert (run.status, run.output, attempts) == (Status.COMPLETED, "done", [1, 2, 3])
        [told] = await deployment.ended_well(kernel, run.id)
        assert (told.count("stage:retrying"), told.count("stage:completed")) == (2, 1)
        attempts.clear()
        spent = flow_of(fails_twice, retry=RetryPolicy(2, delay=0))
        kernel = deployment.kernel(spent)
        run = await deployment.work_off(kernel, await start(kernel, spent))
        assert (run.status, attempts) == (Status.FAILED, [1, 2])
        await deployment.ended_well(kernel, run.id)

    async def test_a_failure_for_good_ends_the_run(self, deployment: Deployment) -> None:
        """`Persistence`: a run keeps why it failed, and what was to follow isn't begun."""

        async def fails(ctx: StageContext[Any]) -> Any:
            raise NonRetryableError("the card was refused")

        flow = flow_of(passes_on, fails, passes_on)
        kernel = deployment.kernel(flow)
        run = await deployment.work_off(kernel, await start(kernel, flow))
        assert run.error is not None
        assert (run.status, run.error.stage_id, run.output) == (Status.FAILED, "s2", None)
        assert "the card was refused" in run.error.message
        assert [stage.stage_id for stage in await kernel.runs.stages(run.id)] == ["s1", "s2"]
        [told] = await deployment.ended_well(kernel, run.id)
        assert told[-2:] == ["stage:failed", "workflow:failed"]

    @pytest.mark.guarantee("stores.engine-steps-once")
    async def test_steps_are_executed_once_however_often_their_stage_is(self, deployment: Deployment) -> None:
        """`StepLedger`, `WaitingStageStore`: what a step gave is answered when its stage goes on or fails."""
        calls: Counter[str] = Counter()

        async def step(name: str) -> Any:
            calls[name] += 1
            return [name, ODD_JSON]

        async def look() -> Any:
            calls["look"] += 1
            return calls["look"]

        async def body(ctx: StageContext[Any]) -> Any:
            calls["body"] += 1
            first, second = await asyncio.gather(
                *(ctx.step.run(name, lambda name=name: step(name), returns=Any) for name in ("a", "b"))
            )
            await ctx.step.sleep("nap", "3s")
            seen = await ctx.step.wait_for(
                "look", poll=look, ready=lambda n: n == 2, every="2s", timeout="9d", returns=int
            )
            if ctx.attempt == 1:
                raise ConnectionError("after all the steps")
            return [first, second, seen]

        flow = flow_of(body)
        kernel = deployment.kernel(flow)
        run = await deployment.work_off(kernel, await start(kernel, flow))
        assert exactly(run.output) == exactly([["a", ODD_JSON], ["b", ODD_JSON], 2])
        assert (calls["a"], calls["b"], calls["look"]) == (1, 1, 2)
        assert calls["body"] >= 4
        [stage] = await kernel.runs.stages(run.id)
        steps = {step.step_id: step.status for step in await deployment.steps_of(kernel, stage.id)}
        assert steps == dict.fromkeys(("a", "b", "nap", "look"), "completed")
        await deployment.ended_well(kernel, run.id)

    @pytest.mark.parametrize("when", ["before the run is claimed", "while the step waits"])
    async def test_a_signal_comes_before_its_step_or_while_it_waits(
        self, deployment: Deployment, when: str
    ) -> None:
        """`SignalStore`, `StepLedger`: a signal is kept until its step takes it, and the first one stays."""

        async def body(ctx: StageContext[Any]) -> Any:
            return await ctx.step.wait_for_signal("approval", timeout="9d")

        flow = flow_of(body)
        kernel, other = deployment.kernel(flow), deployment.kernel(flow, handle=1)
        run_id = await start(kernel, flow)
        answers: list[tuple[bool, bool]] = []

        async def signal(by: Kernel) -> bool:
            stages = await by.runs.stages(run_id)
            is_time = not stages or stages[0].status is Status.SUSPENDED
            if len(answers) == 2 or not is_time:
                return False
            for payload in (ODD_JSON, "too late"):
                answer = await other.dispatch(SignalStep(run_id, "s1", "approval", payload=payload))
                answers.append((answer.delivered, answer.already_completed))
            return True

        if when == "before the run is claimed":
            await signal(kernel)
        run = await deployment.work_off(kernel, run_id, signal)
        assert exactly(run.output) == exactly(ODD_JSON)
        assert answers == [(True, False), (False, True)]
        assert await kernel.runs.signals(run_id) == []
        await deployment.ended_well(kernel, run_id)

    @pytest.mark.guarantee("stores.engine-values-exact")
    async def test_large_values_come_back_exact(self, deployment: Deployment) -> None:
        """`BlobStore.put`, `BlobStore.get`: outputs, results, signals and payloads that are too large for a row."""
        seen: list[str] = []

        async def body(ctx: StageContext[Any, dict[str, Any]]) -> Any:
            result = await ctx.step.run("large", lambda: asyncio.sleep(0, _LARGE), returns=Any)
            signal = await ctx.step.wait_for_signal("large signal", timeout="9d")
            seen.extend(map(exactly, (ctx.config, result, signal)))
            await ctx.storage.save("report", _LARGE)
            return _LARGE

        async def reads(ctx: StageContext[Any]) -> Any:
            return ctx.input

        flow = define_workflow(new_id("flow"), input=Any)
        flow = flow.stage("s1", body, config=dict[str, Any], **_ANY).stage("s2", reads, **_ANY)
        workflow = flow.build()
        kernel, other = deployment.kernel(workflow), deployment.kernel(workflow, handle=1)
        run_id = await start(kernel, workflow, config={"s1": _LARGE})
        await kernel.dispatch(SignalStep(run_id, "s1", "large signal", payload=_LARGE))
        run = await deployment.work_off(kernel, run_id)
        assert seen == [exactly(_LARGE)] * 3
        assert exactly(run.output) == exactly(_LARGE)
        assert exactly(await other.runs.output_of(run_id, "s1")) == exactly(_LARGE)
        assert [key async for key in other.ports.blob_store.list("") if run_id in key] != []
        await deployment.ended_well(other, run_id)

    async def test_what_a_cancelled_run_still_gives_is_discarded(
        self, deployment: Deployment, background: Background, scale: Scale
    ) -> None:
        """`RunStore.lock_runs`, `JobAdmin.cancel_by_run`: a run that was cancelled stays so, whatever runs still."""
        at_work, go_on = asyncio.Event(), asyncio.Event()

        async def body(ctx: StageContext[Any]) -> Any:
            at_work.set()
            await go_on.wait()
            return "too late"

        flow = flow_of(body, passes_on)
        kernel, other = deployment.kernel(flow), deployment.kernel(flow, handle=1)
        run_id = await start(kernel, flow)
        await run_maintenance_tick(kernel, deployment.settings)
        [job] = (await kernel.dispatch(ClaimJobs("worker"))).jobs
        running = background.start(run_job(kernel, job))
        await scale.soon(at_work.wait())
        assert (await other.dispatch(CancelRun(run_id, reason="no longer wanted"))).cancelled
        assert not (await other.dispatch(CancelRun(run_id))).cancelled
        go_on.set()
        await scale.soon(running)
        run = await deployment.work_off(other, run_id)
        assert (run.status, run.output) == (Status.CANCELLED, None)
        assert [stage.status for stage in await other.runs.stages(run_id)] == [Status.CANCELLED]
        [told] = await deployment.ended_well(other, run_id)
        assert told[-1] == "workflow:cancelled"
        assert "stage:completed" not in told

    async def test_a_redriven_run_goes_on_where_it_failed(self, deployment: Deployment) -> None:
        """`StageStore`, `StepLedger.clear_except`: what was completed is kept, and the rest is done anew."""
        calls: Counter[str] = Counter()
        is_mended = False

        async def first(ctx: StageContext[Any]) -> Any:
            calls["first"] += 1
            return calls["first"]

        async def second(ctx: StageContext[Any]) -> Any:
            async def charge() -> int:
                calls["charge"] += 1
                return calls["charge"]

            charged = await ctx.step.run("charge", charge)
            if not is_mended:
                raise NonRetryableError("not yet mended")
            return [ctx.input, charged, ctx.attempt]

        flow = flow_of(first, second, passes_on)
        kernel, other = deployment.kernel(flow), deployment.kernel(flow, handle=1)
        run_id = await start(kernel, flow)
        assert (await deployment.work_off(kernel, run_id)).status is Status.FAILED
        is_mended = True
        assert (await other.dispatch(RedriveRun(run_id))).redrive_count == 1
        run = await deployment.work_off(other, run_id)
        assert (run.status, run.output, run.error) == (Status.COMPLETED, [1, 1, 2], None)
        assert calls == {"first": 1, "charge": 1}
        [told] = await deployment.ended_well(other, run_id)
        assert (told.count("workflow:failed"), told.count("workflow:completed")) == (1, 1)

    @pytest.mark.guarantee("stores.engine-purges-leave-nothing")
    async def test_a_purge_leaves_nothing_of_a_run_and_all_of_others(self, deployment: Deployment) -> None:
        """`PurgeStore`, `JobAdmin`, `StepLedger.clear`, `BlobStore.delete_many`: rows, jobs, steps, blobs and keys."""

        async def body(ctx: StageContext[Any]) -> Any:
            ctx.log("INFO", "here")
            ctx.annotate("size", 1)
            await ctx.storage.save("report", _LARGE)
            return await ctx.step.run("large", lambda: asyncio.sleep(0, _LARGE), returns=Any)

        flow = flow_of(body)
        kernel, other = deployment.kernel(flow), deployment.kernel(flow, handle=1)
        key = new_id("key")
        gone = await start(kernel, flow, idempotency_key=key)
        await deployment.work_off(kernel, gone)
        ended = deployment.clock.now()
        deployment.clock.advance(timedelta(hours=1))
        kept = [await start(kernel, flow) for _ in range(2)]
        for run_id in kept:
            await deployment.work_off(kernel, run_id)
        records = [stage.id for stage in await kernel.runs.stages(gone)]
        assert (await other.dispatch(PurgeRuns(ended))).run_ids == (gone,)
        assert await deployment.left_of(other, gone, records) == []
        assert await deployment.is_key_free(other, key, CreateRun.type)
        for run_id in kept:
            assert exactly(await other.runs.output_of(run_id, "s1")) == exactly(_LARGE)
            [stage] = await other.runs.stages(run_id)
            assert len(await deployment.steps_of(other, stage.id)) == 1
        await deployment.ended_well(other, *kept)

    @pytest.mark.guarantee("stores.engine-events-complete")
    async def test_events_come_in_order_though_the_sink_refuses_some(self, deployment: Deployment) -> None:
        """`OutboxDelivery`: an event that was refused is offered again, and none of its run comes before it."""
        flow = flow_of(passes_on, passes_on)
        kernel = deployment.kernel(flow)
        deployment.sink.fail_with(ConnectionError("the sink is away"), times=2)
        run_id = await start(kernel, flow)
        await deployment.work_off(kernel, run_id)
        [told] = await deployment.ended_well(deployment.kernel(flow, handle=1), run_id)
        assert deployment.sink.types(run_id) == told
        assert len(deployment.sink.refused) == 2

    @pytest.mark.guarantee("stores.engine-events-complete")
    async def test_events_that_are_dated_before_delivered_ones_are_delivered_too(
        self, deployment: Deployment
    ) -> None:
        """`OutboxDelivery.claim_unpublished_outbox_events`: whatever is pending, as a slow transaction leaves it."""
        flow = flow_of(passes_on)
        ids, clock = TimeSortableIds(), MovingClock(lambda: behind)
        early, behind = [ids.new_id() for _ in range(40)], deployment.clock.now()
        slow = deployment.kernel(flow, ids=_Given(early), clock=clock)
        deployment.clock.advance(timedelta(hours=1))
        prompt = deployment.kernel(flow, handle=1)
        first = await start(prompt, flow)
        await deployment.work_off(prompt, first)
        late = await start(slow, flow)
        await deployment.work_off(prompt, late)
        await deployment.ended_well(prompt, first, late)


class _Given:
    """Gives ids that were made before."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = iter(ids)

    def new_id(self) -> str:
        """The next of them."""
        return next(self._ids)
