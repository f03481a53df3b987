"""What holds of what a run leaves behind: events, durable steps and annotations.

Each function answers with what is wrong, in words; nothing for rows that agree.
"""

from collections.abc import Iterator
from typing import Final

from stagewright.events import event_of_record
from stagewright.records import EventRecord, JobRecord, StepRecord, StoredStage
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright.testing.row_invariants import RunRows, repeated

__all__ = ["annotation_faults", "event_faults", "step_faults"]

_ENDINGS: Final = {
    "workflow:completed": Status.COMPLETED,
    "workflow:failed": Status.FAILED,
    "workflow:cancelled": Status.CANCELLED,
}
_MAY_FOLLOW: Final = frozenset({"annotation:created"})
_OPEN: Final = {"run": "running", "wait": "pending", "signal": "pending", "sleep": "pending"}


def event_faults(rows: RunRows) -> Iterator[str]:
    """Events are numbered without a gap, delivered in order, and tell what became of the run and its stages."""
    events = sorted(rows.events, key=lambda event: event.sequence)
    numbers = [event.sequence for event in events]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"its events are numbered {numbers}"
    yield from repeated("event", (event.id for event in events))
    if not events:
        yield "it has no events"
        return
    if events[0].type != "workflow:created":
        yield f"its first event is {events[0].type}"
    yield from _ending_faults(rows, events)
    yield from _delivery_faults(events)
    for stage in rows.stages:
        told = {event.type for event in events if event.payload.get("stage_id") == stage.stage_id}
        wanted = {Status.COMPLETED: "stage:completed", Status.FAILED: "stage:failed"}.get(stage.status)
        if wanted is not None and wanted not in told:
            yield f"its stage {stage.stage_id!r} is {stage.status}, and no {wanted} tells of it"
    for event in events:
        try:
            event_of_record(event)
        except Exception as error:
            yield f"its event {event.sequence} can't be read: {error}"


def _ending_faults(rows: RunRows, events: list[EventRecord]) -> Iterator[str]:
    run = rows.run
    endings = [event for event in events if event.type in _ENDINGS]
    ended = run.status in TERMINAL_RUN_STATUSES
    if len(endings) != run.redrive_count + ended:
        yield f"it is {run.status} after {run.redrive_count} redrives, and {len(endings)} events tell of an end"
    if not ended or not endings:
        return
    if _ENDINGS[endings[-1].type] is not run.status:
        yield f"it is {run.status}, and its last end is {endings[-1].type}"
    late = [event.type for event in events[events.index(endings[-1]) + 1 :] if event.type not in _MAY_FOLLOW]
    if late:
        yield f"after its end it is said {', '.join(late)}"


def _delivery_faults(events: list[EventRecord]) -> Iterator[str]:
    waiting: EventRecord | None = None
    for event in events:
        if event.published_at is not None and event.dead_lettered_at is not None:
            yield f"its event {event.sequence} is both published and given up"
        if event.published_at is not None and waiting is not None:
            yield f"its event {event.sequence} is published, and event {waiting.sequence} waits before it"
        # One that was refused before may have been a dead letter, which others went past.
        if event.published_at is None and event.dead_lettered_at is None and event.last_error is None:
            waiting = waiting or event


def step_faults(rows: RunRows) -> Iterator[str]:
    """Steps agree with themselves and with their stages, and what a stage waits for is there."""
    stages = {stage.id: stage for stage in rows.stages}
    jobs = {job.id: job for job in rows.jobs}
    yield from repeated("step", ((step.stage_record_id, step.step_id) for step in rows.steps))
    for step in rows.steps:
        stage = stages.get(step.stage_record_id)
        for fault in () if stage is None else _faults_of_one_step(step, stage, jobs):
            yield f"the step {step.step_id!r} {fault}"
    known = {(step.stage_record_id, step.step_id) for step in rows.steps}
    for stage in rows.stages:
        waits_for = stage.waiting_step_id
        if stage.status is Status.SUSPENDED and waits_for is not None and (stage.id, waits_for) not in known:
            yield f"its stage {stage.stage_id!r} waits for a step {waits_for!r} that isn't there"


def _faults_of_one_step(step: StepRecord, stage: StoredStage, jobs: dict[str, JobRecord]) -> Iterator[str]:
    if step.status not in (_OPEN[step.kind], "completed", "failed"):
        yield f"is a {step.kind} and {step.status}"
    if step.status == "failed" and step.error is None:
        yield "is failed without an error"
    if step.status == "completed" and step.error is not None:
        yield "is completed with an error"
    if step.status != "completed" and (step.result is not None or step.result_claim is not None):
        yield f"is {step.status} and has a result"
    if step.result is not None and step.result_claim is not None:
        yield "has its result both inline and in the blob store"
    if step.retry_at is not None and step.status != "failed":
        yield f"is {step.status} and is to be tried again at {step.retry_at}"
    if step.attempt < 1 or step.seq < 0:
        yield f"has attempt {step.attempt} and place {step.seq}"
    if not 1 <= step.stage_attempt <= stage.attempt:
        yield f"is of attempt {step.stage_attempt}, its stage of {stage.attempt}"
    job = None if step.owner is None else jobs.get(step.owner.job_id)
    if step.owner is not None and job is not None and step.owner.deliveries > job.deliveries:
        yield f"is owned by delivery {step.owner.deliveries} of a job that was delivered {job.deliveries} times"


def annotation_faults(rows: RunRows) -> Iterator[str]:
    """Annotations belong to stages that are there, and are written once under a key."""
    stages = {stage.id: stage for stage in rows.stages}
    for annotation in rows.annotations:
        stage_record_id = annotation.stage_record_id
        if stage_record_id is not None and stage_record_id not in stages:
            yield f"its annotation {annotation.key!r} belongs to no stage of it"
    keyed = ((one.key, one.idempotency_key) for one in rows.annotations if one.idempotency_key is not None)
    yield from repeated("annotation", keyed)
