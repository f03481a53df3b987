from collections.abc import Collection
from dataclasses import replace

from stagewright.memory.connection import Connection
from stagewright.records import StepExpectation, StepPatch, StepRecord
from stagewright.records.copies import detached, detached_fields

__all__ = ["InMemoryStepLedger"]


class InMemoryStepLedger(Connection):
    """Durable steps in this process's memory: a `StepLedger` that enlists.

    Args:
        database: The database; one of its own unless given.
    """

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        """The step, or None."""
        async with self._statement("step_ledger.get") as tx:
            step = tx.get(self._database.steps, (stage_record_id, step_id))
            return None if step is None else detached(step)

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        """Insert a step unless it is there; whether it was inserted, and the row that is there now."""
        steps = self._database.steps
        key = (record.stage_record_id, record.step_id)
        async with self._statement("step_ledger.claim") as tx:
            lock = (steps.name, key)
            locked_here = await tx.lock(lock)
            stored = tx.get(steps, key)
            if stored is None:
                tx.put(steps, detached(record))
                return True, detached(record)
            if locked_here:
                tx.unlock(lock)
            return False, detached(stored)

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        """Change a step if it is as expected; whether it was, and the row that is there now."""
        steps = self._database.steps
        async with self._statement("step_ledger.compare_and_set") as tx:
            found = tx.first(steps, "id", record_id)
            if found is None:
                return False, None

            def is_as_expected(step: StepRecord) -> bool:
                same_attempt = expectation.attempt in (None, step.attempt)
                return step.id == record_id and step.status == expectation.status and same_attempt

            step = await tx.lock_row(steps, steps.key(found), is_as_expected)
            if step is None:
                stored = tx.first(steps, "id", record_id)
                return False, None if stored is None else detached(stored)
            step = replace(step, **detached_fields(patch))
            tx.put(steps, step)
            return True, detached(step)

    async def clear(self, stage_record_id: str) -> None:
        """Delete all steps of a stage record."""
        await self.clear_except(stage_record_id, ())

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        """Delete the steps of a stage record but for those in `keep`."""
        steps = self._database.steps
        async with self._statement("step_ledger.clear_except") as tx:
            step_ids = sorted(step.step_id for step in tx.where(steps, "stage", stage_record_id))
            for step_id in step_ids:
                key = (stage_record_id, step_id)
                if step_id not in keep and await tx.lock_row(steps, key) is not None:
                    tx.delete(steps, key)

    async def list(self, stage_record_id: str) -> list[StepRecord]:
        """All steps of a stage record, by `seq`, then by id."""
        async with self._statement("step_ledger.list") as tx:
            steps = tx.where(self._database.steps, "stage", stage_record_id)
            return [detached(step) for step in sorted(steps, key=lambda step: (step.seq, step.id))]
