"""Logs of model calls: everything that was spent, once, and by topic."""

import asyncio
import logging
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from stagewright.errors import InvalidAICallError
from stagewright.ports import AICallLogger, AICallTotals
from stagewright.records import AICall
from stagewright_conformance.samples import ODD_JSON, exactly, rare_text
from stagewright_conformance.suite import Scale, Suite

__all__ = ["AICallSuite"]

_ODD_TEXT = "“quoted” 'single' \"double\" \\ back\r\n\tτέλος 🙂 \u202e\ufffe %_"


def _call(topic: str = "workflow.run-1.stage.a", **fields: Any) -> AICall:  # Any: fields of many types
    """A call of ten tokens in and two out for a cent, but for the fields that are given."""
    usual: dict[str, Any] = {
        "topic": topic,
        "call_type": "text",
        "model_key": "small",
        "model_id": "vendor/small-1",
        "prompt": "2 + 2?",
        "response": "4",
        "input_tokens": 10,
        "output_tokens": 2,
        "cost": Decimal("0.01"),
    }
    return AICall(**(usual | fields))


async def _logged(ai_calls: AICallLogger, *calls: AICall) -> None:
    for call in calls:
        ai_calls.log_call(call)
    await ai_calls.drain()


class AICallSuite(Suite):
    """`AICallLogger`.

    Fixtures: `ai_calls` (required: an empty log for each test), `rival_ai_calls` (another handle on the same log, as a
    second process has it; the log itself by default).
    """

    @pytest.fixture
    def ai_calls(self) -> AICallLogger:
        """The log under test, empty."""
        raise NotImplementedError("override the fixture `ai_calls` with an empty log for each test")

    @pytest.fixture
    def rival_ai_calls(self, ai_calls: AICallLogger) -> AICallLogger:
        """The same log as somebody else sees it."""
        return ai_calls

    async def test_a_call_comes_back_as_it_was(
        self, ai_calls: AICallLogger, rival_ai_calls: AICallLogger
    ) -> None:
        """`list_calls`: every field, exactly."""
        whole = _call(
            prompt=_ODD_TEXT,
            response=_ODD_TEXT * 3_000,
            input_tokens=10**12,
            output_tokens=0,
            cost=Decimal("0.000000000000000000123400"),
            metadata={"odd": ODD_JSON, "": None},
            request_id="r",
            estimated_cost=Decimal("1E+3"),
            reported_cost=Decimal(0),
            cost_source="reported",
            served_by="somewhere",
            cached_input_tokens=7,
            reasoning_tokens=1,
        )
        bare = AICall(topic="workflow.run-1.stage.a", call_type="embed", model_key="m", model_id="i")
        await _logged(ai_calls, whole, bare)
        found = await rival_ai_calls.list_calls("workflow.run-1")
        assert [one.call for one in found] == [whole, bare]
        assert exactly(found[0].call.metadata["odd"]) == exactly(ODD_JSON)
        assert [str(found[0].call.cost), str(found[0].call.estimated_cost)] == [
            str(whole.cost),
            str(whole.estimated_cost),
        ]
        assert [one.batch_id for one in found] == [None, None]
        assert all(one.created_at.utcoffset() is not None for one in found)

    async def test_a_call_is_the_loggers_own(self, ai_calls: AICallLogger) -> None:
        """`log_call`: what the caller changes afterwards, or a reader, changes nothing in the log."""
        metadata: dict[str, Any] = {"list": [1]}  # Any: JSON that is changed below
        ai_calls.log_call(_call(metadata=metadata))
        metadata["list"].append(2)
        await ai_calls.drain()
        (found,) = await ai_calls.list_calls("workflow")
        assert found.call.metadata == {"list": [1]}
        if isinstance(found.call.metadata, dict):
            found.call.metadata["more"] = True
        (again,) = await ai_calls.list_calls("workflow")
        assert again.call.metadata == {"list": [1]}

    async def test_what_can_not_be_stored_is_replaced_and_the_rest_is_kept(
        self, ai_calls: AICallLogger
    ) -> None:
        """`log_call`: text that can't be stored is kept with U+FFFD in the place of what can't."""
        call = _call(prompt="a\x00b", response="c\ud800d", metadata={"ratio": float("nan")})
        await _logged(ai_calls, call)
        (found,) = await ai_calls.list_calls("workflow")
        assert (found.call.prompt, found.call.response) == ("a\ufffdb", "c\ufffdd")
        assert "ratio" not in found.call.metadata
        assert found.call.cost == call.cost

    async def test_calls_come_in_the_order_in_which_they_were_logged(self, ai_calls: AICallLogger) -> None:
        """`list_calls`: the first one first; `after` and `limit` page through them."""
        calls = [_call(f"workflow.run-1.stage.{n % 3}", prompt=str(n)) for n in range(25)]
        await _logged(ai_calls, *calls)
        listed: list[AICall] = []
        after = 0
        while page := await ai_calls.list_calls("workflow.run-1", after=after, limit=7):
            assert len(page) <= 7
            after = page[-1].position
            listed += [one.call for one in page]
        assert listed == calls
        assert await ai_calls.list_calls("workflow.run-1", limit=0) == []

    @pytest.mark.guarantee("ai-calls.topics-end-at-a-dot")
    async def test_a_topic_holds_itself_and_what_is_below_it(self, ai_calls: AICallLogger) -> None:
        """`AICallLogger`: below another topic is what begins with that one and a dot; letter by letter."""
        inside = ["t_1", "t_1.a", "t_1.a.b", "t_1.", "t_1.é"]
        outside = ["t_10", "t_1-a", "t_1/a", "T_1", "tx1", "tx1.a", "t", "t_1 ", "t_1A"]
        await _logged(ai_calls, *(_call(topic) for topic in [*inside, *outside]))
        assert {one.call.topic for one in await ai_calls.list_calls("t_1")} == set(inside)
        assert (await ai_calls.get_stats("t_1")).calls == len(inside)
        await ai_calls.delete_calls("t_1")
        assert await ai_calls.list_calls("t_1") == []
        assert (await ai_calls.get_stats("t_1")) == AICallTotals()
        for topic in outside:
            assert topic in {one.call.topic for one in await ai_calls.list_calls(topic)}

    async def test_to_forget_what_is_not_there_is_no_error(self, ai_calls: AICallLogger) -> None:
        """`delete_calls`: nothing happens if there are none."""
        await ai_calls.delete_calls("workflow.unknown")

    @pytest.mark.guarantee("ai-calls.costs-add-up-exactly")
    async def test_totals_are_exact_and_by_model(self, ai_calls: AICallLogger) -> None:
        """`get_stats`: the totals, and the same by `model_key`."""
        tenths = [_call(cost=Decimal("0.1")) for _ in range(3)]
        large = _call(model_key="large", input_tokens=10**12, output_tokens=1, cost=Decimal("1E-20"))
        await _logged(ai_calls, *tenths, large, large)
        small_ones = AICallTotals(calls=3, input_tokens=30, output_tokens=6, cost=Decimal("0.3"))
        large_ones = AICallTotals(calls=2, input_tokens=2 * 10**12, output_tokens=2, cost=Decimal("2E-20"))
        assert await ai_calls.get_stats("workflow.run-1") == AICallTotals(
            calls=5,
            input_tokens=2 * 10**12 + 30,
            output_tokens=8,
            cost=Decimal("0.30000000000000000002"),
            per_model={"small": small_ones, "large": large_ones},
        )

    @pytest.mark.guarantee("ai-calls.unknown-is-not-zero")
    async def test_an_unknown_price_is_unknown(self, ai_calls: AICallLogger) -> None:
        """`AICallTotals.cost`: None when the price of one of them is unknown; of a model, of one of its own."""
        await _logged(
            ai_calls,
            _call(),
            _call(model_key="other", cost=None, input_tokens=None, output_tokens=None),
        )
        totals = await ai_calls.get_stats("workflow")
        assert (totals.calls, totals.cost, totals.input_tokens) == (2, None, 10)
        assert totals.per_model["small"].cost == Decimal("0.01")
        assert totals.per_model["other"].cost is None

    async def test_totals_include_what_is_still_being_written(self, ai_calls: AICallLogger) -> None:
        """`get_stats`: calls included that this object has yet to write."""
        ai_calls.log_call(_call())
        await asyncio.sleep(0)
        ai_calls.log_call(_call())
        assert (await ai_calls.get_stats("workflow")).calls == 2

    async def test_calls_may_come_from_any_thread(self, ai_calls: AICallLogger, scale: Scale) -> None:
        """`log_call`: from any thread; `drain` waits until all are written."""
        await asyncio.gather(
            *(asyncio.to_thread(ai_calls.log_call, _call(prompt=str(n))) for n in range(scale.contenders))
        )
        await scale.soon(ai_calls.drain())
        found = await ai_calls.list_calls("workflow")
        assert sorted(one.call.prompt for one in found) == sorted(str(n) for n in range(scale.contenders))

    @pytest.mark.guarantee("ai-calls.batch-results-once")
    async def test_a_request_of_a_batch_is_logged_once(
        self, ai_calls: AICallLogger, rival_ai_calls: AICallLogger
    ) -> None:
        """`log_batch_results`: a request of a batch that is logged already is skipped."""
        results = [_call(request_id=f"request-{n}", prompt=str(n)) for n in range(3)]
        assert not await ai_calls.is_recorded("batch")
        assert await ai_calls.log_batch_results("batch", results[:2]) == 2
        assert await rival_ai_calls.is_recorded("batch")
        again = [replace(call, prompt="again") for call in results]
        assert await rival_ai_calls.log_batch_results("batch", [again[0], again[0], again[2]]) == 1
        found = await ai_calls.list_calls("workflow")
        assert [one.call.prompt for one in found] == ["0", "1", "again"]
        assert {one.batch_id for one in found} == {"batch"}
        assert await ai_calls.log_batch_results("Batch", results) == 3
        assert not await ai_calls.is_recorded("batch ")

    async def test_of_many_who_log_a_batch_each_request_is_logged_once(
        self, ai_calls: AICallLogger, rival_ai_calls: AICallLogger, scale: Scale
    ) -> None:
        """`log_batch_results`: once, whoever else logs it meanwhile."""
        results = [_call(request_id=f"request-{n}") for n in range(10)]
        logs = [ai_calls, rival_ai_calls] * (scale.contenders // 2)
        orders = [results if n % 2 else results[::-1] for n in range(len(logs))]
        counts = await scale.soon(
            asyncio.gather(
                *(log.log_batch_results("b", order) for log, order in zip(logs, orders, strict=True))
            )
        )
        assert sum(counts) == 10
        assert len(await ai_calls.list_calls("workflow")) == 10

    async def test_results_without_a_request_are_logged_each_time(self, ai_calls: AICallLogger) -> None:
        """`log_batch_results`: one without a `request_id` can't be recognised, so it is logged each time."""
        for _ in range(2):
            assert await ai_calls.log_batch_results("batch", [_call(), _call()]) == 2
        assert len(await ai_calls.list_calls("workflow")) == 4

    @pytest.mark.parametrize("batch_id", ["", "x" * 256, "a\x00"])
    async def test_what_is_no_batch_is_refused(self, ai_calls: AICallLogger, batch_id: str) -> None:
        """`log_batch_results`: InvalidAICallError, and nothing is logged."""
        with pytest.raises(InvalidAICallError, match="batch_id"):
            await ai_calls.log_batch_results(batch_id, [_call()])
        assert await ai_calls.list_calls("workflow") == []

    async def test_the_longest_names_are_kept(self, ai_calls: AICallLogger) -> None:
        """`AICall`: names of 255 characters, and a topic of 700 and of 2,600 bytes of UTF-8."""
        topic = rare_text(600) + "é" * 100
        long = _call(topic, model_key="é" * 255, model_id="é" * 255, request_id="é" * 255)
        assert await ai_calls.log_batch_results("é" * 255, [long]) == 1
        (found,) = await ai_calls.list_calls(topic)
        assert found.call == long

    async def test_nothing_is_reported_when_all_is_written(
        self, ai_calls: AICallLogger, caplog: pytest.LogCaptureFixture
    ) -> None:
        """`log_call`: a write that fails for good is reported; one that doesn't isn't."""
        await _logged(ai_calls, _call())
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
