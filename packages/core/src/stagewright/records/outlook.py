"""What there is to do in a store, at one look."""

from dataclasses import dataclass
from datetime import datetime

__all__ = ["WorkOutlook"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOutlook:
    """What a store has to do, now and next; definitions don't matter here.

    Attributes:
        pending_runs: Whether a run waits to be claimed.
        running_runs: Whether a run is RUNNING; where none is, no run can be stuck.
        held_jobs: Whether a worker has a job, also of a run that has ended meanwhile; where none has, no lease can be
            lost. It counts only where the jobs are in the same store.
        undelivered_events: Whether an event may be offered to the sink now.
        next_job_at: When the first PENDING job is due: the time that was asked with, or later; None without any. It
            counts only where the jobs are in the same store.
        next_poll_at: When the first SUSPENDED stage is due; None without any.
    """

    pending_runs: bool = False
    running_runs: bool = False
    held_jobs: bool = False
    undelivered_events: bool = False
    next_job_at: datetime | None = None
    next_poll_at: datetime | None = None
