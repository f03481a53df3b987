"""Jobs that stages want: given to a transport elsewhere once their transaction has committed."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from stagewright.errors import RecordNotFoundError, StaleVersionError
from stagewright.kernel.context import KernelPorts
from stagewright.ports import JobTransport
from stagewright.records import NewJob, StagePatch
from stagewright.status import Status

__all__ = ["WantedJob", "claimable", "enqueueing", "resuming"]


@dataclass(frozen=True, slots=True)
class WantedJob:
    """The job that a stage wants, and the version of the stage's row that says so."""

    job: NewJob
    stage_record_id: str
    version: int


def enqueueing(ports: KernelPorts, wanted: Sequence[WantedJob]) -> Callable[[], Awaitable[object]]:
    """What enqueues jobs of one run, once the transaction has committed."""

    async def enqueue() -> None:
        await ports.job_transport.enqueue_parallel([one.job for one in wanted])
        for one in wanted:
            await _note_enqueued(ports, one)

    return enqueue


async def _note_enqueued(ports: KernelPorts, wanted: WantedJob) -> None:
    """Write down that the transport has a job, unless the stage doesn't want that one any more."""
    now = ports.clock.now()
    patch = StagePatch(updated_at=now, job_enqueued_at=now)
    with suppress(StaleVersionError, RecordNotFoundError):
        await ports.persistence.update_stage(wanted.stage_record_id, patch, expected_version=wanted.version)


async def claimable(transport: JobTransport, wanted: Sequence[WantedJob]) -> list[WantedJob]:
    """Resume jobs, and say which are sure to be delivered; the others are asked for again by the next sweep."""
    standing = await transport.resume([one.job for one in wanted])
    return [one for one, job in zip(wanted, standing, strict=True) if job.status is Status.PENDING]


def resuming(ports: KernelPorts, wanted: Sequence[WantedJob]) -> Callable[[], Awaitable[object]]:
    """What resumes jobs, once the transaction has committed."""

    async def resume() -> None:
        for one in await claimable(ports.job_transport, wanted):
            await _note_enqueued(ports, one)

    return resume
