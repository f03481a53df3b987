"""A command with a key is carried out once; a repetition gets the first answer, another body is refused."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import AnnotationInput, CreateRun, CreateRunResult
from stagewright.errors import (
    IdempotencyInProgressError,
    IdempotencyKeyReusedError,
    InvalidDurationError,
    InvalidInputError,
)
from stagewright.memory import InMemoryPersistence
from stagewright.records import KeyAcquired
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]


class Order(BaseModel):
    n: int = 0
    tags: list[str] = []


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo), flow_of(echo, id="typed", input=Order), flow_of(echo, id="other"))


async def count(kernel: Kernel) -> int:
    return len((await kernel.runs.list()).items)


@pytest.mark.guarantee("kernel.a-key-makes-it-once")
async def test_a_repetition_gets_an_equal_result_of_the_same_type(kernel: Kernel) -> None:
    command = CreateRun("flow", {"n": 1}, idempotency_key="k")
    first, second = await kernel.dispatch(command), await kernel.dispatch(command)
    assert first == second
    assert type(second) is CreateRunResult
    assert type(second.status) is Status
    assert await count(kernel) == 1
    assert len(await kernel.runs.events(first.run_id)) == 1


async def test_the_same_body_as_a_dict_is_the_same_command(kernel: Kernel) -> None:
    first = await kernel.dispatch(CreateRun("flow", {"a": 1, "b": [2]}, idempotency_key="k", priority=5))
    given = {"type": "run.create", "workflow_id": "flow", "input": {"b": [2], "a": 1}, "idempotency_key": "k"}
    assert await kernel.dispatch(given) == first


async def test_a_model_and_its_json_form_are_the_same_command(kernel: Kernel) -> None:
    first = await kernel.dispatch(CreateRun("typed", Order(n=3, tags=["x"]), idempotency_key="k"))
    second = await kernel.dispatch(CreateRun("typed", {"n": 3, "tags": ["x"]}, idempotency_key="k"))
    assert first == second
    assert await count(kernel) == 1


@pytest.mark.guarantee("kernel.a-key-has-one-body")
@pytest.mark.parametrize(
    "changed",
    [
        {"workflow_id": "other"},
        {"input": {"n": 2}},
        {"input": {"n": 1.0}},
        {"input": {"n": "1"}},
        {"input": {"n": True}},
        {"input": None},
        {"config": {"s1": {}}},
        {"priority": 6},
        {"annotations": (AnnotationInput(attributes={"a": 1}),)},
    ],
)
async def test_the_same_key_with_another_body_is_refused(kernel: Kernel, changed: dict[str, Any]) -> None:
    body: dict[str, Any] = {"workflow_id": "flow", "input": {"n": 1}, "idempotency_key": "k"}
    await kernel.dispatch(CreateRun(**body))
    with pytest.raises(IdempotencyKeyReusedError) as caught:
        await kernel.dispatch(CreateRun(**(body | changed)))
    assert (caught.value.key, caught.value.command_type) == ("k", "run.create")
    assert await count(kernel) == 1


async def test_without_a_key_every_command_is_another_one(kernel: Kernel) -> None:
    first, second = await kernel.dispatch(CreateRun("flow")), await kernel.dispatch(CreateRun("flow"))
    assert first.run_id != second.run_id


async def test_keys_are_told_apart_letter_by_letter(kernel: Kernel) -> None:
    keys = ["k", "K", "k ", " k", "ｋ", "k" * 255]
    runs = [(await kernel.dispatch(CreateRun("flow", idempotency_key=key))).run_id for key in keys]
    assert len(set(runs)) == len(keys)


@pytest.mark.parametrize("callers", [2, 20])
async def test_concurrent_commands_with_one_key_create_one_run(kernel: Kernel, callers: int) -> None:
    command = CreateRun("flow", {"n": 1}, idempotency_key="k")
    results = await asyncio.gather(*(kernel.dispatch(command) for _ in range(callers)))
    assert len({result.run_id for result in results}) == 1
    assert await count(kernel) == 1


async def test_of_concurrent_bodies_with_one_key_one_is_carried_out(kernel: Kernel) -> None:
    commands = [CreateRun("flow", {"n": n}, idempotency_key="k") for n in range(5)]
    answers = await asyncio.gather(*map(kernel.dispatch, commands), return_exceptions=True)
    assert sum(isinstance(answer, CreateRunResult) for answer in answers) == 1
    assert sum(isinstance(answer, IdempotencyKeyReusedError) for answer in answers) == 4


@pytest.mark.guarantee("kernel.a-failure-frees-its-key")
async def test_a_failed_command_leaves_its_key_free(kernel: Kernel, fail_at: Callable[..., None]) -> None:
    command = CreateRun("flow", {"n": 1}, idempotency_key="k")
    fail_at("commit", error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await kernel.dispatch(command)
    with pytest.raises(InvalidInputError):
        await kernel.dispatch(CreateRun("typed", {"n": "x"}, idempotency_key="k"))
    assert (await kernel.dispatch(command)).status is Status.PENDING
    assert await count(kernel) == 1


async def test_who_waits_behind_a_failure_carries_it_out_itself(
    kernel: Kernel, hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]], fail_at: Callable[..., None]
) -> None:
    command = CreateRun("flow", idempotency_key="k")
    reached, go = hold_at("create_run")
    first = asyncio.create_task(kernel.dispatch(command))
    await reached.wait()
    second = asyncio.create_task(kernel.dispatch(command))
    fail_at("commit", error=ConnectionError("gone"))
    go.set()
    with pytest.raises(ConnectionError):
        await first
    assert (await second).status is Status.PENDING
    assert await count(kernel) == 1


async def test_a_cancelled_caller_leaves_its_key_free(
    kernel: Kernel, hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]]
) -> None:
    reached, _go = hold_at("create_run")
    first = asyncio.create_task(kernel.dispatch(CreateRun("flow", idempotency_key="k")))
    await reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await kernel.dispatch(CreateRun("flow", idempotency_key="k"))).status is Status.PENDING


# Keys that somebody took and never gave back


async def take(persistence: InMemoryPersistence, clock: FakeClock, command_type: str = "run.create") -> None:
    answer = await persistence.acquire_idempotency_key(
        "k", command_type, fingerprint="somebody's", now=clock.now(), stale_after=None
    )
    assert answer == KeyAcquired()


@pytest.mark.guarantee("kernel.stale-keys-are-taken-over")
@pytest.mark.parametrize(("age", "taken_over"), [("599s", False), ("600s", True), ("7d", True)])
async def test_a_key_in_progress_is_taken_over_after_ten_minutes(
    kernel: Kernel, persistence: InMemoryPersistence, clock: FakeClock, age: str, taken_over: bool
) -> None:
    await take(persistence, clock)
    clock.advance(age)
    if taken_over:
        await kernel.dispatch(CreateRun("flow", idempotency_key="k"))
        assert await count(kernel) == 1
    else:
        with pytest.raises((IdempotencyInProgressError, IdempotencyKeyReusedError)):
            await kernel.dispatch(CreateRun("flow", idempotency_key="k"))
        assert await count(kernel) == 0


async def test_of_many_that_take_a_stale_key_over_one_creates_a_run(
    kernel: Kernel, persistence: InMemoryPersistence, clock: FakeClock
) -> None:
    await take(persistence, clock)
    clock.advance("1h")
    command = CreateRun("flow", idempotency_key="k")
    results = await asyncio.gather(*(kernel.dispatch(command) for _ in range(8)))
    assert len({result.run_id for result in results}) == 1
    assert await count(kernel) == 1


async def test_a_completed_key_is_never_taken_over(kernel: Kernel, clock: FakeClock) -> None:
    command = CreateRun("flow", idempotency_key="k")
    first = await kernel.dispatch(command)
    clock.advance("365d")
    assert await kernel.dispatch(command) == first


@pytest.mark.parametrize("stale_after", [None, float("inf")])
async def test_without_a_threshold_a_key_stays_in_progress(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    persistence: InMemoryPersistence,
    clock: FakeClock,
    stale_after: float | None,
) -> None:
    kernel = make_kernel(flow_of(echo), idempotency_stale_after=stale_after)
    await take(persistence, clock)
    clock.advance("365d")
    with pytest.raises((IdempotencyInProgressError, IdempotencyKeyReusedError)):
        await kernel.dispatch(CreateRun("flow", idempotency_key="k"))


@pytest.mark.parametrize("stale_after", [0, -1, "soon", float("nan"), timedelta(0), True])
def test_a_threshold_that_is_no_time_is_refused(
    make_kernel: MakeKernel, flow_of: FlowOf, stale_after: Any
) -> None:
    with pytest.raises(InvalidDurationError):
        make_kernel(flow_of(echo), idempotency_stale_after=stale_after)


async def test_one_key_under_two_command_types_is_two_keys(
    kernel: Kernel, persistence: InMemoryPersistence, clock: FakeClock
) -> None:
    await take(persistence, clock, "job.execute")
    assert (await kernel.dispatch(CreateRun("flow", idempotency_key="k"))).status is Status.PENDING
