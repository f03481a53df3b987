"""What holds once everything has come to rest."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from stagewright.definitions import Workflow
from stagewright.records import ClaimCheck, JobRecord, StoredStage
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_simulation.history import Violation, digest
from stagewright_simulation.world import World

__all__ = ["is_at_rest", "promises_at_rest", "what_is_open"]


def is_at_rest(world: World) -> bool:
    """Whether every run has ended, every event is out, and no job is left."""
    return next(what_is_open(world), None) is None


def what_is_open(world: World) -> Iterator[str]:
    """What has not come to an end."""
    for run in world.main.runs.all().values():
        if run.status not in TERMINAL_RUN_STATUSES:
            stages = [one for one in world.main.stages.all().values() if one.run_id == run.id]
            shown = ", ".join(
                f"{one.stage_id} {one.status} until {_short(one.next_poll_at)}" for one in stages
            )
            yield f"run {run.id} is {run.status}, version {run.definition_version}: {shown}"
    for row in world.main.outbox.all().values():
        if row.is_pending:
            yield f"event {row.record.sequence} of {row.record.run_id} is not delivered"
    for job in _jobs(world):
        if job.status in (Status.PENDING, Status.RUNNING):
            yield f"the job of {job.stage_id} of {job.run_id} is {job.status}"


def promises_at_rest(world: World) -> Iterator[Violation]:
    """Whatever is broken once nothing moves any more."""
    for what in what_is_open(world):
        name = "every-run-ends" if what.startswith("run") else "nothing-owed"
        yield Violation(name, what)
    for key_row in world.main.idempotency_keys.all().values():
        if not key_row.completed:
            yield Violation("nothing-owed", f"the key {key_row.key} is in progress")
    for database in world.databases:
        if not database.locks.is_idle:
            yield Violation("locks-free", f"somebody holds a lock in {database.name}")
    for run in world.main.runs.all().values():
        workflow = world.workflow(run.workflow_id, run.definition_version)
        stages = {one.stage_id: one for one in world.main.stages.all().values() if one.run_id == run.id}
        if workflow is not None and run.status is Status.COMPLETED:
            yield from _data_flow(world, run.input, workflow, stages)
        for stage in stages.values():
            yield from _failure_budget(world, stage)


def _data_flow(
    world: World, given: Any, workflow: Workflow, stages: dict[str, StoredStage]
) -> Iterator[Violation]:
    """Each stage was given what the group before it gave, and gave what its steps gave."""
    for group in workflow.groups:
        outputs = {}
        for stage in group:
            record = stages.get(stage.id)
            output = None if record is None else _value(world, record.output, record.output_claim)
            outputs[stage.id] = output
            if record is None or not isinstance(output, dict):
                yield Violation("outputs-follow", f"stage {stage.id} gave {output}")
                continue
            if output["given"] != digest(given):
                yield Violation(
                    "outputs-follow", f"stage {stage.id} of {record.run_id} was given something else"
                )
            yield from _steps_of_output(world, record, output["steps"])
        given = next(iter(outputs.values())) if len(group) == 1 else outputs


def _steps_of_output(world: World, record: StoredStage, steps: list[list[str]]) -> Iterator[Violation]:
    for step_id, token in steps:
        row = world.step_database.steps.get((record.id, step_id))
        if row is None:
            yield Violation(
                "outputs-follow", f"step {step_id} of {record.id} is in the output, and isn't there"
            )
        elif " " in token and "timed" not in token:
            value = _value(world, row.result, row.result_claim)
            if not isinstance(value, dict) or value.get("token") != token:
                yield Violation(
                    "outputs-follow", f"step {step_id} of {record.id}: {token} in the output, not {value}"
                )


def _failure_budget(world: World, stage: StoredStage) -> Iterator[Violation]:
    """A stage gives up only when its budget is spent, or nothing helps; a worker loss is no failure."""
    if stage.status is not Status.FAILED or stage.error is None or world.scenario.topology.jobs_apart:
        return
    row = world.job_database.jobs.get((stage.run_id, stage.stage_id))
    if row is None:
        return
    job: JobRecord = row.record
    message = str(stage.error)
    if "once more" in message and stage.error.code == "STAGE_FAILED" and job.failures < job.max_attempts:
        yield Violation(
            "budgets",
            f"stage {stage.stage_id} of {stage.run_id} gave up after {job.failures} of {job.max_attempts}",
        )
    if stage.error.code == "LEASE_HEARTBEAT_LOST" and job.worker_losses < job.max_worker_losses:
        yield Violation(
            "budgets", f"stage {stage.stage_id} of {stage.run_id} gave up after {job.worker_losses} losses"
        )


def _value(world: World, inline: Any, claim: ClaimCheck | None) -> Any:
    if claim is None:
        return inline
    row = world.blob_database.blobs.get(claim.key)
    return None if row is None else json.loads(row.data)


def _jobs(world: World) -> list[JobRecord]:
    return [row.record for row in world.job_database.jobs.all().values()]


def _short(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%H:%M:%S}"
