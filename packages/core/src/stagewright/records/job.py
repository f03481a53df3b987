"""Jobs: what is enqueued, what is delivered, what a transport keeps."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from stagewright.json_values import Json
from stagewright.records.loaded_run import LoadedRun
from stagewright.status import Status

__all__ = [
    "Acknowledgement",
    "DequeuedJob",
    "Fence",
    "HeldLease",
    "JobQuery",
    "JobRecord",
    "LeaseSweep",
    "NewJob",
]

Acknowledgement: TypeAlias = Literal["acknowledged", "superseded"]
"""Whether an acknowledgement took effect, or came from a delivery that no longer owns the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Proof of owning a delivery: both must be exactly what the transport has stored.

    Attributes:
        started_at: When the transport made this delivery, on the transport's clock.
        deliveries: How often the job had been delivered by then, this one included.
    """

    started_at: datetime
    deliveries: int


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that a worker believes to hold, and wants to be renewed.

    Attributes:
        job_id: The job.
        fence: The fence of the delivery.
    """

    job_id: str
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be enqueued for one stage of one run.

    Attributes:
        id: The job's id, given by whoever enqueues it.
        run_id: The run.
        workflow_id: The run's workflow.
        stage_id: The stage to execute; a transport keeps one job per run and stage.
        definition_version: The version the run is pinned to; only who serves it may take the job.
        payload: A JSON object for whoever delivers the job; the kernel enqueues a claim check for a large one.
        priority: Higher goes first.
        due_at: Not to be delivered before; None is at once.
        max_attempts: How many failures of the body end the stage.
        max_worker_losses: How many lost leases end the stage.
        group_key: The group that the job is of for a transport with `Fairness`; None leaves it to the payload. It isn't
            shown to whoever executes or lists the job.
    """

    id: str
    run_id: str
    workflow_id: str
    stage_id: str
    definition_version: str | None = None
    payload: dict[str, Json] = field(default_factory=dict)
    priority: int = 5
    due_at: datetime | None = None
    max_attempts: int = 3
    max_worker_losses: int = 3
    group_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DequeuedJob:
    """A job that a worker owns from now on, until its lease runs out.

    Attributes:
        job_id: The job.
        run_id: The run.
        workflow_id: The run's workflow.
        stage_id: The stage to execute.
        definition_version: The version the run is pinned to.
        payload: What was enqueued.
        priority: What was enqueued.
        fence: Proof of this delivery, for the acknowledgement.
        failures: How often the body has failed before.
        worker_losses: How often the lease of this job was lost before.
        max_attempts: How many failures end the stage.
        max_worker_losses: How many lost leases end the stage.
        loaded: The run as the claim of this delivery left it, where the claim has read it. It spares whoever executes
            the job at once, in the same process, reading it again; it is no part of what a delivery is.
    """

    job_id: str
    run_id: str
    workflow_id: str
    stage_id: str
    definition_version: str | None
    payload: dict[str, Json]
    priority: int
    fence: Fence
    failures: int
    worker_losses: int
    max_attempts: int
    max_worker_losses: int
    loaded: LoadedRun | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as the transport keeps it, for tests, operators and the console.

    The four counters are separate budgets: `deliveries` is every delivery and with `started_at` the fence,
    `failures` counts bodies that raised, `worker_losses` leases that ran out, `interruptions` hand-backs that
    nobody is to blame for.
    """

    id: str
    run_id: str
    workflow_id: str
    stage_id: str
    definition_version: str | None
    payload: dict[str, Json]
    priority: int
    status: Status
    max_attempts: int
    max_worker_losses: int
    created_at: datetime
    updated_at: datetime
    deliveries: int = 0
    failures: int = 0
    worker_losses: int = 0
    interruptions: int = 0
    worker_id: str | None = None
    started_at: datetime | None = None
    locked_at: datetime | None = None
    completed_at: datetime | None = None
    due_at: datetime | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Which jobs to list; filters are combined with AND, None doesn't filter.

    Attributes:
        run_id: Jobs of this run.
        workflow_id: Jobs of runs of this workflow.
        statuses: Jobs in one of these.
    """

    run_id: str | None = None
    workflow_id: str | None = None
    statuses: Collection[Status] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSweep:
    """What a sweep over lost leases did.

    Attributes:
        released: Jobs that are PENDING again.
        exhausted: Jobs that are FAILED because they lost one worker too many.
    """

    released: tuple[JobRecord, ...] = ()
    exhausted: tuple[JobRecord, ...] = ()
