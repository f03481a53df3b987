"""`job.heartbeat`: renew a job's lease, and learn what became of its run."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from stagewright.kernel.command import Command, Id
from stagewright.kernel.context import KernelPorts
from stagewright.records import Fence
from stagewright.status import Status

__all__ = ["HeartbeatJob", "HeartbeatJobResult", "handle"]


@dataclass(frozen=True, slots=True)
class HeartbeatJobResult:
    """What the worker of a job has to know.

    Attributes:
        run_status: The run's status, or None if the run is gone; CANCELLED means that the body shall stop.
        lease_held: Whether this delivery still owns the job; if not, its outcome will be refused.
    """

    run_status: Status | None
    lease_held: bool


@dataclass(frozen=True, slots=True)
class HeartbeatJob(Command[HeartbeatJobResult]):
    """Renew the lease of a delivered job.

    Attributes:
        job_id: The job.
        run_id: Its run.
        fence: The fence of the delivery.
    """

    type: ClassVar[str] = "job.heartbeat"

    job_id: Id
    run_id: Id
    _: KW_ONLY
    fence: Fence


async def handle(command: HeartbeatJob, ports: KernelPorts) -> HeartbeatJobResult:
    """Renew first: a run that can't be read must not cost the lease."""
    held = await ports.job_transport.touch(command.job_id, command.fence)
    return HeartbeatJobResult(await ports.persistence.get_run_status(command.run_id), held)
