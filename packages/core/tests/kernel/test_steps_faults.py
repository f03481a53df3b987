"""Steps when the ledger fails, the reply of a commit is lost, or the process ends at any moment."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, StepRun, Workflow
from stagewright.commands import ExecuteJobResult
from stagewright.errors import OutcomeUnknownError, StepLedgerWriteError, TransientError
from stagewright.memory import InMemoryBlobStore, InMemoryStepLedger
from stagewright.records import DequeuedJob, RunRecord, StepExpectation, StepPatch, StepRecord

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
RunSteps = Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]
FailAt = Callable[..., None]

Ctx = StageContext[Any]


class Crash(BaseException):
    """From here on nothing of the process is left."""


class _Body:
    """One step, and what was seen of it."""

    def __init__(self, **options: Any) -> None:
        self.runs: list[StepRun] = []
        self.caught: list[Exception] = []
        self.options = options

    async def __call__(self, ctx: Ctx) -> Any:
        async def fn(run: StepRun) -> str:
            self.runs.append(run)
            await asyncio.sleep(0)
            return "done"

        try:
            return await ctx.step.run("a", fn, **self.options)
        except Exception as error:
            self.caught.append(error)
            raise


@pytest.mark.guarantee("steps.a-ledger-that-fails-is-no-failed-step")
@pytest.mark.parametrize(("moment", "runs"), [("step_ledger.claim", 1), ("step_ledger.compare_and_set", 2)])
async def test_a_ledger_that_can_not_keep_a_step_fails_the_stage_and_not_the_step(
    run_steps: RunSteps, fail_at: FailAt, moment: str, runs: int
) -> None:
    body = _Body()
    fail_at(moment, error=OSError("disk full"))
    run, results = await run_steps(body.__call__)
    assert [result.outcome for result in results] == ["failed", "completed"]
    (error,) = body.caught
    assert isinstance(error, StepLedgerWriteError)
    assert (error.step_id, error.problem) == ("a", "OSError: disk full")
    assert run.output == "done"
    assert len(body.runs) == runs
    assert body.runs[-1].is_reclaim is (runs == 2), (
        "an execution whose end was not kept may have taken effect"
    )
    assert len({one.external_key for one in body.runs}) == 1


async def test_a_ledger_that_can_not_be_read_fails_the_stage_with_its_own_error(
    run_steps: RunSteps, fail_at: FailAt
) -> None:
    body = _Body()
    fail_at("step_ledger.list", error=OSError("gone"))
    run, results = await run_steps(body.__call__)
    assert [result.error and result.error.type for result in results] == ["OSError", None]
    assert (run.output, len(body.runs)) == ("done", 1)


@pytest.mark.parametrize("moment", ["step_ledger.list", "step_ledger.claim", "step_ledger.compare_and_set"])
async def test_a_ledger_that_can_not_do_it_this_time_is_asked_again(
    run_steps: RunSteps, fail_at: FailAt, moment: str
) -> None:
    body = _Body()
    fail_at(moment, times=2, error=TransientError("locked"))
    run, results = await run_steps(body.__call__)
    assert [result.outcome for result in results] == ["completed"]
    assert (run.output, len(body.runs)) == ("done", 1)


@pytest.mark.parametrize("call", ["claim", "compare_and_set"])
async def test_a_lost_reply_of_the_ledger_is_looked_into(
    run_steps: RunSteps, ledger: InMemoryStepLedger, call: str
) -> None:
    class LosesReplies(InMemoryStepLedger):
        lost: ClassVar[Counter[str]] = Counter()

        async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
            answer = await super().claim(record)
            self._reply("claim")
            return answer

        async def compare_and_set(
            self, record_id: str, expectation: StepExpectation, patch: StepPatch
        ) -> tuple[bool, StepRecord | None]:
            answer = await super().compare_and_set(record_id, expectation, patch)
            self._reply("compare_and_set")
            return answer

        def _reply(self, name: str) -> None:
            if name == call and not self.lost[name]:
                self.lost[name] += 1
                raise OutcomeUnknownError("the connection ended")

    body = _Body()
    lossy = LosesReplies(ledger.database)
    run, results = await run_steps(body.__call__, ports={"step_ledger": lossy})
    assert [result.outcome for result in results] == ["completed"]
    assert (run.output, len(body.runs), lossy.lost[call]) == ("done", 1, 1)


async def test_a_step_whose_row_is_gone_is_said_to_be_lost(
    run_steps: RunSteps, ledger: InMemoryStepLedger
) -> None:
    caught: list[Exception] = []

    async def body(ctx: Ctx) -> Any:
        async def fn() -> None:
            if ctx.attempt == 1:
                await ledger.clear(ctx.stage_record_id)

        try:
            await ctx.step.run("a", fn)
        except Exception as error:
            caught.append(error)
            raise

    run, _ = await run_steps(body)
    assert run.status is Status.COMPLETED
    assert [str(error) for error in caught] == ["the result of step 'a' could not be kept: its row is gone"]


async def test_a_blob_store_that_fails_is_no_failed_step(run_steps: RunSteps) -> None:
    class Full(InMemoryBlobStore):
        fails = 1

        async def put(self, key: str, data: bytes, **options: Any) -> bool:
            if "/steps/" in key and self.fails:
                self.fails -= 1
                raise OSError("full")
            return await super().put(key, data, **options)

    body = _Body()
    run, _ = await run_steps(body.__call__, ports={"blob_store": Full(), "spill_threshold_bytes": 1})
    assert run.output == "done"
    (error,) = body.caught
    assert isinstance(error, StepLedgerWriteError)


@pytest.mark.tampers
async def test_a_spilled_result_that_can_not_be_had_fails_the_attempt(
    run_steps: RunSteps, blob_store: InMemoryBlobStore
) -> None:
    async def body(ctx: Ctx) -> Any:
        value = await ctx.step.run("a", lambda: "large")
        if ctx.attempt == 1:
            await blob_store.delete_many([key async for key in blob_store.list("") if "/steps/" in key])
            await ctx.step.sleep("pause", "1s")
        return value

    run, results = await run_steps(body, ports={"spill_threshold_bytes": 1}, retry=RetryPolicy(2, delay=0))
    assert run.error is not None
    assert run.error.type == "SpilledPayloadUnavailableError"
    assert [result.outcome for result in results] == ["suspended", "failed", "failed"]
