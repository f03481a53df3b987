from stagewright.errors import DuplicateRecordError, RecordNotFoundError
from stagewright.memory.connection import Connection
from stagewright.records import SignalRecord
from stagewright.records.copies import detached

__all__ = ["InMemorySignalStore"]


class InMemorySignalStore(Connection):
    """Signals that no step has taken yet; see `SignalStore`."""

    async def insert_signal_if_absent(self, signal: SignalRecord) -> bool:
        """Keep a signal unless its step has one."""
        signals = self._database.signals
        unique = (signal.run_id, signal.stage_id, signal.step_id)
        async with self._statement("insert_signal_if_absent") as tx:
            if tx.get(self._database.runs, signal.run_id) is None:
                raise RecordNotFoundError("run", signal.run_id)
            lock = ("signals of steps", unique)
            locked_here = await tx.lock(lock)
            if tx.first(signals, "step", unique) is not None:
                if locked_here:
                    tx.unlock(lock)
                return False
            await tx.lock((signals.name, signal.id))
            if tx.get(signals, signal.id) is not None:
                raise DuplicateRecordError("signal", signal.id)
            tx.put(signals, detached(signal))
            return True

    async def get_signal(self, run_id: str, stage_id: str, step_id: str) -> SignalRecord | None:
        """The signal of that step, or None."""
        async with self._statement("get_signal") as tx:
            signal = tx.first(self._database.signals, "step", (run_id, stage_id, step_id))
            return None if signal is None else detached(signal)

    async def list_signals(self, run_id: str) -> list[SignalRecord]:
        """The signals of a run that no step has taken, by `created_at`, then by id."""
        async with self._statement("list_signals") as tx:
            signals = tx.where(self._database.signals, "run", run_id)
            return [detached(one) for one in sorted(signals, key=lambda one: (one.created_at, one.id))]

    async def delete_signal(self, signal_id: str) -> None:
        """Forget a signal."""
        signals = self._database.signals
        async with self._statement("delete_signal") as tx:
            if await tx.lock_row(signals, signal_id) is not None:
                tx.delete(signals, signal_id)
