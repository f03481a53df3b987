from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from stagewright.ai_call_writing import AICallWriter, NewAICall, require_batch_id
from stagewright.memory.connection import Connection
from stagewright.memory.database import InMemoryDatabase
from stagewright.memory.rows import AICallRow
from stagewright.ports import AICallTotals
from stagewright.records import AICall, LoggedAICall
from stagewright.records.copies import detached

__all__ = ["InMemoryAICallLogger"]


class InMemoryAICallLogger(Connection):
    """The log of model calls in this process's memory: an `AICallLogger`.

    Args:
        database: The database; one of its own unless given.
    """

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self._writer = AICallWriter(self._insert, self._database.clock.now)

    def log_call(self, call: AICall) -> None:
        """Log a call, from any thread, and return at once."""
        self._writer.add(call)

    async def log_batch_results(self, batch_id: str, calls: Sequence[AICall]) -> int:
        """Log what a provider's batch gave, once."""
        require_batch_id(batch_id)
        return await self._insert([self._writer.new(call) for call in calls], batch_id)

    async def is_recorded(self, batch_id: str) -> bool:
        """Whether a result of that batch is logged."""
        async with self._statement("ai_calls.is_recorded") as tx:
            return bool(tx.where(self._database.ai_calls, "batch", batch_id))

    async def list_calls(self, topic: str, *, after: int = 0, limit: int = 1000) -> list[LoggedAICall]:
        """The calls of a topic and of the topics below it, the first one first."""
        logged = [row.logged for row in await self._of(topic) if row.logged.position > after]
        shown = sorted(logged, key=lambda one: one.position)[: max(limit, 0)]
        return [replace(one, call=detached(one.call)) for one in shown]

    async def delete_calls(self, topic: str) -> None:
        """Forget the calls of a topic and of the topics below it."""
        async with self._statement("ai_calls.delete") as tx:
            for row in tx.all(self._database.ai_calls):
                if _is_of(row, topic) and await tx.lock_row(self._database.ai_calls, row.id) is not None:
                    tx.delete(self._database.ai_calls, row.id)

    async def get_stats(self, topic: str) -> AICallTotals:
        """The totals of a topic and of the topics below it."""
        await self.drain()
        by_model: defaultdict[str, list[AICall]] = defaultdict(list)
        for row in await self._of(topic):
            by_model[row.logged.call.model_key].append(row.logged.call)
        per_model = {model: _totals(calls) for model, calls in sorted(by_model.items())}
        return AICallTotals.of_models(per_model)

    async def drain(self) -> None:
        """Wait until nothing is left to write."""
        await self._writer.drain()

    async def _of(self, topic: str) -> list[AICallRow]:
        async with self._statement("ai_calls.read") as tx:
            return [row for row in tx.all(self._database.ai_calls) if _is_of(row, topic)]

    async def _insert(self, calls: Sequence[NewAICall], batch_id: str | None = None) -> int:
        table, inserted = self._database.ai_calls, 0
        async with self._statement("ai_calls.insert") as tx:
            for new in calls:
                await tx.lock((table.name, new.id))
                request = (batch_id, new.call.request_id)
                if batch_id is not None and new.call.request_id is not None:
                    await tx.lock((table.name, request))
                    if tx.where(table, "request", request):
                        continue
                if tx.get(table, new.id) is None:
                    position = self._database.next_position()
                    logged = LoggedAICall(
                        position=position, call=new.call, batch_id=batch_id, created_at=new.created_at
                    )
                    tx.put(table, AICallRow(new.id, logged))
                    inserted += 1
        return inserted


def _is_of(row: AICallRow, topic: str) -> bool:
    return row.logged.call.topic == topic or row.logged.call.topic.startswith(f"{topic}.")


def _totals(calls: Sequence[AICall]) -> AICallTotals:
    costs = [call.cost for call in calls if call.cost is not None]
    return AICallTotals(
        calls=len(calls),
        input_tokens=sum(call.input_tokens or 0 for call in calls),
        output_tokens=sum(call.output_tokens or 0 for call in calls),
        cost=sum(costs, Decimal(0)) if len(costs) == len(calls) else None,
    )
