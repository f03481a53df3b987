"""Logs of model calls that are broken; collected by an inner run alone."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import ClassVar

import pytest

from stagewright.ai_call_writing import NewAICall
from stagewright.memory import InMemoryAICallLogger, InMemoryDatabase
from stagewright.memory.rows import AICallRow
from stagewright.ports import AICallLogger, AICallTotals
from stagewright.records import AICall, LoggedAICall
from stagewright_conformance import AICallSuite, Scale


class OnADouble(AICallSuite):
    """Runs the suite on the double that the test class names."""

    double: ClassVar[type[InMemoryAICallLogger]]

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=4, patience=0.5)

    @pytest.fixture
    def ai_calls(self) -> AICallLogger:
        return self.double(InMemoryDatabase())


class TakesAPrefixForATopic(InMemoryAICallLogger):
    """A topic holds whatever begins with its letters."""

    async def _of(self, topic: str) -> list[AICallRow]:
        rows = self.database.ai_calls.all().values()
        return [row for row in rows if row.logged.call.topic.startswith(topic)]


class TestTakesAPrefixForATopic(OnADouble):
    double = TakesAPrefixForATopic


class TakesUnknownForNothing(InMemoryAICallLogger):
    """What has no price was for nothing."""

    async def get_stats(self, topic: str) -> AICallTotals:
        totals = await super().get_stats(topic)
        return totals if totals.cost is not None else replace(totals, cost=Decimal(0))


class TestTakesUnknownForNothing(OnADouble):
    double = TakesUnknownForNothing


class AddsUpFloats(InMemoryAICallLogger):
    """Sums go through floating point."""

    async def get_stats(self, topic: str) -> AICallTotals:
        totals = await super().get_stats(topic)
        costs = [float(call.call.cost or 0) for call in await self.list_calls(topic)]
        return totals if totals.cost is None else replace(totals, cost=Decimal(str(sum(costs))))


class TestAddsUpFloats(OnADouble):
    double = AddsUpFloats


class LogsABatchAgain(InMemoryAICallLogger):
    """A batch that is fetched twice is logged twice."""

    async def log_batch_results(self, batch_id: str, calls: Sequence[AICall]) -> int:
        first = not await self.is_recorded(batch_id)
        if first:
            return await super().log_batch_results(batch_id, calls)
        others = [replace(call, request_id=f"{call.request_id} again") for call in calls]
        return await super().log_batch_results(batch_id, others)


class TestLogsABatchAgain(OnADouble):
    double = LogsABatchAgain


class SumsUpWhatIsWritten(InMemoryAICallLogger):
    """What is still under way is left out of the totals."""

    async def drain(self) -> None:
        pass


class TestSumsUpWhatIsWritten(OnADouble):
    double = SumsUpWhatIsWritten


class DropsUnknownBatches(InMemoryAICallLogger):
    """No batch is ever known to be recorded."""

    async def is_recorded(self, batch_id: str) -> bool:
        return False


class TestDropsUnknownBatches(OnADouble):
    double = DropsUnknownBatches


class TurnsPagesRound(InMemoryAICallLogger):
    """The last call comes first."""

    async def list_calls(self, topic: str, *, after: int = 0, limit: int = 1000) -> list[LoggedAICall]:
        return (await super().list_calls(topic, after=after, limit=limit))[::-1]


class TestTurnsPagesRound(OnADouble):
    double = TurnsPagesRound


class RoundsCosts(InMemoryAICallLogger):
    """A cost has six digits behind the point."""

    async def _insert(self, calls: Sequence[NewAICall], batch_id: str | None = None) -> int:
        rounded = [
            new
            if new.call.cost is None
            else replace(new, call=replace(new.call, cost=new.call.cost.quantize(Decimal("0.000001"))))
            for new in calls
        ]
        return await super()._insert(rounded, batch_id)


class TestRoundsCosts(OnADouble):
    double = RoundsCosts
