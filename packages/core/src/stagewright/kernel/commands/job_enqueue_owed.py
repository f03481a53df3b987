"""`job.enqueueOwed`: give their jobs to stages that want one and that the transport has none for.

It belongs to the maintenance of a deployment: hosts dispatch it at every tick, users have no reason to.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from stagewright.duration import parse_duration
from stagewright.kernel.command import Command, CommandDuration, Count, ServedDefinitions
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.enqueue_owed import LIMIT, OWED_FOR, enqueue_owed_jobs
from stagewright.kernel.procedures.replace_lost import replace_lost_jobs

__all__ = ["EnqueueOwedJobs", "EnqueueOwedJobsResult", "handle"]


@dataclass(frozen=True, slots=True)
class EnqueueOwedJobsResult:
    """How many stages that had been owed a job, or whose job was lost, were given one."""

    enqueued: int


@dataclass(frozen=True, slots=True)
class EnqueueOwedJobs(Command[EnqueueOwedJobsResult]):
    """Enqueue what a crash between a commit and its enqueueing has left out, and what the transport has lost.

    A transport that may lose jobs is asked whether it may have. If so, all RUNNING runs are looked through, whoever
    serves them: a stage that waits without a job is given one at once, and one that is RUNNING without one a little
    later, when its worker has learnt that it has lost it.

    Attributes:
        owed_for: A job that is owed for less than this is on its way.
        limit: At most so many.
        serves: Which definitions; None is what this kernel's registry lists, `"all"` is every one.
    """

    type: ClassVar[str] = "job.enqueueOwed"

    _: KW_ONLY
    owed_for: CommandDuration = OWED_FOR
    limit: Count = LIMIT
    serves: ServedDefinitions = None


async def handle(command: EnqueueOwedJobs, ports: KernelPorts) -> EnqueueOwedJobsResult:
    """Replace what was lost, and enqueue what has been owed for long enough."""
    serves = ports.serves_of(command.serves)
    owed_for = parse_duration(command.owed_for, field="owed_for")
    replaced = await replace_lost_jobs(ports)
    enqueued = await enqueue_owed_jobs(ports, owed_for=owed_for, limit=command.limit, serves=serves)
    return EnqueueOwedJobsResult(replaced + enqueued)
