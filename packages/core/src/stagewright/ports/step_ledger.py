"""Where durable steps are kept."""

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from stagewright.records import StepExpectation, StepPatch, StepRecord

__all__ = ["StepLedger"]


@runtime_checkable
class StepLedger(Protocol):
    """Durable steps, one row per stage record and step id; who claims gives each row an `id` of its own.

    A step comes back as it went in, field by field: times in UTC to the microsecond, `result` as the same exact JSON in
    value and in type (`1.0` stays a float, integers have any size, the order of keys doesn't matter). What goes in or
    comes out is the caller's own: changing it later changes nothing in the ledger.

    Every call is atomic, also against other processes, and what it answered outlasts the process. Ids are text of any
    form that UTF-8 can write. Only a ledger in the persistence's own database knows stage records; any other takes
    every `stage_record_id`.
    """

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        """The step, or None."""
        ...

    async def list(self, stage_record_id: str) -> list[StepRecord]:
        """All steps of a stage record, by `seq`, then by the record's `id`; nothing for nothing."""
        ...

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        """Insert a step if its stage record has none of that `step_id`; never raises on a conflict.

        Of several callers at once one inserts.

        Returns:
            Whether it was inserted, and the row that is there now.
        """
        ...

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        """Change a step if it is as expected, atomically: of several callers with one expectation one succeeds.

        What the patch sets is written (`stagewright.records.set_fields` gives it), None too; all else stays as it is.

        Args:
            record_id: The row's `StepRecord.id`, which is not its `step_id`.
            expectation: The status that the row must have, and the attempt unless that is None.
            patch: What to write.

        Returns:
            Whether it applied, and the row that is there now; (False, None) for an unknown record.
        """
        ...

    async def clear(self, stage_record_id: str) -> None:
        """Delete all steps of a stage record; nothing happens if there are none."""
        ...

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        """Delete the steps of a stage record but for the step ids in `keep`; an empty `keep` deletes all."""
        ...
