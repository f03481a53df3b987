"""The signals of a stage that is being executed."""

from stagewright.errors import StepLedgerWriteError
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import StepLedger
from stagewright.records import SignalRecord, StepExpectation, StepPatch, StepRecord
from stagewright.runtime.steps.endings import time_out
from stagewright.status import Status

__all__ = ["StageSignals"]


class StageSignals:
    """A `SignalInbox`.

    Args:
        ports: The kernel's ports.
        run_id: The run.
        stage_id: The stage.
    """

    def __init__(self, ports: KernelPorts, run_id: str, stage_id: str) -> None:
        self._ports = ports
        self._run_id = run_id
        self._stage_id = stage_id

    async def has(self, step_id: str) -> bool:
        """Whether a signal is kept for this step."""
        return await self._ports.persistence.get_signal(self._run_id, self._stage_id, step_id) is not None

    async def settle(self, step: StepRecord) -> StepRecord:
        """Give a pending step its signal, or fail it if its time is over."""
        try:
            if self._ports.ledger_enlists:
                return await in_transaction(self._ports, lambda unit: self._together(unit, step))
            return await self._one_by_one(step)
        except StepLedgerWriteError:
            raise
        except Exception as error:
            raise StepLedgerWriteError(
                step.step_id, "the signal", f"{type(error).__name__}: {error}"
            ) from error

    async def _together(self, unit: UnitOfWork, step: StepRecord) -> StepRecord:
        # Signals are accepted under the same lock, so none comes in between.
        runs = await unit.tx.lock_runs([self._run_id])
        if not runs or runs[0].status is not Status.RUNNING:
            return step
        signal = await unit.tx.get_signal(self._run_id, self._stage_id, step.step_id)
        assert unit.ledger is not None  # the ledger enlists, or this isn't called
        applied, row = await self._decide(unit.ledger, step, signal)
        if applied and signal is not None:
            await unit.tx.delete_signal(signal.id)
        return row

    async def _one_by_one(self, step: StepRecord) -> StepRecord:
        """With a ledger elsewhere a crash in the middle may leave a signal to be seen that its step has."""
        persistence, ledger = self._ports.persistence, self._ports.step_ledger
        signal = await persistence.get_signal(self._run_id, self._stage_id, step.step_id)
        assert ledger is not None  # only a step asks, and it has a row
        applied, row = await self._decide(ledger, step, signal)
        if applied and signal is not None:
            await persistence.delete_signal(signal.id)
        return row

    async def _decide(
        self, ledger: StepLedger, step: StepRecord, signal: SignalRecord | None
    ) -> tuple[bool, StepRecord]:
        now = self._ports.clock.now()
        if signal is not None:
            patch = StepPatch(
                updated_at=now, status="completed", result=signal.payload, result_claim=signal.payload_claim
            )
        elif step.deadline_at is not None and now >= step.deadline_at:
            patch = time_out(step, now, stage_id=self._stage_id)
        else:
            return False, step
        applied, row = await ledger.compare_and_set(step.id, StepExpectation(status="pending"), patch)
        if row is None:
            raise StepLedgerWriteError(step.step_id, "the signal", "its row is gone")
        return applied, row
