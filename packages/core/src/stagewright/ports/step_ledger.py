"""Where durable steps are kept."""

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from stagewright.records import StepExpectation, StepPatch, StepRecord

__all__ = ["StepLedger"]


@runtime_checkable
class StepLedger(Protocol):
    """Durable steps, one row per stage record and step id."""

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        """The step, or None."""
        ...

    async def list(self, stage_record_id: str) -> list[StepRecord]:
        """All steps of a stage record, by `seq`, then by id."""
        ...

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        """Insert a step if its stage record has none of that id; never raises on a conflict.

        Returns:
            Whether it was inserted, and the row that is there now.
        """
        ...

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        """Change a step if it is as expected, atomically: of several callers with one expectation one succeeds.

        Returns:
            Whether it applied, and the row that is there now; (False, None) for an unknown record.
        """
        ...

    async def clear(self, stage_record_id: str) -> None:
        """Delete all steps of a stage record."""
        ...

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        """Delete the steps of a stage record but for the step ids in `keep`; an empty `keep` deletes all."""
        ...
