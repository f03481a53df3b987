"""Reading the jobs of a run whose row is held."""

from collections.abc import Sequence

from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import JobRecord, RunRecord

__all__ = ["jobs_of_run"]


async def jobs_of_run(unit: UnitOfWork, run: RunRecord) -> Sequence[JobRecord]:
    """The jobs of a run, as they are now, or where the transport takes no part, as they were after its last redrive.

    Args:
        unit: The transaction, which holds the run's row.
        run: The run as it is now.
    """
    if unit.jobs is not None:
        return await unit.jobs.get_jobs_by_run(run.id)
    transport = unit.ports.job_transport
    # What was read before a redrive tells of attempts that don't count any more.
    when = f"jobs of run {run.id} after {run.redrive_count} redrives"
    return unit.fetched(when, lambda: transport.get_jobs_by_run(run.id))
