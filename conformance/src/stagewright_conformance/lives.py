"""Lives of runs: a workflow, what is done with its run beside the work, and how often each body ran."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from stagewright import (
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import CancelRun, RedriveRun, SignalStep
from stagewright.status import Status
from stagewright_conformance.samples import ODD_JSON, new_id

__all__ = ["LIVES", "Life"]

_LARGE: Final = "large " * 100
_SOON: Final = RetryPolicy(3, delay=0)
_ANY: Final[dict[str, Any]] = {"input": Any, "output": Any}


@dataclass
class Life:
    """One run from its start to its purge.

    Attributes:
        ran: How often each body, and each function of a step, was called.
        run_id: The run, once it is known.
        ends: How it ends.
        is_done: Whether nothing is left to be done beside the work.
        config: The configuration that it starts with.
        is_over: Whether it has ended and was looked at; what is left is its purge.
        stage_record_ids: Its stage records, from then on.
    """

    workflow_id: str = field(default_factory=lambda: new_id("life"))
    ran: Counter[str] = field(default_factory=Counter)
    run_id: str = ""
    ends: Status = Status.COMPLETED
    is_done: bool = True
    config: dict[str, Any] = field(default_factory=dict)
    is_over: bool = False
    stage_record_ids: list[str] = field(default_factory=list)

    @cached_property
    def workflow(self) -> Workflow:
        """Its workflow."""
        return self.build()

    def build(self) -> Workflow:
        """Make its workflow."""
        raise NotImplementedError

    async def do(self, kernel: Kernel) -> None:
        """Do what is to be done beside the work, if it is time."""

    async def errand(self, kernel: Kernel) -> bool:
        """Do that; whether something is still to be done."""
        was_done = self.is_done
        if not was_done:
            await self.do(kernel)
        return self.is_done is not was_done

    def check(self, output: Any) -> None:
        """Check its output, if it has one."""

    def token(self, name: str) -> str:
        """What one execution of a body gives, unlike any other of it."""
        self.ran[name] += 1
        return f"{name} {self.ran[name]}"

    async def status(self, kernel: Kernel) -> Status:
        """Where the run stands."""
        run = await kernel.runs.get(self.run_id)
        assert run is not None
        return run.status


class Grouped(Life):
    """Stages one after the other and side by side, one of which fails first; what is large lies in the blob store."""

    def __init__(self) -> None:
        super().__init__(config={"first": {"note": _LARGE}})

    def build(self) -> Workflow:
        async def first(ctx: StageContext[Any, dict[str, str]]) -> Any:
            ctx.annotate("size", len(ctx.config["note"]), emit_event=True)
            return {"token": self.token("first"), "input": ctx.input, "filling": ctx.config["note"]}

        async def left(ctx: StageContext[Any]) -> Any:
            if ctx.attempt == 1:
                raise ConnectionError("once more")
            return self.token("left")

        async def right(ctx: StageContext[Any]) -> Any:
            await ctx.storage.save("report", ctx.input["filling"])
            ctx.log("INFO", "saved")
            return self.token("right")

        async def last(ctx: StageContext[Any]) -> Any:
            return {"inputs": ctx.input, "first": ctx.outputs["first"], "token": self.token("last")}

        flow = define_workflow(self.workflow_id, input=Any)
        flow = flow.stage("first", first, config=dict[str, str], **_ANY)
        sides = [side_by_side(name, body) for name, body in (("left", left), ("right", right))]
        return flow.parallel(*sides).stage("last", last, **_ANY).build()

    def check(self, output: Any) -> None:
        first = output["first"]
        assert (first["input"], first["filling"]) == (ODD_JSON, _LARGE)
        assert {name: text.split()[0] for name, text in output["inputs"].items()} == {
            "left": "left",
            "right": "right",
        }


class Stepping(Life):
    """A stage of durable steps of every kind, and one after it."""

    def __init__(self) -> None:
        super().__init__(is_done=False)

    def build(self) -> Workflow:
        async def large() -> str:
            return self.token("large") + _LARGE

        async def look() -> str:
            return self.token("look") if self.ran["look"] else self._not_yet()

        async def one() -> str:
            return self.token("one")

        async def steps(ctx: StageContext[Any]) -> Any:
            first = await ctx.step.run("one", one)
            await ctx.step.sleep("nap", "3s")
            seen = await ctx.step.wait_for(
                "look", poll=look, ready=bool, every="3s", timeout="9d", returns=str
            )
            signalled = await ctx.step.wait_for_signal("go", timeout="9d")
            return [first, seen, signalled, await ctx.step.run("large", large)]

        async def after(ctx: StageContext[Any]) -> Any:
            return [self.token("after"), *ctx.input]

        flow = define_workflow(self.workflow_id, input=Any)
        return flow.stage("steps", steps, retry=_SOON, **_ANY).stage("after", after, **_ANY).build()

    def _not_yet(self) -> str:
        self.ran["look"] += 1
        return ""

    async def do(self, kernel: Kernel) -> None:
        if self.ran["one"]:
            answer = await kernel.dispatch(SignalStep(self.run_id, "steps", "go", payload=_LARGE))
            assert answer.delivered or answer.already_completed
            self.is_done = True

    def check(self, output: Any) -> None:
        _, one, seen, signalled, large = output
        assert (one.split()[0], seen.split()[0], signalled) == ("one", "look", _LARGE)
        assert large.endswith(_LARGE)


class Redriven(Life):
    """The second stage fails for good, is mended, and goes on."""

    def __init__(self) -> None:
        super().__init__(is_done=False)
        self._is_mended = False

    def build(self) -> Workflow:
        async def first(ctx: StageContext[Any]) -> Any:
            return self.token("first")

        async def second(ctx: StageContext[Any]) -> Any:
            if not self._is_mended:
                raise NonRetryableError("not yet mended")
            return [ctx.input, self.token("second")]

        flow = define_workflow(self.workflow_id, input=Any)
        return flow.stage("first", first, **_ANY).stage("second", second, **_ANY).build()

    async def do(self, kernel: Kernel) -> None:
        if self._is_mended or await self.status(kernel) is Status.FAILED:
            self._is_mended = True
            answer = await kernel.dispatch(RedriveRun(self.run_id, idempotency_key=f"again {self.run_id}"))
            assert answer.redrive_count == 1
            self.is_done = True

    def check(self, output: Any) -> None:
        assert [text.split()[0] for text in output] == ["first", "second"]


class Cancelled(Life):
    """It is cancelled while one of its stages sleeps and another has ended."""

    def __init__(self) -> None:
        super().__init__(ends=Status.CANCELLED, is_done=False)

    def build(self) -> Workflow:
        async def sleeper(ctx: StageContext[Any]) -> Any:
            await ctx.step.sleep("for long", "300d")
            return self.token("sleeper")

        async def worker(ctx: StageContext[Any]) -> Any:
            return self.token("worker")

        flow = define_workflow(self.workflow_id, input=Any)
        return flow.parallel(side_by_side("sleeper", sleeper), side_by_side("worker", worker)).build()

    async def do(self, kernel: Kernel) -> None:
        stages = {stage.stage_id: stage.status for stage in await kernel.runs.stages(self.run_id)}
        if stages.get("sleeper") is Status.SUSPENDED or await self.status(kernel) is Status.CANCELLED:
            await kernel.dispatch(CancelRun(self.run_id, reason="no longer wanted"))
            self.is_done = True


def side_by_side(name: str, body: Callable[[StageContext[Any]], Awaitable[Any]]) -> Any:
    """A stage that is tried again at once."""
    return define_stage(name, body, retry=_SOON, **_ANY)


LIVES: Final[tuple[type[Life], ...]] = (Grouped, Stepping, Redriven, Cancelled)
