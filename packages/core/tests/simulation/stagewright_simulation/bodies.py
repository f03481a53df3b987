"""Workflows out of their specifications: bodies whose doings and values can be checked."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from stagewright import (
    NonRetryableError,
    NotReady,
    Ready,
    RetryPolicy,
    Stage,
    StageContext,
    StepRun,
    Suspend,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.errors import StepFailedError, StepTimeoutError
from stagewright_simulation.history import History, digest, token_of
from stagewright_simulation.scenario import Item, StageSpec, StepSpec, WorkflowSpec

__all__ = ["PADDING", "Boom", "Fatal", "build_workflow"]

PADDING: Final = "x" * 700
"""What makes a value too large to be kept inline."""

Ctx = StageContext[Any]
ExecutionBegan = Callable[[str, str, int, str], None]


class Boom(Exception):
    """What a body or a step raises that may be tried again."""


class Fatal(NonRetryableError):
    """What a body or a step raises that nothing helps against."""


def build_workflow(spec: WorkflowSpec, history: History, began: ExecutionBegan) -> Workflow:
    """The workflow of a specification.

    Args:
        spec: What it is like.
        history: Where its doings are noted.
        began: Called when a step's function begins: with the stage record, the step, its execution and its token.
    """
    builder = define_workflow(spec.id, input=Any)
    for group in spec.groups:
        stages = [_stage(stage, history, began) for stage in group]
        builder = builder.pipe(stages[0]) if len(stages) == 1 else builder.parallel(*stages)
    return builder.build()


def _stage(spec: StageSpec, history: History, began: ExecutionBegan) -> Stage[Any, Any, Any]:
    body = _Body(spec, history, began)
    options: dict[str, Any] = {
        "input": Any,
        "output": Any,
        "retry": RetryPolicy(spec.max_attempts, spec.max_worker_losses, delay=spec.delay),
    }
    if spec.timeout is not None:
        options["timeout"] = spec.timeout
    if spec.is_batch:
        options |= {"mode": "async-batch", "check_completion": body.check}
    return define_stage(spec.id, body.submit if spec.is_batch else body.execute, **options)


class _Body:
    def __init__(self, spec: StageSpec, history: History, began: ExecutionBegan) -> None:
        self._spec = spec
        self._history = history
        self._began = began

    async def execute(self, ctx: Ctx) -> Any:
        nonce = self._begin(ctx, "body")
        steps: list[Any] = []
        for item in self._spec.items:
            steps.extend(await self._do(ctx, item))
        ctx.annotate("sim.ended", nonce)
        ctx.progress(100, nonce)
        self._fail_if_due(ctx)
        return self._output(ctx, steps)

    async def submit(self, ctx: Ctx) -> Any:
        nonce = self._begin(ctx, "batch")
        ctx.annotate("sim.ended", nonce)
        ctx.progress(100, nonce)
        if self._spec.is_fatal:
            self._fail_if_due(ctx)
        return Suspend({"token": nonce}, poll_interval=10, max_wait=300)

    async def check(self, state: Any, ctx: Ctx) -> Any:
        nonce = self._begin(ctx, "check")
        ctx.annotate("sim.ended", nonce)
        ctx.progress(100, nonce)
        await asyncio.sleep(0.2)
        asked = self._history.next("check", ctx.run_id, ctx.stage_id)
        if asked == 2 and self._spec.max_attempts > 2:
            raise Boom("the batch can't be asked")
        return Ready(self._output(ctx, [])) if asked > self._spec.fails else NotReady()

    def _begin(self, ctx: Ctx, what: str) -> str:
        nonce = f"{what} {self._history.next('invocations')}"
        self._history.invocations[nonce] = ctx.run_id
        self._history.tell("body", f"{what} of {ctx.run_id} {ctx.stage_id}, attempt {ctx.attempt}: {nonce}")
        ctx.annotate("sim.began", nonce)
        ctx.progress(1, nonce)
        ctx.log("info", nonce)
        return nonce

    def _fail_if_due(self, ctx: Ctx) -> None:
        if self._history.next("body", ctx.run_id, ctx.stage_id) <= self._spec.fails:
            raise Fatal("for good") if self._spec.is_fatal else Boom("once more")

    def _output(self, ctx: Ctx, steps: list[Any]) -> Any:
        output = {"stage": ctx.stage_id, "given": digest(ctx.input), "steps": steps}
        return output | {"pad": PADDING} if self._spec.is_big else output

    async def _do(self, ctx: Ctx, item: Item) -> list[Any]:
        if len(item) == 1:
            return [await self._step(ctx, item[0])]
        return await asyncio.gather(*(self._step(ctx, step) for step in item))

    async def _step(self, ctx: Ctx, step: StepSpec) -> Any:
        try:
            value = await self._of_kind(ctx, step)
        except StepTimeoutError:
            return [step.id, "timed out"]
        except (Boom, StepFailedError):
            if step.is_fatal or step.retries == 0:
                raise
            return [step.id, "failed"]
        token = token_of(value)
        if token is None:
            return [step.id, "slept"]
        if token not in self._history.recorded.get((ctx.stage_record_id, step.id), ()):
            self._history.violate(
                "step-value-kept",
                f"step {step.id} of {ctx.stage_record_id} gave {token}, which was never recorded",
            )
        return [step.id, token]

    async def _of_kind(self, ctx: Ctx, step: StepSpec) -> Any:
        # Plain functions would be called in threads, whose turns nobody decides.
        async def work(run: StepRun) -> Any:
            return await self._work(ctx, step, run)

        async def poll() -> Any:
            return await self._poll(ctx, step)

        match step.kind:
            case "run":
                return await ctx.step.run(
                    step.id,
                    work,
                    returns=Any,
                    retries=step.retries,
                    retry_delay=2,
                    lease=step.lease,
                    on_reclaim=step.on_reclaim,
                )
            case "wait":
                return await ctx.step.wait_for(
                    step.id,
                    poll=poll,
                    ready=lambda answer: answer["is_ready"],
                    every=7,
                    timeout=step.seconds,
                    returns=Any,
                )
            case "signal":
                return await ctx.step.wait_for_signal(step.id, timeout=step.seconds, returns=Any)
            case "sleep":
                return await ctx.step.sleep(step.id, step.seconds)

    async def _work(self, ctx: Ctx, step: StepSpec, run: StepRun) -> Any:
        key = (ctx.stage_record_id, step.id)
        token = f"{step.id} {self._history.next('tokens')}"
        self._began(*key, run.attempt, token)
        if step.seconds:
            await asyncio.sleep(step.seconds)
        if self._history.next("step", *key) <= step.fails:
            raise Fatal("for good") if step.is_fatal else Boom("once more")
        return self._value(step, token)

    async def _poll(self, ctx: Ctx, step: StepSpec) -> Any:
        asked = self._history.next("poll", ctx.stage_record_id, step.id)
        if asked == 2 and step.retries:
            raise Boom("there is no answer")
        token = f"{step.id} {self._history.next('tokens')}"
        return self._value(step, token) | {"is_ready": asked > step.fails + 1}

    def _value(self, step: StepSpec, token: str) -> dict[str, Any]:
        return {"token": token, "pad": PADDING} if step.is_big else {"token": token}
