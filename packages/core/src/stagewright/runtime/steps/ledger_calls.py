"""Calls of the ledger, patient with a store that can't do it this time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from stagewright.errors import OutcomeUnknownError, StepLedgerWriteError, StepRowGoneError, TransientError
from stagewright.ports import StepLedger
from stagewright.records import StepExpectation, StepPatch, StepRecord, set_fields

__all__ = ["LedgerCalls"]

R = TypeVar("R")
_PAUSES: Final = (0.05, 0.4)


class LedgerCalls:
    """The ledger as the steps of one stage record use it.

    Reading raises what the ledger raises. Whatever keeps a write from being kept is a `StepLedgerWriteError`.
    """

    def __init__(self, ledger: StepLedger, stage_record_id: str) -> None:
        self._ledger = ledger
        self._stage_record_id = stage_record_id

    async def all(self) -> dict[str, StepRecord]:
        """The steps that are there, by step id."""
        steps = await _patiently(lambda: self._ledger.list(self._stage_record_id))
        return {step.step_id: step for step in steps}

    async def get(self, step_id: str) -> StepRecord | None:
        """The step as it is now."""
        return await _patiently(lambda: self._ledger.get(self._stage_record_id, step_id))

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        """Insert a step unless it is there; whether it was inserted, and the row that is there now."""
        try:
            created, row = await _patiently(lambda: self._ledger.claim(record))
        except Exception as error:
            raise _not_kept(record, "the beginning", error) from error
        # After a lost reply the row that is in the way may be this one.
        return created or row.id == record.id, row

    async def change(
        self, step: StepRecord, patch: StepPatch, *, attempt: int | None, what: str
    ) -> tuple[bool, StepRecord]:
        """Change a step if it has the status, and the attempt unless that is None, that it had.

        Args:
            step: The step as it was.
            patch: What to write.
            attempt: The attempt that it must have.
            what: What is written, for the error.

        Returns:
            Whether it applied, and the row that is there now.

        Raises:
            StepRowGoneError: If there is none: the step's run was purged, or the stage begins anew.
            StepLedgerWriteError: If the ledger couldn't be asked, or its answer got lost.
        """
        expectation = StepExpectation(status=step.status, attempt=attempt)
        unknown = False

        async def write() -> tuple[bool, StepRecord | None]:
            nonlocal unknown
            try:
                return await self._ledger.compare_and_set(step.id, expectation, patch)
            except OutcomeUnknownError:
                unknown = True
                raise

        try:
            applied, row = await _patiently(write)
        except Exception as error:
            raise _not_kept(step, what, error) from error
        if row is None:
            raise StepRowGoneError(step.step_id, what, "its row is gone")
        return applied or (unknown and _shows(row, patch)), row


async def _patiently(call: Callable[[], Awaitable[R]]) -> R:
    for pause in _PAUSES:
        try:
            return await call()
        except (TransientError, OutcomeUnknownError):
            await asyncio.sleep(pause)
    return await call()


def _shows(row: StepRecord, patch: StepPatch) -> bool:
    return all(getattr(row, name) == value for name, value in set_fields(patch).items())


def _not_kept(step: StepRecord, what: str, error: Exception) -> StepLedgerWriteError:
    return StepLedgerWriteError(step.step_id, what, f"{type(error).__name__}: {error}")
