"""The log of model calls in an SQL database."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any, ClassVar, Final

from stagewright.ai_call_writing import AICallWriter, NewAICall, require_batch_id
from stagewright.ports import AICallTotals
from stagewright.records import AICall, LoggedAICall
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.statements.ai_calls import (
    calls_of_topic,
    delete_calls,
    insert_call,
    one_of_batch,
    totals_of_topic,
)

__all__ = ["SqlAlchemyAICallLogger"]

_FIELDS: Final = tuple(field.name for field in fields(AICall))


class SqlAlchemyAICallLogger(Connection):
    """An `AICallLogger`: rows of `ai_calls`, written in transactions of their own.

    Args:
        database: The database.

    Attributes:
        since: The version of the schema that it needs.

    Raises:
        SchemaFeatureOffError: If the database hadn't that version yet when it was opened.
    """

    since: ClassVar[str] = "0009"

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        database.schema.require(self.since)
        self._writer = AICallWriter(self._insert, database.clock.now)

    def log_call(self, call: AICall) -> None:
        """Log a call, from any thread, and return at once."""
        self._writer.add(call)

    async def log_batch_results(self, batch_id: str, calls: Sequence[AICall]) -> int:
        """Log what a provider's batch gave, once; a request that is logged already is skipped."""
        require_batch_id(batch_id)
        new = [self._writer.new(call) for call in calls]
        return await self._undisturbed(lambda: self._insert(new, batch_id))

    async def is_recorded(self, batch_id: str) -> bool:
        """Whether a result of that batch is logged."""
        return bool(await self._fetch(one_of_batch(self._tables), {"batch_id": batch_id}))

    async def list_calls(self, topic: str, *, after: int = 0, limit: int = 1000) -> list[LoggedAICall]:
        """The calls of a topic and of the topics below it, the first one first."""
        rows = await self._fetch(calls_of_topic(self._tables, topic, after, max(limit, 0)), {})
        return [_logged_of(row) for row in rows]

    async def delete_calls(self, topic: str) -> None:
        """Forget the calls of a topic and of the topics below it."""

        async def delete() -> None:
            async with self._writing() as tx:
                await tx.execute(delete_calls(self._tables, topic), {})

        await self._undisturbed(delete)

    async def get_stats(self, topic: str) -> AICallTotals:
        """The totals of a topic and of the topics below it, those included that are still to be written."""
        await self.drain()
        by_model: defaultdict[str, list[Row]] = defaultdict(list)
        for row in await self._fetch(totals_of_topic(self._tables, topic), {}):
            by_model[row["model_key"]].append(row)
        return AICallTotals.of_models({model: _totals_of(rows) for model, rows in sorted(by_model.items())})

    async def drain(self) -> None:
        """Wait until nothing is left to write of the calls that `log_call` was given so far."""
        await self._writer.drain()

    async def _insert(self, calls: Sequence[NewAICall], batch_id: str | None = None) -> int:
        inserted = 0
        if batch_id is not None:
            # In one order, so that two who log one batch wait for each other but not in a circle.
            calls = sorted(calls, key=lambda new: (new.call.request_id or "", new.id))
        async with self._writing() as tx:
            for new in calls:
                values = {name: getattr(new.call, name) for name in _FIELDS}
                values |= {"id": new.id, "batch_id": batch_id, "created_at": new.created_at}
                inserted += await tx.execute(insert_call(self._tables, self._database.kind), values)
        return inserted


def _logged_of(row: Row) -> LoggedAICall:
    values: dict[str, Any] = {name: row[name] for name in _FIELDS}  # Any: a column holds what its field has
    return LoggedAICall(
        position=row["position"],
        call=AICall(**values),
        batch_id=row["batch_id"],
        created_at=row["created_at"],
    )


def _totals_of(rows: Sequence[Row]) -> AICallTotals:
    """Costs are added up here, since not every database adds decimal numbers exactly."""
    costs = [row["cost"] * row["calls"] for row in rows if row["cost"] is not None]
    return AICallTotals(
        calls=sum(row["calls"] for row in rows),
        input_tokens=int(sum(row["input_tokens"] for row in rows)),
        output_tokens=int(sum(row["output_tokens"] for row in rows)),
        cost=sum(costs, Decimal(0)) if len(costs) == len(rows) else None,
    )
