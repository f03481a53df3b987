"""Where signals wait until their steps take them."""

from typing import Protocol

from stagewright.records import SignalRecord, StepRecord

__all__ = ["SignalInbox", "SignalStore"]


class SignalStore(Protocol):
    """Signals that came before their steps waited, one row per run, stage id and step id."""

    async def insert_signal_if_absent(self, signal: SignalRecord) -> bool:
        """Keep a signal unless one for that step is kept already; never an error for a conflict.

        Of several callers at once one succeeds; the others wait until that one's transaction has ended.

        Returns:
            Whether it was kept.

        Raises:
            RecordNotFoundError: If its run doesn't exist, at the latest at commit.
        """
        ...

    async def get_signal(self, run_id: str, stage_id: str, step_id: str) -> SignalRecord | None:
        """The signal that is kept for that step as this transaction sees it, or None."""
        ...

    async def list_signals(self, run_id: str) -> list[SignalRecord]:
        """All signals of a run that no step has taken, by `created_at`, then by id."""
        ...

    async def delete_signal(self, signal_id: str) -> None:
        """Forget a signal; nothing happens if it is gone."""
        ...


class SignalInbox(Protocol):
    """The signals of a stage that is being executed, and who may have one: a wait, unless its time is over."""

    async def has(self, step_id: str) -> bool:
        """Whether a signal is kept for this step."""
        ...

    async def settle(self, step: StepRecord) -> StepRecord:
        """Give a pending step the signal that is kept for it; else, if its deadline has passed, fail it for that.

        The step takes the signal and the signal is gone, or neither, where ledger and signals share a database. A
        signal is accepted for the step before this decides or refused after it.

        Returns:
            The step as it is now: completed, failed, or still pending.

        Raises:
            StepLedgerWriteError: If the ledger could not keep it.
        """
        ...
