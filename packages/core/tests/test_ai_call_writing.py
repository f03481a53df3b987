"""Calls are written later, and none of them is lost for it."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from stagewright.ai_call_writing import AICallWriter, NewAICall
from stagewright.errors import InvalidAICallError, OutcomeUnknownError, TransientPersistenceError
from stagewright.records import AICall

NOW = datetime(2031, 1, 2, tzinfo=UTC)


class Store:
    """Keeps calls by their id; fails as it is told."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.kept: dict[str, NewAICall] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.written = asyncio.Event()

    async def write(self, calls: Sequence[NewAICall]) -> None:
        self.asked.set()
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.kept |= {new.id: new for new in calls}
        self.written.set()

    @property
    def prompts(self) -> list[str]:
        return [new.call.prompt for new in self.kept.values()]


def call(prompt: str = "?") -> AICall:
    return AICall(
        topic="workflow.r", call_type="text", model_key="m", model_id="i", prompt=prompt, cost=Decimal(1)
    )


def writer_of(store: Store) -> AICallWriter:
    return AICallWriter(store.write, lambda: NOW)


async def test_a_call_is_written_soon_though_nobody_waits() -> None:
    store = Store()
    writer_of(store).add(call())
    async with asyncio.timeout(10):
        await store.written.wait()
    assert store.prompts == ["?"]


@pytest.mark.parametrize("failure", [TransientPersistenceError("cut off"), OutcomeUnknownError("cut off")])
async def test_a_write_that_may_succeed_later_is_tried_again(failure: Exception) -> None:
    store = Store(failure, failure)
    writer = writer_of(store)
    writer.add(call())
    await writer.drain()
    assert store.prompts == ["?"]


@pytest.mark.guarantee("ai-calls.lost-ones-are-reported")
async def test_what_can_not_be_written_is_reported_with_what_it_cost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store(OSError("disk full"))
    writer = writer_of(store)
    writer.add(call())
    await writer.drain()
    writer.add(call("next"))
    await writer.drain()
    assert store.prompts == ["next"]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "workflow.r" in record.getMessage()
    assert "cost 1" in record.getMessage()


@pytest.mark.guarantee("ai-calls.lost-ones-are-reported")
async def test_a_call_that_can_not_be_written_takes_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Narrow(Store):
        async def write(self, calls: Sequence[NewAICall]) -> None:
            if any(len(new.call.prompt) > 9 for new in calls):
                raise ValueError("too large")
            await super().write(calls)

    store = Narrow()
    writer = writer_of(store)
    for prompt in ("before", "a prompt that is too large", "after"):
        writer.add(call(prompt))
    with caplog.at_level(logging.ERROR):
        await writer.drain()
    assert store.prompts == ["before", "after"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "a model call is not logged"
    ]


async def test_who_stops_waiting_stops_no_write() -> None:
    store = Store()
    store.gate.clear()
    writer = writer_of(store)
    writer.add(call())
    waiting = asyncio.create_task(writer.drain())
    await store.asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    store.gate.set()
    await writer.drain()
    assert store.prompts == ["?"]


def test_a_loop_that_ends_amid_a_write_leaves_its_calls_to_the_next() -> None:
    kept: dict[str, NewAICall] = {}
    blocked = True

    async def write(calls: Sequence[NewAICall]) -> None:
        # What an interrupted write has written already is the same call when it comes again.
        kept.update({new.id: new for new in calls})
        if blocked:
            await asyncio.Event().wait()

    writer = AICallWriter(write, lambda: NOW)

    async def leave_it() -> None:
        writer.add(call("first"))
        await asyncio.sleep(0)
        writer.add(call("second"))

    asyncio.run(leave_it())
    blocked = False
    asyncio.run(writer.drain())
    assert [new.call.prompt for new in kept.values()] == ["first", "second"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic", ""),
        ("topic", "x" * 701),
        ("topic", "🙂" * 651),
        ("model_key", "x" * 256),
        ("model_id", "a\x00"),
        ("call_type", "\ud800"),
        ("input_tokens", -1),
        ("output_tokens", 10**12 + 1),
        ("input_tokens", True),
        ("output_tokens", 1.5),
        ("model_id", 4),
        ("topic", None),
        ("prompt", None),
        ("response", b"yes"),
        ("cost", 0.1),
        ("estimated_cost", "0.1"),
        ("cost", Decimal("-0.01")),
        ("cost", Decimal("NaN")),
        ("reported_cost", Decimal("Infinity")),
    ],
)
def test_a_call_that_can_not_be_accounted_for_is_refused_by_its_field(field: str, value: object) -> None:
    fields: dict[str, object] = {"topic": "t", "call_type": "text", "model_key": "m", "model_id": "i"}
    with pytest.raises(InvalidAICallError, match=rf"AICall\.{field} can't be") as refused:
        AICall(**(fields | {field: value}))  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.field == field
