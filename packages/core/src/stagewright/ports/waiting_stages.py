"""Finding the stages whose time has come."""

from datetime import datetime
from typing import Protocol

from stagewright.records import Serves, StoredStage

__all__ = ["WaitingStageStore"]


class WaitingStageStore(Protocol):
    """Stages that are due, and stages that are owed a job."""

    async def get_suspended_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        """Up to `limit` SUSPENDED stages of RUNNING runs, whose `next_poll_at` is `before` or earlier.

        Of runs that are served; the earliest due goes first, then the smaller id. One without a `next_poll_at` is
        never among them. Inside a transaction their runs are locked until it ends, and a run that another transaction
        holds is skipped, never waited for; stages are read as they are once their runs are locked.
        """
        ...

    async def get_owed_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        """Up to `limit` stages of RUNNING runs that want a job and have had none since `before` or earlier.

        That is PENDING ones, and SUSPENDED ones without a `next_poll_at`, whose `job_enqueued_at` is None and whose
        `updated_at` is `before` or earlier. Of runs that are served; the earliest changed goes first, then the smaller
        id. Runs are locked and skipped as by `get_suspended_stages`.
        """
        ...
