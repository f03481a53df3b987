"""`run.purge`: delete runs that ended long ago, and everything of them."""

import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator

from stagewright.errors import AfterCommitError
from stagewright.kernel.command import Command, Moment, PositiveCount
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.archive_attempts import archived_stage_records
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.records import RunRecord, Tombstone
from stagewright.runtime.keys import purge_prefixes
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["PurgeRuns", "PurgeRunsResult", "handle"]

_BLOBS_AT_ONCE: Final = 500
_log: Final = logging.getLogger("stagewright.kernel")


@dataclass(frozen=True, slots=True)
class PurgeRunsResult:
    """What is gone.

    Attributes:
        purged: How many runs this command has removed to the last thing, those included that another one had begun.
        run_ids: Which.
    """

    purged: int
    run_ids: tuple[str, ...]


def _terminal(statuses: Sequence[Status]) -> Sequence[Status]:
    open_ones = sorted(set(statuses) - TERMINAL_RUN_STATUSES)
    if open_ones:
        raise ValueError(f"only runs that have ended can be purged, and {open_ones[0]} ones have not")
    return statuses


@dataclass(frozen=True, slots=True)
class PurgeRuns(Command[PurgeRunsResult]):
    """Delete runs for good: their rows, steps, jobs, events, blobs, model calls and idempotency keys.

    A run of which an event has yet to be delivered is left alone; dead letters don't hold it back. A purge that is cut
    short is finished by the next one. Until nothing is purged any more, there may be more than `limit` to purge.

    Attributes:
        older_than: Runs that ended then or earlier; an aware datetime.
        statuses: Of these statuses: COMPLETED, FAILED and CANCELLED unless given.
        limit: At most so many, the first to end first; up to 1,000,000.

    Raises:
        AfterCommitError: If runs are deleted and something of them could not be; the next purge tries again.
    """

    type: ClassVar[str] = "run.purge"

    older_than: Moment
    _: KW_ONLY
    statuses: Annotated[Sequence[Status], AfterValidator(_terminal)] = field(
        default_factory=lambda: tuple(sorted(TERMINAL_RUN_STATUSES))
    )
    limit: PositiveCount = 100


async def handle(command: PurgeRuns, ports: KernelPorts) -> PurgeRunsResult:
    """Finish what an earlier purge left, then bury run by run, each in a transaction of its own."""
    purged: list[str] = []
    failures: list[Exception] = []
    left = await ports.persistence.list_tombstones(command.limit)
    for tombstone in left:
        await _finish(ports, tombstone, purged, failures)
    for run in await ports.persistence.list_runs_for_purge(
        command.older_than, statuses=command.statuses, limit=command.limit - len(purged)
    ):
        buried = await in_transaction(ports, partial(_bury, command, run.id))
        if buried is not None:
            await _finish(ports, buried, purged, failures)
    if failures:
        raise AfterCommitError(len(purged) + len(failures), tuple(failures)) from failures[0]
    return PurgeRunsResult(len(purged), tuple(purged))


async def _bury(command: PurgeRuns, run_id: str, unit: UnitOfWork) -> Tombstone | None:
    """Delete a run's rows, and note what is left of it; None if it isn't to be purged any more."""
    locked = await unit.tx.lock_runs([run_id])
    if not locked or not _is_due(command, locked[0]) or await unit.tx.has_pending_events(run_id):
        return None
    run = locked[0]
    stages = await unit.tx.get_stages_by_run(run_id)
    records = {stage.id for stage in stages} | await archived_stage_records(unit, run)
    tombstone = Tombstone(
        run_id=run_id,
        blob_prefixes=purge_prefixes(run.workflow_id, run_id),
        stage_ids=tuple(sorted(stage.stage_id for stage in stages)),
        stage_record_ids=tuple(sorted(records)),
        created_at=unit.now,
    )
    await unit.tx.put_tombstone(tombstone)
    if unit.jobs is not None:
        await unit.jobs.delete_by_run_and_stages(run_id, tombstone.stage_ids)
    if unit.ledger is not None:
        for record_id in tombstone.stage_record_ids:
            await unit.ledger.clear(record_id)
    await unit.tx.delete_run(run_id)
    return tombstone


def _is_due(command: PurgeRuns, run: RunRecord) -> bool:
    ended_at: datetime = run.completed_at or run.updated_at
    return run.status in command.statuses and ended_at <= command.older_than


async def _finish(
    ports: KernelPorts, tombstone: Tombstone, purged: list[str], failures: list[Exception]
) -> None:
    """Delete what lies outside the persistence, then the tombstone; of several purges one has removed the run."""
    try:
        await _delete_outside(ports, tombstone)
        if await ports.persistence.remove_tombstone(tombstone.run_id):
            purged.append(tombstone.run_id)
    except Exception as error:  # told at the end, so that one run keeps no other from being purged
        _log.warning("the purge of run %s is not finished", tombstone.run_id, exc_info=True)
        failures.append(error)


async def _delete_outside(ports: KernelPorts, tombstone: Tombstone) -> None:
    if not ports.transport_enlists:
        await ports.job_transport.delete_by_run_and_stages(tombstone.run_id, tombstone.stage_ids)
    if ports.step_ledger is not None and not ports.ledger_enlists:
        for record_id in tombstone.stage_record_ids:
            await ports.step_ledger.clear(record_id)
    for prefix in tombstone.blob_prefixes:
        await _delete_blobs(ports, prefix)
    if ports.services.ai_logger is not None:
        await ports.services.ai_logger.delete_calls(f"workflow.{tombstone.run_id}")


async def _delete_blobs(ports: KernelPorts, prefix: str) -> None:
    keys = [key async for key in ports.blob_store.list(prefix)]
    for start in range(0, len(keys), _BLOBS_AT_ONCE):
        await ports.blob_store.delete_many(keys[start : start + _BLOBS_AT_ONCE])
