"""Watching what is committed: rows may change in some ways and not in others."""

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from stagewright.memory.rows import JobRow, OutboxRow
from stagewright.records import JobRecord, RunRecord, SignalRecord, StepRecord, StoredStage
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_simulation.clocks import moment
from stagewright_simulation.database import watch
from stagewright_simulation.faults import DeliveryFault
from stagewright_simulation.history import token_of
from stagewright_simulation.loop import CURRENT
from stagewright_simulation.world import World

__all__ = ["CommitWatch"]


class CommitWatch:
    """Sees every row that any process commits, and notes what must not be.

    Attributes:
        cancellations: When which run was cancelled.
        created: The runs that ever were.
        purged: The runs that are gone.
        redrives: How often which run was redriven.
        taken_signals: The tokens of signals that were taken out of their store, and their runs.
        events: The events that were ever committed, by run: sequence, id, type and fields.
        given_up: The events that were dead letters when their run was purged.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._history = world.history
        self.cancellations: list[tuple[str, float]] = []
        self.created: set[str] = set()
        self.purged: set[str] = set()
        self.redrives: Counter[str] = Counter()
        self.taken_signals: list[tuple[str, str]] = []
        self.events: dict[str, list[tuple[int, str, str, dict[str, Any]]]] = {}
        self.given_up: set[str] = set()
        self._owners: dict[tuple[str, str], str | None] = {}
        self._deliveries: dict[tuple[str, int], str | None] = {}
        self._gone_jobs: set[str] = set()
        self._are_deliveries_shared = any(isinstance(fault, DeliveryFault) for fault in world.scenario.faults)
        self._attempts: dict[tuple[str, str], int] = {}
        watch(world.main.runs, self._run)
        watch(world.main.stages, self._stage)
        watch(world.main.outbox, self._event)
        watch(world.main.signals, self._signal)
        watch(world.job_database.jobs, self._job)
        watch(world.step_database.steps, self._step)

    def _run(self, before: RunRecord | None, after: RunRecord | None) -> None:
        if after is None:
            if before is not None:
                self.purged.add(before.id)
                self._history.tell("rows", f"run {before.id} is deleted")
            return
        if before is None:
            self.created.add(after.id)
        elif before.status is after.status and before.redrive_count == after.redrive_count:
            return
        elif before.status in TERMINAL_RUN_STATUSES and after.redrive_count != before.redrive_count + 1:
            name = "cancelled-never-completes" if before.status is Status.CANCELLED else "terminal-stays"
            self._history.violate(name, f"run {after.id} was {before.status} and is {after.status}")
        if before is not None and after.redrive_count != before.redrive_count:
            self.redrives[after.id] += 1
        if after.status is Status.CANCELLED:
            self.cancellations.append((after.id, self._history.now()))
        error = "" if after.error is None else f": {after.error}"
        self._history.tell("rows", f"run {after.id} is {after.status}{error}")

    def _stage(self, before: StoredStage | None, after: StoredStage | None) -> None:
        if after is None:
            return
        key = (after.run_id, after.stage_id)
        least = self._attempts.get(key, 0) + (1 if before is None else 0)
        if after.attempt < least:
            self._history.violate(
                "attempts-rise",
                f"stage {after.stage_id} of {after.run_id} has attempt {after.attempt}, after {least}",
            )
        self._attempts[key] = max(after.attempt, least)
        if before is None or before.status is not after.status:
            error = "" if after.error is None else f": {after.error}"
            self._history.tell(
                "rows",
                f"stage {after.stage_id} of {after.run_id} is {after.status}, attempt {after.attempt}{error}",
            )
        if before is not None:
            self._stage_changed(before, after)
        was_completed = before is not None and before.status is Status.COMPLETED
        is_same = before is not None and before.attempt == after.attempt
        if was_completed and is_same and after.status is not Status.COMPLETED:
            self._history.violate("terminal-stays", f"stage {after.stage_id} of {after.run_id} opened again")

    def _stage_changed(self, before: StoredStage, after: StoredStage) -> None:
        what = f"stage {after.stage_id} of {after.run_id}"
        outcome = (before.output, before.output_claim, before.completed_at)
        is_completed = before.status is Status.COMPLETED and after.status is Status.COMPLETED
        if is_completed and outcome != (after.output, after.output_claim, after.completed_at):
            self._history.violate("stage-outcome-once", f"{what} was completed, and is completed again")
        if before.job_enqueued_at is None and after.job_enqueued_at is not None:
            self._enqueued(before, after, what)
        if before.status is not Status.RUNNING or after.status in (Status.RUNNING, Status.CANCELLED):
            return
        actor, topology = CURRENT.get(), self._world.scenario.topology
        owner = self._owners.get((after.run_id, after.stage_id))
        is_worker = actor is not None and actor.name.startswith("worker")
        is_fenced = not topology.jobs_apart and not self._are_deliveries_shared
        if actor is not None and is_worker and is_fenced and owner != actor.name:
            self._history.violate(
                "only-the-owner-records", f"{what} is {owner}'s, and {actor.name} made it {after.status}"
            )
        self._suspended(after, what)

    def _enqueued(self, before: StoredStage, after: StoredStage, what: str) -> None:
        """Who writes down that a queue elsewhere has a job does it for a job that is wanted and is there."""
        noted = replace(
            before,
            version=after.version,
            updated_at=after.updated_at,
            job_enqueued_at=after.job_enqueued_at,
        )
        if not self._world.scenario.topology.jobs_apart or noted != after:
            return
        waits = after.status is Status.SUSPENDED and after.next_poll_at is None
        row = self._world.job_database.jobs.get((after.run_id, after.stage_id))
        job = None if row is None else row.record.status
        # One that has failed there is about to fail its stage.
        if not (waits or after.status is Status.PENDING) or job in (None, Status.SUSPENDED, Status.COMPLETED):
            self._history.violate(
                "notes-of-jobs-true", f"{what} is {after.status}, its job {job}, and a job is noted"
            )

    def _suspended(self, stage: StoredStage, what: str) -> None:
        """Who waits for a signal that has come doesn't go on waiting."""
        if stage.status is not Status.SUSPENDED or stage.next_poll_at is None:
            return
        step = self._world.step_database.steps.get((stage.id, stage.waiting_step_id))
        is_there = step is not None and step.kind == "signal" and step.status == "completed"
        late = moment(self._history.now()) + timedelta(seconds=5)
        topology = self._world.scenario.topology
        if (
            is_there
            and stage.next_poll_at > late
            and not topology.steps_apart
            and self._world.clocks_are_right
        ):
            self._history.violate(
                "signals-wake", f"{what} waits until {stage.next_poll_at} for what has come"
            )

    def _event(self, before: OutboxRow | None, after: OutboxRow | None) -> None:
        if after is None and before is not None and before.record.dead_lettered_at is not None:
            self.given_up.add(before.record.id)
        if before is None and after is not None:
            record = after.record
            self._world.committed_events[record.id] = record.sequence
            self.events.setdefault(record.run_id, []).append(
                (record.sequence, record.id, record.type, record.payload)
            )

    def _signal(self, before: SignalRecord | None, after: SignalRecord | None) -> None:
        if after is None and before is not None:
            value = before.payload if before.payload_claim is None else self._blob(before.payload_claim.key)
            self.taken_signals.append((token_of(value) or "", before.run_id))

    def _job(self, before: JobRow | None, after: JobRow | None) -> None:
        if after is not None and after.record.status is Status.RUNNING:
            self._owners[after.record.run_id, after.record.stage_id] = after.record.worker_id
            self._deliveries[after.record.id, after.record.deliveries] = after.record.worker_id
        if before is not None and (after is None or before.record.id != after.record.id):
            self._gone_jobs.add(before.record.id)
        if before is None or after is None or before.record.id != after.record.id:
            return
        old, new = before.record, after.record
        what = f"the job of {new.stage_id} of {new.run_id}"
        if old.status in TERMINAL_RUN_STATUSES and new.status is not old.status:
            self._history.violate("terminal-stays", f"{what} was {old.status} and is {new.status}")
        for name in ("deliveries", "failures", "worker_losses", "interruptions"):
            was, now = getattr(old, name), getattr(new, name)
            if not was <= now <= was + 1:
                self._history.violate("budgets", f"{what} had {was} {name} and has {now}")
        self._settled(old, new, what)
        if new.worker_losses > old.worker_losses and self._world.scenario.is_calm:
            self._history.violate("no-loss-without-cause", f"{what} lost its worker, and none was gone")
        if new.failures > new.max_attempts or new.worker_losses > new.max_worker_losses:
            self._history.violate("budgets", f"{what} went beyond its budget: {new}")

    def _settled(self, old: JobRecord, new: JobRecord, what: str) -> None:
        """A worker settles its own jobs, and no other's; one delivery that came to two workers is both's."""
        actor = CURRENT.get()
        if actor is None or not actor.name.startswith("worker") or old.status is not Status.RUNNING:
            return
        is_mine = old.worker_id == actor.name or self._are_deliveries_shared
        if new.status is not Status.RUNNING and not is_mine:
            self._history.violate(
                "only-the-owner-settles",
                f"{what} was {old.worker_id}'s, and {actor.name} made it {new.status}",
            )

    def _step(self, before: StepRecord | None, after: StepRecord | None) -> None:
        if after is None:
            return
        where = (after.stage_record_id, after.step_id)
        has_ended = after.status in ("completed", "failed") and (before is None or before.status == "pending")
        if has_ended and after.deadline_at is not None and self._world.clocks_are_right:
            is_early = moment(self._history.now()) < after.deadline_at
            if is_early and (
                after.kind == "sleep" or (after.error is not None and "TIMEOUT" in after.error.code)
            ):
                self._history.violate(
                    "deadline-stands", f"step {after.step_id} ended before {after.deadline_at}"
                )
        if before is not None and before.id == after.id:
            self._step_changed(before, after)
        if after.status == "completed" and (before is None or before.status != "completed"):
            value = after.result if after.result_claim is None else self._blob(after.result_claim.key)
            token = token_of(value)
            if token is not None:
                self._history.recorded.setdefault(where, set()).add(token)
            self._history.tell(
                "rows", f"step {after.step_id} of {after.stage_record_id} is completed: {token}"
            )

    def _step_changed(self, before: StepRecord, after: StepRecord) -> None:
        what = f"step {after.step_id} of {after.stage_record_id}"
        self._step_settled(before, after, what)
        # Who tries a failed one once more opens it first.
        has_ended = before.status == "completed" or (before.status == "failed" and after.status != "running")
        if has_ended and _outcome(before) != _outcome(after):
            self._history.violate(
                "step-outcome-once", f"{what} was {before.status}, and is written again: {after}"
            )
        if after.attempt < before.attempt:
            self._history.violate(
                "attempts-rise", f"{what} had execution {before.attempt}, has {after.attempt}"
            )
        if before.deadline_at != after.deadline_at:
            self._history.violate(
                "deadline-stands", f"{what} had until {before.deadline_at} and has until {after.deadline_at}"
            )

    def _step_settled(self, before: StepRecord, after: StepRecord, what: str) -> None:
        """Who has failed or gives up says so of its own execution; a result counts, whoever has it."""
        actor, owner = CURRENT.get(), before.owner
        is_given_up = after.owner is None or after.status == "failed"
        if actor is None or owner is None or before.status != "running" or not is_given_up:
            return
        if after.error is not None and after.error.code == "STEP_NOT_REPLAY_SAFE":
            return  # whoever comes after a lost worker is to refuse it
        if after.status == "running" and owner.job_id in self._gone_jobs:
            return  # a redrive took the job, and the first worker at the new one opens the steps of the old one again
        worker = self._deliveries.get((owner.job_id, owner.deliveries))
        is_anothers = actor.name.startswith("worker") and worker not in (None, actor.name)
        if after.status != "completed" and is_anothers and not self._are_deliveries_shared:
            self._history.violate(
                "only-the-owner-settles", f"{what} was {worker}'s, and {actor.name} made it {after.status}"
            )

    def _blob(self, key: str) -> Any:
        row = self._world.blob_database.blobs.get(key)
        return None if row is None else json.loads(row.data)


def _outcome(step: StepRecord) -> tuple[object, ...]:
    return step.status, step.result, step.result_claim, step.error
