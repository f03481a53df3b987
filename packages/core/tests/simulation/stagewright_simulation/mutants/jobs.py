"""Jobs, leases and fences."""

from typing import Final

from stagewright_simulation.patches import Patch

__all__ = ["MUTANTS"]

_TRANSPORT: Final = "stagewright.memory.job_transport"
_LEASES: Final = "stagewright.memory.job_leases"

MUTANTS: Final[dict[str, tuple[Patch, ...]]] = {
    "the fence is dropped": (
        Patch(
            "stagewright.memory.heartbeats",
            "        and job.started_at == fence.started_at\n"
            "        and job.deliveries == fence.deliveries\n",
            "",
        ),
    ),
    "a job is enqueued before the commit": (
        Patch(
            "stagewright.kernel.unit_of_work",
            "            left += self._enqueue_by_run()\n",
            "            for work in self._enqueue_by_run():\n                await work()\n",
        ),
    ),
    "what is handed over is committed by itself": (
        Patch(
            "stagewright.kernel.unit_of_work",
            "cast(DeliversAtOnce, self.jobs)",
            "cast(DeliversAtOnce, self.ports.job_transport)",
        ),
    ),
    "what is handed over has no lease": (
        Patch(
            "stagewright.memory.job_transport",
            "                tx.put(table, replace(row, record=record))\n",
            "                tx.put(table, replace(row, record=replace(record, locked_at=None)))\n",
        ),
    ),
    "a superseded acknowledgement is overlooked": (
        Patch(
            "stagewright.kernel.procedures.settle_job",
            'elif await acknowledge(unit.jobs, job, settlement) == "superseded":',
            'elif await acknowledge(unit.jobs, job, settlement) == "nothing":',
        ),
    ),
    "an old attempt may record its outcome": (
        Patch(
            "stagewright.kernel.procedures.record_outcome",
            "current is None or current.attempt != started.attempt or current.status is not Status.RUNNING",
            "current is None",
        ),
    ),
    "an old delivery takes up a stage": (
        Patch(
            "stagewright.kernel.procedures.begin_execution",
            "    if job is not None and unit.jobs is not None:\n"
            "        await require_owned(unit.jobs, job)\n",
            "",
        ),
    ),
    "the reaper believes its own clock": (
        Patch(
            "stagewright.kernel.commands.run_reap_stuck",
            "            if not await _are_workers_lost(unit, stages, jobs, threshold):\n"
            '                return "nothing"\n',
            "",
        ),
    ),
    "heartbeats renew nothing": (
        Patch(
            "stagewright.memory.jobs",
            "replace(row.record, locked_at=self._clock.now())",
            "replace(row.record)",
        ),
    ),
    "failures aren't counted": (
        Patch(_TRANSPORT, "replace(job, failures=job.failures + 1, last_error", "replace(job, last_error"),
    ),
    "a lost worker is a failure": (
        Patch(
            _LEASES,
            "        worker_losses=losses,\n",
            "        worker_losses=losses,\n        failures=job.failures + 1,\n",
        ),
    ),
    "leases of live workers are ended": (
        Patch(
            _LEASES,
            "return row.record.status is Status.RUNNING and _is_older(row.record.locked_at, threshold, now)",
            "return row.record.status is Status.RUNNING and _is_older(row.record.started_at, threshold, now)",
        ),
    ),
    "the outcome goes on without its job": (
        Patch(
            "stagewright.kernel.procedures.record_outcome",
            "    await settle_job(unit, execution.job, ending.settlement)\n",
            "",
        ),
    ),
    "owed jobs stay owed": (
        Patch(
            "stagewright.memory.stages",
            "return wants and stage.job_enqueued_at is None and stage.updated_at <= before",
            "return wants and stage.job_enqueued_at is not None and stage.updated_at <= before",
        ),
    ),
    "a due stage is handed to nobody": (
        Patch(
            "stagewright.kernel.procedures.hand_over",
            "    unit.resume(job, stage_record_id=record.id, version=record.version + 1)\n",
            "",
        ),
        Patch("stagewright.kernel.procedures.hand_over", "job_enqueued_at=None", "job_enqueued_at=unit.now"),
    ),
    "the version of a stage isn't checked": (
        Patch(
            "stagewright.memory.stages",
            "if expected_version is not None and stage.version != expected_version:",
            "if expected_version is not None and stage.version < expected_version:",
        ),
    ),
    "two pollers record one batch": (
        Patch(
            "stagewright.kernel.procedures.poll_batch",
            "return current.status is Status.SUSPENDED and is_own and current.attempt == claimed.attempt",
            "return True",
        ),
        Patch(
            "stagewright.kernel.procedures.poll_batch",
            "StagePatch(updated_at=unit.now, next_poll_at=until, nudged_at=None))\n    return ClaimedBatch",
            "StagePatch(updated_at=unit.now, nudged_at=None))\n    return ClaimedBatch",
        ),
    ),
}
