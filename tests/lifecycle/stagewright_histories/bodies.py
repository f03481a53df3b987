"""Workflows out of their specifications; what their bodies do depends on nothing but what was done before."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from stagewright import (
    NonRetryableError,
    NotReady,
    Ready,
    RetryPolicy,
    Stage,
    StageContext,
    Suspend,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.errors import StepFailedError
from stagewright_histories.actions import FlowSpec, StageSpec, StepSpec

__all__ = ["Doings", "build_flows", "stage_id", "step_id"]

Ctx = StageContext[Any]
Doings = Counter[tuple[str, ...]]
"""How often something was done, by run, stage and step."""


class Boom(Exception):
    """What may be tried again."""


class Fatal(NonRetryableError):
    """What nothing helps against."""


def stage_id(number: int) -> str:
    """The id of a workflow's stage, by its place in the order of the stages."""
    return f"s{number}"


def step_id(number: int) -> str:
    """The id of a stage's step, by its place in the order of what the body does."""
    return f"d{number}"


def build_flows(flows: Sequence[FlowSpec], doings: Doings, *, is_later: bool) -> list[Workflow]:
    """The workflows of a history.

    Args:
        flows: What they are like.
        doings: Where bodies look up and note what they did.
        is_later: Whether it is the later version of each, which has another name for its first stage.
    """
    return [_flow(f"flow-{number}", spec, doings, is_later=is_later) for number, spec in enumerate(flows)]


def _flow(id: str, spec: FlowSpec, doings: Doings, *, is_later: bool) -> Workflow:
    builder = define_workflow(id, input=Any)
    number = 0
    for group in spec.groups:
        stages = []
        for stage in group:
            is_first_of_later = is_later and number == 0
            stages.append(_stage(stage_id(number), stage, doings, more=1 if is_first_of_later else 0))
            number += 1
        builder = builder.pipe(stages[0]) if len(stages) == 1 else builder.parallel(*stages)
    return builder.build()


def _stage(id: str, spec: StageSpec, doings: Doings, *, more: int) -> Stage[Any, Any, Any]:
    body = _Body(spec, doings)
    options: dict[str, Any] = {
        "input": Any,
        "output": Any,
        "retry": RetryPolicy(spec.max_attempts + more, spec.max_worker_losses, delay=spec.delay),
    }
    if spec.is_batch:
        options |= {"mode": "async-batch", "check_completion": body.check}
    return define_stage(id, body.submit if spec.is_batch else body.execute, **options)


class _Body:
    def __init__(self, spec: StageSpec, doings: Doings) -> None:
        self._spec = spec
        self._doings = doings

    async def execute(self, ctx: Ctx) -> Any:
        given = []
        for number, step in enumerate(self._spec.steps):
            try:
                given.append(await self._do(ctx, step_id(number), step))
            except StepFailedError as error:
                given.append(str(error))
        self._fail_if_due(ctx)
        return [ctx.stage_id, given, self._spec.output]

    async def submit(self, ctx: Ctx) -> Any:
        ctx.annotate("submitted", ctx.attempt)
        if self._spec.is_fatal:
            self._fail_if_due(ctx)
        return Suspend([ctx.attempt, self._spec.output], poll_interval=5, max_wait=120)

    async def check(self, state: Any, ctx: Ctx) -> Any:
        ctx.progress(50, "asked")
        asked = self._times(ctx, "check")
        if asked == 2 and self._spec.max_attempts > 1:
            raise Boom("the batch can't be asked")
        return Ready(state) if asked > self._spec.fails else NotReady()

    def _fail_if_due(self, ctx: Ctx) -> None:
        if self._times(ctx, "body") <= self._spec.fails:
            raise Fatal("for good") if self._spec.is_fatal else Boom("once more")

    def _times(self, ctx: Ctx, *what: str) -> int:
        key = (ctx.run_id, ctx.stage_id, *what)
        self._doings[key] += 1
        return self._doings[key]

    async def _do(self, ctx: Ctx, id: str, step: StepSpec) -> Any:
        # Plain functions would be called in threads, whose turns nobody decides.
        async def work() -> Any:
            if self._times(ctx, id) <= step.fails:
                raise Boom(f"{id} fails")
            return step.value

        async def poll() -> Any:
            return [self._times(ctx, id) > step.fails, step.value]

        match step.kind:
            case "run":
                return await ctx.step.run(id, work, returns=Any, retries=step.retries, retry_delay=5)
            case "wait":
                return await ctx.step.wait_for(
                    id, poll=poll, ready=lambda answer: answer[0], every=5, timeout=step.seconds, returns=Any
                )
            case "signal":
                return await ctx.step.wait_for_signal(id, timeout=step.seconds, returns=Any)
            case "sleep":
                await ctx.step.sleep(id, step.seconds)
            case "annotate":
                ctx.annotate(id, step.value, payload=step.value, emit_event=step.fails > 0)
            case "log":
                ctx.log("warn" if step.fails else "info", id, value=step.value)
            case "progress":
                ctx.progress(min(100, step.seconds), id, value=step.value)
            case "save":
                await ctx.storage.save(id, step.value)
        return None
