"""What the loss of a job means for its stage."""

from typing import Final

from stagewright.records import ErrorRecord, JobRecord

__all__ = ["error_of_lost_job"]

_LEASE_CODES: Final = ("LEASE_HEARTBEAT_LOST", "LEASE_ABSOLUTE_CAP")


def error_of_lost_job(job: JobRecord) -> ErrorRecord:
    """Why the stage of a FAILED job fails: the job's own reason, with its last owner named."""
    said = job.last_error or "its job is FAILED, and nothing says why"
    code, _, reason = said.partition(": ")
    if code not in _LEASE_CODES:
        return ErrorRecord(code="JOB_LOST", message=said, stage_id=job.stage_id)
    owner = f"last owner: worker {job.worker_id!r}"
    if code == "LEASE_HEARTBEAT_LOST":
        owner = f"worker loss {job.worker_losses} of at most {job.max_worker_losses}; {owner}"
    return ErrorRecord(code=code, message=f"{reason} ({owner})", stage_id=job.stage_id)
