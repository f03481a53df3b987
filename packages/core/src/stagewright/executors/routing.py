"""Sending some stages elsewhere."""

from collections.abc import Collection

from stagewright.ports import ActivityExecutor, ActivityOutcome, ActivityRun
from stagewright.runtime.body_threads import DEFAULT_CAP
from stagewright.runtime.local_executor import LocalExecutor

__all__ = ["RoutingExecutor"]


class RoutingExecutor:
    """Gives the listed stages to one executor and all others to another.

    Args:
        remote: Runs the listed stages.
        remote_stage_ids: Their ids.
        local: Runs all others; by default they run in this process.
    """

    def __init__(
        self,
        remote: ActivityExecutor,
        remote_stage_ids: Collection[str],
        *,
        local: ActivityExecutor | None = None,
    ) -> None:
        self._remote = remote
        self._remote_stage_ids = frozenset(remote_stage_ids)
        self._local = local or LocalExecutor()

    @property
    def abandoned_threads(self) -> int:
        """How many threads of plain bodies and steps go on here after their time-out or cancellation."""
        return self._local.abandoned_threads if isinstance(self._local, LocalExecutor) else 0

    @property
    def abandoned_threads_cap(self) -> int:
        """How many of them are borne."""
        return self._local.abandoned_threads_cap if isinstance(self._local, LocalExecutor) else DEFAULT_CAP

    async def run(self, activity: ActivityRun) -> ActivityOutcome:
        """Run a body where its stage belongs."""
        executor = self._remote if activity.stage.id in self._remote_stage_ids else self._local
        return await executor.run(activity)
