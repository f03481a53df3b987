"""The ledger of a body in a harness: the kernel's own, in which mocked waits have ended."""

from collections.abc import Collection

from stagewright.errors import NonRetryableError
from stagewright.ports import Clock, StepLedger
from stagewright.records import StepExpectation, StepPatch, StepRecord
from stagewright.runtime.failure import describe_exception
from stagewright.runtime.steps.endings import FAILED, time_out
from stagewright.testing.harness.step_mocks import BodyMocks, ErrorMock, Mock, ResultMock, TimeoutMock

__all__ = ["MockedLedger"]


class MockedLedger:
    """A `StepLedger` for one invocation of a body.

    A wait for a time, a signal or a deadline has no function that another one could stand in for, so its row is given
    the ending that the mock says, as soon as the body asks for it.
    """

    def __init__(self, ledger: StepLedger, clock: Clock, mocks: BodyMocks) -> None:
        self._ledger = ledger
        self._clock = clock
        self._mocks = mocks

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        """The step, or None."""
        row = await self._ledger.get(stage_record_id, step_id)
        return None if row is None else await self._ended(row)

    async def list(self, stage_record_id: str) -> list[StepRecord]:
        """All steps of a stage record."""
        return await self._ledger.list(stage_record_id)

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        """Insert a step unless it is there; whether it was inserted, and the row that is there now."""
        created, row = await self._ledger.claim(record)
        return created, await self._ended(row)

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        """Change a step if it is as expected."""
        return await self._ledger.compare_and_set(record_id, expectation, patch)

    async def clear(self, stage_record_id: str) -> None:
        """Delete all steps of a stage record."""
        await self._ledger.clear(stage_record_id)

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        """Delete the steps of a stage record but for those in `keep`."""
        await self._ledger.clear_except(stage_record_id, keep)

    async def _ended(self, row: StepRecord) -> StepRecord:
        if row.status != "pending":
            return row
        patch = self._ending(row)
        if patch is None:
            return row
        _, current = await self._ledger.compare_and_set(row.id, StepExpectation(status="pending"), patch)
        self._mocks.note_used(row.step_id)
        return current or row

    def _ending(self, row: StepRecord) -> StepPatch | None:
        now = self._clock.now()
        if row.kind == "sleep":
            slept = self._mocks.is_slept(row.step_id)
            return StepPatch(updated_at=now, status="completed") if slept else None
        mock: Mock | None = self._mocks.of(row.step_id, row.kind)
        match mock:
            case TimeoutMock():
                return time_out(row, now, stage_id=self._mocks.stage_id)
            case ResultMock(value) if row.kind == "signal":
                payload = self._mocks.as_payload(row.step_id, value)
                return StepPatch(updated_at=now, status="completed", result=payload)
            case ErrorMock(error) if not isinstance(error, NonRetryableError):
                described = describe_exception(error, code=FAILED, stage_id=self._mocks.stage_id)
                return StepPatch(updated_at=now, status="failed", error=described)
            case _:
                return None
