"""The one status set that runs, stages and jobs share."""

from enum import StrEnum
from typing import Final

__all__ = ["ACTIVE_STAGE_STATUSES", "TERMINAL_RUN_STATUSES", "Status"]


class Status(StrEnum):
    """Where a run, a stage or a job stands; the text is what stores hold."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


TERMINAL_RUN_STATUSES: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
"""A run in one of these changes again only by an explicit redrive."""

ACTIVE_STAGE_STATUSES: Final = frozenset({Status.PENDING, Status.RUNNING, Status.SUSPENDED})
"""A stage in one of these can still move, so its run has to wait for it."""
