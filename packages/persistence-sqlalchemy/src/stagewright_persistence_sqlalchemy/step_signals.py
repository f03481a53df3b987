"""Signals that no step has taken yet."""

from stagewright.records import SignalRecord
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.rows import column_values, signal_of
from stagewright_persistence_sqlalchemy.statements import reads, writes_at_once

__all__ = ["StepSignals"]


class StepSignals(Connection):
    """`SignalStore`."""

    async def insert_signal_if_absent(self, signal: SignalRecord) -> bool:
        """Keep a signal unless its step has one; a competitor's transaction is waited for."""
        values = column_values({name: getattr(signal, name) for name in signal.__dataclass_fields__})
        async with self._writing() as tx:
            return bool(
                await tx.execute(writes_at_once.insert_signal(self._tables, self._database.kind), values)
            )

    async def get_signal(self, run_id: str, stage_id: str, step_id: str) -> SignalRecord | None:
        """The signal of that step, or None."""
        key = {"run_id": run_id, "stage_id": stage_id, "step_id": step_id}
        found = await self._fetch(reads.signal_of_step(self._tables), key)
        return signal_of(found[0]) if found else None

    async def list_signals(self, run_id: str) -> list[SignalRecord]:
        """The signals of a run that no step has taken, by `created_at`, then by id."""
        return [
            signal_of(row)
            for row in await self._fetch(reads.signals_of_run(self._tables), {"run_id": run_id})
        ]

    async def delete_signal(self, signal_id: str) -> None:
        """Forget a signal."""
        async with self._writing() as tx:
            await tx.execute(writes_at_once.delete_signal(self._tables), {"of_id": signal_id})
