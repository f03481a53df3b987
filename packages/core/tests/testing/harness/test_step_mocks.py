"""Mocks of durable steps."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import (
    BlockingStageContext,
    NonRetryableError,
    Ready,
    Stage,
    StageContext,
    Suspend,
    Workflow,
    define_workflow,
    stage,
)
from stagewright.commands import FromStage
from stagewright.errors import StepFailedError, StepMockError, StepNotRecordedError, StepTimeoutError
from stagewright.testing import Harness, assert_consistent

START = datetime(2025, 1, 1, tzinfo=UTC)


class Receipt(BaseModel):
    key: str
    paid_at: datetime


class DeclinedError(Exception):
    """What the provider of a payment may say."""


calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


async def charge() -> Receipt:
    calls.append("charge")
    return Receipt(key="live", paid_at=datetime(2026, 1, 1, tzinfo=UTC))


def charge_blocking() -> Receipt:
    calls.append("charge")
    return Receipt(key="live", paid_at=datetime(2026, 1, 1, tzinfo=UTC))


@stage("pay")
async def pay(ctx: StageContext[int]) -> str:
    try:
        receipt = await ctx.step.run("charge", charge, retries=2, retry_delay="1h")
    except DeclinedError as declined:
        return f"declined: {declined}"
    return f"{type(receipt).__name__} {receipt.key}"


@stage("pay")
def pay_blocking(ctx: BlockingStageContext[int]) -> str:
    try:
        receipt = ctx.step.run("charge", charge_blocking, retries=2, retry_delay="1h")
    except DeclinedError as declined:
        return f"declined: {declined}"
    return f"{type(receipt).__name__} {receipt.key}"


@stage("follow")
async def follow(ctx: StageContext[int]) -> str:
    return await ctx.step.wait_for(
        "arrived",
        poll=lambda: "on its way",
        ready=lambda it: it == "there",
        every="1h",
        timeout="7d",
        returns=str,
    )


@stage("follow")
def follow_blocking(ctx: BlockingStageContext[int]) -> str:
    return ctx.step.wait_for(
        "arrived",
        poll=lambda: "on its way",
        ready=lambda it: it == "there",
        every="1h",
        timeout="7d",
        returns=str,
    )


@stage("approve")
async def approve(ctx: StageContext[int]) -> datetime:
    receipt = await ctx.step.wait_for_signal("approval", timeout="3d", returns=Receipt)
    return receipt.paid_at


@stage("nap")
async def nap(ctx: StageContext[int]) -> int:
    await ctx.step.sleep("first", "1d")
    await ctx.step.sleep("second", "2d")
    return 1


def flow(*stages: Stage[Any, Any, Any]) -> Workflow:
    return define_workflow("w", input=int).pipe(stages[0]).build()


both_payments = pytest.mark.parametrize("body", [pay, pay_blocking], ids=["async", "plain"])
both_waits = pytest.mark.parametrize("body", [follow, follow_blocking], ids=["async", "plain"])


@both_payments
@pytest.mark.parametrize(
    "value",
    [
        Receipt(key="mocked", paid_at=START),
        {"key": "mocked", "paid_at": "2025-01-01T00:00:00Z"},
    ],
    ids=["value", "json"],
)
@pytest.mark.guarantee("testing.mocked-steps-keep-their-rules")
async def test_a_mocked_result_is_of_the_steps_type(body: Stage[Any, Any, Any], value: object) -> None:
    harness = Harness(flow(body))
    assert not harness.steps.was_mocked("charge")
    harness.steps.mock_result("charge", value)
    result = await harness.run("w", 1)
    assert (result.output, calls) == ("Receipt mocked", [])
    assert harness.steps.was_mocked("charge")
    assert await harness.steps.status("charge") == "completed"
    assert await harness.steps.result("charge") == {"key": "mocked", "paid_at": "2025-01-01T00:00:00Z"}
    assert await harness.steps.result("charge", type=Receipt) == Receipt(key="mocked", paid_at=START)
    await assert_consistent(harness.kernel)


@both_payments
@pytest.mark.guarantee("testing.mocked-steps-keep-their-rules")
async def test_a_mocked_error_is_raised_as_itself_when_its_retries_are_used_up(
    body: Stage[Any, Any, Any],
) -> None:
    harness = Harness(flow(body))
    harness.steps.mock_error("charge", DeclinedError("no cover"))
    result = await harness.run("w", 1)
    assert (result.output, calls) == ("declined: no cover", [])
    record = await harness.steps.record("charge")
    assert record is not None
    assert (record.status, record.attempt) == ("failed", 3)
    assert harness.clock.now() == START + timedelta(hours=2)
    error = await harness.steps.error("charge")
    assert error is not None
    assert (error.type, error.message) == ("DeclinedError", "no cover")


@both_payments
@pytest.mark.guarantee("testing.mocked-steps-keep-their-rules")
async def test_an_error_of_the_first_executions_lets_the_next_one_through(body: Stage[Any, Any, Any]) -> None:
    harness = Harness(flow(body))
    harness.steps.mock_error("charge", ConnectionError, attempt=2)
    result = await harness.run("w", 1)
    assert (result.output, calls) == ("Receipt live", ["charge"])
    assert harness.clock.now() == START + timedelta(hours=2)


@both_waits
async def test_a_wait_gets_its_mocked_answer_at_once(body: Stage[Any, Any, Any]) -> None:
    harness = Harness(flow(body))
    harness.steps.mock_result("arrived", "here")
    assert (await harness.run("w", 1)).output == "here"
    assert harness.clock.now() == START


@both_waits
@pytest.mark.parametrize(
    "error", [ValueError("lost"), NonRetryableError("lost")], ids=["error", "non-retryable"]
)
async def test_a_wait_fails_for_good_with_its_mocked_error(
    body: Stage[Any, Any, Any], error: Exception
) -> None:
    harness = Harness(flow(body))
    harness.steps.mock_error("arrived", error)
    result = await harness.run("w", 1)
    assert result.error is not None
    final = NonRetryableError if isinstance(error, NonRetryableError) else StepFailedError
    assert result.error.type == final.__name__
    assert "lost" in result.error.message
    assert await harness.steps.status("arrived") == "failed"


@pytest.mark.parametrize(
    ("body", "step_id"), [(follow, "arrived"), (follow_blocking, "arrived"), (approve, "approval")]
)
async def test_a_wait_or_a_signal_times_out_at_once(body: Stage[Any, Any, Any], step_id: str) -> None:
    harness = Harness(flow(body))
    harness.steps.mock_timeout(step_id)
    result = await harness.run("w", 1)
    assert result.error is not None
    assert result.error.type == StepTimeoutError.__name__
    assert result.stages[0].attempt == 1
    assert harness.clock.now() == START


@pytest.mark.parametrize(
    "value", [Receipt(key="k", paid_at=START), {"key": "k", "paid_at": "2025-01-01T00:00:00Z"}]
)
async def test_a_signal_brings_its_mocked_payload(value: object) -> None:
    harness = Harness(flow(approve))
    harness.steps.mock_result("approval", value)
    assert (await harness.run("w", 1)).output == "2025-01-01T00:00:00Z"


async def test_a_step_that_waits_already_takes_the_mock_when_its_stage_goes_on() -> None:
    harness = Harness(flow(approve))
    run_id = await harness.start("w", 1)
    await harness.tick()
    harness.steps.mock_result("approval", Receipt(key="k", paid_at=START))
    assert (await harness.finish(run_id)).status == "COMPLETED"


async def test_of_two_mocks_the_later_counts_for_sleeps_too() -> None:
    harness = Harness(flow(nap))
    harness.steps.mock_timeout("first")
    harness.steps.skip_sleep("first")
    (await harness.run("w", 1)).assert_status("COMPLETED")
    harness.steps.mock_timeout("first")
    with pytest.raises(StepMockError, match="asks by ctx.step.sleep"):
        await harness.run("w", 1)


async def test_sleeps_are_skipped_one_by_one_or_all() -> None:
    harness = Harness(flow(nap))
    harness.steps.skip_sleep("first")
    await harness.run("w", 1)
    assert harness.clock.now() == START + timedelta(days=2)
    harness.steps.skip_sleeps()
    await harness.run("w", 1)
    assert harness.clock.now() == START + timedelta(days=2)
    harness.steps.clear_mocks()
    await harness.run("w", 1)
    assert harness.clock.now() == START + timedelta(days=5)


@pytest.mark.guarantee("testing.mocks-stand-until-cleared")
async def test_a_mock_stands_through_attempts_and_redrives_until_it_is_cleared() -> None:
    attempts: list[str] = []

    @stage("pay")
    async def retried(ctx: StageContext[int]) -> str:
        receipt = await ctx.step.run("charge", charge)
        await ctx.step.wait_for_signal("approval", timeout="1d")
        attempts.append(receipt.key)
        if len(attempts) < 3:
            raise ConnectionError
        return receipt.key

    harness = Harness(flow(retried))
    harness.steps.mock_result("charge", Receipt(key="mocked", paid_at=START))
    harness.steps.mock_timeout("approval")
    failed = await harness.run("w", 1)
    assert failed.status == "FAILED"
    await harness.redrive(failed.run_id)
    again = await harness.finish(failed.run_id)
    assert again.error is not None
    assert again.error.type == "StepTimeoutError"
    harness.steps.mock_result("approval", None)
    await harness.redrive(failed.run_id)
    assert (await harness.finish(failed.run_id)).output == "mocked"
    assert (attempts, calls) == (["mocked"] * 3, [])
    harness.steps.clear_mocks()
    await harness.redrive(failed.run_id, FromStage("pay"))
    await harness.signal(failed.run_id, "pay", "approval")
    assert (await harness.finish(failed.run_id)).output == "mocked"
    fresh = await harness.start("w", 1)
    await harness.signal(fresh, "pay", "approval")
    assert (await harness.finish(fresh)).output == "live"


async def test_a_mock_may_be_for_one_stage() -> None:
    @stage("first")
    async def first(ctx: StageContext[int]) -> str:
        return (await ctx.step.run("charge", charge)).key

    @stage("second")
    async def second(ctx: StageContext[str]) -> str:
        return f"{ctx.input} {(await ctx.step.run('charge', charge)).key}"

    harness = Harness(define_workflow("w", input=int).pipe(first).pipe(second).build())
    harness.steps.mock_result("charge", Receipt(key="one", paid_at=START), stage_id="first")
    result = await harness.run("w", 1)
    assert result.output == "one live"
    assert harness.steps.was_mocked("charge", stage_id="first", run_id=result.run_id)
    assert not harness.steps.was_mocked("charge", stage_id="second")
    assert await harness.steps.result("charge", stage_id="first") == {
        "key": "one",
        "paid_at": "2025-01-01T00:00:00Z",
    }
    harness.steps.mock_result("charge", Receipt(key="all", paid_at=START))
    assert (await harness.run("w", 1)).output == "one all"
    assert len(await harness.steps.records("charge")) == 4
    assert len(await harness.steps.records(run_id=result.run_id)) == 2


async def test_steps_of_checks_are_mocked_too() -> None:
    async def is_done(state: int, ctx: StageContext[int]) -> Ready[str]:
        return Ready((await ctx.step.run("charge", charge)).key)

    @stage("batch", mode="async-batch", check_completion=is_done)
    async def batch(ctx: StageContext[int]) -> str | Suspend:
        return Suspend(state=1, poll_interval="1h", max_wait="1d")

    harness = Harness(flow(batch))
    harness.steps.mock_result("charge", Receipt(key="mocked", paid_at=START))
    assert (await harness.run("w", 1)).output == "mocked"


@pytest.mark.parametrize(
    ("body", "mock", "words"),
    [
        (
            pay,
            lambda steps: steps.mock_timeout("charge"),
            "is for ctx.step.wait_for or .*asks by ctx.step.run",
        ),
        (pay, lambda steps: steps.mock_result("charge", {"key": 3}), "mocked result of step 'charge'"),
        (
            approve,
            lambda steps: steps.mock_error("approval", ValueError()),
            "asks by ctx.step.wait_for_signal",
        ),
        (approve, lambda steps: steps.mock_result("approval", object()), "mocked payload of step 'approval'"),
        (
            approve,
            lambda steps: steps.mock_result("approval", {"key": "k"}),
            r"mocked payload of step 'approval'.*\$\.paid_at: Field required",
        ),
        (nap, lambda steps: steps.mock_result("first", 1), "asks by ctx.step.sleep"),
        (follow, lambda steps: steps.mock_error("arrived", ValueError(), attempt=1), "leave out `attempt`"),
        (
            pay,
            lambda steps: steps.skip_sleep("charge"),
            "skipping is for ctx.step.sleep, and .* ctx.step.run",
        ),
        (approve, lambda steps: steps.skip_sleep("approval", stage_id="approve"), "skipping is for ctx.step"),
    ],
)
@pytest.mark.guarantee("testing.a-mock-that-does-not-fit-is-raised")
async def test_a_mock_that_does_not_fit_is_raised_by_the_tick(
    body: Stage[Any, Any, Any], mock: Any, words: str
) -> None:
    harness = Harness(flow(body))
    mock(harness.steps)
    with pytest.raises(StepMockError, match=words):
        await harness.run("w", 1)


@pytest.mark.guarantee("testing.a-mock-that-does-not-fit-is-raised")
def test_a_mock_that_can_never_fit_is_refused_at_once() -> None:
    steps = Harness(flow(pay)).steps
    with pytest.raises(StepMockError, match="its id is"):
        steps.mock_result("", 1)
    with pytest.raises(StepMockError, match="its id is"):
        steps.mock_timeout("")
    with pytest.raises(StepMockError, match="its id is"):
        steps.skip_sleep("")
    with pytest.raises(StepMockError, match="give the stage's id as text"):
        steps.mock_result("charge", 1, stage_id=pay)  # type: ignore[arg-type]  # what an untyped caller may give
    with pytest.raises(StepMockError, match="give the stage's id as text"):
        steps.skip_sleep("first", stage_id="")
    with pytest.raises(StepMockError, match="UnicodeDecodeError can't be made without arguments"):
        steps.mock_error("charge", UnicodeDecodeError)
    with pytest.raises(StepMockError, match="is no exception"):
        steps.mock_error("charge", "no")  # type: ignore[arg-type]  # what an untyped caller may give
    with pytest.raises(StepMockError, match="counted from 1"):
        steps.mock_error("charge", ValueError(), attempt=0)


async def test_steps_that_were_never_asked_for_have_nothing_to_show() -> None:
    harness = Harness(flow(approve))
    await harness.start("w", 1)
    steps = harness.steps
    assert (await steps.record("approval"), await steps.status("approval")) == (None, None)
    assert await steps.error("approval") is None
    with pytest.raises(StepNotRecordedError, match="no body has asked for it"):
        await steps.result("approval")
    await harness.tick()
    with pytest.raises(StepNotRecordedError, match="it is pending"):
        await steps.result("approval")
