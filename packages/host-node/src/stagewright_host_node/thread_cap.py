"""How many threads run bodies that nobody waits for any more, and how many may."""

from typing import Protocol, runtime_checkable

from stagewright.ports import ActivityExecutor

__all__ = ["AbandonsThreads", "ThreadCap"]


@runtime_checkable
class AbandonsThreads(Protocol):
    """An executor that counts the threads it had to leave to themselves."""

    @property
    def abandoned_threads(self) -> int:
        """How many there are at the moment."""
        ...

    @property
    def abandoned_threads_cap(self) -> int:
        """How many there may be until nothing more should be executed."""
        ...


class ThreadCap:
    """Watches the abandoned threads of an executor; one that counts none has none.

    Args:
        executor: The kernel's executor.
    """

    def __init__(self, executor: ActivityExecutor) -> None:
        self._executor = executor if isinstance(executor, AbandonsThreads) else None

    @property
    def abandoned(self) -> int:
        """How many threads are left to themselves at the moment."""
        return 0 if self._executor is None else self._executor.abandoned_threads

    def room(self, concurrency: int) -> int:
        """How many executions there may be at a time, so that all of them may be abandoned and the cap still holds.

        A host of more slots than the cap bears as many abandoned threads as it has slots.
        """
        if self._executor is None:
            return concurrency
        return min(concurrency, max(self._executor.abandoned_threads_cap, concurrency) - self.abandoned)

    def obstacle(self) -> str | None:
        """Why nothing more may be claimed, or None."""
        if self._executor is None or self.abandoned < self._executor.abandoned_threads_cap:
            return None
        return (
            f"{self.abandoned} threads still run bodies that timed out or were cut off, and at "
            f"{self._executor.abandoned_threads_cap} nothing more is begun; let such bodies look at ctx.abort"
        )
